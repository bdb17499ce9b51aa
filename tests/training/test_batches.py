"""Batches: every pair once an epoch, in an order that (seed, epoch) fixes, with little padding."""

import collections
import itertools

import numpy as np
import pytest

from training.corpus.batches import Batches, Part
from training.corpus.permutation import Permutation
from training.corpus.shapes import Shape, choose_shapes, ladder

START, END = 2, 3


def flat(rows):
    values = np.concatenate([np.asarray(row, np.uint16) for row in rows])
    return values, np.cumsum([0, *map(len, rows)])


def random_pairs(count, seed=0, longest=40):
    """Rows of ids from 4 on; like sentences, most are short and translations as long."""
    draw = np.random.default_rng(seed)
    lengths = np.minimum(draw.gamma(4, 2.5, count).astype(int), longest)
    others = np.clip(lengths + draw.integers(-3, 4, count), 0, longest)
    return tuple([draw.integers(4, 9000, n).tolist() for n in side] for side in (lengths, others))


@pytest.fixture(scope="module")
def pairs():
    return random_pairs(4000)


def make(pairs, **options):
    options = {"tokens_per_batch": 512, "seed": 1, "start_id": START, "end_id": END, **options}
    return Batches(*map(flat, pairs), **options)


@pytest.fixture(scope="module")
def batches(pairs):
    return make(pairs)


@pytest.fixture(scope="module")
def epoch(batches):
    return list(batches.dataset(epoch=0).as_numpy_iterator())


def rows_of(epoch):
    """Counts of (source, target_in, target_out) without padding; fillers are left out."""
    found = collections.Counter()
    for (source, target_in), target_out in epoch:
        for row in zip(source, target_in, target_out, strict=True):
            row = tuple(tuple(ids[ids != 0].tolist()) for ids in row)
            if row[2]:
                found[row] += 1
            else:
                assert row == ((END,), (START,), ())
    return found


def test_every_pair_occurs_once_with_its_start_and_end(pairs, epoch):
    expected = collections.Counter(
        ((*source, END), (START, *target), (*target, END))
        for source, target in zip(*pairs, strict=True)
    )
    assert rows_of(epoch) == expected


def test_padding_stands_at_the_end_only(epoch):
    for (source, target_in), target_out in epoch:
        assert source.dtype == target_in.dtype == target_out.dtype == np.int32
        for ids in (source, target_in, target_out):
            assert (np.diff((ids != 0).astype(int), axis=1) <= 0).all()


def test_shapes_are_few_and_within_the_budget(batches, epoch):
    shapes = {(*target.shape[::-1], source.shape[1]) for (source, _), target in epoch}
    assert shapes <= {(s.target, s.rows, s.source) for s in batches.shapes}
    assert len(batches.shapes) <= 40
    for shape in batches.shapes:
        assert 512 / 2 < shape.rows * max(shape.source, shape.target) <= 512


def test_only_one_batch_has_filler_rows(epoch):
    short = [target for _, target in epoch if not target.any(axis=1).all()]
    assert len(short) <= 1


def test_the_shares_are_those_of_what_is_fed(batches, epoch):
    target = np.concatenate([target.ravel() for _, target in epoch])
    source = np.concatenate([source.ravel() for (source, _), target in epoch])
    assert batches.real_share == pytest.approx(np.mean(target != 0))
    assert batches.source_real_share == pytest.approx(np.mean(source != 0), abs=1e-3)
    assert batches.real_share > 0.9 and batches.source_real_share > 0.75
    assert f"{batches.real_share:.1%}" in batches.summary()


def test_order_is_a_function_of_seed_and_epoch(pairs, batches, epoch):
    def ids(batches, number):
        return [pairs.tolist() for _, pairs in batches.order(number)]

    assert ids(batches, 3) == ids(make(pairs), 3)
    assert ids(batches, 3) != ids(batches, 4)
    assert ids(batches, 3) != ids(make(pairs, seed=2), 3)
    assert rows_of(batches.dataset(epoch=5).as_numpy_iterator()) == rows_of(epoch)


def test_company_and_order_change_from_epoch_to_epoch(batches):
    def neighbours(number):
        return {frozenset(pairs.tolist()) for _, pairs in batches.order(number)}

    assert len(neighbours(0) & neighbours(1)) <= 2
    lengths = [shape.target for shape, _ in batches.order(0)]
    assert abs(np.corrcoef(lengths, np.arange(len(lengths)))[0, 1]) < 0.25


def test_every_epoch_has_as_many_batches_as_announced(batches):
    for number in range(4):
        assert len(batches.order(number)) == batches.steps_per_epoch(number)
        assert int(batches.dataset(number).cardinality()) == batches.steps_per_epoch(number)


def test_skipping_resumes_exactly(batches, epoch):
    steps = batches.steps_per_epoch(0)
    for skip in (1, steps // 2, steps - 1, steps):
        rest = list(batches.dataset(0, skip).as_numpy_iterator())
        assert len(rest) == steps - skip
        for got, expected in zip(rest, epoch[skip:], strict=True):
            np.testing.assert_array_equal(got[1], expected[1])
            np.testing.assert_array_equal(got[0][0], expected[0][0])
    with pytest.raises(ValueError, match=f"between 0 and the {steps} batches, not {steps + 1}"):
        batches.dataset(0, steps + 1)


@pytest.mark.parametrize("count", [1, 2, 7, 60])
def test_a_small_corpus_loses_nothing(count):
    pairs = random_pairs(count)
    batches = make(pairs)
    for number in range(3):
        assert rows_of(batches.dataset(number).as_numpy_iterator()).total() == count


def test_over_long_pairs_are_dropped_and_counted(pairs):
    longest = [max(map(len, pair)) + 1 for pair in zip(*pairs, strict=True)]
    batches = make(pairs, max_length=15)
    assert batches.dropped == sum(length > 15 for length in longest) > 0
    assert f"{batches.dropped:,} over-long pairs" in batches.summary()
    assert rows_of(batches.dataset().as_numpy_iterator()).total() == 4000 - batches.dropped


def test_rows_can_be_shared_by_devices(pairs):
    batches = make(pairs, rows_multiple=4)
    assert all(shape.rows % 4 == 0 for shape in batches.shapes)
    assert rows_of(batches.dataset().as_numpy_iterator()).total() == 4000


@pytest.mark.parametrize(
    "options, message",
    [
        ({"max_length": 1}, "none of 3 pairs has at most 1 tokens"),
        ({"tokens_per_batch": 5}, "a pair of 6 tokens does not fit batches of 5 tokens"),
        ({"shapes": [Shape(9, 5, 2)]}, "no shape holds a pair of 6 and 3 tokens"),
    ],
)
def test_errors_name_what_does_not_fit(options, message):
    with pytest.raises(ValueError, match=message):
        make(([[7, 7], [8] * 5, [9]], [[5], [6, 6], []]), **options)


def test_sides_of_different_length_are_refused():
    with pytest.raises(ValueError, match="2 sources for 1 targets"):
        make(([[7], [8]], [[5]]))


@pytest.mark.parametrize("rungs", [1, 2, 3, 4])
def test_ladder_pads_as_little_as_the_best_of_all_ladders(rungs):
    lengths = np.random.default_rng(rungs).integers(1, 11, 30)

    def padding(steps):
        return sum(min(step for step in steps if step >= n) - n for n in lengths)

    longest = lengths.max()
    every = itertools.combinations(range(1, longest), rungs - 1)
    best = min(padding((*steps, longest)) for steps in every)
    chosen = ladder(np.bincount(lengths), rungs)
    assert len(chosen) <= rungs and padding(chosen) == best


def test_a_ladder_needs_no_more_rungs_than_lengths():
    assert ladder(np.bincount([3, 3, 5]), 7) == [3, 5]
    assert ladder(np.bincount([1]), 3) == [1]


def test_the_last_shape_holds_every_pair():
    counts = np.zeros([31, 10], int)
    counts[2, 9] = counts[30, 3] = 200
    assert choose_shapes(counts, 100)[-1] == Shape(target=9, source=30, rows=3)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 17, 1000, 65_537])
def test_a_permutation_reaches_every_place_once(size):
    shuffled = Permutation(size, 3, 1)(np.arange(size))
    assert sorted(shuffled.tolist()) == list(range(size))
    again = Permutation(size, 3, 1)(np.arange(size)[::-1])[::-1]
    np.testing.assert_array_equal(shuffled, again)  # each place by itself
    if size > 5:
        assert (shuffled != Permutation(size, 3, 2)(np.arange(size))).any()


def test_a_permutation_is_as_random_as_numpys():
    """Where a place goes, and where its neighbour goes from there, by chi square."""
    size, keys = 12, 6000
    draws = np.array([Permutation(size, key)(np.arange(size)) for key in range(keys)])
    expected = keys / size
    for place in (0, 5, 11):
        counts = np.bincount(draws[:, place], minlength=size)
        assert ((counts - expected) ** 2 / expected).sum() < 35  # 11 degrees: p < 0.0003
    steps = np.bincount((draws[:, 1] - draws[:, 0]) % size, minlength=size)[1:]
    expected = keys / (size - 1)
    assert ((steps - expected) ** 2 / expected).sum() < 33


@pytest.mark.parametrize("shards, multiple", [(2, 1), (3, 1), (2, 2)])
def test_shards_are_the_rows_of_each_batch(pairs, shards, multiple):
    """Whatever their number; behind the last ones are filler rows."""
    batches = make(pairs)
    whole = list(batches.dataset(1, skip=3).as_numpy_iterator())
    pieces = [
        batches.dataset(1, skip=3, shard=i, shards=shards, multiple=multiple).as_numpy_iterator()
        for i in range(shards)
    ]
    for expected, *parts in zip(whole, *pieces, strict=True):
        expected = [expected[0][0], expected[0][1], expected[1]]
        flat = [[part[0][0], part[0][1], part[1]] for part in parts]
        for array, *of_shards in zip(expected, *flat, strict=True):
            assert len({len(one) for one in of_shards}) == 1
            assert len(of_shards[0]) % multiple == 0
            joined = np.concatenate(of_shards)
            np.testing.assert_array_equal(joined[: len(array)], array)
            assert len(joined) - len(array) < shards * multiple
        fillers = np.concatenate([part[2] for part in flat])[len(expected[2]) :]
        assert not fillers.any()
    with pytest.raises(ValueError, match="no shard 3 of 3"):
        batches.dataset(shard=3, shards=3)


def test_parts_are_mixed_by_their_rates(pairs):
    parts = [Part(0, 1000, 1.7), Part(1000, 4000, 0.35)]
    batches = make(pairs, parts=parts)
    seen = np.zeros(4000, int)
    for epoch in range(20):
        numbers = np.concatenate([numbers for _, numbers in batches.order(epoch)])
        of_first = (numbers < 1000).sum()
        assert abs(of_first - 1700) <= len(batches.shapes)
        assert abs(len(numbers) - of_first - 1050) <= len(batches.shapes)
        assert len(batches.order(epoch)) == batches.steps_per_epoch(epoch)
        seen += np.bincount(numbers, minlength=4000)
    # Every pair has its turn before any has its next one.
    assert set(seen[:1000]) <= {33, 34, 35} and set(seen[1000:]) <= {6, 7, 8}
    resumed = list(make(pairs, parts=parts).dataset(5, skip=4).as_numpy_iterator())
    expected = list(batches.dataset(5).as_numpy_iterator())[4:]
    assert all((a[1] == b[1]).all() for a, b in zip(resumed, expected, strict=True))


def test_numbers_in_a_file_change_nothing(pairs, tmp_path):
    batches = make(pairs, scratch=tmp_path)
    for (shape, found), (wanted, expected) in zip(
        batches.order(2), make(pairs).order(2), strict=True
    ):
        assert shape == wanted
        np.testing.assert_array_equal(found, expected)
