"""The sublayers of Figure 1 with their residuals; their numbers are those of the whole model."""

import functools

import keras
import numpy as np
import pytest
from helpers import random, randomize, to_numpy

from keras_tfmr import CausalSelfAttention, CrossAttention, FeedForward, GlobalSelfAttention

ATTENTION = [GlobalSelfAttention, CausalSelfAttention, CrossAttention]
X, CONTEXT = random(3, 5, 8), random(3, 7, 8, seed=1)


@pytest.mark.parametrize("rate", [0.0, 0.4])
@pytest.mark.parametrize("make", [functools.partial(GlobalSelfAttention, 2, 5),
                                  functools.partial(FeedForward, 64, 8)])  # fmt: skip
def test_the_output_is_dropped_at_the_callers_rate(make, rate):
    """Section 5.4 of the paper: on the output of each sublayer, before the sum."""
    layer, x = make(dropout_rate=rate, norm_first=True), random(4, 32, 64)
    layer(x)
    randomize(layer)
    dropped = (to_numpy(layer(x, training=True)) - x == 0).mean()
    assert abs(dropped - rate) < 0.05


@pytest.mark.parametrize("beside", [{}, {"attention_mask": np.ones((4, 4), bool)}])
@pytest.mark.parametrize("norm", [None, keras.layers.RMSNormalization()])  # passes no mask on
@pytest.mark.parametrize("kind", ATTENTION)
def test_keras_masks_are_used_and_passed_on(kind, norm, beside):
    """That of the context in cross-attention."""
    ids = np.array([[3, 4, 5, 0], [3, 4, 0, 0]])
    x = keras.layers.Embedding(9, 8, mask_zero=True)(ids)
    inputs = (random(2, 5, 8), x) if kind is CrossAttention else (x,)
    beside = {} if kind is CrossAttention else beside
    layer = kind(2, 5, norm=norm, norm_first=norm is not None)
    output, scores = layer(*inputs, **beside, return_attention_scores=True)
    np.testing.assert_array_equal(to_numpy(scores).any(axis=(1, 2)), ids != 0)
    given = layer(*map(to_numpy, inputs), ids != 0)  # the masks as arguments
    np.testing.assert_allclose(output, given, atol=1e-6)
    if kind is not CrossAttention:
        np.testing.assert_array_equal(layer(x, **beside)._keras_mask, ids != 0)
