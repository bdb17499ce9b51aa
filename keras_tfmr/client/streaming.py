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
    answers: queue.Queue = queue.Queue(on_the_way)  # of futures, None at the end
    closed = threading.Event()

    def submit():
        with ThreadPoolExecutor(on_the_way) as pool:
            try:
                for request in requests:
                    if closed.is_set():
                        return
                    answers.put(pool.submit(ask, request))
            except Exception as error:
                failed: Future = Future()
                failed.set_exception(error)
                answers.put(failed)
            answers.put(None)

    threading.Thread(target=submit, daemon=True).start()
    try:
        while (answer := answers.get()) is not None:
            yield answer.result()
    finally:
        closed.set()
        while not answers.empty():  # wakes a thread that waits for room
            answers.get()
