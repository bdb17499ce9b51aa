"""The bases of the layers, and layers that are arguments of other layers."""

from typing import Any, Self, Unpack

import keras

from keras_tfmr import _checks
from keras_tfmr.compat import flatten_layers, layers_inside
from keras_tfmr.config import Shape
from keras_tfmr.layers.dense import Dense
from keras_tfmr.layers.options import KerasOptions, LayerOptions, WeightOptions
from keras_tfmr.layers.saved_changes import change_inside, changes_inside


class MaskingLayer(keras.layers.Layer):
    """The base of the layers: they pass masks on, and state what is changed inside them."""

    def __init__(self, **kwargs: Unpack[KerasOptions]) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        # Traces the call, which checks inputs, and knows shapes, dtypes and scores; Keras would
        # take `compute_output_shape` and the compute dtype.
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def compute_output_shape(self, *shapes: Shape) -> Any:
        if not self.built:
            self.build(*shapes)
        inputs = [keras.KerasTensor(shape, self.compute_dtype) for shape in shapes]
        return keras.tree.map_structure(lambda x: x.shape, self.compute_output_spec(*inputs))

    def part_options(self) -> dict[str, Any]:
        """The options that this layer hands on to every layer inside it."""
        return {"dtype": self.dtype_policy, "trainable": self.trainable}

    def given_layer(self, name: str, part: Any, such_as: str) -> Any:
        """Like `optional_layer`; the part is frozen if this layer is."""
        part = optional_layer(name, part, such_as)
        if part is not None and not self.trainable:
            part.trainable = False
        return part

    def get_config(self) -> dict[str, Any]:
        inside = changes_inside(self)
        return {**super().get_config(), **({"inside": inside} if inside else {})}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        config = dict(config)
        inside = config.pop("inside", {})
        layer = super().from_config(config)
        change_inside(layer, inside)
        return layer


class TransformerLayer(MaskingLayer):
    """The base of the layers that project: Keras's options of weights.

    Keras does not cast the tensors among the call arguments of these layers, because the positions
    among them stay float32 under every dtype policy; the layers inside cast what they compute with.

    Args:
        use_bias: Whether projections add a bias.
        **kwargs: Those of `keras.layers.Layer`, and for the weights of every projection those of
            `keras.layers.Dense`: `kernel_initializer`, `bias_initializer`, `kernel_regularizer`,
            `bias_regularizer`, `kernel_constraint`, `bias_constraint`.
    """

    def __init__(self, *, use_bias: bool = True, **kwargs: Unpack[LayerOptions]) -> None:
        own = WeightOptions.__annotations__
        options = {name: kwargs.pop(name) for name in own if name in kwargs}
        super().__init__(autocast=False, **kwargs)
        self.use_bias = bool(use_bias)
        if of_bias := [name for name in options if name.startswith("bias_") and not use_bias]:
            raise ValueError(
                f"Without biases, their options have no effect. Received: use_bias={use_bias} and "
                f"{', '.join(of_bias)}"
            )
        # Serialised, because each projection needs an initializer of its own.
        self.weight_options = {
            name: option if isinstance(option, (str, dict)) else serialize(option)
            for name, option in options.items()
        }

    def shared_options(self) -> dict[str, Any]:
        """The options that this layer shares with all parts of it that project."""
        return {"use_bias": self.use_bias, **self.part_options(), **self.weight_options}

    def make_dense(self, units: int, name: str) -> keras.layers.Layer:
        """A `Dense` with this layer's options of weights."""
        return Dense(units, name=name, **self.shared_options())

    def lora_layers(self) -> list[keras.layers.Layer]:
        """The projections of this layer itself that `enable_lora` changes: those of attention."""
        return []

    def enable_lora(self, rank: int, lora_alpha: float | None = None) -> None:
        """Freezes all inside this layer, and gives LoRA to queries and values of its attention.

        Beside LoRA, the biases of these projections train.

        Args:
            rank: The rank of the changes, the r of the paper.
            lora_alpha: The changes are multiplied by `lora_alpha / rank`; `rank` by default.

        Raises:
            ValueError: If the layer is not built, has no attention, or has LoRA already.

        Reference: Hu et al. 2021, LoRA (arXiv 2106.09685), whose section 7.1 finds queries and
        values the best place; KerasHub's `Backbone.enable_lora` has the same default.
        """
        enable_lora(self, rank, lora_alpha)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "use_bias": self.use_bias, **self.weight_options}


def enable_lora(layer, rank, lora_alpha=None):
    """See `TransformerLayer.enable_lora`; of a model too."""
    rank = _checks.integer("rank", rank)
    inside = [part for part in flatten_layers(layer) if isinstance(part, TransformerLayer)]
    chosen = [dense for part in inside for dense in part.lora_layers()]
    if not chosen or not layer.built:
        raise ValueError(
            "LoRA needs a layer with attention that is built: call it first. "
            f"Received: {type(layer).__name__} {layer.name!r} with built={layer.built} and "
            f"{len(chosen)} projections of queries and values"
        )
    for part in layers_inside(layer):
        part.trainable = False
    for dense in chosen:
        dense.trainable = True
        dense.enable_lora(rank, lora_alpha)


serialize = keras.saving.serialize_keras_object


def optional_layer(name, part, such_as):
    """An argument that is a layer, a serialised layer or None, as a layer or None.

    A serialised one is not built: the layer that uses it will build it. Otherwise the paths of its
    weights would lack that layer and differ from the saved ones.

    Raises:
        TypeError: If it is anything else; the error names the layer `such_as`.
    """
    if isinstance(part, dict):
        return keras.saving.deserialize_keras_object({**part, "build_config": None})
    if part is not None and not isinstance(part, keras.layers.Layer):
        raise TypeError(f"`{name}` must be a layer such as {such_as}. Received: {part!r:.80}")
    return part
