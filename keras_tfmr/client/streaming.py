"""A stream of lines in batches, answered in order while the next ones are on their way."""

import queue
import threading
from concurrent.futures import Future, ThreadPoolExecutor


def lines(chunks):
    """Yields, for each chunk of bytes, the list of the lines it completes, without line ends.

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


def batches(groups, size):
    """Yields lists of at most `size` texts, never waiting for a later group to fill one.

    A person at a terminal is answered line by line; from a file or a fast pipe, a group holds
    hundreds of lines.

    >>> list(batches([["a", "b", "c"], ["d"]], 2))
    [['a', 'b'], ['c'], ['d']]
    """
    for group in groups:
        for start in range(0, len(group), size):
            yield group[start : start + size]


def in_order(ask, requests, on_the_way):
    """Yields `ask(request)` for each request, in order, at most `on_the_way` of them at once.

    Requests are read in a thread of their own, so that an answer is handed on as soon as it is
    there even while the next request is not.

    Args:
        ask: Function of one request.
        requests: Iterable of requests; may block, and raise OSError when it cannot be read.
        on_the_way: Requests that may wait for their answer at the same time.

    Raises:
        Exception: What `ask` raised, or `requests`, at its place in the order.

    >>> list(in_order(str.upper, ["um", "dois", "três"], on_the_way=2))
    ['UM', 'DOIS', 'TRÊS']
    """
    answers = queue.SimpleQueue()  # of futures, None at the end
    room = threading.Semaphore(on_the_way)
    with ThreadPoolExecutor(on_the_way) as pool:
        reader = threading.Thread(
            target=_submit_all, args=(pool, ask, requests, room, answers), daemon=True
        )
        reader.start()
        while (answer := answers.get()) is not None:
            yield answer.result()
            room.release()


def _submit_all(pool, ask, requests, room, answers):
    try:
        for request in requests:
            room.acquire()
            answers.put(pool.submit(ask, request))
    except OSError as error:
        failed = Future()
        failed.set_exception(error)
        answers.put(failed)
    answers.put(None)
