"""The cleaned pairs of all corpora in one file, without duplicates, at constant memory."""

import collections
from typing import NamedTuple

import numpy as np

from training.command.disk import RunError, appending, chunks
from training.corpus.sources import tagged
from training.corpus.workers import in_processes

NOTHING_LEFT = "no pair is left to learn from: every pair shares a sentence with held-out pairs"


class FilePiece(NamedTuple):
    """A part of the file: its place, the number of its first pair, its pairs, their corpus."""

    offset: int
    size: int
    first: int
    pairs: int
    part: int


class UniquePairs:
    """Cleaned pairs in a file; `kept` marks those that are left, `dropped` counts the others.

    In memory it holds 8 to 17 bytes a pair while it is made, and 1 byte afterwards.

    Args:
        path: The file to write, a `pathlib.Path`.
        corpora: An iterable of iterables of `LineBlock`: the parts.
        cleaner: The `Cleaner` of the blocks.
        tags: The tag of each part.
        protect: The `PairProtection` of pairs to learn from, or None.

    Attributes:
        excluded: For source and target, sentences that no pair to learn from may have.
    """

    def __init__(self, path, corpora, cleaner, tags, protect=None):
        self.path, self.tags, self.pieces, self.lines = path, tags, [], 0
        self.protect = protect
        self.excluded = (set(), set())
        self.dropped, parts = collections.Counter(), collections.deque()
        keys, count = [], 0

        def blocks():
            for number, corpus in enumerate(corpora):
                for block in corpus:
                    parts.append(number)
                    yield block

        with appending(path) as text:
            for cleaned in in_processes(cleaner, blocks()):
                size = len(cleaned.keys)
                place = (text.tell(), len(cleaned.text), count, size)
                self.pieces.append(FilePiece(*place, parts.popleft()))
                text.write(cleaned.text)
                keys.append(cleaned.keys)
                self.dropped.update(cleaned.dropped)
                self.lines += cleaned.lines
                count += size
        self.kept = np.ones(count, bool)
        self._drop_repeated(np.concatenate(keys) if keys else np.zeros(0))

    def _drop_repeated(self, keys):
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
            self.dropped["duplicate"] += len(again)

    def __len__(self):
        return int(self.kept.sum())

    def read(self, numbers):
        """Yields (source, target, tag) of the pairs with these numbers, which are ascending."""
        for piece in self.pieces:
            mine = slice(*np.searchsorted(numbers, [piece.first, piece.first + piece.pairs]))
            if mine.start < mine.stop:
                for pair in pairs_of(self.path, piece, numbers[mine] - piece.first):
                    yield (*pair, self.tags[piece.part])

    def spaced(self, most):
        """At most `most` evenly spaced pairs to learn from, as a model reads them."""
        numbers = np.flatnonzero(self.kept)
        pairs = [
            learned(source, target, tag, self.protect)
            for source, target, tag in self.read(numbers[:: -(-len(numbers) // most)])
            if source not in self.excluded[0] and target not in self.excluded[1]
        ]
        if not pairs:
            raise RunError(NOTHING_LEFT)
        return pairs


def learned(source, target, tag, protect=None):
    """A pair as a model learns it: with slots and with its tag."""
    source, target = protect(source, target) if protect else (source, target)
    return tagged(tag, source), target


def pairs_of(path, piece, places):
    """The pairs at some places of a `FilePiece` of a file, a list of (source, target)."""
    with path.open("rb") as file:
        file.seek(piece.offset)
        lines = file.read(piece.size).split(b"\n")
    return [tuple(lines[place].decode().split("\t")) for place in places]
