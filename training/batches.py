"""Sentence pairs as batches of few shapes and little padding, in an order that can be resumed.

Each pair belongs to the smallest shape that holds it. An epoch shuffles the pairs of a shape, cuts
them into full batches, hands what is left over to the next larger shape, and shuffles the batches.
So a pair occurs once an epoch, in other company every time, and only the last batch of the largest
shape can have filler rows. All of it depends on (seed, epoch) alone.
"""

import numpy as np
import tensorflow as tf

from training.shapes import choose_shapes


class Batches:
    """Batches of token ids for teacher forcing, by token budget.

    A row is `source` = pieces, end id; `target_in` = start id, pieces; `target_out` = pieces, end
    id; each padded with 0. A filler row has an end id for a source, a start id for `target_in` and
    only padding for `target_out`, so that it weighs nothing in a loss.

    Args:
        source: `(values, offsets)` of the source pieces, as `SubwordTokenizer.encode_lines` gives.
        target: the same of the targets.
        tokens_per_batch: source and target positions of a batch, padding included, are at most so
            many each.
        seed: of the order.
        start_id, end_id: of the tokenizers.
        max_length: pairs with more ids on a side, end id counted, are dropped; `dropped` says how
            many.
        rows_multiple: rows of a batch are a multiple of it, as many devices sharing it need.
        shapes: a list of `Shape` to use; chosen to suit the lengths by default.

    Raises:
        ValueError: if the sides differ in length, no pair is left, or a longest pair does not fit
            a batch.
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
    ):
        if len(source[1]) != len(target[1]):
            raise ValueError(f"{len(source[1]) - 1} sources for {len(target[1]) - 1} targets")
        self.source, self.target = source, target
        self.seed, self.start_id, self.end_id = seed, start_id, end_id
        lengths = np.stack([np.diff(source[1]), np.diff(target[1])], axis=1) + 1  # [pairs, 2]
        kept = np.flatnonzero(lengths.max(axis=1, initial=0) <= max_length)
        if not kept.size:
            raise ValueError(f"none of {len(lengths)} pairs has at most {max_length} tokens a side")
        self.dropped = len(lengths) - len(kept)
        lengths = lengths[kept]
        self.shapes = shapes or choose_shapes(lengths, tokens_per_batch, rows_multiple)
        self._members = self._assign(kept.astype(np.int32), lengths)
        self._heirs = [self._heir(i) for i in range(len(self.shapes))]
        self._count(lengths)

    def _assign(self, indices, lengths):
        """For each shape, the pairs whose smallest shape it is."""
        sizes = np.array([(shape.source, shape.target) for shape in self.shapes])
        belongs = np.full(len(lengths), -1, np.int16)
        for i in reversed(range(len(sizes))):  # sorted by size: the smallest writes last
            belongs[(lengths <= sizes[i]).all(axis=1)] = i
        if (belongs < 0).any():
            source, target = lengths[np.argmin(belongs)]
            raise ValueError(f"no shape holds a pair of {source} and {target} tokens")
        return [indices[belongs == i] for i in range(len(sizes))]

    def _heir(self, i):
        """The shape that takes what is left over of shape i: the tightest of the larger ones."""
        mine, last = self.shapes[i], len(self.shapes) - 1
        larger = [
            (shape.source + shape.target, j)
            for j, shape in enumerate(self.shapes[i + 1 :], i + 1)
            if shape.source >= mine.source and shape.target >= mine.target
        ]
        return min(larger)[1] if larger else last

    def _count(self, lengths):
        """How many batches there are of each shape, which is the same in every epoch."""
        waiting, self._batches_of = [len(members) for members in self._members], []
        for i, shape in enumerate(self.shapes):
            full, rest = divmod(waiting[i], shape.rows)
            last = i == self._heirs[i]
            self._batches_of.append(full + (last and rest > 0))
            if not last:
                waiting[self._heirs[i]] += rest
        fed = np.array([[s.rows * s.source, s.rows * s.target] for s in self.shapes])
        fed = (fed * np.array(self._batches_of)[:, None]).sum(axis=0)
        self.tokens = tuple(int(n) for n in lengths.sum(axis=0))  # source, target; of an epoch
        self.source_real_share, self.real_share = (float(n) for n in self.tokens / fed)

    def steps_per_epoch(self, epoch=0):
        """Number of batches of an epoch."""
        return sum(self._batches_of)

    def order(self, epoch):
        """The batches of an epoch: a list of (shape, int32 numbers of its pairs)."""
        draw = np.random.default_rng([self.seed, epoch])
        waiting, batches = [[members] for members in self._members], []
        for i, shape in enumerate(self.shapes):
            pairs = draw.permutation(np.concatenate(waiting[i]))
            cut = self._batches_of[i] * shape.rows
            batches += [(shape, pairs[j : j + shape.rows]) for j in range(0, cut, shape.rows)]
            if len(pairs) > cut:
                waiting[self._heirs[i]].append(pairs[cut:])
        return [batches[i] for i in draw.permutation(len(batches))]

    def dataset(self, epoch=0, skip=0):
        """A `tf.data.Dataset` of `((source, target_in), target_out)`, int32 [batch, length] each.

        Args:
            epoch: which order.
            skip: begin with this batch of the epoch; those before it are not even built.
        """
        steps = self.steps_per_epoch(epoch)
        if not 0 <= skip <= steps:
            raise ValueError(f"skip has to be between 0 and the {steps} batches, not {skip}")

        def batches():
            for shape, pairs in self.order(epoch)[skip:]:
                yield self._build(shape, pairs)

        ids = tf.TensorSpec([None, None], tf.int32)
        dataset = tf.data.Dataset.from_generator(batches, output_signature=((ids, ids), ids))
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(steps - skip))
        return dataset.prefetch(16)

    def _build(self, shape, pairs):
        source, source_lengths = _gather(self.source, pairs, shape.rows, shape.source)
        target, target_lengths = _gather(self.target, pairs, shape.rows, shape.target)
        start = np.full([shape.rows, 1], self.start_id, np.int32)
        target_in = np.concatenate([start, target[:, :-1]], axis=1)
        source[np.arange(shape.rows), source_lengths] = self.end_id
        target[np.arange(len(pairs)), target_lengths[: len(pairs)]] = self.end_id
        return (source, target_in), target

    def summary(self):
        """One line for people."""
        steps = self.steps_per_epoch()
        dropped = f"; {self.dropped:,} over-long pairs dropped" if self.dropped else ""
        return (
            f"{steps:,} batches an epoch in {len(self.shapes)} shapes; of the target positions fed "
            f"{self.real_share:.1%} are tokens, of the source positions "
            f"{self.source_real_share:.1%}{dropped}"
        )


def _gather(ids, pairs, rows, width):
    """The pieces of pairs, padded: int32 [rows, width], and how many there are, [rows]."""
    values, offsets = ids
    lengths = np.zeros(rows, np.int64)
    lengths[: len(pairs)] = offsets[pairs + 1] - offsets[pairs]
    real = np.arange(width) < lengths[:, None]  # [rows, width]
    gathered = np.zeros([rows, width], np.int32)
    starts = np.repeat(offsets[pairs], lengths[: len(pairs)])
    within = np.nonzero(real)[1]
    gathered[real] = values[starts + within]
    return gathered, lengths
