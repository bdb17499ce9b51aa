"""The position-wise sublayer."""

import functools

import formulas
import numpy as np
import pytest
from helpers import check_layer, norm_weights, random, randomize, to_numpy

from keras_tfmr import FeedForward


@pytest.mark.parametrize("norm_first", [False, True])
def test_formula(norm_first):
    layer = FeedForward(8, 20, norm_first=norm_first)
    x = random(2, 5, 8)
    layer(x)
    randomize(layer)
    weights = {
        "inner": [to_numpy(v) for v in layer.hidden_dense.weights],
        "outer": [to_numpy(v) for v in layer.output_dense.weights],
    }
    expected = formulas.residual(
        x, lambda y: formulas.feed_forward(y, weights), norm_weights(layer), norm_first
    )
    np.testing.assert_allclose(layer(x), expected, atol=1e-5)


def test_position_wise():
    """Positions do not see each other."""
    layer = FeedForward(8, 20)
    x = random(2, 5, 8)
    changed = x.copy()
    changed[:, 2] += 1
    difference = np.abs(to_numpy(layer(changed)) - to_numpy(layer(x))).max(axis=(0, 2))
    assert difference[2] > 0 and (np.delete(difference, 2) == 0).all()


@pytest.mark.parametrize("rate", [0.0, 0.4])
def test_dropout_rate_is_the_callers(rate):
    """The tutorial's class forgets it and always drops a tenth."""
    layer = FeedForward(64, 8, dropout_rate=rate, norm_first=True)
    x = random(4, 32, 64)
    layer(x)
    randomize(layer)
    dropped = (to_numpy(layer(x, training=True)) - x == 0).mean()
    assert abs(dropped - rate) < 0.05


@pytest.mark.parametrize("norm_first", [False, True])
def test_layer_contract(norm_first, fresh, tmp_path):
    make = functools.partial(FeedForward, 8, 16, norm_first=norm_first)
    check_layer(make, [random(3, 5, 8)], fresh, tmp_path)


@pytest.mark.parametrize(
    "arguments, received",
    [((0, 8), "d_model=0"), ((8, -1), "dff=-1"), ((8, 8.5), "dff=8.5"), ((8, 8, 2), "2")],
)
def test_bad_sizes(arguments, received):
    with pytest.raises(ValueError, match=received):
        FeedForward(*arguments)


def test_bad_input():
    with pytest.raises(ValueError, match=r"d_model=8.*Received.*\(2, 5, 7\)"):
        FeedForward(8, 16)(random(2, 5, 7))
    with pytest.raises(ValueError, match=r"batch, length, width.*Received.*\(2, 8\)"):
        FeedForward(8, 16)(random(2, 8))
