"""Copies of models, in the same or in another dtype policy."""

import keras
import numpy as np

from keras_tfmr.compat import flatten_layers, weights_made_trainable

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
    pairs = []

    def cloned(layer):
        if not isinstance(layer, keras.layers.Layer):
            return layer  # an operation, which has no weights
        pairs.append((layer, without_weights(layer, precision, merge_lora)))
        return pairs[-1][1]

    copy = keras.models.clone_model(model, clone_function=cloned)
    if type(copy) is not type(model):  # a model of keras_tfmr.recurrent, which is built from sizes
        copy = without_weights(model, precision, merge_lora)
        pairs = [(model, copy)]
    if hasattr(model, "config"):
        copy.config = model.config
    copy_weights(pairs, merge_lora)
    return copy


def without_weights(layer, precision, merge_lora=True):
    """A layer of the same config in a dtype policy, not built yet; without LoRA if it is merged."""
    return type(layer).from_config(in_policy(layer.get_config(), precision, merge_lora))


def in_policy(config, precision, merge_lora):
    """A config with another dtype policy wherever it states one; without LoRA if it is merged."""
    if isinstance(config, list):
        return [in_policy(each, precision, merge_lora) for each in config]
    if not isinstance(config, dict):
        return config
    left_out = ("lora_rank", "lora_alpha") if merge_lora else ()
    copy = {
        key: in_policy(value, precision, merge_lora)
        for key, value in config.items()
        if key not in left_out
    }
    if isinstance(config.get("dtype"), dict):  # a string is the dtype of an input or of a cast
        copy["dtype"] = precision
    return copy


def copy_weights(pairs, merge_lora=True):
    """Gives copies the weights of their layers: those of each layer have one order, not one path.

    Args:
        pairs: Layers, each with its copy, which is built.
        merge_lora: Whether the copies are without LoRA, which is merged into their weights.
    """
    for layer, copy in pairs:
        values = merged_weights(layer) if merge_lora else map(to_numpy, layer.weights)
        for weight, value in zip(copy.weights, values, strict=True):
            weight.assign(value)


def precision_of(model):
    """The dtype policy of a model's layers, or "int8" if some have integer weights."""
    if getattr(model, "precision", None) is not None:  # a finished model
        return model.precision
    if is_quantized(model):
        return "int8"
    policies = {policy.name for policy in policies_of(model)}
    return policies.pop() if len(policies) == 1 else "mixed"


def policies_of(model):
    """The dtype policies of the layers that have weights, also of those in other models."""
    layers = [layer for layer in flatten_layers(model) if not isinstance(layer, keras.Model)]
    return [layer.dtype_policy for layer in layers if layer.weights]


def is_quantized(model):
    """Whether any layer of a model has integer weights."""
    return any(layer.quantization_mode for layer in flatten_layers(model))


def merged_weights(model):
    """The weights of a model in their order, as float32 arrays, with LoRA merged into them.

    LoRA's own weights are not among them.
    """
    merged, left_out = {}, set()
    for layer in flatten_layers(model):
        if not getattr(layer, "lora_enabled", False):
            continue
        if isinstance(layer, keras.layers.Embedding):
            own, replaced = (layer.lora_embeddings_a, layer.lora_embeddings_b), "embeddings"
            value = layer.embeddings  # merged by Keras
        else:
            own, replaced = (layer.lora_kernel_a, layer.lora_kernel_b), "kernel"
            value = layer.kernel
        left_out.update(map(id, own))
        [weight] = [each for each in weights_made_trainable(layer) if each.name == replaced]
        merged[id(weight)] = value
    kept = [weight for weight in model.weights if id(weight) not in left_out]
    return [to_numpy(merged.get(id(weight), weight)) for weight in kept]


def to_numpy(weight):
    """A weight as a float32 array; NumPy itself has no bfloat16."""
    return np.asarray(keras.ops.convert_to_numpy(keras.ops.cast(weight, "float32")))
