"""Greedy and beam search against exhaustive search on models small enough to list."""

import math

import numpy as np
import pytest
from decoding_toys import HashModel, HistoryStep, hypotheses, normalise
from keras import ops

from keras_tfmr.decoding import (
    DecodingConfig,
    FunctionStep,
    beam_search,
    greedy,
    length_penalty,
    loop,
    sample,
)

END = 1


def search(model, beams, examples=None, **options):
    step, state = model.start(beams, examples)
    batch = model.batch if examples is None else len(examples)
    options = {"end_id": END, "start_ids": np.zeros(batch, "int32"), **options}
    return beam_search(step, state, beams=beams, **options)


def greedily(model, examples=None, **options):
    step, state = model.start(1, examples)
    batch = model.batch if examples is None else len(examples)
    options = {"end_id": END, "start_ids": np.zeros(batch, "int32"), **options}
    return greedy(step, state, **options)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_wide_beam_is_exhaustive_search(seed, alpha):
    model = HashModel(vocab=4, batch=3, seed=seed)
    result = search(model, beams=128, n=12, max_length=4, length_penalty=alpha)
    for example in range(3):
        expected = model.exhaustive(example, END, limit=4, alpha=alpha)[:12]
        found = hypotheses(result, example)
        assert [tokens for tokens, _, _ in found] == [tokens for _, _, tokens in expected]
        np.testing.assert_allclose([f[1] for f in found], [e[1] for e in expected], atol=1e-5)
        np.testing.assert_allclose([f[2] for f in found], [e[0] for e in expected], atol=1e-5)


@pytest.mark.parametrize("beams", range(1, 6))
def test_n_best_are_distinct_sorted_and_scored_as_scored_alone(beams):
    model = HashModel(vocab=7, batch=6, seed=beams)
    result = search(model, beams=beams, n=beams, max_length=8, length_penalty=0.6)
    for example in range(6):
        found = hypotheses(result, example)
        assert len({tokens for tokens, _, _ in found}) == beams
        scores = [score for _, _, score in found]
        assert scores == sorted(scores, reverse=True)
        for tokens, log_prob, score in found:
            assert log_prob == pytest.approx(model.log_prob(example, tokens), abs=1e-5)
            assert score == pytest.approx(log_prob / ((5 + len(tokens)) / 6) ** 0.6, abs=1e-5)
            assert tokens[-1] == END or len(tokens) == 8
            assert END not in tokens[:-1]


def test_beam_1_is_greedy_and_greedy_takes_the_most_probable_token():
    model = HashModel(vocab=6, batch=16, seed=3)
    one, best = search(model, beams=1, max_length=9), greedily(model, max_length=9)
    for example in range(16):
        (tokens, log_prob, _), hashed, last = hypotheses(best, example)[0], 0, 0
        for token in tokens:
            hashed = model.next_hash(hashed, last)
            assert token == 1 + model.table[example, hashed, 1:].argmax()
            last = token
        assert tokens[-1] == END or len(tokens) == 9
        assert log_prob == pytest.approx(model.log_prob(example, tokens), abs=1e-5)
        assert hypotheses(one, example)[0][:2] == (tokens, pytest.approx(log_prob, abs=1e-5))


def test_a_finished_hypothesis_is_frozen():
    # "End at once" has log p = -0.51; after any other first token nothing costs anything, so the
    # best competitor ends at -0.95. A search that goes on extending the ended hypothesis, as if
    # the end were a token like others, lets it fall behind the competitor.
    first = normalise([-50.0, *np.log([0.6, 0.387, 0.013])])
    later = normalise([[-50.0, -2.5, -2.0, -1.0]])

    def step(tokens, state):
        begin = ops.equal(state["count"], 0)
        certain = normalise([-50.0, 0.0, -50.0, -50.0])
        after_a = ops.where(ops.equal(tokens, 2)[:, None], certain, later)
        return ops.where(begin, first, after_a), {"count": state["count"] + 1}

    state = {"count": ops.convert_to_tensor(0, dtype="int32")}
    result = beam_search(
        step, state, start_ids=[0], end_id=END, beams=2, n=2, max_length=4, length_penalty=0.0
    )
    (tokens, log_prob, _), (second, other, _) = hypotheses(result, 0)
    assert tokens == (END,) and second == (2, END)
    assert log_prob == pytest.approx(math.log(0.6), abs=1e-3)
    assert other == pytest.approx(math.log(0.387), abs=1e-3)


def test_the_early_exit_saves_steps_and_changes_nothing():
    model = HashModel(vocab=5, batch=1, seed=11, sharpness=3.0)
    start, steps = model.start(600), []

    def step(tokens, state):
        steps.append(1)
        return start[0](tokens, state)

    options = dict(start_ids=np.zeros(1, "int32"), end_id=END, beams=600)
    for alpha in (0.0, 1.0):
        result = beam_search(step, start[1], max_length=6, length_penalty=alpha, **options)
        best = model.exhaustive(0, END, limit=6, alpha=alpha)[0]
        assert hypotheses(result, 0)[0][0] == best[2]
    steps.clear()
    result = beam_search(step, start[1], max_length=60, **options)
    # Without penalty no hypothesis of 7 tokens or more can beat this one: all of them have a
    # beginning of 6 tokens, which the list for a limit of 6 holds.
    assert hypotheses(result, 0)[0][0] == model.exhaustive(0, END, limit=6, alpha=0.0)[0][2]
    assert len(steps) < 20


def test_the_exit_waits_for_a_longer_and_better_hypothesis():
    # Ending at once is best by far without penalty; with a strong one, eight nearly certain
    # tokens are better. A search that stops at the first finished hypothesis misses them.
    table = normalise([[-50.0, 0.0, -0.05], [0, 0, 0], [-50.0, -6.0, 0.0]])

    def step(tokens, state):
        return ops.take(table, tokens, axis=0), state

    def best(alpha, limit):
        result = beam_search(
            step, (), start_ids=[0], end_id=END, beams=2, max_length=limit, length_penalty=alpha
        )
        return hypotheses(result, 0)[0][0]

    assert best(0.0, 8) == (END,)
    assert best(1.0, 8) == (2,) * 8


@pytest.mark.parametrize("beams", [1, 3])
def test_banned_ids_and_minimum_length(beams):
    model = HashModel(vocab=6, batch=8, seed=5)
    result = search(model, beams=beams, max_length=7, min_length=4, banned_ids=(0, 3))
    for example in range(8):
        (tokens, log_prob, _) = hypotheses(result, example)[0]
        assert len(tokens) >= 4 and not {0, 3} & set(tokens)
        assert log_prob == pytest.approx(model.log_prob(example, tokens), abs=1e-5)


def test_constraints_hold_in_exhaustive_search_too():
    model = HashModel(vocab=5, batch=2, seed=8)
    result = search(model, beams=64, n=5, max_length=4, min_length=3, banned_ids=(0, 2))
    for example in range(2):
        expected = model.exhaustive(example, END, 4, 0.0, allowed=(1, 3, 4), min_length=3)[:5]
        assert [h[0] for h in hypotheses(result, example)] == [e[2] for e in expected]


def test_prefix_is_forced_counted_and_may_hold_banned_ids():
    model = HashModel(vocab=6, batch=4, seed=9)
    prefix = np.array([[4, 3], [5, 0], [0, 0], [2, END]], "int32")
    for result in (
        search(model, beams=3, n=3, max_length=6, prefix=prefix, banned_ids=(0, 4)),
        greedily(model, max_length=6, prefix=prefix, banned_ids=(0, 4)),
    ):
        for example, forced in enumerate([(4, 3), (5,), (), (2, END)]):
            for tokens, log_prob, _ in hypotheses(result, example):
                if tokens:
                    assert tokens[: len(forced)] == forced
                    assert not {0, 4} & set(tokens[len(forced) :])
                    expected = model.log_prob(example, tokens)
                    assert log_prob == pytest.approx(expected, abs=1e-5)
        assert hypotheses(result, 3)[0][0] == (2, END)
    no_columns = greedily(model, max_length=6, prefix=np.zeros((4, 0), "int32"))
    assert hypotheses(no_columns, 1) == hypotheses(greedily(model, max_length=6), 1)


@pytest.mark.parametrize("beams", [1, 2, 4])
def test_limits_per_row_equal_the_limit_alone(beams):
    model = HashModel(vocab=6, batch=5, seed=13, sharpness=0.5)
    limits = np.array([0, 1, 3, 9, 50], "int32")
    options = dict(beams=beams, n=beams, length_penalty=0.6, max_length=9)
    together = search(model, limits=limits, **options)
    assert hypotheses(together, 0)[0] == ((), 0.0, 0.0)
    for example, limit in enumerate(limits[1:], start=1):
        options["max_length"] = min(int(limit), 9)
        alone = search(model, examples=[example], **options)
        assert hypotheses(together, example) == hypotheses(alone, 0)
    if beams == 1:
        result = greedily(model, max_length=9, limits=limits, length_penalty=0.6)
        for example in range(5):
            assert hypotheses(result, example) == hypotheses(together, example)


@pytest.mark.parametrize("beams", range(1, 6))
def test_neighbours_in_the_batch_change_nothing(beams):
    model = HashModel(vocab=9, batch=7, seed=21)
    together = search(model, beams=beams, n=beams, max_length=12, length_penalty=0.8)
    for example in (0, 3, 6):
        alone = search(
            model, beams=beams, examples=[example], n=beams, max_length=12, length_penalty=0.8
        )
        assert hypotheses(together, example) == hypotheses(alone, 0)


@pytest.mark.parametrize("shrinks, leaving", [(False, 16), (True, 16), (True, 1)])
@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("prefix", [None, [[2, 0], [3, 4], [0, 0], [2, 2], [4, 3], [3, 0]]])
def test_rooms_and_a_batch_that_shrinks_change_nothing(
    beams, prefix, shrinks, leaving, monkeypatch
):
    monkeypatch.setattr(HistoryStep, "shrinks", HistoryStep.shrinks and shrinks)
    monkeypatch.setattr(loop, "LEAVING", leaving)
    monkeypatch.setattr(loop, "STRETCH", 2)
    model = HashModel(vocab=6, batch=6, seed=5)
    options = dict(
        start_ids=np.array([0, 2, 3, 0, 4, 5]), n=min(beams, 2), max_length=9,
        limits=np.array([9, 1, 3, 0, 9, 6]), length_penalty=0.6, prefix=prefix,
    )  # fmt: skip
    growing = HistoryStep(model, beams, max_length=9)
    found = beam_search(growing, growing.start(), end_id=END, beams=beams, **options)
    expected = search(model, beams, **options)
    for example in range(6):
        assert hypotheses(found, example) == hypotheses(expected, example)
    sizes = growing.batches
    assert not growing.shrinks or (sizes[0] < 6 and sizes == sorted(sizes, reverse=True))


def test_examples_that_nobody_wants_have_one_empty_hypothesis():
    model = HashModel(vocab=4, batch=2, seed=1)
    found = search(model, beams=3, n=2, max_length=5, limits=np.zeros(2, "int32"))
    assert np.array(found.scores).tolist() == [[0.0, -np.inf]] * 2
    assert not np.array(found.lengths).any()


def test_length_limit_of_1_and_a_batch_of_0_rows():
    model = HashModel(vocab=4, batch=2, seed=1)
    for result in (search(model, beams=3, n=3, max_length=1), greedily(model, max_length=1)):
        for example in range(2):
            # 5: the hash of "start"; id 0 is padding
            order = 1 + np.argsort(-model.table[example, 5, 1:], kind="stable")
            found = [tokens for tokens, _, _ in hypotheses(result, example)]
            assert found == [(int(token),) for token in order[: len(found)]]
    empty = np.zeros(0, "int32")
    assert search(model, 3, examples=[], n=2, max_length=5).ids.shape == (0, 2, 5)
    assert greedily(model, examples=[], max_length=5, limits=empty).ids.shape == (0, 1, 5)


def test_fewer_hypotheses_than_asked_for():
    model = HashModel(vocab=3, batch=1, seed=2)
    found = hypotheses(search(model, beams=5, n=5, max_length=1, banned_ids=(0,)), 0)
    assert [len(tokens) for tokens, _, _ in found] == [1, 1, 0, 0, 0]
    assert [score for _, _, score in found[2:]] == [-math.inf] * 3


def test_large_vocabulary_selection_equals_sorting():
    rng = np.random.default_rng(0)
    table = normalise(rng.normal(size=(4 * 3, 8000)))

    def step(tokens, state):
        return ops.convert_to_tensor(table), state

    found = beam_search(
        step, (), start_ids=[2] * 4, end_id=3, beams=3, n=3, max_length=1, banned_ids=(0,)
    )
    order = np.argsort(-table[::3, 1:], axis=-1)[:, :3] + 1  # of the first beam of each example
    assert np.array(found.ids)[:, :, 0].tolist() == order.tolist()


def test_scores_by_marian_s_penalty_are_divided_by_the_length():
    model = HashModel(vocab=4, batch=3, seed=2)
    options = dict(max_length=4, length_penalty=1.0, length_offset=0.0)
    result = search(model, beams=128, n=12, limits=np.array([4, 3, 0], "int32"), **options)
    for example, limit in ((0, 4), (1, 3)):
        ways = model.exhaustive(example, END, limit=limit, alpha=0.0)
        means = sorted((log_prob / len(tokens) for _, log_prob, tokens in ways), reverse=True)
        found = [score for _, _, score in hypotheses(result, example)]
        np.testing.assert_allclose(found, means[:12], atol=1e-5)
    alone = greedily(model, limits=np.array([4, 3, 0], "int32"), **options)
    for found in (result, alone):  # the row that was not wanted
        assert (int(found.lengths[2, 0]), float(found.scores[2, 0])) == (0, 0.0)


def test_length_penalty_is_the_paper_s():
    expected = [((5 + length) / 6) ** 0.6 for length in (1, 7, 100)]
    np.testing.assert_allclose(np.array(length_penalty([1, 7, 100], 0.6)), expected, rtol=1e-6)


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(beams=2, n=3), "n must lie between 1 and beams=2; received 3"),
        (dict(max_length=0), "max_length must be at least 1; received 0"),
        (dict(min_length=9), "min_length must lie between 0 and max_length=4; received 9"),
        (dict(length_penalty=-1.0), "length_penalty must not be negative; received -1.0"),
        (dict(length_offset=-1.0), "length_offset must be finite and not negative; received -1.0"),
        (dict(banned_ids=(-1,)), "banned_ids must not be negative"),
        (dict(banned_ids=(99,)), "below the vocabulary size 4"),
        (dict(end_id=4), "end_id=4 .* must be below the vocabulary size 4"),
        (dict(end_id=0), "end_id must be at least 1"),
        (dict(start_ids=np.zeros((2, 1), "int32")), "start_ids must have rank 1"),
        (dict(prefix=np.zeros(2, "int32")), "prefix must have rank 2"),
        (dict(limits=np.zeros((2, 1), "int32")), "limits must have rank 1"),
    ],
)
def test_senseless_options_are_named(options, message):
    model = HashModel(vocab=4, batch=2, seed=0)
    with pytest.raises(ValueError, match=message):
        search(model, **{"beams": 2, "max_length": 4, **options})


@pytest.mark.parametrize("beams", [1, 2])
def test_no_more_than_the_step_has_room_for(beams):
    def step(tokens, state):
        return np.zeros((beams, 4), "float32"), state

    with pytest.raises(ValueError, match="started for max_length=5 tokens; received max_length=6"):
        beam_search(FunctionStep(step, 5), (), start_ids=[2], end_id=3, beams=beams, max_length=6)


def test_config_is_json_and_picks_the_decoder():
    config = DecodingConfig(beams=3, n=2, length_penalty=0.5, max_length=6)
    assert DecodingConfig.from_json(config.to_json()) == config
    with pytest.raises(ValueError, match="fields of a DecodingConfig: \\['width'\\]"):
        DecodingConfig.from_json('{"width": 3}')
    with pytest.raises(ValueError, match="n must lie between 1 and beams=1; received 2"):
        config.replace(beams=1)
    with pytest.raises(ValueError, match="length_factor must be positive; received 0"):
        config.replace(length_factor=0)
    with pytest.raises(ValueError, match="max_length must be at least 1; received 0"):
        config.replace(max_length=0)
    assert np.array(config.replace(length_factor=0.5).limits(np.array([10]))).tolist() == [6]
    # With this seed, each field and each argument changes the result.
    model = HashModel(vocab=6, batch=2, seed=13)
    start_ids = np.zeros(2, "int32")
    step, state = model.start(3)
    fields = dict(
        beams=3, n=2, length_penalty=0.5, length_offset=1.0, max_length=6, min_length=3
    )  # fmt: skip
    given = dict(
        banned_ids=(3,), prefix=[[2, 0], [4, 0]], limits=np.array([6, 4], "int32"), enough=1
    )  # fmt: skip
    found = config.replace(**fields).decode(step, state, start_ids=start_ids, end_id=END, **given)
    expected = search(model, **fields, **given)
    assert hypotheses(found, 0) == hypotheses(expected, 0)
    assert hypotheses(found, 1) == hypotheses(expected, 1)
    step, state = model.start(1)
    found = config.replace(beams=1, n=1).decode(step, state, start_ids=start_ids, end_id=END)
    expected = greedily(model, length_penalty=0.5, max_length=6)
    assert hypotheses(found, 1) == hypotheses(expected, 1)


def test_no_decoder_produces_padding():
    """Though it is the most probable token by far, and nobody asked for it to be banned."""
    table = normalise(
        [[4.0, -9.0, 1.0, 0.0], [0.0] * 4, [5.0, -1.0, -2.0, 2.0], [6.0, 1.0, 2.0, 0]]
    )

    def step(tokens, state):
        return ops.take(table, tokens, axis=0), state

    options = dict(start_ids=[0], end_id=END, max_length=6)
    best = greedy(step, (), **options)
    assert np.array(best.ids)[0, 0].tolist() == [2, 3, 2, 3, 2, 3]
    several = beam_search(step, (), beams=3, n=3, **options)
    drawn = [sample(step, (), seed=seed, **options) for seed in range(5)]
    for result in (best, several, *drawn):
        for tokens, _, _ in hypotheses(result, 0):
            assert tokens and 0 not in tokens


@pytest.mark.parametrize("seed", range(3))
def test_a_search_for_n_that_needs_one_is_the_search_for_one(seed):
    """It stops as early, and its best is the same; `enough` may be known at run time only."""
    model = HashModel(vocab=9, batch=5, seed=seed, sharpness=2.5)
    counts = []
    for options in (dict(n=1), dict(n=4, enough=ops.convert_to_tensor(1)), dict(n=4)):
        (step, state), steps = model.start(4), []

        def counted(tokens, state, step=step, steps=steps):
            steps.append(1)
            return step(tokens, state)

        result = beam_search(
            counted, state, start_ids=np.zeros(5, "int32"), end_id=END, beams=4, max_length=30,
            length_penalty=0.6, **options,
        )  # fmt: skip
        counts.append((len(steps), [hypotheses(result, example)[0] for example in range(5)]))
    assert counts[0] == counts[1]
    assert counts[2][0] >= counts[0][0] and counts[2][1] == counts[0][1]
