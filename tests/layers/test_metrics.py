"""Accuracy and perplexity over an epoch: every real token once, not the mean of batch means."""

import formulas
import keras
import numpy as np
import pytest
from helpers import random, random_ids

from keras_tfmr import Perplexity, TokenAccuracy

VOCAB = 7


def batches():
    """Two batches of quite different lengths and numbers of real tokens."""
    for rows, length, real, seed in ((4, 6, 6, 0), (2, 5, 1, 1)):
        labels = random_ids(rows, length, vocab=VOCAB, seed=seed)
        labels[:, real:] = 0
        logits = random(rows, length, VOCAB, seed=seed, scale=2.0)
        logits[:1, :, :] += 4 * np.eye(VOCAB)[labels[:1]]  # some are right
        yield labels, logits.astype("float32")


def expected(kind, batches):
    """Of all the real tokens together, as one list."""
    real = [(labels[labels != 0], logits[labels != 0]) for labels, logits in batches]
    labels, logits = (np.concatenate(parts) for parts in zip(*real, strict=True))
    if kind is TokenAccuracy:
        return (logits.argmax(-1) == labels).mean()
    return np.exp(-formulas.log_softmax(logits)[np.arange(len(labels)), labels].mean())


@pytest.mark.parametrize("kind", [TokenAccuracy, Perplexity])
def test_over_an_epoch_and_with_sample_weights(kind):
    metric = kind(name="mine")
    metric = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(metric))
    assert isinstance(metric, kind) and metric.name == "mine"
    metric.update_state(np.zeros((1, 2), "int32"), random(1, 2, VOCAB))
    assert np.isfinite(float(metric.result()))  # nothing seen
    for labels, logits in batches():
        metric.update_state(labels, logits)
    np.testing.assert_allclose(metric.result(), expected(kind, batches()), rtol=1e-5)
    metric.reset_state()
    labels, logits = next(batches())
    metric.update_state(labels, logits, sample_weight=np.array([2.0, 1.0, 0.0, 0.0]))
    repeated = [(labels[rows], logits[rows]) for rows in ([0, 0], [1])]
    np.testing.assert_allclose(metric.result(), expected(kind, repeated), rtol=1e-5)
    with pytest.raises(ValueError, match=r"one axis more.*\(2, 3\).*\(2, 3\)"):
        metric.update_state(np.ones((2, 3), "int32"), random(2, 3))
