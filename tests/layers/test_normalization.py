"""Layer normalisation and its written-out derivative, against Keras's own layer."""

import keras
import numpy as np
import pytest
from helpers import POLICIES, gradients, random, randomize, to_numpy
from keras import ops

from keras_tfmr.layers import LayerNormalization


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 4, 5)])
def test_numbers_and_gradients_of_keras(shape, training):
    ours, theirs = LayerNormalization(), keras.layers.LayerNormalization(epsilon=1e-6)
    for layer in (ours, theirs):
        layer.build(shape)
        randomize(layer)
    x, weight = random(*shape, scale=3.0) + 1, random(*shape, seed=1)
    np.testing.assert_allclose(ours(x, training=training), theirs(x), atol=1e-5)

    def loss(layer, **call):
        return lambda x: ops.sum(weight * layer(x, **call))

    came = gradients(loss(ours, training=training), [x], ours.trainable_variables)
    expected = gradients(loss(theirs), [x], theirs.trainable_variables)
    for one, other in zip(came[1] + came[2], expected[1] + expected[2], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("policy", POLICIES)
def test_float32_inside(policy):
    """Vectors far from zero: their variance is lost where the sums are rounded to 8 or 11 bits."""
    layer = LayerNormalization(dtype=policy)
    x = (100 + np.arange(8) % 2).astype("float32")[None]
    for training in (False, True):
        expected = np.where(np.arange(8) % 2, 1.0, -1.0)[None]
        np.testing.assert_allclose(to_numpy(layer(x, training=training)), expected, atol=0.01)


def test_constant_vectors_stay_finite():
    layer = LayerNormalization()
    x = np.full((1, 2, 8), 7.0, "float32")
    value, (gradient,), _ = gradients(lambda x: ops.sum(layer(x, training=True) ** 2), [x])
    assert np.isfinite(value) and np.isfinite(gradient).all()


def test_bad_epsilon():
    with pytest.raises(ValueError, match="epsilon=0"):
        LayerNormalization(0)
