"""What the formats of other engines share: which models they can hold, and the names of tokens."""

import keras
import numpy as np

from keras_tfmr.errors import ExportError
from keras_tfmr.models import TransformerConfig, TranslationModel, config_of
from keras_tfmr.text.tokenizer import Tokenizer

# What no other engine varies: {field of a TransformerConfig: the values that it can have}.
COMMON = {
    "norm": ("layer",),
    "positions": ("sinusoidal",),
    "gated": (False,),
    "qk_norm": (False,),
    "num_kv_heads": (None,),
    "use_bias": (True,),
    "embedding_norm": (False,),
}


def check_architecture(
    model: keras.Model, name: str, expected: dict[str, tuple]
) -> TransformerConfig:
    """The config of a model; an ExportError that names its first property that a format lacks.

    `expected` are the values that the format supports, by fields of the config.
    """
    try:
        config = config_of(model)
    except ValueError as error:
        raise ExportError(f"{name} has no counterpart of the model: {error}") from error
    if not isinstance(model, TranslationModel):
        raise ExportError(f"{name} has no counterpart of a {type(model).__name__}")
    expected = {**expected, "key_dim": (None, config.d_model // config.num_heads)}
    for field, values in expected.items():
        if (value := getattr(config, field)) not in values:
            raise ExportError(f"{name} has no counterpart of {field}={value!r}")
    return config


def tokens(tokenizer: Tokenizer) -> list[str]:
    """The name of every id of a tokenizer."""
    names = tokenizer.pieces(np.arange(1, tokenizer.vocab_size)[None]).numpy()[0]
    return ["<pad>", *(name.decode() for name in names)]
