"""Encoded pairs as a `tf.data.Dataset` of batches of similar lengths.

TensorFlow's keyed permutation (`index_shuffle`) orders the pairs of an epoch, so that a corpus
needs no list of its pairs in memory and the order is a function of (seed, epoch). Each pair goes to
a bucket by its longer side; a full bucket is a batch.
"""

import dataclasses
import math

import keras
import numpy as np
import tensorflow as tf

from training.command.disk import RunError, chunks

LONGEST = 256  # tokens of a side; longer pairs are dropped
BUCKETS = 24  # at most
COMPILED_BUCKETS = 8  # the same where each shape is compiled
READ = 8192  # pairs that go to their buckets together


def compiles_by_shape():
    """Whether each shape of a batch costs a compilation: JAX's XLA compiles them one by one."""
    return keras.backend.backend() == "jax"


@dataclasses.dataclass(frozen=True)
class Bucket:
    """Pairs whose longer side has at most `length` ids, in batches of `rows`."""

    length: int
    rows: int


@dataclasses.dataclass(frozen=True)
class CorpusPart:
    """Pairs `begin` to `end`, each of which occurs in an epoch `rate` times."""

    begin: int
    end: int
    rate: float = 1.0

    def places(self, epoch):
        """The first and the end of an epoch's places in the endless passes over the part."""
        size = (self.end - self.begin) * self.rate
        return int(size * epoch), int(size * (epoch + 1))


class Batches:
    """The batches of a run, without end.

    Args:
        sides: `(values, offsets)` of the ids of source and target: arrays or memory maps.
        task: Its `batch` makes `(inputs, labels)` of the padded ids of source and target, int32
            `[rows, length]` without end ids, and of their lengths `[rows]`; it may write end ids
            into them. `signature()` is the type of that, and `ends` the number of ids added to a
            row of each side.
        tokens_per_batch: Maximum source positions and maximum target positions of a batch,
            padding and end ids included.
        seed: Seed of the order.
        rows_multiple: The number of rows in a batch is a multiple of this, for several devices;
            rows are added that hold no pair.
        parts: list of `CorpusPart`, the corpora to mix; by default, an epoch has all pairs once.
        max_tokens: Maximum number of tokens of a side, end id included; None: `LONGEST`, or
            `tokens_per_batch` if that is less.
        fixed_shapes: Whether each bucket has one shape, for backends that compile by shape: with
            fewer buckets, and rows that hold no pair. Otherwise a batch is as wide as its longest
            source and target.

    Attributes:
        buckets: list of `Bucket`, the shortest first.
        dropped: The number of pairs that are too long.
        nominal_tokens: Mean number of target tokens in a batch, for a loss that divides by it.
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
        self.sides, self.task, self.seed = sides, task, seed
        self.rows_multiple, self.fixed_shapes = rows_multiple, fixed_shapes
        self.parts = parts or [CorpusPart(0, pairs)]
        self._longest = max_tokens or min(LONGEST, tokens_per_batch)
        self._lengths, target_tokens = self._measured()
        counts = np.bincount(self._lengths, minlength=self._longest + 1)  # [longer side]
        self.dropped, counts[0] = int(counts[0]), 0
        if not counts.any():
            raise RunError(f"none of {pairs} pairs has at most {self._longest} tokens on each side")
        self.buckets = make_buckets(counts, tokens_per_batch, rows_multiple, fixed_shapes)
        self.nominal_tokens = target_tokens / self._batches_of(counts)

    def _measured(self):
        """The longer side of each pair, 0 if it is too long, and the target tokens of the others.

        End ids count.
        """
        (_, source_offsets), (_, target_offsets) = self.sides
        source_end, target_end = self.task.ends
        pairs, target_tokens = len(source_offsets) - 1, 0
        lengths = np.zeros(pairs, np.uint16)
        for chunk in chunks(pairs):
            source = np.diff(source_offsets[chunk.start : chunk.stop + 1]) + source_end
            target = np.diff(target_offsets[chunk.start : chunk.stop + 1]) + target_end
            longer = np.maximum(source, target)
            fits = longer <= self._longest
            lengths[chunk] = np.where(fits, longer, 0)
            target_tokens += int(target[fits].sum())
        return lengths, target_tokens

    def _size(self, epoch):
        """Number of pairs in an epoch, also those that are too long."""
        return sum(end - first for first, end in (part.places(epoch) for part in self.parts))

    def _pairs_at(self, places, epoch):
        """The pairs at these places of an epoch, in which the parts follow each other."""
        pairs, begin = np.zeros(len(places), np.int64), 0
        for part in self.parts:
            first, end = part.places(epoch)
            own = (places >= begin) & (places < begin + end - first)
            pairs[own] = part.begin + spread(places[own] - begin + first, part.end - part.begin)
            begin += end - first
        return pairs

    def _fitting(self, places, epoch):
        """The pairs at these places of an epoch that are not too long, and their longer sides."""
        pairs = self._pairs_at(places, int(epoch))
        lengths = self._lengths[pairs].astype(np.int32)
        return pairs[lengths > 0], lengths[lengths > 0]

    def _batches_of(self, counts):
        """Number of batches; `counts` has the number of pairs of each length, `[length]`."""
        batches = begin = 0
        for bucket in self.buckets:
            end = bucket.length + 1
            batches += math.ceil(counts[begin:end].sum() / bucket.rows)
            begin = end
        return batches

    def batches_in(self, epoch):
        """Number of batches in an epoch."""
        counts = np.zeros(self._longest + 1, np.int64)
        for chunk in chunks(self._size(epoch)):
            _, lengths = self._fitting(np.arange(chunk.start, chunk.stop), epoch)
            counts += np.bincount(lengths, minlength=len(counts))
        return self._batches_of(counts)

    def _epoch(self, epoch):
        """A dataset of the pairs of each batch of an epoch, int64 `[rows]`."""
        size = tf.numpy_function(lambda e: np.int64(self._size(int(e))), [epoch], tf.int64)
        seed = tf.stack([tf.constant(self.seed, tf.int64), epoch])

        def read(begin):
            places = tf.range(begin, tf.minimum(begin + READ, size))
            places = tf.random.experimental.index_shuffle(places, seed, size - 1)
            pairs, lengths = tf.numpy_function(
                self._fitting, [places, epoch], [tf.int64, tf.int32], stateful=False
            )
            return tf.ensure_shape(pairs, [None]), tf.ensure_shape(lengths, [None])

        return (
            tf.data.Dataset.range(0, size, READ)
            .map(read)
            .unbatch()
            .bucket_by_sequence_length(
                element_length_func=lambda pair, length: length,
                bucket_boundaries=[bucket.length + 1 for bucket in self.buckets[:-1]],
                bucket_batch_sizes=[bucket.rows for bucket in self.buckets],
                no_padding=True,
            )
            .map(lambda pairs, lengths: pairs)
        )

    def dataset(self, skip=0):
        """An endless `tf.data.Dataset` of what the task makes of batch number `skip` and later."""
        epoch = 0
        while skip:
            count = self.batches_in(epoch)
            if skip < count:
                break
            epoch, skip = epoch + 1, skip - count
        begun = self._epoch(tf.constant(epoch, tf.int64)).skip(skip)
        later = tf.data.Dataset.range(epoch + 1, np.iinfo(np.int64).max).flat_map(self._epoch)
        signature = self.task.signature()
        flat = tf.nest.flatten(signature)

        def batch(pairs):
            arrays = tf.numpy_function(self._batch, [pairs], [spec.dtype for spec in flat])
            arrays = [tf.ensure_shape(a, s.shape) for a, s in zip(arrays, flat, strict=True)]
            return tf.nest.pack_sequence_as(signature, arrays)

        return begun.concatenate(later).map(batch).prefetch(16)

    def _batch(self, pairs):
        """The arrays of a batch of these pairs."""
        longest = self._lengths[pairs].max()
        bucket = next(bucket for bucket in self.buckets if longest <= bucket.length)
        multiple = bucket.rows if self.fixed_shapes else self.rows_multiple
        rows = math.ceil(len(pairs) / multiple) * multiple
        padded, lengths = [], []
        for (values, offsets), end in zip(self.sides, self.task.ends, strict=True):
            counts = offsets[pairs + 1] - offsets[pairs]
            width = bucket.length if self.fixed_shapes else counts.max() + end
            ids = np.zeros((rows, width), np.int32)
            for row, pair in enumerate(pairs):
                ids[row, : counts[row]] = values[offsets[pair] : offsets[pair + 1]]
            padded.append(ids)
            lengths.append(counts)
        return tf.nest.flatten(self.task.batch(*padded, *lengths))

    def empty(self):
        """A dataset with one batch of each bucket, at its full length, without pairs."""
        none = np.zeros(0, np.int64)

        def batches():
            for bucket in self.buckets:
                source = np.zeros((bucket.rows, bucket.length), np.int32)
                yield self.task.batch(source, np.zeros_like(source), none, none)

        return tf.data.Dataset.from_generator(batches, output_signature=self.task.signature())

    def summary(self):
        """A line about the batches, for people."""
        dropped = f"; {self.dropped:,} over-long pairs dropped" if self.dropped else ""
        return f"{self.batches_in(0):,} per epoch, of {len(self.buckets)} lengths{dropped}"


def spread(places, size):
    """A permutation of each pass over `size` places; a part of a pass is evenly spread.

    Steps of the golden ratio spread evenly; a step that is coprime to `size` visits each place
    once.
    """
    stride = max(1, round(size * 0.6180339887))
    while math.gcd(stride, size) != 1:
        stride += 1
    return (places % size) * stride % size


def make_buckets(counts, tokens_per_batch, rows_multiple, fixed_shapes):
    """The list of `Bucket`.

    Each has about the same fraction of the square roots of the counts, which is near the least
    padding: batches have at most 1.5 % more positions than those of buckets that are fitted to both
    sides, on the phrasebook and on Multi30k.

    Args:
        counts: [length]: the number of pairs whose longer side has this length; not all 0.
        tokens_per_batch, rows_multiple, fixed_shapes: As of `Batches`.
    """
    most = COMPILED_BUCKETS if fixed_shapes else BUCKETS
    roots = np.cumsum(np.sqrt(counts))
    lengths = np.searchsorted(roots / roots[-1], np.arange(1, most + 1) / most)
    if fixed_shapes:  # JAX's kernel of attention needs even lengths
        lengths += lengths % 2
    lengths = np.unique(lengths).tolist()
    if tokens_per_batch // rows_multiple < lengths[-1]:
        raise RunError(
            f"a pair of {lengths[-1]} tokens does not fit batches of {tokens_per_batch} tokens "
            f"and at least {rows_multiple} rows: raise --tokens_per_batch, or use fewer devices"
        )
    buckets = []
    for length in lengths:
        rows = tokens_per_batch // length
        if rows >= 2 * rows_multiple:  # even, so that one device and two learn alike
            rows -= rows % math.lcm(2, rows_multiple)
        else:
            rows -= rows % rows_multiple
        buckets.append(Bucket(length, rows))
    return buckets
