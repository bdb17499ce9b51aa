"""Coroutines for callers that wait: an event loop in a thread of its own."""

import asyncio
import concurrent.futures
import functools
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from keras_tfmr.client.connection import ServingError

Result = TypeVar("Result")


class BackgroundLoop:
    """Runs the coroutines of all threads in one, which starts with the first of them.

    One loop, so that both protocols have one implementation: and only asyncio ends an HTTP request
    that gets a byte now and then, where httpx limits each wait for a byte.

    Args:
        last: Is awaited at the end: when this is closed, or nothing refers to it any more.
    """

    def __init__(self, last: Callable[[], Awaitable[None]]) -> None:
        self._last = last
        self._lock, self._closed = threading.Lock(), False

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """The coroutine's result or error; a ServingError if this is closed meanwhile."""
        with self._lock:
            if self._closed:
                coroutine.close()
                raise ServingError("The client is closed", "CANCELLED")
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError as error:
            raise ServingError("The client was closed", "CANCELLED") from error
        finally:
            future.cancel()  # after Ctrl-C

    def close(self) -> None:
        """Ends the loop, and cancels what it has not done."""
        with self._lock:
            self._closed = True
            if "_loop" in self.__dict__:
                self._stop()

    @functools.cached_property
    def _loop(self):
        loop = asyncio.new_event_loop()
        threading.Thread(target=_serve, args=(loop, self._last), daemon=True).start()
        self._stop = weakref.finalize(self, loop.call_soon_threadsafe, loop.stop)
        return loop


def _serve(loop, last):
    """Runs a loop until it is stopped; then ends what it has not done."""
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.get_loop().run_forever()
        runner.run(_ended(last))


async def _ended(last):
    """Cancels all tasks before the last one, which would make them fail where nobody looks."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await last()
