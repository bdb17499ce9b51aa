"""A bounded queue of requests before a few threads."""

import asyncio
import concurrent.futures

from .errors import Code, StatusError


class JobQueue:
    """Runs requests in the order of their arrival.

    Args:
        threads: Number of runs at the same time.
        max_queue: Number of requests that may wait.
    """

    def __init__(self, threads, max_queue):
        self._threads, self._max_queue = threads, max_queue
        self._idle, self._waiting = asyncio.Semaphore(threads), 0
        self._pool = concurrent.futures.ThreadPoolExecutor(threads)

    async def __call__(self, work, deadline=None):
        """What `work`, a function of the seconds that are left, returns in a thread.

        Raises TimeoutError after the deadline, a time of the event loop's clock or None,
        `StatusError` if the queue is full, and what the work raises.
        """
        if self._waiting >= self._max_queue:
            text = f"The queue is full: {self._max_queue} requests wait. Try again later"
            raise StatusError(Code.UNAVAILABLE, text)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout_at(deadline):
            self._waiting += 1
            try:
                await self._idle.acquire()
            finally:
                self._waiting -= 1
            left = None if deadline is None else deadline - loop.time()
            run = loop.run_in_executor(self._pool, work, left)
            run.add_done_callback(self._finish)
            return await asyncio.shield(run)  # the thread is busy until the run ends, whoever waits

    def _finish(self, run):
        run.exception()  # read, or asyncio reports the error of a run whose client has gone
        self._idle.release()

    async def drain(self):
        """Waits until every request has its answer."""
        for _ in range(self._threads):
            await self._idle.acquire()
