"""What a run takes from its device: TensorFlow's lists of devices and its errors are replaced."""

import types

import pytest
import tensorflow as tf

from training.command.disk import RunError
from training.run import device


@pytest.mark.parametrize(
    ("gpus", "flags", "precision"),
    [
        ([(9, 0)], "avx2", "mixed_bfloat16"),
        ([(8, 9), (8, 0)], "avx2", "mixed_bfloat16"),
        ([(9, 0), (7, 5)], "avx512_bf16", "float32"),
        ([], "avx2 amx_bf16", "mixed_bfloat16"),
        ([], "avx2", "float32"),
    ],
)
def test_the_precision_is_one_that_all_devices_have(monkeypatch, gpus, flags, precision):
    lines = f"processor\t: 0\nflags\t\t: fpu {flags}\n"
    monkeypatch.setattr(device.Path, "read_text", lambda path, encoding: lines)
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
