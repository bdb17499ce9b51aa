"""Dtype policies: building models under one, and converting models to another."""

import contextlib

import keras
import numpy as np

PRECISIONS = ("float32", "bfloat16")


@contextlib.contextmanager
def dtype_policy(policy):
    """A context in which new layers have this dtype policy."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def with_precision(model, precision):
    """A copy of a model with its weights in another precision.

    Args:
        model: A `ConfiguredModel`, or another model with `build_from`.
        precision: "float32" or "bfloat16".

    Returns:
        A new model, or `model` itself if it has this precision.

    Raises:
        ValueError: For another precision, or if the model is quantised.
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
