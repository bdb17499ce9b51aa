"""Cleaned pairs in a file: repeated ones are dropped, some are held out, the rest is encoded."""

import collections
import itertools
from typing import NamedTuple

import numpy as np

from training.corpus import arrays
from training.corpus.clean import Cleaner, summary
from training.corpus.files import CorpusError
from training.corpus.permutation import Permutation
from training.corpus.workers import ordered

BUCKET = 1 << 22  # keys to sort at a time


class Piece(NamedTuple):
    """A part of the file: its place, the number of its first pair, its pairs, their corpus."""

    offset: int
    size: int
    first: int
    pairs: int
    part: int


class Pile:
    """Cleaned pairs in files of a folder.

    `kept` marks the pairs that are left; `dropped` counts the others by reason.

    Args:
        folder: A `pathlib.Path`, in which `pairs.tsv` and two temporary files are written.
        corpora: An iterable of iterables of `files.Block`: the parts.
        rules: The `clean.Rules`.

    Raises:
        CorpusError: If a line cannot be read.
    """

    def __init__(self, folder, corpora, rules):
        self.folder, self.text = folder, folder / "pairs.tsv"
        self.pieces, self.dropped = [], collections.Counter()
        paths = [folder / name for name in ("keys", "near_keys")]
        with (
            self.text.open("wb") as text,
            arrays.Writer(paths[0], np.uint64) as keys,
            arrays.Writer(paths[1], np.uint64) as near_keys,
        ):
            self.lines = self._write(corpora, Cleaner(rules), text, keys, near_keys)
            count = keys.length
        self.kept = arrays.scratch(folder, bool, count)
        self.kept[:] = True
        for path, reason in zip(paths, ("duplicate", "near_duplicate"), strict=True):
            self._drop_repeated(arrays.read(path, np.uint64), reason)
            path.unlink()

    def _write(self, corpora, cleaner, text, keys, near_keys):
        parts = collections.deque()  # of the blocks in progress

        def jobs():
            for number, corpus in enumerate(corpora):
                for block in corpus:
                    parts.append(number)
                    yield block

        lines = 0
        for cleaned in ordered(cleaner, jobs()):
            place = Piece(
                text.tell(), len(cleaned.text), keys.length, len(cleaned.keys), parts.popleft()
            )
            self.pieces.append(place)
            text.write(cleaned.text)
            keys.append(cleaned.keys)
            near_keys.append(cleaned.near_keys)
            self.dropped.update(cleaned.dropped)
            lines += cleaned.lines
        return lines

    def _drop_repeated(self, keys, reason):
        """Keeps the first of the pairs with the same key; sorts a share of the keys at a time."""
        bits = max(0, (len(keys) // BUCKET).bit_length())
        for bucket in range(2**bits if len(keys) else 0):
            found = []
            for chunk in arrays.chunks(len(keys)):
                mine = self.kept[chunk]
                if bits:
                    mine = mine & (keys[chunk] >> np.uint64(64 - bits) == bucket)
                found.append(np.flatnonzero(mine) + chunk.start)
                arrays.forget(keys)
            places = np.concatenate(found)
            values = keys[places]
            order = np.argsort(values, kind="stable")
            again = places[order[1:][values[order][1:] == values[order][:-1]]]
            self.kept[again] = False
            self.dropped[reason] += len(again)
            arrays.forget(keys)

    def __len__(self):
        return sum(int(self.kept[chunk].sum()) for chunk in arrays.chunks(len(self.kept)))

    def spaced(self, most):
        """Numbers of at most `most` kept pairs, evenly spaced."""
        return self._numbers(np.arange(0, count, -(-count // most)) if (count := len(self)) else [])

    def chosen(self, count, seed):
        """Numbers of `count` kept pairs, chosen by a seed."""
        return self._numbers(np.sort(Permutation(len(self), seed)(np.arange(count))))

    def _numbers(self, ranks):
        """The numbers of the kept pairs with these ranks, ascending."""
        found, before = [], 0
        for chunk in arrays.chunks(len(self.kept)):
            here = np.flatnonzero(self.kept[chunk])
            mine = np.searchsorted(ranks, [before, before + len(here)])
            found.append(here[np.asarray(ranks[slice(*mine)], np.int64) - before] + chunk.start)
            before += len(here)
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def read(self, numbers):
        """Yields (source, target, part) of the pairs with these numbers, which are ascending."""
        with self.text.open("rb") as file:
            for piece in self.pieces:
                mine = slice(*np.searchsorted(numbers, [piece.first, piece.first + piece.pairs]))
                if mine.start == mine.stop:
                    continue
                file.seek(piece.offset)
                lines = file.read(piece.size).split(b"\n")
                for number in numbers[mine]:
                    yield (*lines[number - piece.first].decode().split("\t"), piece.part)

    def encode(self, encoder, sides):
        """Writes the ids of the kept pairs that share no sentence with the held-out ones.

        Args:
            encoder: An `encode.Encoder`.
            sides: An `encode.SideWriter` for source and one for target.

        Returns:
            list of int: the number of pairs in each part.

        Raises:
            CorpusError: If no pair is left.
        """
        sizes = collections.Counter()
        jobs = (
            (self.text, piece, np.array(self.kept[piece.first : piece.first + piece.pairs]))
            for piece in self.pieces
        )
        for piece, result in zip(self.pieces, ordered(encoder, jobs), strict=True):
            sizes[piece.part] += result.pairs
            self.dropped["shared"] += result.shared
            for side, (values, lengths) in zip(sides, result.sides, strict=True):
                side.append(values, lengths)
        if not sizes.total():
            raise CorpusError(
                "no pair is left to learn from: every pair shares a sentence with held-out pairs"
            )
        return [sizes[number] for number in range(1 + max(p.part for p in self.pieces))]

    def check(self, name):
        """Raises a CorpusError if no pair was kept."""
        if not len(self):
            raise CorpusError(
                f"{name}: no pair is left of {self.lines:,} lines; dropped: {summary(self.dropped)}"
            )

    def delete(self):
        """Deletes the text."""
        self.text.unlink(missing_ok=True)


def in_memory(pairs):
    """Pairs in memory as blocks of lines."""
    from training.corpus.files import LINES, Block

    pairs, first = iter(pairs), 1
    while chunk := list(itertools.islice(pairs, LINES)):
        # Tabs and line ends would be read as columns and lines.
        lines = ("\t".join(" ".join(side.split("\t")) for side in pair) for pair in chunk)
        text = "".join(line.replace("\n", " ") + "\n" for line in lines)
        yield Block(("memory",), first, (text.encode(),))
        first += len(chunk)
