"""The learning-rate schedule, against its formula; it saves and loads."""

import math

import keras
import numpy as np
import pytest

from keras_tfmr import NoamSchedule


def test_noam_formula():
    """Section 5.3, with steps counted from 1: the first update moves the weights."""
    schedule = NoamSchedule(512, warmup_steps=4000, scale=2.0)
    for step in (0, 1, 10, 3998, 3999, np.int64(4000), keras.ops.convert_to_tensor(100_000)):
        n = int(step) + 1
        expected = 2.0 * 512**-0.5 * min(n**-0.5, n * 4000**-1.5)
        np.testing.assert_allclose(schedule(step), expected, rtol=1e-5)
    rates = [float(NoamSchedule(128, warmup_steps=100)(step)) for step in range(300)]
    assert rates[0] > 0 and np.argmax(rates) == 99
    np.testing.assert_allclose(rates[99], 1 / math.sqrt(128 * 100), rtol=1e-5)


def test_saved_with_a_model_whose_first_step_moves_the_weights(tmp_path):
    schedule = NoamSchedule(64, warmup_steps=50, scale=0.5)
    inputs = keras.Input((3,))
    model = keras.Model(inputs, keras.layers.Dense(1, kernel_initializer="zeros")(inputs))
    model.compile(keras.optimizers.Adam(schedule), "mse", jit_compile=False)
    model.train_on_batch(np.ones((2, 3)), np.ones((2, 1)))
    assert np.abs(model.layers[-1].get_weights()[0]).min() > 0
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras").optimizer
    assert type(again._learning_rate) is NoamSchedule
    assert again._learning_rate.get_config() == schedule.get_config()
    np.testing.assert_allclose(again.learning_rate, schedule(1), rtol=1e-6)


@pytest.mark.parametrize("bad", [{"d_model": 0}, {"warmup_steps": 0}, {"scale": -1}])
def test_bad_arguments(bad):
    ((name, value),) = bad.items()
    with pytest.raises(ValueError, match=f"{name}.*Received: {name}={value}"):
        NoamSchedule(**{"d_model": 64, **bad})
