"""Greedy and beam search against exhaustive search on models small enough to list."""

import math

import numpy as np
import pytest
from decoding_toys import HashModel, HistoryStep, hypotheses, normalise
from keras import ops

import keras_tfmr.decoding.search as loop
from keras_tfmr.decoding import (
    DecodingConfig,
    FunctionStep,
    beam_search,
    generate,
    greedy,
    length_penalty,
    sample,
)

END = 1


def search(model, beams, n=1, examples=None, limits=None, **options):
    step, cache = model.start(beams, examples)
    batch = model.batch if examples is None else len(examples)
    options = {"eos_id": END, "bos_ids": np.zeros(batch, "int32"), **options}
    return beam_search(
        step, cache, num_beams=beams, num_return_sequences=n, max_lengths=limits, **options
    )


def greedily(model, **options):
    step, cache = model.start()
    options = {"eos_id": END, "bos_ids": np.zeros(model.batch, "int32"), **options}
    return greedy(step, cache, **options)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_wide_beam_is_exhaustive_search(seed, alpha):
    model = HashModel(vocab=4, batch=3, seed=seed)
    result = search(model, 128, n=12, max_length=4, length_penalty=alpha)
    for example in range(3):
        expected = model.exhaustive(example, END, limit=4, alpha=alpha)[:12]
        found = hypotheses(result, example)
        assert [tokens for tokens, _, _ in found] == [tokens for _, _, tokens in expected]
        np.testing.assert_allclose([f[1] for f in found], [e[1] for e in expected], atol=1e-5)
        np.testing.assert_allclose([f[2] for f in found], [e[0] for e in expected], atol=1e-5)


def test_constraints_hold_in_exhaustive_search_too():
    model = HashModel(vocab=5, batch=2, seed=8)
    result = search(model, 64, n=5, max_length=4, min_length=3, banned_ids=(0, 2))
    for example in range(2):
        expected = model.exhaustive(example, END, 4, 0.0, allowed=(1, 3, 4), min_length=3)[:5]
        assert [h[0] for h in hypotheses(result, example)] == [e[2] for e in expected]


@pytest.mark.parametrize("min_length", [0, 3])
def test_several_stop_ids_are_one_id_split_in_two(min_length):
    """All hypotheses of exhaustive search that end in either, and hold neither before."""
    model = HashModel(vocab=5, batch=2, seed=3)
    result = search(model, 128, n=9, max_length=4, eos_id=(1, 3), min_length=min_length)
    single = search(model, 1, max_length=9, eos_id=[1, 3], min_length=min_length)
    for example in range(2):
        ways = [
            (log_prob, tokens)
            for end in (1, 3)
            for _, log_prob, tokens in model.exhaustive(
                example, end, 4, 0.0, allowed=(2, 4, end), min_length=min_length
            )
        ]
        ways = sorted(set(ways), reverse=True)[:9]
        assert [h[0] for h in hypotheses(result, example)] == [tokens for _, tokens in ways]
        tokens = hypotheses(single, example)[0][0]
        assert not {1, 3} & set(tokens[:-1]) and len(tokens) >= min_length


@pytest.mark.parametrize("beams", range(1, 6))
def test_n_best_are_distinct_sorted_and_scored_as_scored_alone(beams):
    model = HashModel(vocab=7, batch=6, seed=beams)
    options = dict(max_length=8, length_penalty=0.6)
    result = search(model, beams, n=beams, **options)
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
        # Neighbours in the batch change nothing.
        alone = search(model, beams, n=beams, examples=[example], **options)
        assert hypotheses(alone, 0) == found


def test_greedy_takes_the_most_probable_token():
    model = HashModel(vocab=6, batch=16, seed=3)
    one, best = search(model, 1, max_length=9), greedily(model, max_length=9)
    for example in range(16):
        (tokens, log_prob, _), hashed, last = hypotheses(best, example)[0], 0, 0
        for token in tokens:
            hashed = model.next_hash(hashed, last)
            assert token == 1 + model.table[example, hashed, 1:].argmax()
            last = token
        assert tokens[-1] == END or len(tokens) == 9
        assert log_prob == pytest.approx(model.log_prob(example, tokens), abs=1e-5)
        assert hypotheses(one, example)[0][:2] == (tokens, pytest.approx(log_prob, abs=1e-5))


def test_any_choice_of_the_next_token():
    """`generate` with the token of rank 2 of those allowed, log-probabilities the model's."""
    model = HashModel(vocab=6, batch=4, seed=3)
    step, cache = model.start()
    result = generate(
        step, cache, lambda log_probs, position, examples: ops.top_k(log_probs, 2)[1][:, 1],
        bos_ids=np.zeros(4, "int32"), eos_id=END, max_length=5, min_length=5,
    )  # fmt: skip
    for example in range(4):
        ((tokens, log_prob, _),), hashed, last = hypotheses(result, example), 0, 0
        for place, token in enumerate(tokens):
            hashed = model.next_hash(hashed, last)
            allowed = np.arange(1 if place == 4 else 2, 6)
            ranked = allowed[np.argsort(-model.table[example, hashed, allowed])]
            assert token == ranked[1]
            last = token
        assert log_prob == pytest.approx(model.log_prob(example, tokens), abs=1e-5)


def test_a_finished_hypothesis_is_frozen():
    # "End at once" has log p = -0.51; after any other first token nothing costs anything, so the
    # best competitor ends at -0.95. A search that goes on extending the ended hypothesis, as if
    # the end were a token like others, lets it fall behind the competitor.
    first = normalise([-50.0, *np.log([0.6, 0.387, 0.013])])
    later = normalise([[-50.0, -2.5, -2.0, -1.0]])

    def step(tokens, cache):
        begin = ops.equal(cache["count"], 0)
        certain = normalise([-50.0, 0.0, -50.0, -50.0])
        after_a = ops.where(ops.equal(tokens, 2)[:, None], certain, later)
        return ops.where(begin, first, after_a), {"count": cache["count"] + 1}

    result = beam_search(
        step, {"count": ops.zeros((), "int32")}, bos_ids=[0], eos_id=END, num_beams=2,
        num_return_sequences=2, max_length=4,
    )  # fmt: skip
    (tokens, log_prob, _), (second, other, _) = hypotheses(result, 0)
    assert tokens == (END,) and second == (2, END)
    assert log_prob == pytest.approx(math.log(0.6), abs=1e-3)
    assert other == pytest.approx(math.log(0.387), abs=1e-3)


def test_the_early_exit_saves_steps_and_changes_nothing():
    model = HashModel(vocab=5, batch=1, seed=11, sharpness=3.0)
    start, steps = model.start(600), []

    def step(tokens, cache):
        steps.append(1)
        return start[0](tokens, cache)

    options = dict(bos_ids=np.zeros(1, "int32"), eos_id=END, num_beams=600)
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
    for alpha, expected in ((0.0, (END,)), (1.0, (2,) * 8)):
        result = beam_search(
            lambda tokens, cache: (ops.take(table, tokens, axis=0), cache), (), bos_ids=[0],
            eos_id=END, num_beams=2, max_length=8, length_penalty=alpha,
        )  # fmt: skip
        assert hypotheses(result, 0)[0][0] == expected


def test_prefix_is_forced_counted_and_may_hold_banned_ids():
    model = HashModel(vocab=6, batch=4, seed=9)
    options = dict(prefix=np.array([[4, 3], [5, 0], [0, 0], [2, END]]), banned_ids=(0, 4))
    for beams in (1, 3):
        result = search(model, beams, n=beams, max_length=6, **options)
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
    options = dict(n=beams, length_penalty=0.6)
    together = search(model, beams, limits=limits, max_length=9, **options)
    assert hypotheses(together, 0)[0] == ((), 0.0, 0.0)
    for example, limit in enumerate(limits[1:], start=1):
        alone = search(model, beams, examples=[example], max_length=min(int(limit), 9), **options)
        assert hypotheses(together, example) == hypotheses(alone, 0)


@pytest.mark.parametrize("shrinks, leaving", [(False, 16), (True, 16), (True, 1)])
@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("prefix", [None, [[2, 0], [3, 4], [0, 0], [2, 2], [4, 3], [3, 0]]])
def test_a_batch_that_shrinks_changes_nothing(beams, prefix, shrinks, leaving, monkeypatch):
    monkeypatch.setattr(loop, "LEAVING", leaving)
    monkeypatch.setattr(loop, "STRETCH", 2)
    model = HashModel(vocab=6, batch=6, seed=5)
    options = dict(
        bos_ids=np.array([0, 2, 3, 0, 4, 5]), max_length=9, length_penalty=0.6, prefix=prefix
    )
    limits, n = np.array([9, 1, 3, 0, 9, 6]), min(beams, 2)
    growing = HistoryStep(model, beams, max_length=9)
    growing.shrinks = growing.shrinks and shrinks
    found = beam_search(
        growing, growing.start(), eos_id=END, num_beams=beams, num_return_sequences=n,
        max_lengths=limits, **options,
    )  # fmt: skip
    expected = search(model, beams, n=n, limits=limits, **options)
    for example in range(6):
        assert hypotheses(found, example) == hypotheses(expected, example)
    sizes = growing.batches
    assert not growing.shrinks or (sizes[0] < 6 and sizes == sorted(sizes, reverse=True))


def test_no_tokens_no_rows_and_few_hypotheses():
    model = HashModel(vocab=4, batch=2, seed=1)
    # Examples that nobody wants have one empty hypothesis.
    found = search(model, 3, n=2, max_length=5, limits=np.zeros(2, "int32"))
    assert np.array(found.scores).tolist() == [[0.0, -np.inf]] * 2
    assert not np.array(found.lengths).any()
    for beams in (1, 3):
        result = search(model, beams, n=beams, max_length=1)
        for example in range(2):
            # 5: the hash of "start"; id 0 is padding
            order = 1 + np.argsort(-model.table[example, 5, 1:], kind="stable")
            found = [tokens for tokens, _, _ in hypotheses(result, example)]
            assert found == [(int(token),) for token in order[: len(found)]]
        empty = search(model, beams, n=beams, examples=[], max_length=5)
        assert empty.ids.shape == (0, beams, 5)
    model = HashModel(vocab=3, batch=1, seed=2)
    found = hypotheses(search(model, 5, n=5, max_length=1), 0)
    assert [len(tokens) for tokens, _, _ in found] == [1, 1, 0, 0, 0]
    assert [score for _, _, score in found[2:]] == [-math.inf] * 3


def test_large_vocabulary_selection_equals_sorting():
    table = normalise(np.random.default_rng(0).normal(size=(4 * 3, 8000)))
    found = beam_search(
        lambda tokens, cache: (ops.convert_to_tensor(table), cache), (), bos_ids=[2] * 4, eos_id=3,
        num_beams=3, num_return_sequences=3, max_length=1,
    )  # fmt: skip
    order = np.argsort(-table[::3, 1:], axis=-1)[:, :3] + 1  # of the first beam of each example
    assert np.array(found.ids)[:, :, 0].tolist() == order.tolist()


def test_length_penalties_are_the_paper_s_and_marian_s():
    lengths = np.array([1, 7, 100])
    found = np.array(length_penalty(lengths, 0.6))
    np.testing.assert_allclose(found, ((5 + lengths) / 6) ** 0.6, rtol=1e-6)
    model = HashModel(vocab=4, batch=3, seed=2)
    options = dict(max_length=4, length_penalty=1.0, length_penalty_offset=0.0)
    limits = np.array([4, 3, 0], "int32")
    result = search(model, 128, n=12, limits=limits, **options)
    for example, limit in ((0, 4), (1, 3)):
        ways = model.exhaustive(example, END, limit=limit, alpha=0.0)
        means = sorted((log_prob / len(tokens) for _, log_prob, tokens in ways), reverse=True)
        found = [score for _, _, score in hypotheses(result, example)]
        np.testing.assert_allclose(found, means[:12], atol=1e-5)
    for found in (result, greedily(model, max_lengths=limits, **options)):
        assert (int(found.lengths[2, 0]), float(found.scores[2, 0])) == (0, 0.0)


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(n=3), "num_return_sequences must lie between 1 and num_beams=2; received 3"),
        (dict(max_length=0), "max_length must be at least 1; received 0"),
        (dict(min_length=9), "min_length must lie between 0 and max_length=4; received 9"),
        (dict(length_penalty=-1.0), "length_penalty must not be negative; received -1.0"),
        (dict(length_penalty_offset=-1.0), "offset must be finite and not negative; received -1.0"),
        (dict(banned_ids=(-1,)), "banned_ids must not be negative"),
        (dict(banned_ids=(99,)), "below the vocabulary size 4"),
        (dict(eos_id=4), r"eos_id=.*4.* must be below the vocabulary size 4"),
        (dict(eos_id=0), "eos_id must be at least 1"),
        (dict(eos_id=()), "eos_id must be at least 1"),
        (dict(eos_id=(2, 0)), "eos_id must be at least 1"),
        (dict(bos_ids=np.zeros((2, 1), "int32")), "bos_ids must have rank 1"),
        (dict(prefix=np.zeros(2, "int32")), "prefix must have rank 2"),
        (dict(limits=np.zeros((2, 1), "int32")), "max_lengths must have rank 1"),
    ],
)
def test_senseless_options_are_named(options, message):
    model = HashModel(vocab=4, batch=2, seed=0)
    with pytest.raises(ValueError, match=message):
        search(model, 2, **{"max_length": 4, **options})


@pytest.mark.parametrize("beams", [1, 2])
def test_no_more_than_the_step_has_room_for(beams):
    step = FunctionStep(lambda tokens, cache: (np.zeros((beams, 4), "float32"), cache), 5)
    with pytest.raises(ValueError, match="started for max_length=5 tokens; received max_length=6"):
        beam_search(step, (), bos_ids=[2], eos_id=3, num_beams=beams, max_length=6)
    with pytest.raises(TypeError, match=r"`step` must be a DecodingStep or a function.*: str"):
        beam_search("step", (), bos_ids=[2], eos_id=3, num_beams=beams, max_length=6)


def test_config_is_json_and_picks_the_decoder():
    config = DecodingConfig(num_beams=3, num_return_sequences=2, length_penalty=0.5, max_length=6)
    assert DecodingConfig.from_json(config.to_json()) == config
    for wrong, message in (
        (dict(width=3), "fields of a DecodingConfig: \\['width'\\]"),
        (dict(num_beams=1, num_return_sequences=2), "between 1 and num_beams=1; received 2"),
        (dict(max_length_ratio=0), "max_length_ratio must be positive; received 0"),
        (dict(max_length=0), "max_length must be at least 1; received 0"),
    ):
        with pytest.raises(ValueError, match=message):
            DecodingConfig.from_dict(wrong)
    longest = config.replace(max_length_ratio=0.5).max_lengths(np.array([10]))
    assert np.array(longest).tolist() == [6]
    # With this seed, each field and each argument changes the result.
    model = HashModel(vocab=6, batch=2, seed=13)
    fields = dict(length_penalty=0.5, length_penalty_offset=1.0, max_length=6, min_length=3)
    given = dict(banned_ids=(3,), prefix=[[2, 0], [4, 0]], num_certain=1)
    limits = np.array([6, 4], "int32")
    bos_ids = np.zeros(2, "int32")
    for beams in (3, 1):
        n = min(beams, 2)
        config = DecodingConfig(num_beams=beams, num_return_sequences=n, **fields)
        found = config.decode(
            *model.start(beams), bos_ids=bos_ids, eos_id=END, max_lengths=limits, **given
        )
        expected = search(model, beams, n=n, limits=limits, **fields, **given)
        for example in range(2):
            assert hypotheses(found, example) == hypotheses(expected, example)


def test_no_decoder_produces_padding():
    """Though it is the most probable token by far, and nobody asked for it to be banned."""
    table = normalise(
        [[4.0, -9.0, 1.0, 0.0], [0.0] * 4, [5.0, -1.0, -2.0, 2.0], [6.0, 1.0, 2.0, 0]]
    )

    def step(tokens, cache):
        return ops.take(table, tokens, axis=0), cache

    options = dict(bos_ids=[0], eos_id=END, max_length=6)
    best = greedy(step, (), **options)
    assert np.array(best.ids)[0, 0].tolist() == [2, 3, 2, 3, 2, 3]
    several = beam_search(step, (), num_beams=3, num_return_sequences=3, **options)
    drawn = [sample(step, (), seed=seed, **options) for seed in range(5)]
    for result in (best, several, *drawn):
        for tokens, _, _ in hypotheses(result, 0):
            assert tokens and 0 not in tokens


@pytest.mark.parametrize("seed", range(3))
def test_a_search_for_n_that_needs_one_is_the_search_for_one(seed):
    """It stops as early, and its best is the same; `num_certain` may be known at run time only."""
    model = HashModel(vocab=9, batch=5, seed=seed, sharpness=2.5)
    counts = []
    for n, certain in ((1, None), (4, ops.convert_to_tensor(1)), (4, None)):
        (step, cache), steps = model.start(4), []

        def counted(tokens, cache, step=step, steps=steps):
            steps.append(1)
            return step(tokens, cache)

        result = beam_search(
            counted, cache, bos_ids=np.zeros(5, "int32"), eos_id=END, num_beams=4, max_length=30,
            length_penalty=0.6, num_return_sequences=n, num_certain=certain,
        )  # fmt: skip
        counts.append((len(steps), [hypotheses(result, example)[0] for example in range(5)]))
    assert counts[0] == counts[1]
    assert counts[2][0] >= counts[0][0] and counts[2][1] == counts[0][1]
