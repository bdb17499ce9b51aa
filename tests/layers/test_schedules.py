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
        expected = 2.0 / math.sqrt(512) * min(n**-0.5, n * 4000**-1.5)
        np.testing.assert_allclose(schedule(step), expected, rtol=1e-5)


def test_saved_with_a_model(tmp_path):
    schedule = NoamSchedule(64, warmup_steps=50, scale=0.5)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(schedule), "mse")
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras").optimizer
    assert type(again._learning_rate) is NoamSchedule
    assert again._learning_rate.get_config() == schedule.get_config()
    np.testing.assert_allclose(again.learning_rate, schedule(0), rtol=1e-6)


@pytest.mark.parametrize("bad", [{"d_model": 0}, {"warmup_steps": 0}, {"scale": -1}])
def test_bad_arguments(bad):
    ((name, value),) = bad.items()
    with pytest.raises(ValueError, match=f"{name}.*Received: {name}={value}"):
        NoamSchedule(**{"d_model": 64, **bad})
