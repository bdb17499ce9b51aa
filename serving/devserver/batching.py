"""Dynamic batching across requests: many small runs become a few large ones.

Everything but the runs happens on the event loop, so queues need no locks. There is one queue for
each combination of version, inputs and outputs. The queues take turns at the batch threads.
"""

import asyncio
import concurrent.futures
import contextlib

import grpc
import numpy as np

from . import errors
from .errors import ServingError, failed_precondition, invalid, unavailable


class Task:
    """The rows of one request (or a slice of them), waiting for their batch."""

    def __init__(self, feeds, deadline):
        self.feeds = feeds
        self.size = batch_size(feeds)
        self.deadline = deadline
        self.future = asyncio.get_running_loop().create_future()
        self.batch = None  # set while it waits in a queue


class Batch:
    """Tasks that run together."""

    def __init__(self):
        self.tasks = []
        self.full = asyncio.Event()
        self.runner = None  # the asyncio task that waits for a thread and runs the batch

    @property
    def size(self):
        return sum(task.size for task in self.tasks)


class Queue:
    """The waiting batches of one servable, inputs and outputs; the last one takes more tasks."""

    def __init__(self, servable, fetches):
        self.servable = servable
        self.fetches = fetches
        self.settings = servable.batching
        self.batches = []
        self.turn = asyncio.Lock()  # held by the one batch that waits for a thread

    def check_room(self, size):
        """Raises UNAVAILABLE where the real server's queue would be full."""
        settings, waiting = self.settings, len(self.batches)
        room = settings.execution_size - self.batches[-1].size if waiting else 0
        capacity = (settings.max_enqueued - waiting) * settings.execution_size + room
        if size <= capacity:
            return
        most = settings.max_enqueued
        why = f"currently {waiting} batches enqueued and max_enqueued_batches is {most}"
        if settings.splitting:
            why = (
                f"task size is {size} but scheduling capacity is only {capacity} "
                f"(num_enqueued_batches={waiting}, max_enqueued_batches={most}, "
                f"open_batch_size={settings.execution_size - room if waiting else 0}, "
                f"max_execution_batch_size={settings.execution_size})"
            )
        raise unavailable(
            f"The batch scheduling queue to which this task was submitted is full; {why}"
        )

    def add(self, task):
        """Puts a task into the open batch.

        Returns:
            A new Batch, if the task is its first; otherwise None.
        """
        limit, new = self.settings.execution_size, None
        if not self.batches or self.batches[-1].size + task.size > limit:
            if self.batches:
                self.batches[-1].full.set()
            new = Batch()
            self.batches.append(new)
        task.batch = self.batches[-1]
        task.batch.tasks.append(task)
        if task.batch.size >= limit:
            task.batch.full.set()
        return new

    def drop(self, task):
        """Removes a task from its batch because its client no longer waits."""
        batch, task.batch = task.batch, None
        batch.tasks.remove(task)
        if not batch.tasks:
            self.batches.remove(batch)
            batch.runner.cancel()


class Scheduler:
    """Forms batches and runs them.

    Args:
        threads: Most batches that run at the same time, over all models.
    """

    def __init__(self, threads):
        self._pool = concurrent.futures.ThreadPoolExecutor(threads, "batch_threads")
        self._idle = asyncio.Semaphore(threads)
        self._queues = {}

    async def run(self, servable, feeds, fetches, deadline):
        """Runs one request's feeds within a batch.

        Args:
            servable: Servable whose `batching` holds the settings.
            feeds: Dict from tensor name to a numpy array `[rows, …]`.
            fetches: Tuple of tensor names.
            deadline: Time of the monotonic clock in seconds, or None.

        Returns:
            List of numpy arrays `[rows, …]`, one per fetch.

        Raises:
            ServingError: The queue is full, the request is too large, the deadline passed, or the
                session failed.
        """
        tasks = [Task(part, deadline) for part in split_rows(feeds, servable.batching)]
        key = (id(servable), tuple(sorted(feeds)), fetches)
        queue = self._queues.get(key) or Queue(servable, fetches)
        queue.check_room(sum(task.size for task in tasks))
        self._queues[key] = queue
        for task in tasks:
            batch = queue.add(task)
            if batch is not None:
                batch.runner = asyncio.create_task(self._see_through(key, queue, batch))
        parts = await self._results(queue, tasks, deadline)
        return [np.concatenate(rows) for rows in zip(*parts, strict=True)]

    async def _results(self, queue, tasks, deadline):
        try:
            async with asyncio.timeout(errors.left(deadline)):
                return [await task.future for task in tasks]
        except TimeoutError:
            if all(task.batch is None for task in tasks):
                raise errors.deadline_exceeded() from None
            raise ServingError(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                "Run() timeout exceeded while waiting in batching queue",
            ) from None
        finally:
            # The tasks of a client that no longer waits must not take room in the queue.
            for task in tasks:
                task.future.cancel()
                if task.batch is not None:
                    queue.drop(task)

    async def _see_through(self, key, queue, batch):
        """Runs a batch as soon as it is due and a thread is free."""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(queue.settings.timeout):
                    await batch.full.wait()
            async with queue.turn:  # one batch per queue waits, so no queue starves the others
                await self._idle.acquire()
            queue.batches.remove(batch)
        finally:
            if not queue.batches:
                self._queues.pop(key, None)
        try:
            await self._run_batch(queue, batch.tasks)
        finally:
            self._idle.release()

    async def _run_batch(self, queue, tasks):
        for task in tasks:
            task.batch = None
        deadlines = [task.deadline for task in tasks]
        deadline = None if None in deadlines else max(deadlines)
        feeds = [task.feeds for task in tasks]
        job = self._pool.submit(run_batch, queue.servable, feeds, queue.fetches, deadline)
        # The run goes on even if every client has gone: do not unload the version under it.
        queue.servable.lease.hold(job)
        try:
            results = await asyncio.wrap_future(job)
        except Exception as error:
            results = [errors.from_exception(error)] * len(tasks)
        for task, result in zip(tasks, results, strict=True):
            if task.future.done():
                continue
            if isinstance(result, ServingError):
                task.future.set_exception(result)
            else:
                task.future.set_result(result)

    def close(self):
        self._pool.shutdown()


def batch_size(feeds):
    """The number of rows in a request; all of its inputs must have the same number."""
    sizes = set()
    for array in feeds.values():
        if array.ndim == 0:
            raise invalid("Batching Run() input tensors must have at least one dimension")
        sizes.add(array.shape[0])
    if len(sizes) != 1:
        raise invalid("Batching Run() input tensors must have equal 0th-dimension size")
    return sizes.pop()


def split_rows(feeds, settings):
    """Splits a request that is larger than one batch, if the settings allow it."""
    size, step = batch_size(feeds), settings.execution_size
    if size > settings.max_size:
        raise invalid(
            f"Task size {size} is larger than maximum input batch size {settings.max_size}"
        )
    return [
        {name: array[start : start + step] for name, array in feeds.items()}
        for start in range(0, max(size, 1), step)
    ]


def run_batch(servable, parts, fetches, deadline=None):
    """Joins requests, pads the batch to an allowed size, runs it and splits the outputs again.

    Args:
        servable: Servable with batching settings.
        parts: List of feeds, one per request.
        fetches: Tensor names.
        deadline: Time of the monotonic clock in seconds, or None.

    Returns:
        List (per request) of lists (per fetch) of numpy arrays.
    """
    sizes = [batch_size(part) for part in parts]
    total = sum(sizes)
    padding = servable.batching.padded(total) - total if total else 0
    joined = {
        name: join([part[name] for part in parts], name, padding, servable.batching.pad_inputs)
        for name in parts[0]
    }
    outputs = servable.run(joined, fetches, deadline)
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
    """Concatenates one input of all requests along the rows, then `padding` copies of a row."""
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
    """Pads all but the first dimension, each array with its own first element."""
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
