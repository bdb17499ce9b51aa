"""A stream of lines, sent in batches and answered in order while further batches are sent."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Request = TypeVar("Request")
Answer = TypeVar("Answer")


def lines(chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yields, for each chunk of bytes, the list of lines that it completes, without line ends.

    >>> list(lines([b"um\\ndo", b"is\\r\\ntr\\xc3\\xaas"]))
    [[b'um'], [b'dois'], [b'tr\\xc3\\xaas']]
    """
    rest = b""
    for chunk in chunks:
        *complete, rest = (rest + chunk).split(b"\n")
        if complete:
            yield [line.removesuffix(b"\r") for line in complete]
    if rest:
        yield [rest]


def batches(groups: Iterable[list[Request]], size: int) -> Iterator[list[Request]]:
    """Yields lists of at most `size` texts, without waiting for a later group to fill one.

    A group from a terminal holds one line, which is then answered at once; a group from a file or a
    fast pipe holds hundreds of lines.

    >>> list(batches([["a", "b", "c"], ["d"]], 2))
    [['a', 'b'], ['c'], ['d']]
    """
    for group in groups:
        for start in range(0, len(group), size):
            yield group[start : start + size]


def in_order(
    ask: Callable[[Request], Answer], requests: Iterable[Request], on_the_way: int
) -> Iterator[Answer]:
    """Yields `ask(request)` for each request, in order, with at most `on_the_way` calls at once.

    A separate thread reads the requests, so that an answer is yielded as soon as it arrives, even
    while the next request is awaited. Closing the generator ends that thread at its next request.

    Args:
        ask: Function of one request.
        requests: Iterable of requests; may block.
        on_the_way: The most calls of `ask` at the same time.

    Raises:
        Exception: What `ask` or `requests` raised, at its place in the order.

    >>> list(in_order(str.upper, ["um", "dois", "três"], on_the_way=2))
    ['UM', 'DOIS', 'TRÊS']
    """
    submitter = _Submitter(ask, on_the_way)
    reader = threading.Thread(target=submitter.submit_all, args=(requests,), daemon=True)
    reader.start()
    try:
        while (answer := submitter.answers.get()) is not None:
            yield answer.result()
            submitter.room.release()
    finally:
        submitter.close()


class _Submitter:
    """Submits requests to a pool until it is closed, even while its reader waits."""

    def __init__(self, ask, on_the_way):
        self.answers = queue.SimpleQueue()  # of futures, None at the end
        self.room = threading.Semaphore(on_the_way)
        self._ask = ask
        self._pool = ThreadPoolExecutor(on_the_way)
        self._lock = threading.Lock()
        self._closed = False

    def submit_all(self, requests):
        """Submits each request as soon as there is room; runs in the reader's thread."""
        try:
            for request in requests:
                self.room.acquire()
                with self._lock:
                    if self._closed:
                        return
                    self.answers.put(self._pool.submit(self._ask, request))
        except Exception as error:
            failed = Future()
            failed.set_exception(error)
            self.answers.put(failed)
        self.answers.put(None)

    def close(self):
        """Accepts no more requests, wakes a reader that waits for room, and ends the pool."""
        with self._lock:
            self._closed = True
        self.room.release()
        self._pool.shutdown(cancel_futures=True)
