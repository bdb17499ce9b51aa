"""Dropout, layer normalisation and dense layers, which replace Keras's: no pattern, its numbers."""

import keras
import numpy as np
import pytest
from helpers import POLICIES, gradients, random, randomize, second_gradient, to_numpy
from keras import ops

from keras_tfmr.layers import Dropout, LayerNormalization
from keras_tfmr.layers.dense import Dense


@pytest.mark.parametrize(
    "rate, shape", [(0.001, (40, 31, 33)), (0.1, (50_001,)), (0.999, (9, 9999))]
)
def test_rate_and_expectation(rate, shape):
    """A share within 1/256 of the rate is dropped; what is kept is scaled to the same mean."""
    output = to_numpy(Dropout(rate)(np.ones(shape, "float32"), training=True))
    dropped = (output == 0).mean()
    effective = min(max(round(rate * 256), 1), 255) / 256
    deviation = np.sqrt(effective * (1 - effective) / output.size)
    assert abs(dropped - effective) < 5 * deviation
    np.testing.assert_allclose(output[output != 0], 1 / (1 - effective), rtol=1e-5)


def test_no_pattern():
    """Neighbours along every axis, bytes of one word, and two calls are independent."""
    layer = Dropout(0.5)
    first, second = (
        to_numpy(layer(np.ones((64, 64, 64), "float32"), training=True)) == 0 for _ in range(2)
    )
    assert 0.49 < (first == second).mean() < 0.51
    for axis in range(3):
        for distance in (1, 2, 3, 4, 8, 16, 32):
            same = first == np.roll(first, distance, axis=axis)
            assert 0.49 < same.mean() < 0.51, f"axis {axis}, distance {distance}"
        rates = first.mean(axis=tuple({0, 1, 2} - {axis}))
        assert rates.min() > 0.45 and rates.max() < 0.55


def test_the_seed_and_training_alone_decide():
    outputs = [Dropout(0.5, seed=3)(np.ones((9, 9), "float32"), training=True) for _ in range(2)]
    np.testing.assert_array_equal(*outputs)
    x = random(3, 5)
    for rate, training in ((0.5, False), (0.5, None), (0.0, True)):
        np.testing.assert_array_equal(Dropout(rate)(x, training=training), x)


def test_gradient_passes_where_the_input_does():
    layer, x = Dropout(0.5, seed=3), random(20, 20)
    layer(x)  # the seed of the layer is made outside of any trace
    before = to_numpy(layer.seed_generator.state)
    _, (gradient,), _ = gradients(lambda x: ops.sum(layer(x, training=True) * 3), [x])
    layer.seed_generator.state.assign(before.astype("uint32"))
    again = to_numpy(layer(x, training=True))
    np.testing.assert_allclose(gradient, 3 * (again / x), rtol=1e-5)


def test_each_number_is_dropped_by_itself():
    with pytest.raises(ValueError, match=r"noise_shape=\(3, 1\)"):
        Dropout(0.5, noise_shape=(3, 1))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 4, 5)])
def test_numbers_and_gradients_of_keras(shape, training):
    ours, theirs = LayerNormalization(), keras.layers.LayerNormalization(epsilon=1e-6)
    for layer in (ours, theirs):
        layer.build(shape)
        randomize(layer)
    x, weight = random(*shape, scale=3.0) + 1, ops.convert_to_tensor(random(*shape, seed=1))
    np.testing.assert_allclose(ours(x, training=training), theirs(x), atol=1e-5)

    def loss(layer, **call):
        return lambda x: ops.sum(weight * layer(x, **call))

    came = gradients(loss(ours, training=training), [x], ours.trainable_variables)
    expected = gradients(loss(theirs), [x], theirs.trainable_variables)
    for gradient, wanted in zip(came[1] + came[2], expected[1] + expected[2], strict=True):
        np.testing.assert_allclose(gradient, wanted, atol=1e-4, rtol=1e-4)


def test_second_derivatives_of_keras():
    ours, theirs = LayerNormalization(), keras.layers.LayerNormalization(epsilon=1e-6)
    x, weight = random(3, 6), ops.convert_to_tensor(random(3, 6, seed=1))
    second, expected = (
        second_gradient(lambda x, layer=layer: ops.sum(weight * layer(x, training=True) ** 3), x)
        for layer in (ours, theirs)
    )
    np.testing.assert_allclose(second, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
def test_float32_inside(policy, inside):
    """By itself or inside another layer.

    Vectors far from zero: their variance is lost where the sums are rounded to 8 or 11 bits. And
    weights whose difference is: gamma - beta = 0.001, but 0 where both are rounded to 8 or 9 bits.
    """
    layer = LayerNormalization(dtype=policy)
    call = keras.Sequential([layer], name="outer") if inside else layer
    x = (100 + np.arange(8) % 2).astype("float32")[None]
    call(x)
    signs = np.where(np.arange(8) % 2, 1.0, -1.0)[None]
    layer.gamma.assign(np.full(8, 3.001))
    layer.beta.assign(-3.0 * signs[0])
    for training in (False, True):
        output = to_numpy(call(x, training=training))
        np.testing.assert_allclose(output, 0.001 * signs, atol=2e-5)


def test_constant_vectors_stay_finite():
    layer = LayerNormalization()
    x = np.full((1, 2, 8), 7.0, "float32")
    value, (gradient,), _ = gradients(lambda x: ops.sum(layer(x, training=True) ** 2), [x])
    assert np.isfinite(value) and np.isfinite(gradient).all()


@pytest.mark.backends("tensorflow")
@pytest.mark.parametrize("dtype, tolerance", [("mixed_bfloat16", 1e-2), ("float32", 1e-5)])
def test_a_dense_layer_has_the_output_and_gradients_of_keras(dtype, tolerance):
    """Those of Keras's layer in float32; in bfloat16, its bias is a third off over so many rows."""
    x, weights = random(4096, 2), random(4096, 3, seed=1) + 0.3
    layer, exact = Dense(3, activation="relu", dtype=dtype), keras.layers.Dense(3, "relu")
    found = []
    for dense in (layer, exact):
        dense.build((None, 2))
        variables = dense.trainable_variables
        variables[0].assign([[1.0, -0.5, 0.25], [0.5, 1.0, 2.0]])

        def loss(x, dense=dense):
            return ops.sum(ops.cast(dense(x, training=True), "float32") * weights)

        value, (by_x,), by_variables = gradients(loss, [x], variables)
        found.append([value, by_x, *by_variables])
    for ours, expected in zip(*found, strict=True):
        error = np.linalg.norm(ours - expected) / np.linalg.norm(expected)
        assert error < tolerance
