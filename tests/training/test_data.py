"""The batches of tf.data: every pair once, little padding, an order that can be resumed."""

import collections
import itertools
import types

import numpy as np
import pytest
import tensorflow as tf

from training.corpus.batches import Batches, CorpusPart

IDS = tf.TensorSpec([None, None], tf.int32)
END = 1


def sides_of(lengths):
    """Pairs whose every id is the number of the pair, plus 2."""
    offsets = [np.append(0, np.cumsum(column)) for column in zip(*lengths, strict=True)]
    numbers = np.arange(len(lengths)) + 2
    columns = zip(*lengths, strict=True)
    return [(np.repeat(numbers, c), o) for c, o in zip(columns, offsets, strict=True)]


def make(source, target, source_lengths, target_lengths):
    for ids, lengths in ((source, source_lengths), (target, target_lengths)):
        ids[np.arange(len(lengths)), lengths] = END
    return source, target


TASK = types.SimpleNamespace(batch=make, signature=lambda: (IDS, IDS), ends=(1, 1))


def batches_of(lengths, **options):
    options = {"tokens_per_batch": 64, "seed": 5, **options}
    return Batches(sides_of(lengths), TASK, **options)


@pytest.fixture
def lengths():
    draw = np.random.default_rng(0)
    return [(int(a), int(max(1, a + b))) for a, b in draw.integers([1, -2], [16, 3], [500, 2])]


def take(batches, count, skip=0):
    return [tuple(x.numpy() for x in b) for b in batches.dataset(skip).take(count)]


def numbers_in(batch):
    return [int(row[0]) - 2 for row in batch[1] if row[0] > 1]


def test_an_epoch_has_every_pair_once_and_whole(lengths):
    batches = batches_of(lengths)
    count = batches.batches_in(0)
    epochs = [take(batches, count, skip) for skip in (0, count)]
    for epoch in epochs:
        seen = list(itertools.chain.from_iterable(map(numbers_in, epoch)))
        assert sorted(seen) == list(range(len(lengths)))
        for source, target in epoch:
            assert max(source.size, target.size) <= 64
            for ids, side in ((source, 0), (target, 1)):
                for row in ids:
                    n = lengths[int(row[0]) - 2][side]
                    assert (row[:n] == row[0]).all() and row[n] == END and not row[n + 1 :].any()
    orders = [[numbers_in(batch) for batch in epoch] for epoch in epochs]
    assert orders[0] != orders[1] and orders[0] != sorted(orders[0])
    assert sum(lengths[i][1] + 1 for i in range(500)) > 0.85 * sum(t.size for _, t in epochs[0])
    assert batches.nominal_tokens == pytest.approx(sum(b + 1 for _, b in lengths) / count)


def test_a_resumed_dataset_goes_on_with_the_same_batches(lengths):
    batches = batches_of(lengths)
    count = batches.batches_in(0)
    whole = take(batches, 2 * count + 3)
    for skip in (1, count - 1, count + 3, 2 * count):
        for one, other in zip(whole[skip:][:3], take(batches, 3, skip), strict=True):
            for a, b in zip(one, other, strict=True):
                np.testing.assert_array_equal(a, b)
    others = take(batches_of(lengths, seed=6), 9)
    assert [a[0].shape for a in whole[:9]] != [b[0].shape for b in others]


def test_corpora_are_mixed_by_their_rates(lengths):
    batches, seen = (
        batches_of(lengths, parts=[CorpusPart(0, 100, 2.5), CorpusPart(100, 500, 0.25)]),
        [],
    )
    for epoch in range(4):
        skip = sum(map(batches.batches_in, range(epoch)))
        mine = [n for b in take(batches, batches.batches_in(epoch), skip) for n in numbers_in(b)]
        assert sum(n < 100 for n in mine) == 250 and len(mine) == 350
        seen += mine
    counts = collections.Counter(seen)
    assert [counts[n] for n in range(500)] == 100 * [10] + 400 * [1]


def test_devices_get_rows_of_the_same_number(lengths):
    for source, target in take(batches_of(lengths, rows_multiple=3), 40):
        assert len(source) == len(target) and len(source) % 3 == 0


def test_where_shapes_are_compiled_they_are_few_and_known_before(lengths):
    """Eight at most, of even lengths, in each batch of two epochs; little more padding for it."""
    batches = batches_of(lengths, fixed_shapes=True)
    shapes = [tuple(x.shape for x in batch) for batch in batches.empty().as_numpy_iterator()]
    count = batches.batches_in(0)
    assert len(shapes) <= 8 < len(batches_of(lengths).buckets)
    assert all(length % 2 == 0 for _, length in itertools.chain(*shapes))
    made = take(batches, count + batches.batches_in(1))
    assert {tuple(x.shape for x in batch) for batch in made} == {*shapes}
    assert sorted(n for b in made[:count] for n in numbers_in(b)) == [*range(len(lengths))]
    fed, least = (
        sum(x.size for batch in take(b, b.batches_in(0)) for x in batch)
        for b in (batches, batches_of(lengths))
    )
    assert fed <= 1.3 * least


def test_long_pairs_are_dropped_and_counted():
    batches = batches_of([(3, 3)] * 20 + [(300, 3), (3, 300), (70, 2)])
    assert batches.dropped == 3
    assert {n for b in take(batches, batches.batches_in(0)) for n in numbers_in(b)} == {*range(20)}
    assert batches_of([(3, 3)] * 20 + [(9, 3), (3, 10)], max_tokens=10).dropped == 1
    with pytest.raises(ValueError, match="none of 1 pairs has at most 64 tokens"):
        batches_of([(100, 100)])
    with pytest.raises(ValueError, match=r"greater than --tokens_per_batch.* 65, 64"):
        batches_of([(3, 3)], max_tokens=65)
    with pytest.raises(ValueError, match="does not fit batches of 64 tokens and at least 8 rows"):
        batches_of([(20, 20)] * 9, rows_multiple=8)
