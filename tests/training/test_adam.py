"""The Adam of TensorFlow's own operations: step by step that of Keras."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from training.run.adam_on_tensorflow import AdamOnTensorFlow

pytestmark = pytest.mark.backends("tensorflow")
SHAPES = (), (5,), (7, 3)


@pytest.mark.parametrize("accumulated, clip_norm", [(None, 0.5), (3, 0.5), (None, None)])
def test_200_updates_are_those_of_keras(accumulated, clip_norm):
    """With the average of the weights, clipping, accumulation, and gradients of a few rows."""
    draw, found = np.random.default_rng(0), []
    batches = [[draw.normal(size=s) / (n + 1) for s in SHAPES] for n in range(200)]
    for kind in (keras.optimizers.Adam, AdamOnTensorFlow):
        weights = [keras.Variable(np.ones(shape, "float32")) for shape in SHAPES]
        optimizer = kind(
            keras.optimizers.schedules.CosineDecay(0.1, 300), beta_2=0.98, epsilon=1e-9,
            use_ema=True, ema_momentum=0.9, global_clipnorm=clip_norm,
            gradient_accumulation_steps=accumulated,
        )  # fmt: skip
        optimizer.build(weights)

        @tf.function
        def update(*gradients, optimizer=optimizer, rows=(2, 0)):
            last = tf.IndexedSlices(tf.gather(gradients[-1], rows), tf.constant(rows), (7, 3))
            optimizer.apply([*gradients[:-1], last])

        for gradients in batches:
            update(*(tf.constant(gradient, tf.float32) for gradient in gradients))
        variables = weights + optimizer.variables
        found.append({v.path: v.numpy() for v in variables})
    for values, expected in zip(*(each.values() for each in found), strict=True):
        np.testing.assert_allclose(values, expected, rtol=2e-4, atol=1e-6)


def test_a_norm_that_is_not_finite_shows_in_every_weight():
    weights = [keras.Variable([1.0, 2.0]), keras.Variable([3.0])]
    optimizer = AdamOnTensorFlow(0.1, global_clipnorm=1.0)
    optimizer.build(weights)
    optimizer.apply([tf.constant([1.0, np.inf]), tf.constant([1.0])])
    assert not np.isfinite(np.concatenate([weight.numpy() for weight in weights])).any()
