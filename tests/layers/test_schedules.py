"""Learning-rate schedules, against their formulas; they save and load."""

import itertools
import math

import keras
import numpy as np
import pytest

from keras_tfmr import NoamSchedule, WarmupCosine


def test_noam_formula():
    """Section 5.3, with steps counted from 1: the first update moves the weights."""
    schedule = NoamSchedule(512, warmup_steps=4000, scale=2.0)
    for step in (0, 1, 10, 3998, 3999, 4000, 100_000):
        n = step + 1
        expected = 2.0 * 512**-0.5 * min(n**-0.5, n * 4000**-1.5)
        np.testing.assert_allclose(schedule(step), expected, rtol=1e-5)
    assert float(schedule(0)) > 0


def test_noam_peak():
    schedule = NoamSchedule(128, warmup_steps=100)
    rates = [float(schedule(step)) for step in range(300)]
    assert np.argmax(rates) == 99
    np.testing.assert_allclose(rates[99], 1 / math.sqrt(128 * 100), rtol=1e-5)


def test_steps_of_any_integer_type():
    schedule = NoamSchedule(128, warmup_steps=100)
    for step in (7, np.int64(7), keras.ops.convert_to_tensor(7, dtype="int64")):
        np.testing.assert_allclose(schedule(step), schedule(7), rtol=1e-6)


def test_cosine():
    schedule = WarmupCosine(peak=1e-3, warmup_steps=10, total_steps=110, floor=0.1)
    np.testing.assert_allclose(schedule(0), 1e-4, rtol=1e-5)
    np.testing.assert_allclose(schedule(9), 1e-3, rtol=1e-5)
    np.testing.assert_allclose(schedule(59), 1e-3 * (0.1 + 0.9 * 0.5), rtol=1e-4)
    for late in (109, 500):
        np.testing.assert_allclose(schedule(late), 1e-4, rtol=1e-4)
    rates = [float(schedule(step)) for step in range(9, 110)]
    assert all(one > other for one, other in itertools.pairwise(rates))


SCHEDULES = [NoamSchedule(64, warmup_steps=50, scale=0.5), WarmupCosine(1e-3, 5, 50, floor=0.2)]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: type(s).__name__)
def test_saved_with_a_model(schedule, tmp_path):
    inputs = keras.Input((3,))
    model = keras.Model(inputs, keras.layers.Dense(1)(inputs))
    model.compile(keras.optimizers.Adam(schedule), "mse", jit_compile=False)
    model.train_on_batch(np.ones((2, 3)), np.ones((2, 1)))
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras").optimizer
    assert type(again._learning_rate) is type(schedule)
    assert again._learning_rate.get_config() == schedule.get_config()
    np.testing.assert_allclose(again.learning_rate, schedule(1), rtol=1e-6)


def test_first_step_moves_the_weights():
    inputs = keras.Input((3,))
    model = keras.Model(inputs, keras.layers.Dense(1, kernel_initializer="zeros")(inputs))
    model.compile(keras.optimizers.Adam(NoamSchedule(64)), "mse", jit_compile=False)
    model.train_on_batch(np.ones((2, 3)), np.ones((2, 1)))
    assert np.abs(model.layers[-1].get_weights()[0]).min() > 0


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: NoamSchedule(0), "d_model.*Received: d_model=0"),
        (lambda: NoamSchedule(64, warmup_steps=0), "warmup_steps.*Received: warmup_steps=0"),
        (lambda: NoamSchedule(64, scale=-1), "scale.*Received: scale=-1"),
        (lambda: WarmupCosine(0, 1, 2), "peak=0"),
        (lambda: WarmupCosine(1, 0, 2), "warmup_steps=0"),
        (lambda: WarmupCosine(1, 1, 2, floor=2), "floor=2"),
        (lambda: WarmupCosine(1, 5, 5), "total_steps=5, warmup_steps=5"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
