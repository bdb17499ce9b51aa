"""Work on all cores, in order."""

import collections
import concurrent.futures
import itertools
import multiprocessing
import os
import signal
import threading

from keras_tfmr.compat import usable_cores

ALONE = 8  # jobs that are done in this process before it starts others


def in_processes(function, jobs):
    """Yields `function(job)` in the order of the jobs, on all cores, a few jobs in progress.

    The first few jobs run in this process, so that a small corpus starts no others.
    """
    jobs = iter(jobs)
    yield from map(function, itertools.islice(jobs, ALONE))
    first = list(itertools.islice(jobs, 1))
    if not first:
        return
    cores = usable_cores()
    # Not forked, because TensorFlow's threads may hold locks.
    with concurrent.futures.ProcessPoolExecutor(
        cores, multiprocessing.get_context("spawn"), _begin_process, (function,)
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


def _begin_process(function):
    global _function
    _function = function
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops this process

    def end_with_parent():
        multiprocessing.parent_process().join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


def _do(job):
    return _function(job)
