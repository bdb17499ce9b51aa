"""Runs jobs on all cores: results come in order, and only a few jobs are in progress."""

import collections
import concurrent.futures
import itertools
import multiprocessing
import os
import signal
import threading

ALONE = 8  # jobs that run in this process before it starts others


def ordered(function, jobs):
    """The results of `function(job)` in the order of the jobs.

    The first few jobs run in this process, so that a small corpus needs no others. The rest runs in
    one process for each core.

    Args:
        function: A picklable callable; it is sent to each process once.
        jobs: An iterable, read only as far as needed.
    """
    jobs = iter(jobs)
    yield from map(function, itertools.islice(jobs, ALONE))
    first = list(itertools.islice(jobs, 1))
    if not first:
        return
    cores = len(os.sched_getaffinity(0))
    # Not forked, because TensorFlow's threads may hold locks.
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops this process
    end_with_parent()


def end_with_parent():
    """Makes this process of `multiprocessing` end when its parent ends, for whatever reason."""
    parent = multiprocessing.parent_process()

    def wait():
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _do(job):
    return _function(job)
