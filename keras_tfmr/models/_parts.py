"""What the models share: the parts made from a config, and saving and loading."""

import keras
from keras import ops

from keras_tfmr.decoding import score
from keras_tfmr.layers import (
    ALiBi,
    LayerNormalization,
    LearnedPositions,
    Logits,
    NoPositions,
    PositionalEmbedding,
    RelativePositionBias,
    RMSNormalization,
    RotaryPositions,
    SinusoidalPositions,
    TiedLogits,
)
from keras_tfmr.models.config import TransformerConfig
from keras_tfmr.precision import dtype_policy

POSITIONS = {
    "sinusoidal": lambda config: SinusoidalPositions(
        config.d_model, config.max_wavelength, name="positions"
    ),
    "learned": lambda config: LearnedPositions(config.max_length, config.d_model, name="positions"),
}
RELATIVE_POSITIONS = {
    "rotary": lambda config, bidirectional: RotaryPositions(
        config.head_width, config.max_wavelength, name="relative_positions"
    ),
    "relative": lambda config, bidirectional: RelativePositionBias(
        config.num_heads, bidirectional=bidirectional, name="relative_positions"
    ),
    "alibi": lambda config, bidirectional: ALiBi(config.num_heads, name="relative_positions"),
}


def embedding(config, vocab_size, name):
    """The `PositionalEmbedding` of a config."""
    positions = POSITIONS.get(config.positions, lambda config: NoPositions(name="positions"))
    return PositionalEmbedding(
        vocab_size,
        config.d_model,
        positions=positions(config),
        norm=norm(config) if config.embedding_norm else None,
        scaled=config.embedding_scale,
        name=name,
    )


def norm(config):
    """The normalisation layer of a config, to be copied."""
    return {"layer": LayerNormalization, "rms": RMSNormalization}[config.norm](config.norm_epsilon)


def stack_arguments(config, num_layers, bidirectional):
    """The arguments of an `Encoder`, `Decoder` or `DecoderOnly` that come from a config."""
    relative = RELATIVE_POSITIONS.get(config.positions)
    return {
        "num_layers": num_layers,
        "d_model": config.d_model,
        "num_heads": config.num_heads,
        "dff": config.dff,
        "dropout_rate": config.dropout_rate,
        "attention_dropout_rate": config.attention_dropout_rate,
        "key_dim": config.key_dim,
        "value_dim": config.value_dim,
        "num_kv_heads": config.num_kv_heads,
        "norm_first": config.norm_first,
        "activation": config.activation,
        "gated": config.gated,
        "use_bias": config.use_bias,
        "qk_norm": norm(config) if config.qk_norm else None,
        "norm": norm(config),
        "relative_positions": None if relative is None else relative(config, bidirectional),
    }


def logits(config, target_embedding):
    """The layer that makes the logits of target tokens."""
    use_bias = not config.tied_logits if config.logits_bias is None else config.logits_bias
    if config.tied_logits:
        return TiedLogits(target_embedding, use_bias=use_bias, name="logits")
    return Logits(config.target_vocab, use_bias=use_bias, name="logits")


def at_least_one_column(source_ids):
    """int `[batch, source]`, padded to length 1 if empty: torch cannot reshape empty tensors."""
    source_ids = ops.convert_to_tensor(source_ids)
    return ops.pad(source_ids, [[0, 0], [0, 1]]) if source_ids.shape[1] == 0 else source_ids


class ConfiguredModel(keras.Model):
    """A functional model that is rebuilt from its config when it is loaded from a file."""

    config_class = TransformerConfig

    def make_train_function(self, force=False):
        # If the optimizer made its variables in the first step, the step would be traced twice.
        if not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)
        return super().make_train_function(force)

    def get_config(self):
        return {
            "config": self.config.to_dict(),
            "name": self.name,
            "dtype": self.dtype_policy.name,
            "layers": _changes(self),
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        with dtype_policy(config["dtype"]):
            model = cls.build_from(cls.config_class.from_dict(config["config"]), config)
        _change(model, config.get("layers", {}))
        return model

    @classmethod
    def build_from(cls, config, rest):
        """The model of a config and of the other entries of `get_config`."""
        return cls(config, name=rest["name"])


class NextTokenModel(ConfiguredModel):
    """A model whose logits at each position are those of the next token."""

    def log_prob(self, token_ids):
        """The log-probability of given sequences.

        Args:
            token_ids: int tensor `[batch, length]`, padded with 0. The first token of each sequence
                is a start token; the log-probabilities of the others are summed, without padding.

        Returns:
            float32 tensor `[batch]`, in nats.
        """
        token_ids = ops.convert_to_tensor(token_ids)
        return score(self(token_ids[:, :-1]), token_ids[:, 1:])[0]


def _changes(model):
    """Changes to the layers after they were built: {place in the model: changes}."""
    changes = {}
    for place, layer in enumerate(model._flatten_layers()):
        found = {} if layer.trainable else {"trainable": False}
        if layer.quantization_mode is not None:
            found["quantized"] = layer.quantization_mode
            how = getattr(layer, "quantization_config", None)
            found["quantization_config"] = how and keras.saving.serialize_keras_object(how)
        if found:
            changes[str(place)] = found
    return changes


def _change(model, changes):
    """Applies the `_changes` of a saved model to a newly built one."""
    for place, layer in enumerate(model._flatten_layers()):
        change = changes.get(str(place), {})
        # Setting this also sets it on the layer's own sublayers, which come later in this loop.
        layer.trainable = change.get("trainable", True)
        if "quantized" in change:
            how = change["quantization_config"]
            how = how and keras.saving.deserialize_keras_object(how)
            layer.quantize(change["quantized"], type_check=False, config=how)
