"""Shared by the formats of other engines: the check of a model."""

import dataclasses

import keras

from keras_tfmr.errors import ExportError
from keras_tfmr.models import TransformerConfig, TranslationModel
from keras_tfmr.precision import is_quantized

# The fields of a config that every format follows, whatever their values. Any other field must have
# its default, unless the format follows it too: so a new one is refused until a format knows it.
FOLLOWED = (
    "source_vocab", "target_vocab", "encoder_layers", "decoder_layers", "d_model", "num_heads",
    "dff", "dropout_rate", "attention_dropout_rate", "activation", "joint_vocab", "tied_logits",
    "logits_bias", "embedding_scale", "max_length",
)  # fmt: skip


def checked_config(model: keras.Model, name: str, *followed: str) -> TransformerConfig:
    """The config of a model that a format can hold.

    Args:
        model: The model.
        name: The name of the format, for errors.
        followed: Fields of a config that this format follows, beside `FOLLOWED`.

    Raises:
        ExportError: If the model was not made by `Transformer`, is quantised, or has an option that
            the format lacks; it names the first one.
    """
    config = model.config if isinstance(model, TranslationModel) else None
    if config is None:
        raise ExportError(
            f"{name} needs a model that Transformer(config) made, for its `config` says what it "
            f"computes. Received: a {type(model).__name__} without one, {model.name!r}"
        )
    if is_quantized(model):
        raise ExportError(f"{name} needs weights that are not quantised. Received: {model.name!r}")
    known = {*FOLLOWED, *followed}
    if config.key_dim == config.d_model // config.num_heads:
        known.add("key_dim")
    if config.num_kv_heads == config.num_heads:
        known.add("num_kv_heads")
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name not in known and value != field.default:
            raise ExportError(f"{name} has no counterpart of {field.name}={value!r}")
    return config
