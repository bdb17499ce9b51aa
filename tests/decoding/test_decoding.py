"""Greedy and beam search against the same search with lists, on models that are tables."""

import math

import numpy as np
import pytest
from decoding_toys import HashModel, HashStep, assert_same, decode, hypotheses, normalise
from helpers import ON_JAX, compiled
from keras import ops

from keras_tfmr.decoding import DecodingConfig, Sampling, loop

END = 1
NOISE = np.random.default_rng(5).random((6, 10), "float32")


def search(model, beams, n=1, limits=None, **options):
    step, state = model.start(beams)
    options = {"eos_id": END, "bos_ids": np.zeros(model.batch, "int32"), **options}
    return decode(
        step, state, num_beams=beams, num_return_sequences=n, max_lengths=limits, **options
    )


def some_impossible(logits):
    return np.where(logits < np.minimum(-1.2, logits.max(-1, keepdims=True)), -np.inf, logits)


@pytest.mark.parametrize("seed", range(8))
def test_any_beam_is_the_same_search_with_lists(seed):
    """With all constraints at once, and for each example its own prefix and limit."""
    rng = np.random.default_rng(seed)
    beams, vocab = (1, 2, 3, 5)[seed % 4], 7
    n = rng.integers(1, beams + 1)
    model = HashModel(vocab, batch=5, seed=seed, change=(np.asarray, some_impossible)[seed // 4])
    limits = np.array([0, 1, 3, 5, 6])
    given = [(), (2,), (5, vocab - 1), (3, 2), (4, END)]  # banned ids and stop ids too
    given = [given[i] if seed % 3 else () for i in rng.permutation(5)]
    prefix = [[*tokens, 0, 0][: 2 if seed % 3 else 0] for tokens in given]
    options = dict(
        eos_id=((END,), (END, 2))[seed % 2], min_length=seed % 4, banned_ids=(vocab - 1,)
    )
    alpha, offset = [(0.6, 5.0), (1.0, 0.0), (2.0, 5.0)][seed % 3]
    result = search(
        model, beams, n, limits=limits, max_length=6, length_penalty=alpha,
        length_penalty_offset=offset, prefix=np.array(prefix, "int32"), **options,
    )  # fmt: skip
    for example in range(5):
        expected = model.beam_search(
            example, beams, n, min(limits[example], 6), prefix=given[example], alpha=alpha,
            offset=offset, **options,
        )  # fmt: skip
        found = [h for h in hypotheses(result, example) if h[2] > -math.inf]
        assert [h[0] for h in found] == [h[0] for h in expected]
        np.testing.assert_allclose([h[1:] for h in found], [h[1:] for h in expected], atol=1e-4)


@pytest.mark.parametrize("seed", range(6))
def test_slots_come_once_where_they_are_due_and_before_the_end(seed):
    """As in the search with lists; the widest beam finds the best of all hypotheses there are."""
    rng, slot_ids = np.random.default_rng(seed), (6, 2, 4)
    beams, vocab, longest = (1, 2, 5, 5, 999, 999)[seed], 7, (6, 6, 6, 6, 4, 4)[seed]
    model = HashModel(vocab, batch=5, seed=seed)
    limits, due = (
        np.minimum([0, 2, 4, 6, 6], longest),
        [rng.permutation(slot_ids)[:i] for i in (2, 3, 1, 0, 2)],
    )
    slots = [sum(1 << slot_ids.index(slot) for slot in some) for some in due]
    prefix = [*map(list, (due[0][:1], due[1][:1], [3], [], due[4][1:]) if seed % 2 else [[]] * 5)]
    result = search(
        model, beams, n := min(beams, 4), limits=limits, max_length=longest, slot_ids=slot_ids,
        slots=np.array(slots, "int32"), min_length=seed % 3,
        prefix=np.array([[*tokens, 0][:1] for tokens in prefix], "int32"),
    )  # fmt: skip
    for example, some in enumerate(map(set, due)):
        expected = model.beam_search(
            example, beams, n, min(limits[example], longest), prefix=tuple(prefix[example]),
            eos_id=(END,), min_length=seed % 3, banned_ids=(), alpha=0.0, offset=5.0,
            slots=slot_ids, due=some,
        )  # fmt: skip
        found = [h for h in hypotheses(result, example) if h[2] > -math.inf]
        assert [h[0] for h in found] == [h[0] for h in expected]
        np.testing.assert_allclose([h[1:] for h in found], [h[1:] for h in expected], atol=1e-4)
        for tokens, _, _ in found:
            came = [token for token in tokens if token in slot_ids]
            assert len(came) == len({*came}) and {*came} <= some
            assert {*came} == some or END not in tokens


@pytest.mark.parametrize("way", [{}, {"num_beams": 2}, {"choose": Sampling(seed=1)}])
@pytest.mark.parametrize("prefix, tokens", [([0], ()), ([3], (3, END)), ([4], ())])
def test_a_hypothesis_that_nothing_can_continue_is_missing(way, prefix, tokens):
    """All begin with 2, behind which nothing may come; 4 has no probability, forced or not."""
    table = np.full((5, 5), -np.inf, "float32")
    table[0, 2:4], table[2, END], table[3, END], table[4, END] = (-0.1, -9.0), 0.0, -0.5, 0.0
    found = decode(
        lambda tokens, state: (ops.take(table, tokens, axis=0), state), (), bos_ids=[0],
        eos_id=END, min_length=2 if prefix == [3] else 3, max_length=4, prefix=[prefix], **way,
    )  # fmt: skip
    (found, log_prob, score), *_ = hypotheses(found, 0)
    assert found == tokens
    assert (log_prob == score == -math.inf) if not tokens else log_prob < 0


@pytest.mark.parametrize("beams", [2, 5])
def test_n_best_are_distinct_where_many_are_equally_probable(beams):
    model = HashModel(vocab=7, batch=6, seed=beams, change=np.round)
    result = search(model, beams, n=beams, max_length=8, length_penalty=0.6)
    for example in range(6):
        found = hypotheses(result, example)
        assert len({tokens for tokens, _, _ in found}) == beams
        assert found == sorted(found, key=lambda hypothesis: -hypothesis[2])
        for tokens, log_prob, _ in found:
            assert log_prob == pytest.approx(model.log_prob(example, tokens), abs=1e-5)


def test_any_other_choice_of_the_next_token():
    """The second of those allowed; the log-probability is the model's."""
    model = HashModel(vocab=6, batch=4, seed=3)
    options = dict(bos_ids=np.zeros(4, "int32"), eos_id=END, max_length=5, min_length=5)
    second = lambda log_probs, *_: ops.top_k(log_probs, 2)[1][:, 1]  # noqa: E731
    result = decode(*model.start(), choose=second, **options)
    for example in range(4):
        ((tokens, log_prob, _),), hashed, last = hypotheses(result, example), 0, 0
        for place, token in enumerate(tokens):
            hashed = model.next_hash(hashed, last)
            allowed = np.arange(1 if place == 4 else 2, 6)
            ranked = allowed[np.argsort(-model.table[example, hashed, allowed])]
            assert token == ranked[1]
            last = token
        assert log_prob == pytest.approx(model.log_prob(example, tokens), abs=1e-5)


def test_no_rows_and_few_hypotheses():
    for beams in (1, 3):
        empty = search(HashModel(vocab=4, batch=0, seed=1), beams, n=beams, max_length=5)
        assert empty.ids.shape == (0, beams, 5)
    model = HashModel(vocab=3, batch=1, seed=2)
    found = hypotheses(search(model, 5, n=5, max_length=1), 0)
    assert [len(tokens) for tokens, _, _ in found] == [1, 1, 0, 0, 0]
    assert [score for _, _, score in found[2:]] == [-math.inf] * 3


def test_large_vocabulary_selection_equals_sorting():
    table = normalise(np.random.default_rng(0).normal(size=(4 * 3, 8000)))
    found = decode(
        lambda tokens, state: (ops.convert_to_tensor(table), state), (), bos_ids=[2] * 4, eos_id=3,
        num_beams=3, num_return_sequences=3, max_length=1,
    )  # fmt: skip
    order = np.argsort(-table[::3, 1:], axis=-1)[:, :3] + 1  # of the first beam of each example
    assert np.array(found.ids)[:, :, 0].tolist() == order.tolist()


def test_config_is_json():
    config = DecodingConfig(num_beams=3, num_return_sequences=2, length_penalty=0.5, max_length=6)
    assert DecodingConfig.from_json(config.to_json()) == config
    for wrong, message in (
        (dict(width=3), "fields of a DecodingConfig: \\['width'\\]"),
        (
            dict(num_beams=1, num_return_sequences=2),
            "between 1 and num_beams=1. Received: num_return_sequences=2",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            DecodingConfig.from_dict(wrong)
    for ratio in (0.5, 1e30):
        longest = config.replace(max_length_ratio=ratio).max_lengths(np.array([10]))
        assert np.array(longest).tolist() == [6]


@pytest.mark.parametrize("seed", [0, 1])
def test_a_search_for_n_that_needs_one_is_the_search_for_one(seed):
    """It stops as early, and soon, at the same best; `num_certain` may be known in a run only."""
    model = HashModel(vocab=9, batch=5, seed=seed, sharpness=2.5)
    counts = []
    for n, certain in ((1, None), (4, ops.convert_to_tensor(1)), (4, None)):
        (step, state), steps = model.start(4), []

        def counted(tokens, state, step=step, steps=steps):
            steps.append(1)
            return step(tokens, state)

        result = decode(
            counted, state, bos_ids=np.zeros(5, "int32"), eos_id=END, num_beams=4, max_length=30,
            length_penalty=0.6, num_return_sequences=n, num_certain=certain,
        )  # fmt: skip
        counts.append((len(steps), [hypotheses(result, example)[0] for example in range(5)]))
    assert counts[0] == counts[1] and counts[0][0] < 25
    assert counts[2][0] >= counts[0][0] and counts[2][1] == counts[0][1]


@pytest.mark.backends("tensorflow", "jax")  # the functions of torch are eager
@pytest.mark.parametrize(
    "beams, vocab, options, xla",
    [
        (3, 8, dict(num_return_sequences=2, length_penalty=0.6), True),
        (4, 2400, dict(banned_ids=(0, 2)), False),
        (1, 8, dict(choose=Sampling(noise=NOISE, top_k=range(6), temperature=2)), True),
    ],
)
def test_eager_graph_and_compiled_agree(beams, vocab, options, xla, monkeypatch):
    """With a step whose source is in its state; a batch shrinks where shapes may change."""
    monkeypatch.setattr(loop, "LEAST_LEAVING", 1)
    model = HashModel(vocab, batch=6, seed=2, sharpness=2.0)

    def run(step, state, bos_ids, prefix, max_lengths, slots):
        return decode(
            step, state, bos_ids=bos_ids, eos_id=END, max_length=10, min_length=2,
            prefix=prefix, max_lengths=max_lengths, slot_ids=(7, 3), slots=slots,
            num_beams=beams, **options,
        )  # fmt: skip

    prefix = np.array([[3, 4], [5, 0], [0, 0], [0, 0], [0, 0], [6, 0]])
    limits, slots = np.array([10, 10, 10, 3, 1, 0], "int32"), np.array([3, 0, 3, 2, 1, 1], "int32")
    inputs = np.zeros(6, "int32"), prefix.astype("int32"), limits, slots
    expected = run(*model.start(beams), *inputs)
    compilers = [False] if ON_JAX else [False, True][: 1 + xla]
    ways = [(False, with_xla) for with_xla in compilers] + [(True, False)] * (not ON_JAX)
    for shrinks, with_xla in ways:
        step = HashStep(model, beams, shrinks)
        traced = compiled(lambda *inputs, step=step: run(step, step.start(), *inputs), with_xla)
        assert_same(traced(*map(ops.convert_to_tensor, inputs)), expected, range(6))
