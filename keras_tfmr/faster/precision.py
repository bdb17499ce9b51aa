"""Copies of models, in the same or in another dtype policy."""

import keras
import numpy as np

from keras_tfmr.compat import flatten_layers

PRECISIONS = ("float32", "bfloat16")


def with_precision(model, precision):
    """A copy of a model with its weights in another precision, and LoRA merged into them.

    Args:
        model: A model of this package.
        precision: "float32" or "bfloat16".

    Returns:
        A new model, or `model` itself if it has this precision.

    Raises:
        ValueError: For another precision, or if the model is quantised.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"Expected a precision of {PRECISIONS}. Received: {precision!r}")
    if precision_of(model) == precision:
        return model
    if not isinstance(model, keras.Model) or is_quantized(model):
        raise ValueError(
            "A model that is quantised or made to decode stays in its precision, "
            f"{precision_of(model)}. Received: precision={precision!r}"
        )
    copy = type(model).from_config({**model.get_config(), "dtype": precision})
    assign(copy, merged_weights(model))
    return copy


def precision_of(model):
    """The dtype policy of a model, or "int8" if layers of it have integer weights."""
    if not isinstance(model, keras.Model):  # a `FastModel`
        return model.precision
    return "int8" if is_quantized(model) else model.dtype_policy.name


def class_of(model):
    """The class of a model, or of the one that a `FastModel` was made from."""
    return type(model) if isinstance(model, keras.Model) else model.made_from


def is_quantized(model):
    """Whether any layer of a model has integer weights."""
    return any(layer.quantization_mode for layer in flatten_layers(model))


def merged_weights(model):
    """{path: float32 array} of the weights of a model, with LoRA merged into them."""
    weights = {weight.path: weight for weight in model.weights}
    for layer in flatten_layers(model):
        if getattr(layer, "lora_enabled", False):
            name = "embeddings" if isinstance(layer, keras.layers.Embedding) else "kernel"
            weights[f"{layer.path}/{name}"] = getattr(layer, name)  # merged by Keras
    return {path: to_numpy(weight) for path, weight in weights.items()}


def to_numpy(weight):
    """A weight as a float32 array; NumPy itself has no bfloat16."""
    return np.asarray(keras.ops.convert_to_numpy(keras.ops.cast(weight, "float32")))


def assign(model, values):
    """Gives each weight of a model the value of its path."""
    for weight in model.weights:
        weight.assign(values[weight.path])
