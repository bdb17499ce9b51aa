"""Shared by all models: the parts made from a config, and saving and loading."""

from typing import Any, Self

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.compat import flatten_layers
from keras_tfmr.config import Tensor
from keras_tfmr.decoding import score
from keras_tfmr.layers import (
    ALiBi,
    CausalDecoder,
    Encoder,
    LayerNormalization,
    LearnedPositions,
    LMHead,
    NoPositions,
    PositionalEmbedding,
    RelativePositionBias,
    RMSNormalization,
    RotaryPositions,
    SinusoidalPositions,
    SSRUDecoder,
    TiedLogits,
)
from keras_tfmr.layers.base import arguments_of, dtype_policy
from keras_tfmr.layers.block import OfBlocks
from keras_tfmr.models.transformer_config import TransformerConfig


def embedding(config, vocab_size, name):
    """The `PositionalEmbedding` of a config."""
    if config.positions == "sinusoidal":
        positions = SinusoidalPositions(config.d_model, config.max_wavelength, name="positions")
    elif config.positions == "learned":
        positions = LearnedPositions(config.max_length, config.d_model, name="positions")
    else:
        positions = NoPositions(name="positions")
    return PositionalEmbedding(
        vocab_size,
        config.d_model,
        positions=positions,
        norm=norm(config) if config.embedding_norm else None,
        scaled=config.embedding_scale,
        name=name,
    )


def relative_positions(config, bidirectional):
    """The layer of relative positions of a config, or None."""
    name = "relative_positions"
    if config.positions == "rotary":
        return RotaryPositions(config.head_width, config.max_wavelength, name=name)
    if config.positions == "relative":
        return RelativePositionBias(config.num_heads, bidirectional=bidirectional, name=name)
    return ALiBi(config.num_heads, name=name) if config.positions == "alibi" else None


def norm(config):
    """The normalisation layer of a config, to be copied."""
    return {"layer": LayerNormalization, "rms": RMSNormalization}[config.norm](config.norm_epsilon)


def stack(kind, config, num_layers, vocab_embedding, name):
    """An `Encoder`, `Decoder`, `SSRUDecoder` or `CausalDecoder` of a config."""
    # Fields have the names of the layers' arguments; norms are names in a config, and layers there.
    options = arguments_of(OfBlocks, config.to_dict())
    options |= {"norm": norm(config), "qk_norm": norm(config) if config.qk_norm else None}
    if kind is CausalDecoder and config.decoder_self != "attention":
        raise ValueError(
            "Only the decoder of a TranslationModel has another sublayer than self-attention. "
            f"Received: decoder_self={config.decoder_self!r}"
        )
    if kind is not SSRUDecoder:
        options["relative_positions"] = relative_positions(config, kind is Encoder)
    return kind(num_layers, **options, embedding=vocab_embedding, name=name)


def head(config, target_embedding):
    """The layer that makes the logits of target tokens."""
    use_bias = not config.tied_logits if config.logits_bias is None else config.logits_bias
    if config.tied_logits:
        return TiedLogits(target_embedding, use_bias=use_bias, name="logits")
    return LMHead(config.target_vocab, use_bias=use_bias, name="logits")


def tensors(inputs, *names):
    """The inputs of a model by their names, from one tensor or a list, which Keras may give.

    Raises:
        ValueError: If there are more or fewer.
    """
    flat = keras.tree.flatten(inputs)
    if len(flat) != len(names):
        raise ValueError(
            f"`inputs` must be {' and '.join(f'`{name}`' for name in names)}. "
            f"Received: {len(flat)} tensors"
        )
    return flat


class ConfiguredModel:
    """Lets a model be rebuilt from its config when it is loaded from a file.

    Mixed into `keras.Model` by each class itself: Keras changes the bases of the class of a
    functional model, such as the recurrent ones, and of their bases.
    """

    config_class = TransformerConfig

    def finish_building(self, *names: Any) -> None:
        """Builds the layers, whose sizes are all known, for inputs of token ids.

        Not as a functional model, of which `keras.models.clone_model` makes one without our class.
        """
        inputs = [keras.Input((None,), dtype="int32", name=name) for name in names]
        self.call(inputs if len(inputs) > 1 else inputs[0])
        self.built = True

    def make_train_function(self, force: Any = False) -> Any:
        # If the optimizer made its variables in the first step, the step would be traced twice.
        if not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)
        return super().make_train_function(force)

    def get_config(self) -> dict[str, Any]:
        return {
            "config": self.config.to_dict(),
            "name": self.name,
            "dtype": self.dtype_policy.name,
            "layers": _changes(self),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        with dtype_policy(config["dtype"]):
            model = cls.build_from(cls.config_class.from_dict(config["config"]), config)
        _change(model, config.get("layers", {}))
        return model

    @classmethod
    def build_from(cls, config: Any, rest: Any) -> Self:
        """The model of a config and of the other entries of `get_config`."""
        return cls(config, name=rest["name"])


class NextTokenModel(ConfiguredModel):
    """A model whose logits at each position are those of the next token."""

    def log_prob(self, token_ids: Tensor) -> Tensor:
        """The log-probability of given sequences.

        Args:
            token_ids: int tensor `[batch, length]`, padded with 0. The first token of each sequence
                is a start token; the log-probabilities of the others are summed, without padding.

        Returns:
            float32 tensor `[batch]`, in nats.
        """
        token_ids = ops.convert_to_tensor(token_ids)
        # The last one is no input of the model, which checks the others.
        token_ids = _checks.sequence_of_ids("token_ids", token_ids, self.logits.units)
        return score(self(token_ids[:, :-1]), token_ids[:, 1:])[0]


def _changes(model):
    """Changes to the layers after they were built: {path of a layer: changes}."""
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


def _place(model, layer):
    """The path of a layer in a model, "" for the model itself, whatever its name is."""
    return "" if layer is model else layer.path


def _change(model, changes):
    """Applies the `_changes` of a saved model to a newly built one."""
    for layer in flatten_layers(model):
        change = changes.get(_place(model, layer), {})
        # Setting this also sets it on the layer's own sublayers, which come later in this loop.
        layer.trainable = change.get("trainable", True)
        if "quantized" in change:
            how = change["quantization_config"]
            how = how and keras.saving.deserialize_keras_object(how)
            layer.quantize(change["quantized"], type_check=False, config=how)
