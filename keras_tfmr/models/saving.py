"""What Keras's config of a model leaves out: the config it was made from, changes inside layers."""

from typing import Any, Self

import keras

from keras_tfmr.compat import flatten_layers
from keras_tfmr.models.transformer_config import TransformerConfig


@keras.saving.register_keras_serializable(package="keras_tfmr")
class FunctionalModel(keras.Model):
    """A functional `keras.Model` that says the config it was made from.

    Keras's config of it also has the changes of the layers inside its layers.

    Args:
        inputs, outputs, name: As for `keras.Model`.
        config: The `TransformerConfig` that a function such as `Transformer` made it from; None for
            a model of your own. `get_config` and files keep it. `keras.models.clone_model` does
            not, because it may exchange layers.
    """

    def __init__(
        self,
        inputs: Any,
        outputs: Any,
        name: str | None = None,
        *,
        config: TransformerConfig | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(inputs, outputs, name=name, **kwargs)
        self.config = config
        if any(layer.dtype_policy.name == "mixed_float16" for layer in self.layers):
            # `compile` scales the loss by this policy, which is else the global one.
            self.dtype_policy = "mixed_float16"

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "config": self.config and self.config.to_dict(),
            "layer_changes": layer_changes(self),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        config = dict(config)
        fields, changes = config.pop("config"), config.pop("layer_changes")
        model = super().from_config(config, custom_objects)
        model.config = fields and TransformerConfig.from_dict(fields)
        apply_layer_changes(model, changes)
        return model


def layer_changes(model):
    """{path of a layer: how it was changed after it was built}: quantised, or not trainable."""
    changes = {}
    for layer in flatten_layers(model):
        change = {} if layer.trainable else {"trainable": False}
        if layer.quantization_mode is not None:
            change["quantized"] = layer.quantization_mode
            how = getattr(layer, "quantization_config", None)
            change["quantization_config"] = how and keras.saving.serialize_keras_object(how)
        if change:
            changes[_place(model, layer)] = change
    return changes


def apply_layer_changes(model, changes):
    """Makes the changes of a saved model to a newly built one."""
    for layer in flatten_layers(model):
        change = changes.get(_place(model, layer), {})
        # Setting this also sets it on the layer's own sublayers, which come later in this loop.
        layer.trainable = change.get("trainable", True)
        if "quantized" in change and layer.quantization_mode is None:  # else Keras has done so
            how = change["quantization_config"]
            how = how and keras.saving.deserialize_keras_object(how)
            layer.quantize(change["quantized"], type_check=False, config=how)


def _place(model, layer):
    """The path of a layer in a model, "" for the model itself, whatever its name is."""
    return "" if layer is model else layer.path
