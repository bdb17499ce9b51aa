"""Many jobs done by all cores: results in order, never more than a few under way."""

import collections
import concurrent.futures
import itertools
import multiprocessing
import os
import signal
import threading

ALONE = 8  # jobs that this process does by itself before it starts others


def ordered(function, jobs):
    """The results of `function(job)` in the order of the jobs.

    The first few are done here, so that a small corpus needs no other process; for the rest there
    is one process for each core.

    Args:
        function: A callable that can be pickled; each process gets it once.
        jobs: An iterable, read only as far as needed.
    """
    jobs = iter(jobs)
    yield from map(function, itertools.islice(jobs, ALONE))
    first = list(itertools.islice(jobs, 1))
    if not first:
        return
    cores = len(os.sched_getaffinity(0))
    # Not forked: TensorFlow's threads may hold locks.
    with concurrent.futures.ProcessPoolExecutor(
        cores, multiprocessing.get_context("spawn"), _begin, (function,)
    ) as pool:
        waiting = collections.deque()
        try:
            for job in itertools.chain(first, jobs):
                waiting.append(pool.submit(_do, job))
                if len(waiting) > 2 * cores:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def _begin(function):
    global _function
    _function = function
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when to stop
    end_with_parent()


def end_with_parent():
    """From now on, this process of `multiprocessing` ends when its parent does, however it ends."""
    parent = multiprocessing.parent_process()

    def wait():
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _do(job):
    return _function(job)
