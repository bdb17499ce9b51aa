"""The base of the functional models: they keep the config that they were made from."""

from typing import Any, Self

import keras

from keras_tfmr.layers.base import enable_lora
from keras_tfmr.models.transformer_config import TransformerConfig


@keras.saving.register_keras_serializable(package="keras_tfmr")
class FunctionalModel(keras.Model):
    """A functional `keras.Model` that says the config it was made from.

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

    def enable_lora(self, rank: int, lora_alpha: float | None = None) -> None:
        """Freezes the model, and gives LoRA to queries and values of all attention in it.

        Compile it afterwards. Files, clones and presets keep LoRA; exports merge it.

        The arguments and errors are those of `MultiHeadAttention.enable_lora`.
        """
        enable_lora(self, rank, lora_alpha)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "config": self.config and self.config.to_dict(),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        config = dict(config)
        fields = config.pop("config")
        model = super().from_config(config, custom_objects)
        model.config = fields and TransformerConfig.from_dict(fields)
        return model
