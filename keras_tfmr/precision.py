"""The dtype policy that models are built under, and models in another one."""

import contextlib

import keras
import numpy as np

PRECISIONS = ("float32", "bfloat16")


@contextlib.contextmanager
def dtype_policy(policy):
    """Layers that are made inside have `policy`; outside, the user's own stays."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def with_precision(model, precision):
    """A model built again from the same config with its weights in another precision.

    Args:
        model: a `ConfiguredModel`, or another one built by `build_from`.
        precision: "float32" or "bfloat16".

    Returns:
        `model` itself if that is its dtype policy, or a new model.

    Raises:
        ValueError: for another precision, or a quantised model, whose weights are integers.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"Expected a precision of {PRECISIONS}. Received: {precision!r}")
    if model.dtype_policy.name == precision:
        return model
    if any(layer.quantization_mode for layer in model._flatten_layers()):
        raise ValueError(
            f"A quantised model stays in its precision, {model.dtype_policy.name}. "
            f"Received: precision={precision!r}"
        )
    with dtype_policy(precision):
        copy = type(model).build_from(model.config, model.get_config())
    copy.set_weights([np.asarray(weight, "float32") for weight in model.get_weights()])
    return copy
