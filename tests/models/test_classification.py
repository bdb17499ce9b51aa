"""The encoder with a head for sequences and one for tokens."""

import numpy as np
import pytest
from helpers import random, random_ids, randomize, to_numpy

from keras_tfmr import MeanOverTokens, SequenceClassifier, TokenClassifier, TransformerConfig

CONFIG = TransformerConfig.preset("tiny", source_vocab=20, target_vocab=20)


def test_mean_over_real_tokens():
    x = random(3, 4, 8)
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]], bool)
    output = to_numpy(MeanOverTokens()(x, mask=mask))
    expected = [x[0].mean(0), x[1, :2].mean(0), np.zeros(8)]
    np.testing.assert_allclose(output, expected, atol=1e-6)
    np.testing.assert_allclose(MeanOverTokens()(x), x.mean(1), atol=1e-6)


@pytest.mark.parametrize("kind", [SequenceClassifier, TokenClassifier])
def test_heads_read_the_encoder(kind):
    ids = random_ids(3, 5, vocab=20)
    ids[1, 2:] = 0
    model = kind(CONFIG, 3)
    randomize(model)
    vectors = to_numpy(model.encoder(ids))
    if kind is SequenceClassifier:
        real = (ids != 0)[:, :, None]
        vectors = (vectors * real).sum(1) / real.sum(1)
    kernel, bias = (to_numpy(weight) for weight in model.logits.dense.weights)
    np.testing.assert_allclose(model(ids), vectors @ kernel + bias, atol=1e-4)


def test_bad_number_of_classes():
    for bad in (0, -3, 2.5):
        with pytest.raises(ValueError, match=f"num_classes={bad}"):
            SequenceClassifier(CONFIG, bad)
