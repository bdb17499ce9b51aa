"""Changes of the layers inside a layer: frozen, quantised, given LoRA.

Keras saves this of the layers that a model lists, but not of those inside them. A layer of ours
states it in its config, by the names of the layers inside it, and `from_config` makes it so again.
A layer that is not built yet is quantised and given LoRA by Keras when it is built.
"""

from typing import Any

import keras

from keras_tfmr.compat import layers_inside, weights_made_trainable

# Keras's own layers state these in their configs, and ours state them for the layers inside.
STATED = ("lora_rank", "lora_alpha", "quantization_config", "inside")


def changes_inside(layer: keras.layers.Layer) -> dict[str, Any]:
    """{name of a layer directly inside `layer`: what was changed of it}, without those unchanged.

    Raises:
        ValueError: If two of them have one name, or single weights are frozen.
    """
    check_weights(layer)
    parts, changes = layers_inside(layer), {}
    for part in parts:
        check_weights(part)
        config = part.get_config()
        change = {name: config[name] for name in STATED if config.get(name)}
        if part.quantization_mode is not None:
            change["dtype"] = part.dtype_policy.name
        if part.trainable != layer.trainable:
            change["trainable"] = part.trainable
        if change:
            changes[part.name] = change
    for name in changes:
        if sum(part.name == name for part in parts) > 1:
            raise ValueError(
                f"Layers inside {layer.name!r} must have different names, or what was frozen, "
                f"quantised or given LoRA cannot be saved. Received: {name!r} twice"
            )
    return changes


def change_inside(layer: keras.layers.Layer, changes: dict[str, Any]) -> None:
    """Makes what `changes_inside` gave so again."""
    for part in layers_inside(layer):
        change = changes.get(part.name, {})
        trainable = change.get("trainable", layer.trainable)
        if part.trainable != trainable:
            part.trainable = trainable  # and of all layers inside it
        change_inside(part, change.get("inside", {}))
        if "dtype" in change:
            _quantize(part, change["dtype"], change.get("quantization_config"))
        if "lora_rank" in change:
            _add_lora(part, change["lora_rank"], change["lora_alpha"])


def _quantize(layer, policy, config):
    """Quantises a layer, now or when it will be built."""
    config = keras.saving.deserialize_keras_object(config)
    if layer.built:
        mode = keras.dtype_policies.get(policy).quantization_mode
        layer.quantize(mode, type_check=False, config=config)
    else:
        layer.quantization_config = config
        layer.dtype_policy = policy


def _add_lora(layer, rank, alpha):
    """Gives a layer LoRA, now or when it will be built."""
    if layer.built:
        layer.enable_lora(rank, alpha)
    else:
        layer.lora_rank, layer.lora_alpha = rank, alpha


def check_weights(layer):
    """Raises a ValueError if a layer's own weights differ in whether they train.

    Keras saves whether a layer trains, not whether a weight does.
    """
    with_lora = getattr(layer, "lora_enabled", False)
    for weight in weights_made_trainable(layer):
        replaced = with_lora and weight.name in ("kernel", "embeddings")
        if weight.trainable != (layer.trainable and not replaced):
            raise ValueError(
                f"A weight that is frozen or trained apart from its layer cannot be saved: set "
                f"`trainable` of the layer. Received: {weight.path!r} with trainable="
                f"{weight.trainable}, in a layer with trainable={layer.trainable}"
            )
