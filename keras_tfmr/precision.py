"""Copies of models, in the same or in another dtype policy."""

import keras
import numpy as np

from keras_tfmr.compat import flatten_layers

PRECISIONS = ("float32", "bfloat16")


def with_precision(model, precision):
    """A model with its weights in another precision, and LoRA merged into them.

    Args:
        model: A functional model, or one of `keras_tfmr.recurrent`.
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
    if getattr(model, "precision", None) is not None or is_quantized(model):
        raise ValueError(
            "A model that is quantised or made to decode stays in its precision, "
            f"{precision_of(model)}. Received: precision={precision!r}"
        )
    return copy_of(model, precision)


def copy_of(model, precision, merge_lora=True):
    """A copy of a model in a dtype policy, with weights of its own and LoRA merged into them."""

    def layer_copy(layer):
        return type(layer).from_config(in_policy(layer.get_config(), precision, merge_lora))

    copy = keras.models.clone_model(model, clone_function=layer_copy)
    if type(copy) is not type(model):  # a model of keras_tfmr.recurrent, which is built from sizes
        copy = type(model).from_config(in_policy(model.get_config(), precision, merge_lora))
    if hasattr(model, "config"):
        copy.config = model.config
    values = merged_weights(model) if merge_lora else {w.path: to_numpy(w) for w in model.weights}
    for weight in copy.weights:
        weight.assign(values[weight.path])
    return copy


def in_policy(config, precision, merge_lora):
    """The config of a layer, and of those in it, with a dtype policy; without LoRA if merged."""
    lora = ("lora_rank", "lora_alpha") if merge_lora else ()
    config = {key: value for key, value in config.items() if key not in lora}
    for key, value in config.items():
        if key == "inside":  # what was changed of layers inside this one, by their names
            config[key] = {
                name: in_policy(change, precision, merge_lora) for name, change in value.items()
            }
        elif isinstance(value, dict) and isinstance(value.get("config"), dict):  # another layer
            config[key] = {**value, "config": in_policy(value["config"], precision, merge_lora)}
    return {**config, "dtype": precision} if "dtype" in config else config


def precision_of(model):
    """The dtype policy of a model's layers, or "int8" if some have integer weights."""
    if getattr(model, "precision", None) is not None:  # a finished model
        return model.precision
    if is_quantized(model):
        return "int8"
    policies = {layer.dtype_policy.name for layer in model.layers if layer.weights}
    return policies.pop() if len(policies) == 1 else "mixed"


def is_quantized(model):
    """Whether any layer of a model has integer weights."""
    return any(layer.quantization_mode for layer in flatten_layers(model))


def merged_weights(model):
    """{path: float32 array} of the weights of a model in their order, with LoRA merged into them.

    It has no entries of LoRA's own weights.
    """
    weights = {weight.path: weight for weight in model.weights}
    for layer in flatten_layers(model):
        if not getattr(layer, "lora_enabled", False):
            continue
        if isinstance(layer, keras.layers.Embedding):
            merged, own = layer.embeddings, (layer.lora_embeddings_a, layer.lora_embeddings_b)
            weights[f"{layer.path}/embeddings"] = merged  # by Keras
        else:
            merged, own = layer.kernel, (layer.lora_kernel_a, layer.lora_kernel_b)
            weights[f"{layer.path}/kernel"] = merged
        for weight in own:
            del weights[weight.path]
    return {path: to_numpy(weight) for path, weight in weights.items()}


def to_numpy(weight):
    """A weight as a float32 array; NumPy itself has no bfloat16."""
    return np.asarray(keras.ops.convert_to_numpy(keras.ops.cast(weight, "float32")))
