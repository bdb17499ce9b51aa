"""Dynamic batching across requests: many small runs become few large ones.

Everything but the runs happens on the event loop, so queues need no locks. There is a queue for
each (version, inputs, outputs); all queues share the batch threads, in turn.
"""

import asyncio
import collections
import concurrent.futures
import time

import grpc
import numpy as np

from .errors import (
    ServingError,
    deadline_exceeded,
    failed_precondition,
    from_exception,
    invalid,
    left,
)

QUEUE_FULL = "The batch scheduling queue to which this task was submitted is full; "


class Task:
    """The rows of one request (or a slice of them), waiting for their batch."""

    def __init__(self, feeds, size, deadline):
        self.feeds = feeds
        self.size = size
        self.deadline = deadline
        self.future = asyncio.get_running_loop().create_future()
        self.batch = None  # set while it waits in a queue
        self.enqueued = time.monotonic()


class Batch:
    def __init__(self):
        self.tasks = []
        self.size = 0
        self.closed = False

    def due(self, settings):
        """When a thread may take it, on the monotonic clock."""
        if self.closed or self.size >= settings.execution_size:
            return 0.0
        return self.tasks[0].enqueued + settings.timeout


class Queue:
    """The waiting batches of one servable and one set of inputs and outputs; the last is open."""

    def __init__(self, servable, fetches):
        self.servable = servable
        self.fetches = fetches
        self.settings = servable.batching
        self.batches = collections.deque()

    def check_room(self, size):
        """Raises UNAVAILABLE where the real server's queue would be full."""
        settings = self.settings
        waiting = len(self.batches)
        room = settings.execution_size - self.batches[-1].size if waiting else 0
        if settings.splitting:
            capacity = (settings.max_enqueued - waiting) * settings.execution_size + room
            if size > capacity:
                raise ServingError(
                    grpc.StatusCode.UNAVAILABLE,
                    f"{QUEUE_FULL}task size is {size} but scheduling capacity is only {capacity} "
                    f"(num_enqueued_batches={waiting}, "
                    f"max_enqueued_batches={settings.max_enqueued}, "
                    f"open_batch_size={settings.execution_size - room if waiting else 0}, "
                    f"max_execution_batch_size={settings.execution_size})",
                )
        elif size > room and waiting >= settings.max_enqueued:
            raise ServingError(
                grpc.StatusCode.UNAVAILABLE,
                f"{QUEUE_FULL}currently {waiting} batches enqueued and max_enqueued_batches is "
                f"{settings.max_enqueued}",
            )

    def add(self, task):
        if not self.batches or self.batches[-1].size + task.size > self.settings.execution_size:
            if self.batches:
                self.batches[-1].closed = True
            self.batches.append(Batch())
        batch = self.batches[-1]
        batch.tasks.append(task)
        batch.size += task.size
        task.batch = batch

    def drop(self, task):
        """Takes a task whose client is gone out of its batch."""
        batch, task.batch = task.batch, None
        batch.tasks.remove(task)
        batch.size -= task.size
        if not batch.tasks:
            self.batches.remove(batch)


class Scheduler:
    """Forms batches and runs them.

    Args:
        threads: how many batches run at a time, over all models.
        metrics: metrics.Metrics.
    """

    def __init__(self, threads, metrics):
        self._pool = concurrent.futures.ThreadPoolExecutor(threads, "batch_threads")
        self._idle = threads
        self._queues = collections.OrderedDict()
        self._timer = None
        self._metrics = metrics

    async def run(self, servable, feeds, fetches, deadline):
        """Runs one request's feeds within a batch.

        Args:
            servable: Servable whose `batching` holds the settings.
            feeds: dict of tensor name to numpy array [rows, ...].
            fetches: tuple of tensor names.
            deadline: of the monotonic clock, or None.

        Returns:
            list of numpy arrays [rows, ...], one per fetch.

        Raises:
            ServingError: queue full, too large, too late, or whatever the session says.
        """
        parts = split_rows(feeds, servable.batching)
        size = batch_size(feeds)
        key = (id(servable), tuple(sorted(feeds)), tuple(sorted(fetches)))
        queue = self._queues.get(key) or Queue(servable, tuple(sorted(fetches)))
        queue.check_room(size)
        self._queues[key] = queue
        tasks = [Task(part, batch_size(part), deadline) for part in parts]
        for task in tasks:
            queue.add(task)
        self._dispatch()
        parts = await self._results(queue, tasks, deadline)
        by_name = [dict(zip(queue.fetches, part, strict=True)) for part in parts]
        if len(parts) == 1:
            return [by_name[0][name] for name in fetches]
        return [np.concatenate([part[name] for part in by_name]) for name in fetches]

    async def _results(self, queue, tasks, deadline):
        try:
            async with asyncio.timeout(left(deadline)):
                return [await task.future for task in tasks]
        except TimeoutError:
            if all(task.batch is None for task in tasks):
                raise deadline_exceeded() from None
            raise ServingError(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                "Run() timeout exceeded while waiting in batching queue",
            ) from None
        finally:
            # A client that went away or gave up leaves nothing behind in the queue.
            for task in tasks:
                task.future.cancel()
                if task.batch is not None:
                    queue.drop(task)

    def _dispatch(self):
        """Gives every idle thread a batch that is due; wakes up when the next one is."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._idle:
            wait = self._start_next()
            if wait is None:
                return
            if wait > 0:
                self._timer = asyncio.get_running_loop().call_later(wait, self._dispatch)
                return

    def _start_next(self):
        """Starts the next batch due, in turn over the queues.

        Returns:
            0 if one was started, seconds until the first is due, or None if nothing waits.
        """
        now, first = time.monotonic(), None
        for key, queue in list(self._queues.items()):
            if not queue.batches:
                del self._queues[key]
                continue
            due = queue.batches[0].due(queue.settings)
            if due <= now:
                self._queues.move_to_end(key)
                self._start(queue, queue.batches.popleft())
                return 0
            first = due if first is None else min(first, due)
        return None if first is None else max(first - now, 1e-6)

    def _start(self, queue, batch):
        self._idle -= 1
        now = time.monotonic()
        for task in batch.tasks:
            task.batch = None
            self._metrics.queued(now - task.enqueued)
        deadlines = [task.deadline for task in batch.tasks]
        deadline = None if None in deadlines else max(deadlines)
        job = self._pool.submit(
            run_batch, queue.servable, [task.feeds for task in batch.tasks], queue.fetches, deadline
        )
        queue.servable.lease.hold(job)
        loop = asyncio.get_running_loop()
        job.add_done_callback(lambda job: loop.call_soon_threadsafe(self._finish, batch, job))

    def _finish(self, batch, job):
        self._idle += 1
        self._metrics.batch_done()
        error = job.exception()
        waiting = [task for task in batch.tasks if not task.future.done()]
        if error is not None:
            for task in waiting:
                task.future.set_exception(from_exception(error))
        else:
            for task, outputs in zip(batch.tasks, job.result(), strict=True):
                if not task.future.done():
                    task.future.set_result(outputs)
        self._dispatch()

    def close(self):
        self._pool.shutdown()


def batch_size(feeds):
    """The rows of a request's inputs, which all must have as many."""
    sizes = set()
    for array in feeds.values():
        if array.ndim == 0:
            raise invalid("Batching Run() input tensors must have at least one dimension")
        sizes.add(array.shape[0])
    if len(sizes) != 1:
        raise invalid("Batching Run() input tensors must have equal 0th-dimension size")
    return sizes.pop()


def split_rows(feeds, settings):
    """Cuts a request larger than one batch into several, where the settings allow it."""
    size, step = batch_size(feeds), settings.execution_size
    if size > settings.max_size:
        raise invalid(
            f"Task size {size} is larger than maximum input batch size {settings.max_size}"
        )
    if not settings.splitting or size <= step:
        return [feeds]
    return [
        {name: array[start : start + step] for name, array in feeds.items()}
        for start in range(0, size, step)
    ]


def run_batch(servable, parts, fetches, deadline=None):
    """Joins requests, pads the batch to an allowed size, runs it and gives each its rows back.

    Args:
        servable: Servable with batching settings.
        parts: list of feeds, one per request.
        fetches: tensor names.
        deadline: of the monotonic clock, or None.

    Returns:
        list (per request) of lists (per fetch) of numpy arrays.
    """
    sizes = [batch_size(part) for part in parts]
    total = sum(sizes)
    padding = servable.batching.padded(total) - total if total else 0
    joined = {
        name: join([part[name] for part in parts], name, padding, servable.batching.pad_inputs)
        for name in parts[0]
    }
    outputs = servable.run_until(joined, fetches, deadline)
    bounds = np.cumsum(sizes)[:-1]
    for array in outputs:
        if np.ndim(array) == 0:
            raise failed_precondition("Batched output tensor has 0 dimensions")
        if array.shape[0] != total + padding:
            raise failed_precondition(
                "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension "
                "sizes of the input tensors"
            )
    split = [np.split(array[:total], bounds) for array in outputs]
    return [[rows[index] for rows in split] for index in range(len(parts))]


def join(arrays, name, padding, pad_inputs):
    """Concatenates one input of all requests along the rows; `padding` repeats a row."""
    if len({array.shape[1:] for array in arrays}) > 1:
        if not pad_inputs:
            raise failed_precondition(
                f"Tensors with name '{name}' from different tasks have different shapes and "
                f"padding is turned off. Set pad_variable_length_inputs to true, or ensure that "
                f"all tensors with the same name have equal dimensions starting with the first dim."
            )
        arrays = pad_to_largest(arrays)
    if padding:
        row = next(array for array in arrays if len(array))[:1]
        arrays = [*arrays, np.repeat(row, padding, axis=0)]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def pad_to_largest(arrays):
    """Pads all but the first dimension with each array's own first element."""
    if len({array.ndim for array in arrays}) > 1:
        raise invalid("Cannot pad tensors of different ranks to one batch")
    largest = np.max([array.shape for array in arrays], axis=0)[1:]
    padded = []
    for array in arrays:
        fill = array.ravel()[0] if array.size else np.zeros(1, array.dtype)[0]
        whole = np.full((len(array), *largest), fill, array.dtype)
        whole[tuple(slice(0, size) for size in array.shape)] = array
        padded.append(whole)
    return padded
