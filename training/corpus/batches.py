"""Encoded pairs as a `tf.data.Dataset` of batches with few shapes and little padding.

An epoch is shuffled by a bijection that TensorFlow computes (`index_shuffle`), so that a corpus
needs no list of its pairs in memory and the order is a function of (seed, epoch). Each pair goes to
the smallest bucket that holds it; a full bucket is a batch.
"""

import math
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from training.command.disk import RunError, chunks, drop_pages

LONGEST = 256  # tokens of a side; longer pairs are dropped
SHAPES = 24  # maximum number of buckets
FIXED_SHAPES = 8  # the same where each shape is compiled
LENGTHS = 20  # lengths of a side that buckets are merged from
DECODER = 2  # what a target position costs, in source positions
READ = 8192  # pairs that go to their buckets together
DROPPED = 255  # the bucket of pairs that are too long


def compiles_by_shape():
    """Whether each shape of a batch costs a compilation: JAX's XLA compiles them one by one."""
    return keras.backend.backend() == "jax"


class Bucket(NamedTuple):
    """A batch of `rows` pairs, padded to `target` and `source` ids."""

    target: int
    source: int
    rows: int


class CorpusPart(NamedTuple):
    """Pairs `begin` to `end`, each of which occurs in an epoch `rate` times."""

    begin: int
    end: int
    rate: float = 1.0


class Batches:
    """The batches of a run, without end.

    Args:
        sides: `(values, offsets)` of the ids of source and target: arrays or memory maps.
        task: Has `batch`, a function from the padded ids `(source, target)` of a batch, int32
            `[rows, length]` each without end ids, and their lengths `[rows]` to what `fit` gets:
            `(inputs, labels)`. Also its `signature()`, and how many ids it adds to a row of each
            side (`ends`).
        tokens_per_batch: Maximum source positions and maximum target positions of a batch,
            padding and one end id a row included.
        seed: Seed of the order.
        rows_multiple: The number of rows in a batch is a multiple of this, for several devices;
            rows are added that hold no token.
        parts: list of `CorpusPart`, the corpora to mix; by default, an epoch has all pairs once.
        max_tokens: Maximum number of tokens of a side, end id included; None: `LONGEST`.
        fixed_shapes: Whether each bucket has one shape, for backends that compile by shape: there
            are fewer buckets then, and rows are added that hold no token.

    Attributes:
        nominal_tokens: Number of tokens to predict in a usual batch, for a loss that divides by it.
    """

    def __init__(
        self, sides, task, *, tokens_per_batch, seed, rows_multiple=1, parts=None,
        max_tokens=None, fixed_shapes=False,
    ):  # fmt: skip
        if (max_tokens or 0) > tokens_per_batch:
            raise RunError(
                f"max_tokens must not be greater than --tokens_per_batch. Received: {max_tokens}, "
                f"{tokens_per_batch}"
            )
        pairs = len(sides[0][1]) - 1
        self.sides, self.task, self.signature = sides, task, task.signature()
        self.seed, self.rows_multiple = seed, rows_multiple
        self.fixed_shapes, shapes = fixed_shapes, FIXED_SHAPES if fixed_shapes else SHAPES
        self.parts = parts or [CorpusPart(0, pairs)]
        longest = max_tokens or min(LONGEST, tokens_per_batch)
        counts = np.zeros((longest + 2, longest + 2), np.int64)  # [source, target] lengths
        for chunk in chunks(pairs):
            np.add.at(counts, tuple(self._lengths(chunk, longest)), 1)
        self.dropped = int(counts[-1].sum() + counts[:-1, -1].sum())
        counts = counts[:-1, :-1]
        if not counts.any():
            raise RunError(f"none of {pairs} pairs has at most {longest} tokens on each side")
        even = 2 if fixed_shapes else 1  # JAX's kernel of attention needs even lengths
        self.buckets = choose_buckets(counts, tokens_per_batch, shapes, rows_multiple, even)
        # bucket_of[source, target] lengths
        self._bucket_of = np.full((longest + 2, longest + 2), DROPPED, np.uint8)
        for i, bucket in reversed([*enumerate(self.buckets)]):  # the smallest last, so that it wins
            self._bucket_of[: bucket.source + 1, : bucket.target + 1] = i
        self._bucket_of[-1] = self._bucket_of[:, -1] = DROPPED
        self._buckets = np.concatenate(
            [self._bucket_of[tuple(self._lengths(chunk, longest))] for chunk in chunks(pairs)]
        )
        self.tokens_per_epoch, self.real_share = self._measure(counts)
        self.nominal_tokens = self.tokens_per_epoch / self.batches_in(0)

    def _lengths(self, chunk, longest):
        """int `[2, pairs]`: lengths with the end ids, at most `longest` + 1."""
        offsets = [offsets[chunk.start : chunk.stop + 1] for _, offsets in self.sides]
        sides = [np.diff(o) + n for o, n in zip(offsets, self.task.ends, strict=True)]
        drop_pages(*(offsets for _, offsets in self.sides))
        return np.minimum(np.stack(sides), longest + 1)

    def _measure(self, counts):
        """Real target tokens of an epoch, and the real shares of target and source positions."""
        lengths = np.argwhere(counts)
        numbers = counts[tuple(lengths.T)]
        buckets = np.array(self.buckets)[self._bucket_of[tuple(lengths.T)]]
        real = [numbers @ lengths[:, 1], numbers @ lengths[:, 0]]
        fed = [numbers @ buckets[:, 0], numbers @ buckets[:, 1]]
        scale = sum((p.end - p.begin) * p.rate for p in self.parts) / max(1, len(self))
        return int(real[0] * scale), tuple(float(a / b) for a, b in zip(real, fed, strict=True))

    def __len__(self):
        return sum(part.end - part.begin for part in self.parts)

    def _size(self, epoch):
        """Number of pairs in an epoch, also those that are too long."""
        return sum(high - low for low, high in self._ranges(epoch))

    def _ranges(self, epoch):
        """The places of an epoch in the endless passes over each part."""
        sizes = [(part.end - part.begin) * part.rate for part in self.parts]
        return [(int(size * epoch), int(size * (epoch + 1))) for size in sizes]

    def _numbers(self, places, epoch):
        """The pairs at these places of an epoch."""
        numbers, begin = np.zeros(len(places), np.int64), 0
        for part, (low, high) in zip(self.parts, self._ranges(epoch), strict=True):
            mine = (places >= begin) & (places < begin + high - low)
            size = part.end - part.begin
            numbers[mine] = part.begin + _spread(places[mine] - begin + low, size)
            begin += high - low
        return numbers

    def _keys(self, places, epoch):
        """The pairs at these places that are not too long, and the bucket of each."""
        numbers = self._numbers(places, int(epoch))
        keys = self._buckets[numbers]
        fits = keys != DROPPED
        return numbers[fits], keys[fits].astype(np.int64)

    def batches_in(self, epoch):
        """Number of batches in an epoch."""
        sizes = np.zeros(len(self.buckets), np.int64)
        for chunk in chunks(self._size(epoch)):
            _, keys = self._keys(np.arange(chunk.start, chunk.stop), epoch)
            sizes += np.bincount(keys, minlength=len(sizes))
        rows = np.array([bucket.rows for bucket in self.buckets])
        return int((-(-sizes // rows)).sum())

    def _epoch(self, epoch):
        """A dataset of (epoch, pairs of a batch, bucket)."""
        size = tf.numpy_function(lambda e: np.int64(self._size(int(e))), [epoch], tf.int64)
        rows = tf.constant([bucket.rows for bucket in self.buckets], tf.int64)

        def keys(begin):
            places = tf.range(begin, tf.minimum(begin + READ, size))
            seed = tf.stack([tf.constant(self.seed, tf.int64), epoch])
            places = tf.random.experimental.index_shuffle(places, seed, size - 1)
            numbers, buckets = tf.numpy_function(
                self._keys, [places, epoch], [tf.int64, tf.int64], stateful=False
            )
            return tf.ensure_shape(numbers, [None]), tf.ensure_shape(buckets, [None])

        return (
            tf.data.Dataset.range(0, size, READ)
            .map(keys)
            .unbatch()
            .group_by_window(
                key_func=lambda number, key: key,
                reduce_func=lambda key, window: window.batch(
                    int(max(b.rows for b in self.buckets))
                ),
                window_size_func=lambda key: rows[key],
            )
            .map(lambda numbers, buckets: (epoch, numbers, buckets[0]))
        )

    def dataset(self, skip=0):
        """An endless `tf.data.Dataset` of what the task makes of batch number `skip` and later."""
        first, inside = 0, skip
        count = self.batches_in(0) if skip else 0
        varies = any(part.rate != 1 for part in self.parts)
        while skip and inside >= count:
            first, inside = first + 1, inside - count
            count = self.batches_in(first) if varies else count
        begun = self._epoch(tf.constant(first, tf.int64)).skip(inside)
        later = tf.data.Dataset.range(first + 1, np.iinfo(np.int64).max).flat_map(self._epoch)
        flat = tf.nest.flatten(self.signature)

        def batch(*about):
            arrays = tf.numpy_function(self._batch, about, [spec.dtype for spec in flat])
            arrays = [tf.ensure_shape(a, s.shape) for a, s in zip(arrays, flat, strict=True)]
            return tf.nest.pack_sequence_as(self.signature, arrays)

        return begun.concatenate(later).map(batch).prefetch(16)

    def _batch(self, epoch, numbers, key):
        bucket = self.buckets[key]
        multiple = bucket.rows if self.fixed_shapes else self.rows_multiple
        rows = -(-len(numbers) // multiple) * multiple
        padded, lengths = [], []
        for side, width in enumerate((bucket.source, bucket.target)):
            values, count = gather(*self.sides[side], numbers)
            ids = np.zeros((rows, width), np.int32)
            ids[: len(numbers)][np.arange(width) < count[:, None]] = values
            padded.append(ids)
            lengths.append(count)
        drop_pages(*(array for side in self.sides for array in side))
        return tf.nest.flatten(self.task.batch(*padded, *lengths))

    def empty(self):
        """A dataset of a batch of each shape that holds no token."""
        none = np.zeros(0, np.int64)

        def batches():
            for bucket in self.buckets:
                sides = [np.zeros((bucket.rows, width), np.int32) for width in bucket[1::-1]]
                yield self.task.batch(*sides, none, none)

        return tf.data.Dataset.from_generator(batches, output_signature=self.signature)

    def summary(self):
        """A line about the batches, for people."""
        dropped = f"; {self.dropped:,} over-long pairs dropped" if self.dropped else ""
        target, source = self.real_share
        return (
            f"{self.batches_in(0):,} per epoch, in {len(self.buckets)} shapes; {target:.1%} of "
            f"the target positions and {source:.1%} of the source positions are tokens{dropped}"
        )


def gather(values, offsets, numbers):
    """The ids of some lines one after the other, and the number of each."""
    starts = offsets[numbers]
    lengths = offsets[numbers + 1] - starts
    ends = np.cumsum(lengths)
    places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + lengths, lengths)
    return values[places], lengths


def _spread(places, size):
    """A bijection of each pass over `size` places, so that a share of a pass is evenly spread."""
    stride = max(1, round(size * 0.6180339887))
    while np.gcd(stride, size) != 1:
        stride += 1
    return (places % size) * stride % size


def choose_buckets(counts, tokens_per_batch, most, rows_multiple=1, lengths_multiple=1):
    """At most `most` buckets with the fewest positions to compute in an epoch.

    It begins with many, and merges the two that cost least together, until there are few enough
    and no other merging saves anything.

    Args:
        counts: [source length, target length]: the number of pairs of these lengths; not all 0.
        tokens_per_batch: Maximum source positions and maximum target positions of a batch.
        rows_multiple: The number of rows is a multiple of this.
        lengths_multiple: Lengths are multiples of this, but for the longest.

    Returns:
        list of `Bucket`, the cheapest pairs first; the last one holds every pair.
    """
    lengths = np.argwhere(counts)  # [kinds, 2]: source, target
    longest = lengths.max(axis=0)
    if tokens_per_batch // rows_multiple < longest.max():
        raise RunError(
            f"a pair of {longest.max()} tokens does not fit batches of {tokens_per_batch} tokens "
            f"and at least {rows_multiple} rows: raise --tokens_per_batch, or use fewer devices"
        )
    grids = [np.array(lengths_to_pad_to(counts.sum(axis=axis), LENGTHS)) for axis in (1, 0)]
    sizes = [grid[np.searchsorted(grid, n)] for grid, n in zip(grids, lengths.T, strict=True)]
    sizes = -(-np.stack(sizes, axis=1) // lengths_multiple) * lengths_multiple
    sizes, of = np.unique(np.minimum(sizes, longest), axis=0, return_inverse=True)  # [boxes, 2]
    pairs = np.bincount(of.ravel(), counts[tuple(lengths.T)])  # [boxes]
    if not (sizes == longest).all(axis=1).any():
        sizes, pairs = np.vstack([sizes, longest]), np.append(pairs, 0)
    while len(sizes) > 1:
        both = np.maximum(sizes[:, None], sizes)  # [boxes, boxes, 2]
        costs = _cost(sizes, pairs, tokens_per_batch)
        more = _cost(both, pairs[:, None] + pairs, tokens_per_batch) - costs[:, None] - costs
        np.fill_diagonal(more, np.inf)
        a, b = np.unravel_index(more.argmin(), more.shape)
        if len(sizes) <= most and more[a, b] >= 0:
            break
        sizes[a], pairs[a] = both[a, b], pairs[a] + pairs[b]
        sizes, pairs = np.delete(sizes, b, axis=0), np.delete(pairs, b)
    order = np.argsort(_cost(sizes, 1, 0), kind="stable")
    return [
        Bucket(int(t), int(s), _rows(tokens_per_batch // int(max(t, s)), rows_multiple))
        for s, t in sizes[order]
    ]


def _cost(sizes, pairs, tokens_per_batch):
    """The cost of an epoch of some pairs padded to `[…, 2]`, in source positions.

    The last batch of an epoch is half full on average, so each bucket costs half a batch more.
    """
    rows = pairs + tokens_per_batch / sizes.max(axis=-1) / 2
    return rows * (sizes[..., 0] + DECODER * sizes[..., 1])


def _rows(most, multiple):
    """The rows of a batch: an even number if possible, so that one device and two learn alike."""
    step = math.lcm(2, multiple)
    return most // step * step or most // multiple * multiple


def lengths_to_pad_to(counts, most):
    """At most `most` lengths to pad to with the least padding; one of them is the longest.

    Args:
        counts: [length]: the number of items of each length; none of length 0, but not all 0.
        most: The number of lengths to choose.
    """
    sizes = np.append(0, np.flatnonzero(counts))  # 0: below all of them
    last, items = len(sizes) - 1, np.cumsum(counts[sizes])
    totals = np.cumsum(counts[sizes] * sizes)
    # padding[a, b]: the padding of lengths above sizes[a] and up to sizes[b], padded to sizes[b].
    padding = sizes * (items - items[:, None]) - (totals - totals[:, None])
    padding = np.where(np.tri(len(sizes), dtype=bool), np.iinfo(np.int64).max // 4, padding)
    best, came_from = padding[0], []  # best[b]: the least padding of all lengths up to sizes[b]
    for _ in range(min(most, last) - 1):
        ways = best[:, None] + padding
        came_from.append(ways.argmin(axis=0))
        best = ways.min(axis=0)
    chosen = [last]
    for steps in reversed(came_from):
        chosen.append(int(steps[chosen[-1]]))
    return sizes[chosen[::-1]].tolist()
