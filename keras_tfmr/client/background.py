"""The event loop of all clients that wait: one for the process, in a thread of its own.

One, because gRPC's coroutines belong to one loop: of several, one that ends takes the others'
events with it. Coroutines, because only asyncio ends an HTTP request that gets a byte now and then,
where httpx limits each wait for a byte; and both protocols have one implementation.
"""

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from keras_tfmr.client.connection import DeadlineExceededError, ServingError
from keras_tfmr.client.transport import of_parents

Result = TypeVar("Result")

PATIENCE = 5  # seconds in which a loop that runs does what takes no time


class _Background:
    """A loop that starts with its first coroutine and ends with the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def submit(self, coroutine: Coroutine[Any, Any, Result]) -> concurrent.futures.Future[Result]:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, daemon=True).start()
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)


_process = _Background()


def _begin_anew() -> None:
    """In the child of a fork, which has the loop but not its thread, and maybe a taken lock."""
    global _process
    of_parents.append(_process)
    _process = _Background()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_begin_anew)


def start(coroutine: Coroutine[Any, Any, Result]) -> concurrent.futures.Future[Result]:
    """Runs a coroutine without waiting for it."""
    return _process.submit(coroutine)


def run(coroutine: Coroutine[Any, Any, Result], seconds: float) -> Result:
    """The result of a coroutine, or its error.

    Args:
        coroutine: It limits its own time, if the loop runs.
        seconds: After each so many, the loop is asked whether it still runs.

    Raises:
        DeadlineExceededError: If it does not.
        ServingError: If the coroutine was cancelled.
    """
    future = start(coroutine)
    try:
        while not concurrent.futures.wait([future], seconds).done:
            sign_of_life = start(asyncio.sleep(0))
            if not concurrent.futures.wait([sign_of_life], PATIENCE).done:
                raise DeadlineExceededError("The client's event loop stands", "DEADLINE_EXCEEDED")
        return future.result()
    except concurrent.futures.CancelledError as error:
        raise ServingError("The client was closed", "CANCELLED") from error
    finally:
        future.cancel()  # after Ctrl-C
