"""The cleaned pairs of all corpora in one file, without duplicates, at constant memory."""

import collections
import concurrent.futures
import itertools
import multiprocessing
import os
import signal
import threading
from typing import NamedTuple

import numpy as np

from keras_tfmr.compat import usable_cores
from training.clean import Cleaner
from training.files import chunks

ALONE = 8  # blocks that are processed in this process before it starts others


class Piece(NamedTuple):
    """A part of the file: its place, the number of its first pair, its pairs, their corpus."""

    offset: int
    size: int
    first: int
    pairs: int
    part: int


class CleanedCorpus:
    """Cleaned pairs in a file; `kept` marks those that are left, `dropped` counts the others.

    In memory it holds 8 to 17 bytes a pair while it is made, and 1 byte afterwards.

    Args:
        path: The file to write, a `pathlib.Path`.
        corpora: An iterable of iterables of `Block`: the parts.
        rules: The `clean.Rules`.
        task: What the lines are for.
    """

    def __init__(self, path, corpora, rules, task="translation"):
        self.path, self.pieces, self.lines = path, [], 0
        self.dropped, parts = collections.Counter(), collections.deque()
        keys, near_keys, count = [], [], 0

        def blocks():
            for number, corpus in enumerate(corpora):
                for block in corpus:
                    parts.append(number)
                    yield block

        with path.open("wb") as text:
            for cleaned in in_processes(Cleaner(rules, task), blocks()):
                size = len(cleaned.keys)
                self.pieces.append(
                    Piece(text.tell(), len(cleaned.text), count, size, parts.popleft())
                )
                text.write(cleaned.text)
                keys.append(cleaned.keys)
                near_keys.append(cleaned.near_keys)
                self.dropped.update(cleaned.dropped)
                self.lines += cleaned.lines
                count += size
        self.kept = np.ones(count, bool)
        for found, reason in ((keys, "duplicate"), (near_keys, "near_duplicate")):
            self._drop_repeated(np.concatenate(found) if found else np.zeros(0), reason)

    def _drop_repeated(self, keys, reason):
        """Keeps the first of the pairs with the same key; sorts a share of the keys at a time."""
        bits = max(0, (len(keys) >> 22).bit_length())
        for bucket in range(2**bits if len(keys) else 0):
            mine = [
                np.flatnonzero(
                    self.kept[chunk] & (not bits or keys[chunk] >> np.uint64(64 - bits) == bucket)
                )
                + chunk.start
                for chunk in chunks(len(keys))
            ]
            places = np.concatenate(mine)
            order = np.argsort(keys[places], kind="stable")
            values = keys[places][order]
            again = places[order[1:][values[1:] == values[:-1]]]
            self.kept[again] = False
            self.dropped[reason] += len(again)

    def __len__(self):
        return int(self.kept.sum())

    def read(self, numbers):
        """Yields (source, target, part) of the pairs with these numbers, which are ascending."""
        with self.path.open("rb") as file:
            for piece in self.pieces:
                mine = slice(*np.searchsorted(numbers, [piece.first, piece.first + piece.pairs]))
                if mine.start == mine.stop:
                    continue
                file.seek(piece.offset)
                lines = file.read(piece.size).split(b"\n")
                for number in numbers[mine]:
                    yield (*lines[number - piece.first].decode().split("\t"), piece.part)


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
