"""The pairs of all corpora in one file, without duplicates."""

import array
import hashlib
import itertools

import numpy as np


class UniquePairs:
    """Pairs in a file, one per line; `kept` marks those that are left.

    In memory it holds 8 bytes a pair while it is made, and 1 byte afterwards.

    Args:
        path: The file to write, a `pathlib.Path`.
        corpora: For each corpus, an iterable of cleaned `(source, target)`.
        counts: A Counter of dropped pairs by reason, to which it adds.

    Attributes:
        kept: bool [pairs].
        sizes: The number of pairs of each corpus, dropped duplicates included.
    """

    def __init__(self, path, corpora, counts):
        self.path, self.sizes, self.counts = path, [], counts
        keys = array.array("Q")
        with path.open("wb") as file:
            for pairs in corpora:
                before = len(keys)
                for pair in pairs:
                    line = "\t".join(pair).encode()
                    file.write(line + b"\n")
                    # With 64 bits, a collision among millions of pairs is very unlikely.
                    digest = hashlib.blake2b(line, digest_size=8).digest()
                    keys.append(int.from_bytes(digest, "little"))
                self.sizes.append(len(keys) - before)
        self.kept = first_of_equal(np.asarray(keys))
        self.counts["duplicate"] = len(keys) - len(self)

    def __len__(self):
        return int(self.kept.sum())

    def read(self, mask=None):
        """Yields (number of its corpus, source, target) of each kept pair, or of a mask's."""
        mask, begin = self.kept if mask is None else mask, 0
        with self.path.open("rb") as file:
            for corpus, size in enumerate(self.sizes):
                lines = itertools.islice(file, size)
                for line in itertools.compress(lines, mask[begin : begin + size]):
                    source, target = line[:-1].decode().split("\t")
                    yield corpus, source, target
                begin += size


def first_of_equal(keys):
    """bool [keys]: whether no key before is the same.

    >>> first_of_equal(np.array([3, 1, 3, 2, 1], np.uint64)).tolist()
    [True, True, False, True, False]
    """
    first = np.zeros(len(keys), bool)
    parts = (keys >> np.uint64(60)).astype(np.uint8)
    for part in range(16):  # one at a time, because sorting takes several times the memory
        places = np.flatnonzero(parts == part)
        _, indices = np.unique(keys[places], return_index=True)
        first[places[indices]] = True
    return first
