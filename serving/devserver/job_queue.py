"""A bounded queue of requests before a few threads."""

import asyncio
import collections
import concurrent.futures

from .errors import Code, ServingError, from_exception


class JobQueue:
    """Runs requests in the order of their arrival.

    Args:
        run: A function of (feeds, fetches, timeout in seconds or None) to a list of arrays.
        threads: Number of runs at the same time.
        max_queue: Number of requests that may wait.
    """

    def __init__(self, run, threads, max_queue):
        self._run, self._max_queue = run, max_queue
        self._threads = self._idle = threads
        self._waiting = collections.deque()
        self._pool = concurrent.futures.ThreadPoolExecutor(threads)

    async def __call__(self, feeds, fetches, deadline=None):
        """The arrays of one request; `deadline` is a time of the event loop's clock, or None.

        Raises TimeoutError after it, and `ServingError` if the queue is full or the run failed.
        """
        if len(self._waiting) >= self._max_queue:
            text = f"The queue is full: {self._max_queue} requests wait. Try again later"
            raise ServingError(Code.UNAVAILABLE, text)
        answer = asyncio.get_running_loop().create_future()
        self._waiting.append((answer, feeds, fetches, deadline))
        self._start()
        async with asyncio.timeout_at(deadline):
            return await answer

    def _start(self):
        loop = asyncio.get_running_loop()
        while self._idle and self._waiting:
            answer, feeds, fetches, deadline = self._waiting.popleft()
            if answer.done():  # its client has gone
                continue
            self._idle -= 1
            left = None if deadline is None else deadline - loop.time()
            run = loop.run_in_executor(self._pool, self._run, feeds, fetches, left)
            run.add_done_callback(lambda run, answer=answer: self._finish(run, answer))

    def _finish(self, run, answer):
        if not answer.done() and run.exception() is None:
            answer.set_result(run.result())
        elif not answer.done():
            answer.set_exception(from_exception(run.exception()))
        self._idle += 1
        self._start()

    async def drain(self):
        """Waits until every request has its answer."""
        while self._waiting or self._idle < self._threads:
            await asyncio.sleep(0.02)
