"""The table of a shortlist."""

import dataclasses
from typing import Self

import numpy as np

from keras_tfmr.shortlist.model_1 import model_1

CANDIDATES = 100  # of each source id
FREQUENT = 300

# The ids of all lines and where each begins: line i is `values[offsets[i]:offsets[i + 1]]`.
Lines = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True, eq=False)
class Shortlist:
    """The target ids that a translation may have: its candidates.

    Fields:
        table: int32 `[source vocab, n]`, padded with 0: the candidates of each source id.
        always: int32 `[m]`, ascending: the candidates of every translation.

    >>> source = np.array([4, 5, 4, 6]), np.array([0, 2, 4])  # the lines 4 5 and 4 6
    >>> target = np.array([8, 7, 8, 9]), np.array([0, 2, 4])
    >>> shortlist = Shortlist.learn(source, target, vocab_size=7, candidates=1, frequent=0)
    >>> shortlist.table[4:].tolist()
    [[8, 0], [7, 0], [9, 0]]
    """

    table: np.ndarray
    always: np.ndarray

    @classmethod
    def learn(
        cls,
        source: Lines,
        target: Lines,
        vocab_size: int,
        *,
        candidates: int = CANDIDATES,
        frequent: int = FREQUENT,
        spelling: dict[int, int] | None = None,
        always: list[int] | None = None,
        never: list[int] | None = None,
    ) -> Self:
        """The shortlist of pairs of lines: by IBM Model 1, and by how frequent target ids are.

        Args:
            source, target: The ids of both sides.
            vocab_size: The number of source ids.
            candidates: K, how many of the most probable target ids each source id has.
            frequent: F, how many of the most frequent target ids are always candidates.
            spelling: {source id: a further candidate}, such as the same subword.
            always: Further ids that are always candidates.
            never: Ids that are no candidates.

        Raises:
            ValueError: If the sides differ in their number of lines, or there are none.
        """
        counts = [len(offsets) - 1 for _, offsets in (source, target)]
        if counts[0] != counts[1] or not counts[0]:
            raise ValueError(
                "A shortlist is learned from as many source lines as target lines. Received: "
                f"{counts[0]} source lines, {counts[1]} target lines"
            )
        never = [0, *(never or ())]
        table = np.zeros((vocab_size, candidates + 1), "int32")
        for source_id, target_id in (spelling or {}).items():
            table[source_id, -1] = target_id
        source_ids, target_ids, p = model_1(source, target)
        rank = ranks(source_ids, p)
        keep = rank < candidates
        table[source_ids[keep], rank[keep]] = target_ids[keep]
        table[np.isin(table, never)] = 0
        counted = np.bincount(np.asarray(target[0]))
        counted[[each for each in never if each < len(counted)]] = 0
        often = np.argsort(-counted, kind="stable")[:frequent]
        wanted = {*often[counted[often] > 0].tolist(), *(always or ())} - {*never}
        return cls(table, np.array(sorted(wanted), "int32"))

    def candidates(self, source_ids: np.ndarray) -> np.ndarray:
        """The candidates of a text int32 `[source]`, int32 `[n]`, ascending."""
        mine = np.unique(self.table[source_ids])
        return np.union1d(mine[mine > 0], self.always)


def ranks(groups, values):
    """The place of each value in its group, the greatest first; groups are ascending.

    >>> ranks(np.array([3, 3, 7]), np.array([0.2, 0.8, 0.1])).tolist()
    [1, 0, 0]
    """
    order = np.lexsort((-values, groups))
    found = np.empty(len(groups), "int64")
    found[order] = np.arange(len(groups)) - np.searchsorted(groups, groups)
    return found
