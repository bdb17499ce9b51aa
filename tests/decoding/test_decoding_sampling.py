"""Sampling against the distribution it is to draw from, and scoring of given sequences."""

import keras
import numpy as np
import pytest
from decoding_toys import HashModel, decode, hypotheses, normalise
from keras import ops

from keras_tfmr.decoding import Sampling, score

END = 1
ROWS = 4000
# 99.9 % quantiles of chi-square for 1 to 6 degrees of freedom
CHI_SQUARE = [10.83, 13.82, 16.27, 18.47, 20.52, 22.46]


def draw(table, rows=ROWS, banned_ids=(), **sampling):
    """First tokens of many rows that share one distribution."""
    log_probs = ops.convert_to_tensor(np.tile(normalise(table), (rows, 1)))
    result = decode(
        lambda tokens, state: (log_probs, state), (), choose=Sampling(**sampling), max_length=1,
        bos_ids=np.zeros(rows, "int32"), eos_id=END, banned_ids=banned_ids,
    )  # fmt: skip
    return np.array(result.ids)[:, 0, 0], result


def assert_distribution(tokens, expected):
    """Chi-square of the frequencies; what has probability 0 never appears."""
    counts = np.bincount(tokens, minlength=len(expected))
    assert not counts[expected == 0].any()
    counts, expected = counts[expected > 0], expected[expected > 0] * len(tokens)
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert statistic < CHI_SQUARE[len(expected) - 2]


LOGITS = np.array([0.3, -1.0, 2.0, 1.2, 0.4, -0.5, 1.0])


def distribution(logits, temperature=1.0, top_k=0, top_p=1.0):
    """In float64, the sets found by sorting."""
    probs = np.exp((logits - logits.max()) / temperature)
    order = np.argsort(-probs)
    if top_k > 0:
        probs[order[top_k:]] = 0
    if top_p < 1:
        before = np.cumsum(probs[order]) - probs[order]
        probs[order[before >= max(top_p, 1e-9) * probs.sum()]] = 0
    return probs / probs.sum()


@pytest.mark.parametrize(
    "options",
    [{}, {"temperature": 0.5}, {"temperature": 2.0}, {"top_k": 3}, {"top_k": 4, "top_p": 0.8}],
)
@pytest.mark.parametrize("banned", [(0,), (0, 2, 6)])  # padding without being asked
def test_frequencies_are_those_of_the_distribution(options, banned):
    tokens, result = draw(LOGITS, seed=4, banned_ids=banned[1:], **options)
    allowed = np.where(np.isin(np.arange(7), banned), -np.inf, LOGITS)
    assert_distribution(tokens, distribution(allowed, **options))
    # The log-probabilities returned stay the model's own.
    own = normalise(LOGITS)[tokens]
    np.testing.assert_allclose(np.array(result.log_probs)[:, 0], own, atol=1e-6)


def test_a_certain_model_is_followed_whatever_the_noise():
    # A probability of exactly 0 before, between and after: no rounding may draw one of them.
    table = np.full(400, -np.inf)
    table[[7, 100]] = np.log(0.5)
    tokens = draw(np.where(np.isinf(table), -1e4, table), seed=9)[0]
    assert set(tokens) == {7, 100}


def test_same_seed_same_text_and_a_generator_moves_on():
    model = HashModel(vocab=9, batch=20, seed=0)
    generator = keras.random.SeedGenerator(3)
    options = dict(bos_ids=np.zeros(20, "int32"), eos_id=END, max_length=4)
    seeds = (1, 1, 2, generator, generator)
    one, again, *others = (
        decode(*model.start(), choose=Sampling(seed=seed), **options) for seed in seeds
    )
    assert np.array_equal(one.ids, again.ids)
    assert len({np.array(result.ids).tobytes() for result in (one, *others)}) == 4
    for example in range(20):
        (tokens, log_prob, _) = hypotheses(one, example)[0]
        assert tokens[-1] == END or len(tokens) == 4
        assert log_prob == pytest.approx(model.log_prob(example, tokens), abs=1e-5)


def test_score_is_the_sum_over_real_tokens():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(3, 4, 6)).astype("float32") * 3
    target = np.array([[2, 5, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]], "int32")
    log_prob, lengths = score(logits, target)
    log_probs = normalise(logits)
    expected = [sum(log_probs[row, t, i] for t, i in enumerate(ids) if i) for row, ids in
                enumerate(target)]  # fmt: skip
    np.testing.assert_allclose(np.array(log_prob), expected, atol=1e-5)
    assert np.array(lengths).tolist() == [3, 1, 0]


def test_every_example_has_its_own_options_and_noise():
    rng = np.random.default_rng(0)
    rows, vocab = 300, 40
    logits = normalise(rng.normal(0, 2, (rows, vocab))).astype("float64")
    logits[:, 0] = -np.inf  # padding is never drawn
    noise = rng.random((rows, 1)).astype("float32")
    temperature = rng.choice([0.0, 0.5, 1.0, 3.0], rows).astype("float32")
    top_k = rng.choice([0, 1, 5, 39, 1000], rows).astype("int32")
    top_p = rng.choice([0.01, 0.5, 0.9, 1.0], rows).astype("float32")
    tokens = [
        np.searchsorted(np.cumsum(distribution(row, *own)), number, side="right")
        if own[0] > 0
        else row.argmax()
        for row, number, *own in zip(logits, noise[:, 0], temperature, top_k, top_p, strict=True)
    ]
    options = {"bos_ids": np.zeros(rows, "int32"), "eos_id": END, "max_length": 1}
    log_probs = ops.convert_to_tensor(logits.astype("float32"))
    sampling = Sampling(noise=noise, temperature=temperature, top_k=top_k, top_p=top_p)
    result = decode(lambda tokens, state: (log_probs, state), (), choose=sampling, **options)
    found = np.array(result.ids)[:, 0, 0]
    assert (found == tokens).mean() > 0.99, "except for rounding at a boundary"
    own = logits[np.arange(rows), found]
    np.testing.assert_allclose(np.array(result.log_probs)[:, 0], own, atol=1e-5)


def test_noise_log_probabilities_and_scores_begin_behind_the_prefix():
    """Draws for an example are the same however long the prefixes of the others are."""
    log_probs = ops.convert_to_tensor(np.tile(normalise(LOGITS), (2, 1)))
    noise = np.tile(np.random.default_rng(1).random((1, 4)), (2, 1)).astype("float32")
    sampling = Sampling(
        noise=noise, temperature=np.ones(2, "float32"), top_k=np.zeros(2, "int32"),
        top_p=np.ones(2, "float32"),
    )  # fmt: skip
    result = decode(
        lambda tokens, state: (log_probs, state), (), bos_ids=[0, 0], eos_id=END, max_length=5,
        min_length=5, prefix=[[2, 3, 0], [0, 0, 0]], length_penalty=1.0, length_penalty_offset=0.0,
        choose=sampling,
    )  # fmt: skip
    first, second = np.array(result.ids)[:, 0]
    assert first[:2].tolist() == [2, 3] and first[2:].tolist() == second[:3].tolist()
    own = normalise(LOGITS)
    expected = [own[first[2:]].sum(), own[second].sum()]
    np.testing.assert_allclose(np.array(result.log_probs)[:, 0], expected, atol=1e-4)
    means = np.array(expected) / [3, 5]
    np.testing.assert_allclose(np.array(result.scores)[:, 0], means, atol=1e-4)
