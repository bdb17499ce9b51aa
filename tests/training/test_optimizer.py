"""The optimizer, its schedule and its averages, by formulas in NumPy and by Keras's own Adam."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from training.run.optimizer import Adam, WarmupCosine, assign_average, make_optimizer
from training.settings.training_config import TrainingConfig

SHAPES = (), (5,), (7, 3)


@pytest.mark.parametrize("total", [100, 20])
def test_the_rate_warms_up_and_falls_to_zero_at_the_end(total):
    schedule, begin = WarmupCosine(2.0, 10, total_steps=total), min(10, total / 4)
    steps = np.arange(total + 1)
    fall = 0.5 + np.cos(np.pi * np.maximum(steps - begin, 0) / (total - begin)) / 2
    found = [float(schedule(n)) for n in steps]
    np.testing.assert_allclose(found, 2 * np.minimum((steps + 1) / 10, fall), atol=1e-6)


@pytest.mark.parametrize("accumulated", [1, 2])
def test_averages_follow_the_weights_from_the_start(accumulated):
    """By the recurrence in NumPy; with accumulation they move as much in an update."""
    settings = TrainingConfig(
        steps=9, ema=0.9, gradient_accumulation_steps=accumulated, learning_rate=0.1
    ).resolved()
    layer, copy = (keras.Sequential([keras.layers.Dense(1)]) for _ in range(2))
    for model in (layer, copy):
        model.build((None, 2))
    optimizer = make_optimizer(settings, 2)
    layer.compile(optimizer, "mse")
    optimizer.build(layer.trainable_variables)
    optimizer.total_batches.assign(100)
    average, kernel = None, layer.trainable_variables[0]
    for n in range(6 * accumulated):
        layer.train_on_batch(np.ones((4, 2), "float32"), np.full((4, 1), 3.0, "float32"))
        update = n // accumulated
        decay = min(0.9, update / (update + 9)) ** (1 / accumulated)
        weight = np.array(kernel)
        average = weight if average is None else decay * average + (1 - decay) * weight
    assign_average(layer, copy)
    np.testing.assert_allclose(np.array(copy.trainable_variables[0]), average, rtol=1e-4)


@pytest.mark.backends("tensorflow")
@pytest.mark.parametrize("accumulated, clip_norm", [(None, 0.5), (3, 0.5), (None, None)])
def test_100_updates_are_those_of_keras(accumulated, clip_norm):
    """With clipping, accumulation, and gradients of a few rows."""
    draw, found = np.random.default_rng(0), []
    batches = [[draw.normal(size=s) / (n + 1) for s in SHAPES] for n in range(100)]
    for kind in (keras.optimizers.Adam, Adam):
        weights = [keras.Variable(np.ones(shape, "float32")) for shape in SHAPES]
        optimizer = kind(
            keras.optimizers.schedules.CosineDecay(0.1, 300), beta_2=0.98, epsilon=1e-9,
            global_clipnorm=clip_norm, gradient_accumulation_steps=accumulated,
        )  # fmt: skip
        optimizer.build(weights)

        @tf.function
        def update(*gradients, optimizer=optimizer, rows=(2, 0)):
            last = tf.IndexedSlices(tf.gather(gradients[-1], rows), tf.constant(rows), (7, 3))
            optimizer.apply([*gradients[:-1], last])

        for gradients in batches:
            update(*(tf.constant(gradient, tf.float32) for gradient in gradients))
        found.append([weight.numpy() for weight in weights])
    for values, expected in zip(*found, strict=True):
        np.testing.assert_allclose(values, expected, rtol=2e-4, atol=1e-6)
