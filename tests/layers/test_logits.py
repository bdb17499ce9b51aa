"""Logits made with the embedding's table: their bias, which is a weight of their own."""

import keras
import numpy as np
import pytest
from helpers import POLICIES, random, to_numpy

from keras_tfmr import PositionalEmbedding, TiedLogits


@pytest.mark.parametrize("policy", POLICIES)
def test_the_bias_is_not_rounded(policy):
    layer = TiedLogits(PositionalEmbedding(20, 8, dtype=policy), use_bias=True, dtype=policy)
    x = np.zeros((1, 2, 8), "float32")
    layer(x)
    layer.bias.assign(np.full(20, 1.001))
    np.testing.assert_allclose(layer(x), np.full((1, 2, 20), 1.001), rtol=1e-6)


def test_options_of_the_bias():
    embedding, x = PositionalEmbedding(20, 8), random(1, 2, 8)
    options = {"bias_initializer": "ones", "bias_regularizer": "l2", "bias_constraint": "non_neg"}
    layer = TiedLogits(embedding, use_bias=True, **options)
    logits = to_numpy(layer(x))
    plain = to_numpy(TiedLogits(embedding)(x))
    np.testing.assert_allclose(logits, plain + 1, atol=1e-5)
    np.testing.assert_allclose(layer.losses, [0.01 * 20], rtol=1e-5)
    assert isinstance(layer.bias.constraint, keras.constraints.NonNeg)
    with pytest.raises(ValueError, match=r"no kernel.*Received: \['kernel_initializer'\]"):
        TiedLogits(embedding, kernel_initializer="zeros")
