"""Sentence pairs as batches of few shapes and little padding, in an order that can be resumed.

Each pair belongs to the smallest shape that holds it. An epoch shuffles the pairs of a shape, cuts
them into full batches, moves the remaining pairs to the next larger shape, and shuffles the
batches. So a pair occurs once per epoch, with different pairs each time, and only the last batch of
the largest shape can have filler rows. A batch is computed from (seed, epoch, number of the batch)
when it is needed; only the number of each pair is stored, in memory or in a file.
"""

import itertools
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from training.corpus import arrays
from training.corpus.files import CorpusError
from training.corpus.permutation import Permutation
from training.corpus.shapes import choose_shapes

_BATCHES, _PAIRS, _PARTS = range(3)  # the kinds of permutations, part of their keys


class Part(NamedTuple):
    """Pairs `begin` to `end`, each of which occurs in an epoch `rate` times.

    With a rate below 1, an epoch has only a share of them, and the next epoch continues with the
    others.
    """

    begin: int
    end: int
    rate: float = 1.0


class Batches:
    """Batches of token ids for teacher forcing, with a limited number of tokens.

    A row is `source` = subwords, end id; `target_in` = start id, subwords; `target_out` = subwords,
    end id; each padded with 0. A filler row has an end id as its source, a start id as `target_in`
    and only padding as `target_out`, so that it does not count in a loss.

    Args:
        source: `(values, offsets)` of the source ids, as `SubwordTokenizer.encode_lines` gives;
            arrays, or memory maps of a corpus that is larger than memory.
        target: The same of the targets.
        tokens_per_batch: The most source positions and the most target positions in a batch,
            padding included.
        seed: Seed of the order.
        start_id, end_id: Those of the tokenizers.
        max_length: Pairs with more ids on a side, end id included, are dropped; `dropped` counts
            them.
        rows_multiple: The number of rows in a batch is a multiple of this, for several devices.
        shapes: A list of `Shape` to use; by default, chosen by the lengths of the pairs.
        parts: list of `Part`, the corpora to mix; by default, an epoch has all pairs once.
        scratch: A folder for the pairs' numbers; by default they are in memory, four bytes each.

    Raises:
        ValueError: If the sides differ in length. A `CorpusError` if no pair is left, or the
            longest pair does not fit a batch.
    """

    def __init__(
        self,
        source,
        target,
        *,
        tokens_per_batch,
        seed,
        start_id,
        end_id,
        max_length=256,
        rows_multiple=1,
        shapes=None,
        parts=None,
        scratch=None,
    ):
        pairs = len(source[1]) - 1
        if pairs != len(target[1]) - 1:
            raise ValueError(f"{pairs} sources for {len(target[1]) - 1} targets")
        self.source, self.target = source, target
        self.seed, self.start_id, self.end_id = seed, start_id, end_id
        self.parts = parts or [Part(0, pairs)]
        counts = [self._count(part, max_length) for part in self.parts]  # [source, target] each
        kept = sum(counts)
        if not kept.any():
            raise CorpusError(f"none of {pairs} pairs has at most {max_length} tokens on each side")
        self.dropped = sum(part.end - part.begin for part in self.parts) - int(kept.sum())
        self.shapes = shapes or choose_shapes(kept, tokens_per_batch, rows_multiple)
        self._epoch = None
        self._heirs = [self._heir(i) for i in range(len(self.shapes))]
        self._assign(counts, max_length, scratch)
        self._measure(counts)

    def _lengths(self, part, most):
        """Yields, for each chunk of a part, its first pair and the lengths [pairs, 2].

        Lengths include the end id, and are clipped at `most` + 1.
        """
        for chunk in arrays.chunks(part.end - part.begin):
            begin = part.begin + chunk.start
            ends = slice(begin, part.begin + chunk.stop + 1)
            sides = [np.diff(offsets[ends]) + 1 for _, offsets in (self.source, self.target)]
            arrays.forget(self.source[1], self.target[1])
            yield begin, np.minimum(np.stack(sides, axis=1), most + 1)

    def _count(self, part, most):
        """The number of pairs of each source and target length: int64 [most + 1, most + 1]."""
        counts = np.zeros((most + 2) ** 2, np.int64)
        for _, lengths in self._lengths(part, most):
            counts += np.bincount(lengths @ [most + 2, 1], minlength=len(counts))
        return counts.reshape(most + 2, most + 2)[:-1, :-1]

    def _assign(self, counts, most, scratch):
        """Sorts the numbers of the pairs by the smallest shape that holds them, then by part."""
        belongs = np.full((most + 2, most + 2), -1, np.int16)  # [source, target]
        for i, shape in reversed([*enumerate(self.shapes)]):  # the smallest last, so that it wins
            belongs[: shape.source + 1, : shape.target + 1] = i
        belongs[-1, :] = belongs[:, -1] = -1  # over-long
        lost = np.argwhere((belongs[:-1, :-1] < 0) & (sum(counts) > 0))
        if len(lost):
            raise ValueError(f"no shape holds a pair of {lost[0][0]} and {lost[0][1]} tokens")
        # sizes[shape, part]; the numbers of its pairs begin at starts[shape, part].
        kinds = belongs[:-1, :-1].ravel()
        self._sizes = np.stack(
            [
                np.bincount(kinds[kinds >= 0], count.ravel()[kinds >= 0], len(self.shapes))
                for count in counts
            ],
            axis=1,
        ).astype(np.int64)
        ends = np.cumsum(self._sizes).reshape(self._sizes.shape)
        self._starts = ends - self._sizes
        length = int(ends[-1, -1])
        dtype = np.int32 if len(self.source[1]) < 2**31 else np.int64
        store = arrays.scratch(scratch, dtype, length) if scratch else np.zeros(length, dtype)
        free = self._starts.copy()
        for j, part in enumerate(self.parts):
            for begin, lengths in self._lengths(part, most):
                shape = belongs[tuple(lengths.T)]
                order = np.argsort(shape, kind="stable")
                bounds = np.searchsorted(shape[order], np.arange(len(self.shapes) + 1))
                for i, (low, high) in enumerate(itertools.pairwise(bounds)):
                    store[free[i, j] : free[i, j] + high - low] = order[low:high] + begin
                    free[i, j] += high - low
                if scratch:
                    store.flush()
                    arrays.forget(store)
        self._numbers = store

    def _heir(self, i):
        """The shape that takes the remaining pairs of shape i: the smallest one that holds them."""
        mine, last = self.shapes[i], len(self.shapes) - 1
        larger = [
            (shape.source + shape.target, j)
            for j, shape in enumerate(self.shapes[i + 1 :], i + 1)
            if shape.source >= mine.source and shape.target >= mine.target
        ]
        return min(larger)[1] if larger else last

    def _measure(self, counts):
        """Counts the tokens of an epoch, and computes their share of all positions."""
        rates = [part.rate for part in self.parts]
        mixed = sum(count * rate for count, rate in zip(counts, rates, strict=True))
        places = np.arange(len(mixed))
        tokens = (mixed.sum(axis=1) @ places, mixed.sum(axis=0) @ places)
        batches = np.array(self.epoch(0).batches_of)
        fed = np.array([[s.rows * s.source, s.rows * s.target] for s in self.shapes])
        fed = (fed * batches[:, None]).sum(axis=0)
        self.tokens = tuple(int(n) for n in tokens)  # source, target; of an epoch
        self.source_real_share, self.real_share = (float(n) for n in tokens / np.maximum(fed, 1))

    def epoch(self, number):
        """The `Epoch` of this number; the last one is kept."""
        if self._epoch is None or self._epoch.number != number:
            self._epoch = Epoch(self, number)
        return self._epoch

    def steps_per_epoch(self, epoch=0):
        """Number of batches in an epoch; it differs between epochs only if corpora are mixed."""
        return len(self.epoch(epoch))

    def order(self, epoch):
        """The batches of an epoch: a list of (shape, numbers of its pairs)."""
        batches = self.epoch(epoch)
        return [batches[i] for i in range(len(batches))]

    def dataset(self, epoch=0, skip=0, *, shard=0, shards=1, multiple=1):
        """A `tf.data.Dataset` of `((source, target_in), target_out)`, int32 [batch, length] each.

        Args:
            epoch: Number of the epoch, which determines the order.
            skip: Number of the batch to begin with; earlier ones are not computed.
            shard, shards: The rows of each batch are divided into `shards` equal parts, and part
                number `shard` is yielded; only its text is read.
            multiple: The number of rows in a part is a multiple of this. Filler rows are added as
                needed, so that the real rows are the same for any number of parts.
        """
        steps = self.steps_per_epoch(epoch)
        if not 0 <= skip <= steps:
            raise ValueError(f"skip must be between 0 and the {steps} batches, not {skip}")
        if not 0 <= shard < shards:
            raise ValueError(f"there is no shard {shard} of {shards}")

        def batches():
            order = self.epoch(epoch)
            for number in range(skip, steps):
                shape, pairs = order[number]
                rows = -(-shape.rows // (shards * multiple)) * multiple
                yield self._build(shape, rows, pairs[shard * rows : (shard + 1) * rows])

        ids = tf.TensorSpec([None, None], tf.int32)
        dataset = tf.data.Dataset.from_generator(batches, output_signature=((ids, ids), ids))
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(steps - skip))
        return dataset.prefetch(16)

    def _build(self, shape, rows, pairs):
        source, source_lengths = _gather(self.source, pairs, rows, shape.source)
        target, target_lengths = _gather(self.target, pairs, rows, shape.target)
        arrays.forget(*self.source, *self.target, self._numbers)
        start = np.full([rows, 1], self.start_id, np.int32)
        target_in = np.concatenate([start, target[:, :-1]], axis=1)
        source[np.arange(rows), source_lengths] = self.end_id
        target[np.arange(len(pairs)), target_lengths[: len(pairs)]] = self.end_id
        return (source, target_in), target

    def summary(self):
        """A line about the batches, for people."""
        steps = self.steps_per_epoch()
        dropped = f"; {self.dropped:,} over-long pairs dropped" if self.dropped else ""
        return (
            f"{steps:,} per epoch, in {len(self.shapes)} shapes; {self.real_share:.1%} of the "
            f"target positions and {self.source_real_share:.1%} of the source positions are "
            f"tokens{dropped}"
        )


class Epoch:
    """The batches of one epoch, each computed when it is needed.

    Args:
        batches: The `Batches`.
        number: Number of the epoch.
    """

    def __init__(self, batches, number):
        self._of, self.number = batches, number
        rates = np.array([part.rate for part in batches.parts])
        # In each shape and part, an epoch continues where the last one ended in the part's order.
        self._first = np.floor(batches._sizes * rates * number).astype(np.int64)
        self._own = np.floor(batches._sizes * rates * (number + 1)).astype(np.int64) - self._first
        shapes = batches.shapes
        self._inherited = [np.zeros(0, np.int64) for _ in shapes]
        self._shuffles, self.batches_of = [], []  # of each shape
        for i, shape in enumerate(shapes):
            waiting = int(self._own[i].sum()) + len(self._inherited[i])
            key = (batches.seed, number, _PAIRS, i)
            self._shuffles.append(Permutation(waiting, *key) if waiting else None)
            full, rest = divmod(waiting, shape.rows)
            heir = batches._heirs[i]
            self.batches_of.append(full + (heir == i and rest > 0))
            if heir != i and rest:
                left = self._pairs(i, np.arange(full * shape.rows, waiting))
                self._inherited[heir] = np.append(self._inherited[heir], left)
        self._ends = np.cumsum(self.batches_of)
        total = int(self._ends[-1])
        self._order = Permutation(total, batches.seed, number, _BATCHES) if total else None

    def __len__(self):
        return int(self._ends[-1])

    def __getitem__(self, number):
        """(shape, numbers of its pairs) of a batch."""
        if not 0 <= number < len(self):
            raise IndexError(f"batch {number} of {len(self)}")
        place = int(self._order([number])[0])
        i = int(np.searchsorted(self._ends, place, side="right"))
        shape = self._of.shapes[i]
        begin = (place - (self._ends[i] - self.batches_of[i])) * shape.rows
        end = min(begin + shape.rows, self._shuffles[i].size)
        return shape, self._pairs(i, np.arange(begin, end))

    def _pairs(self, i, places):
        """The numbers of the pairs at these places of a shape."""
        places = self._shuffles[i](places)
        found = np.zeros(len(places), np.int64)
        begin = 0
        for j, count in enumerate(self._own[i]):
            here = (places >= begin) & (places < begin + count)
            if here.any():
                found[here] = self._of_part(i, j, self._first[i, j] + places[here] - begin)
            begin += count
        handed = places >= begin
        found[handed] = self._inherited[i][places[handed] - begin]
        return found

    def _of_part(self, i, j, places):
        """The numbers of the pairs at these places in the endless passes over a part."""
        size, start = self._of._sizes[i, j], self._of._starts[i, j]
        passes, places = places // size, places % size
        found = np.zeros(len(places), np.int64)
        for turn in np.unique(passes):
            here = passes == turn
            shuffle = Permutation(int(size), self._of.seed, int(turn), _PARTS, i, j)
            found[here] = self._of._numbers[start + shuffle(places[here])]
        return found


def _gather(ids, pairs, rows, width):
    """The ids of pairs, padded: int32 [rows, width], and their lengths [rows]."""
    values, offsets = ids
    lengths = np.zeros(rows, np.int64)
    lengths[: len(pairs)] = offsets[pairs + 1] - offsets[pairs]
    real = np.arange(width) < lengths[:, None]  # [rows, width]
    gathered = np.zeros([rows, width], np.int32)
    starts = np.repeat(offsets[pairs], lengths[: len(pairs)])
    within = np.nonzero(real)[1]
    gathered[real] = values[starts + within]
    return gathered, lengths
