"""Chooses the shapes of batches: few shapes with little padding."""

from typing import NamedTuple

import numpy as np

from training.corpus.files import CorpusError

TARGET_LENGTHS = 12  # the most different target lengths
SOURCE_LENGTHS = 3  # the most source lengths for each target length
BATCHES_PER_SHAPE = 6  # the fewest batches that justify a shape, because each shape has a remainder


class Shape(NamedTuple):
    """A batch of `rows` pairs, `source` and `target` ids long."""

    target: int
    source: int
    rows: int


def choose_shapes(counts, tokens_per_batch, rows_multiple=1):
    """The shapes that pad these pairs least.

    Target lengths are chosen first, because the decoder and its softmax cost most; then the source
    lengths for the pairs of each target length.

    Args:
        counts: [source length, target length]: the number of pairs of these lengths; not all 0.
        tokens_per_batch: The most source positions and the most target positions in a batch.
        rows_multiple: The number of rows is a multiple of this.

    Returns:
        list of `Shape`, sorted; the last one holds every pair.

    Raises:
        CorpusError: If a batch cannot hold `rows_multiple` rows of the longest pair.
    """
    lengths = np.argwhere(counts)  # [kinds, 2]: source, target
    pairs = counts[tuple(lengths.T)]
    longest = lengths.max(axis=0)
    budget = tokens_per_batch // rows_multiple
    if budget < longest.max():
        raise CorpusError(
            f"a pair of {longest.max()} tokens does not fit batches of {tokens_per_batch} tokens "
            f"and at least {rows_multiple} rows: raise --tokens_per_batch, or use fewer devices"
        )
    batches = (pairs * lengths.max(axis=1)).sum() / tokens_per_batch
    columns = int(np.clip(batches / BATCHES_PER_SHAPE, 1, TARGET_LENGTHS))
    sizes, below = set(), 0
    for target in ladder(counts.sum(axis=0), columns):
        sources = counts[:, below + 1 : target + 1].sum(axis=1)
        width = np.maximum(np.arange(len(sources)), target)
        worth = (sources * width).sum() / tokens_per_batch / BATCHES_PER_SHAPE
        rungs = ladder(sources, int(np.clip(worth, 1, SOURCE_LENGTHS)))
        sizes.update((target, source) for source in rungs)
        below = target
    sizes.add((int(longest[1]), int(longest[0])))
    return [
        Shape(target, source, budget // max(target, source) * rows_multiple)
        for target, source in sorted(sizes)
    ]


def ladder(counts, rungs):
    """At most `rungs` lengths to pad to with the least padding; one of them is the longest.

    Args:
        counts: [length]: the number of items of each length; none of length 0, but not all 0.
        rungs: The number of lengths to choose.

    Returns:
        ascending list of int.
    """
    sizes = np.append(0, np.flatnonzero(counts))  # 0: below all of them
    last, items = len(sizes) - 1, np.cumsum(counts[sizes])
    totals = np.cumsum(counts[sizes] * sizes)
    # padding[a, b]: the padding of lengths above sizes[a] and up to sizes[b], padded to sizes[b].
    padding = sizes * (items - items[:, None]) - (totals - totals[:, None])
    padding = np.where(np.tri(len(sizes), dtype=bool), np.iinfo(np.int64).max // 4, padding)
    best, came_from = padding[0], []  # best[b]: the least padding of all lengths up to sizes[b]
    for _ in range(min(rungs, last) - 1):
        ways = best[:, None] + padding
        came_from.append(ways.argmin(axis=0))
        best = ways.min(axis=0)
    chosen = [last]
    for steps in reversed(came_from):
        chosen.append(int(steps[chosen[-1]]))
    return sizes[chosen[::-1]].tolist()
