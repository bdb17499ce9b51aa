"""What a run takes from its device: TensorFlow's lists of devices and its errors are replaced."""

import types

import pytest
import tensorflow as tf

from training.command.disk import RunError
from training.run import device


@pytest.mark.parametrize(
    ("gpus", "precision"),
    [
        ([(9, 0)], "mixed_bfloat16"),
        ([(8, 9), (8, 0)], "mixed_bfloat16"),
        ([(9, 0), (7, 5)], "float32"),
        ([], device.best_precision()),
    ],
)
def test_the_precision_is_one_that_all_devices_have(monkeypatch, gpus, precision):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: gpus)
    monkeypatch.setattr(
        tf.config.experimental, "get_device_details", lambda gpu: {"compute_capability": gpu}
    )
    assert device.default_precision() == precision


@pytest.mark.parametrize(
    "error",
    [
        tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor"),
        RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes."),
    ],
)
def test_too_little_memory_says_which_batches_to_take(error):
    settings = types.SimpleNamespace(tokens_per_batch=4096, gradient_accumulation_steps=6)
    wanted = "batches of 4,096 tokens.* --tokens_per_batch 2048 --gradient_accumulation_steps 12"
    with pytest.raises(RunError, match=wanted), device.memory_explained(settings):
        raise error
    with pytest.raises(RuntimeError, match="of its own"), device.memory_explained(settings):
        raise RuntimeError("of its own")
