"""A shuffle that is computed, not stored, so that any place of it is found at once."""

import math

import numpy as np

ROUNDS = 8


class Permutation:
    """A keyed bijection of `range(size)`, used instead of a shuffled list.

    It is a Feistel network over the cells of a table of at least `size` cells: in turns, the row is
    shifted by a hash of the column and the column by a hash of the row. A result of `size` or more
    goes through the network again (J. Black and P. Rogaway, Ciphers with Arbitrary Finite Domains,
    2002).

    Args:
        size: int, at least 1.
        key: Ints, 0 or more; the same key gives the same order on any machine.

    Example:

    >>> sorted(Permutation(7, 1, 2)(np.arange(7)).tolist())
    [0, 1, 2, 3, 4, 5, 6]
    """

    def __init__(self, size, *key):
        if size < 1:
            raise ValueError(f"size must be positive. Received: {size}")
        self.size = size
        self._rows = np.uint64(math.isqrt(size - 1) + 1)
        self._columns = np.uint64(-(-size // int(self._rows)))
        self._keys = np.random.default_rng(key).integers(2**64, size=ROUNDS, dtype=np.uint64)

    def __call__(self, positions):
        """The images of positions [n], int64 [n]."""
        found = self._pass(np.asarray(positions).astype(np.uint64))
        while (outside := found >= self.size).any():
            found[outside] = self._pass(found[outside])
        return found.astype(np.int64)

    def _pass(self, cells):
        row, column = cells // self._columns, cells % self._columns
        for turn, key in enumerate(self._keys):
            if turn % 2:
                column = (column + _hash(row, key)) % self._columns
            else:
                row = (row + _hash(column, key)) % self._rows
        return row * self._columns + column


def _hash(values, key):
    """uint32 in a uint64 [n]: the finaliser of SplitMix64 over the values and a key."""
    values = values + key  # modulo 2^64
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (values ^ (values >> np.uint64(31))) >> np.uint64(32)
