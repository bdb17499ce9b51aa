"""The dense layer inside the others: Keras's, with another gradient of its bias."""

import keras
import numpy as np
import pytest
from helpers import gradients, random
from keras import ops

from keras_tfmr.layers.dense import Dense


@pytest.mark.backends("tensorflow")
@pytest.mark.parametrize("dtype, tolerance", [("mixed_bfloat16", 1e-2), ("float32", 1e-5)])
def test_output_and_gradients(dtype, tolerance):
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
