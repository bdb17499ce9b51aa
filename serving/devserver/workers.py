"""The threads that answer requests: one for each core; a bounded number of requests waits."""

import asyncio
import concurrent.futures
import time

import tensorflow as tf

from keras_tfmr.compat import usable_cores

WAITING = 64  # requests at most, as batches of an export's batching parameters


class Workers:
    """Runs functions in threads, in the order in which they are asked for.

    If a caller leaves, its coroutine is cancelled: a request that waits is then never begun. One
    that runs goes on to the end of its time, because nothing stops a single run of a session.
    """

    def __init__(self):
        cores = usable_cores()
        self._pool = concurrent.futures.ThreadPoolExecutor(cores)
        self._free = asyncio.Semaphore(cores)
        self._waiting = 0

    async def run(self, seconds, function, *arguments):
        """The value of `function(*arguments, deadline)`; the deadline is one of `time.monotonic`.

        Raises:
            tf.errors.UnavailableError: As many requests as may be wait already.
            tf.errors.DeadlineExceededError: After `seconds`, the wait included.
        """
        deadline = time.monotonic() + seconds
        try:
            async with asyncio.timeout(seconds):
                await self._turn()
                work = self._pool.submit(function, *arguments, deadline)
                release, loop = self._free.release, asyncio.get_running_loop()
                # When the thread is free again, which may be after its caller has left.
                work.add_done_callback(lambda _: loop.call_soon_threadsafe(release))
                return await asyncio.wrap_future(work)
        except TimeoutError:
            text = f"The request was not answered within {seconds:.1f} s"
            raise tf.errors.DeadlineExceededError(None, None, text) from None

    async def _turn(self):
        """Waits for a free thread."""
        if self._free.locked() and self._waiting >= WAITING:
            text = f"{WAITING} requests wait already. Send it again later"
            raise tf.errors.UnavailableError(None, None, text)
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
