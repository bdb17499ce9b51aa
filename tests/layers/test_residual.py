"""Residual, dropout and normalisation: the paper's order and its pre-norm sister."""

import functools

import formulas
import numpy as np
import pytest
from helpers import check_layer, random, randomize, to_numpy
from keras import ops

from keras_tfmr.layers.residual import PostNormResidual, PreNormResidual

KINDS = [PostNormResidual, PreNormResidual]


@pytest.mark.parametrize("kind", KINDS)
def test_order_of_sum_and_norm(kind):
    layer = kind()
    x = random(2, 3, 8)
    layer.build(x.shape)
    randomize(layer)
    norm = to_numpy(layer.norm.gamma), to_numpy(layer.norm.beta), layer.norm.epsilon
    expected = formulas.residual(x, np.tanh, norm, norm_first=kind is PreNormResidual)
    output = layer(x, ops.tanh(layer.pre_norm(ops.convert_to_tensor(x))))
    np.testing.assert_allclose(output, expected, atol=1e-5)


def test_dropout_before_the_sum():
    layer = PreNormResidual(dropout_rate=0.5)
    x = random(4, 16, 8)
    y = np.ones_like(x)
    layer(x, y)
    added = to_numpy(layer(x, y, training=True)) - x
    values = np.unique(added.round(4))
    np.testing.assert_allclose(values, [0, 2], atol=1e-4)  # dropped, or doubled
    np.testing.assert_array_equal(layer(x, y), layer(x, y, training=False))


def test_mask_of_x_is_passed_on():
    import keras

    ids = np.array([[3, 4, 0]])
    x = keras.layers.Embedding(9, 8, mask_zero=True)(ids)
    for kind in KINDS:
        np.testing.assert_array_equal(kind()(x, random(1, 3, 8))._keras_mask, ids != 0)


@pytest.mark.parametrize("kind", KINDS)
def test_layer_contract(kind, fresh, tmp_path):
    make = functools.partial(kind, 0.1)
    trains = kind is PostNormResidual  # the other's norm is in `pre_norm`
    arrays = [random(3, 5, 8), random(3, 5, 8, seed=1)]
    check_layer(make, arrays, fresh, tmp_path, quantized=False, trains=trains)


@pytest.mark.parametrize("kind", KINDS)
def test_bad_rate(kind):
    for bad in (-0.1, 1.0, "0.1"):
        with pytest.raises(ValueError, match=f"dropout_rate.*Received.*{bad}"):
            kind(bad)
