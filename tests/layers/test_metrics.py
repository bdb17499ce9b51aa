"""Accuracy and perplexity over an epoch: every real token once, not the mean of batch means."""

import formulas
import keras
import numpy as np
import pytest
from helpers import random, random_ids

from keras_tfmr import LabelSmoothedCrossEntropy, Perplexity, TokenAccuracy

VOCAB = 7


def batches():
    """Two batches of quite different numbers of real tokens."""
    for rows, length, real, seed in ((4, 6, 6, 0), (2, 5, 1, 1)):
        labels = random_ids(rows, length, vocab=VOCAB, seed=seed)
        labels[:, real:] = 0
        logits = random(rows, length, VOCAB, seed=seed, scale=2.0)
        logits[:1, :, :] += 4 * np.eye(VOCAB)[labels[:1]]  # some are right
        yield labels, logits.astype("float32")


def together():
    """Labels and logits of all the real tokens: [n], [n, vocab]."""
    real = [(labels[labels != 0], logits[labels != 0]) for labels, logits in batches()]
    return tuple(np.concatenate(parts) for parts in zip(*real, strict=True))


def expected(kind):
    labels, logits = together()
    if kind is TokenAccuracy:
        return (logits.argmax(-1) == labels).mean()
    return np.exp(-formulas.log_softmax(logits)[np.arange(len(labels)), labels].mean())


@pytest.mark.parametrize("kind", [TokenAccuracy, Perplexity])
def test_over_an_epoch(kind):
    metric = kind()
    means = []
    for labels, logits in batches():
        metric.update_state(labels, logits)
        one = kind()
        one.update_state(labels, logits)
        means.append(float(one.result()))
    np.testing.assert_allclose(metric.result(), expected(kind), rtol=1e-5)
    assert abs(np.mean(means) - expected(kind)) > 0.01  # what it must not be
    metric.reset_state()
    first = next(batches())
    metric.update_state(*first)
    np.testing.assert_allclose(metric.result(), means[0], rtol=1e-6)


@pytest.mark.parametrize("kind", [TokenAccuracy, Perplexity])
def test_in_fit(kind):
    """As `compile(metrics=...)` uses it: `evaluate` over unequal batches weighs by token."""
    inputs = keras.Input((None, VOCAB))
    model = keras.Model(inputs, keras.layers.Identity()(inputs))
    loss = LabelSmoothedCrossEntropy()
    model.compile(loss=loss, metrics=[kind(name="metric")], jit_compile=False)

    def data():
        for labels, logits in batches():
            yield logits, labels

    np.testing.assert_allclose(
        model.evaluate(data(), verbose=0, return_dict=True)["metric"], expected(kind), rtol=1e-5
    )


@pytest.mark.parametrize("kind", [TokenAccuracy, Perplexity])
def test_sample_weight(kind):
    labels, logits = next(batches())
    weighted, repeated = kind(), kind()
    weighted.update_state(labels, logits, sample_weight=np.array([2.0, 1.0, 0.0, 0.0]))
    for rows in ([0, 0], [1]):
        repeated.update_state(labels[rows], logits[rows])
    np.testing.assert_allclose(weighted.result(), repeated.result(), rtol=1e-5)


def test_nothing_seen():
    for metric in (TokenAccuracy(), Perplexity()):
        metric.update_state(np.zeros((1, 2), "int32"), random(1, 2, VOCAB))
        assert np.isfinite(float(metric.result()))


def test_perplexity_of_a_uniform_guess_is_the_vocabulary():
    metric = Perplexity()
    metric.update_state(np.array([[1, 2, 0]]), np.zeros((1, 3, VOCAB), "float32"))
    np.testing.assert_allclose(metric.result(), VOCAB, rtol=1e-6)


@pytest.mark.parametrize("kind", [TokenAccuracy, Perplexity])
def test_saves_and_loads(kind):
    config = keras.saving.serialize_keras_object(kind(name="mine"))
    again = keras.saving.deserialize_keras_object(config)
    assert isinstance(again, kind) and again.name == "mine"


@pytest.mark.parametrize("kind", [TokenAccuracy, Perplexity])
def test_bad_shapes(kind):
    with pytest.raises(ValueError, match=r"one axis more.*\(2, 3\).*\(2, 3\)"):
        kind().update_state(np.ones((2, 3), "int32"), random(2, 3))
