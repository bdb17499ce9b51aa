"""Shared by the formats of other engines: supported models, arrays, names of tokens."""

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_tfmr import _files
from keras_tfmr._files import ExportError

# What no other engine varies: {field of a TransformerConfig: the values that it can have}.
COMMON = {
    "norm": ("layer",),
    "positions": ("sinusoidal",),
    "gated": (False,),
    "qk_norm": (False,),
    "num_kv_heads": (None,),
    "use_bias": (True,),
    "embedding_norm": (False,),
    "decoder_self": ("attention",),
}
# What every format writes, whatever its value, or checks by itself.
WRITTEN = {
    *("source_vocab", "target_vocab", "encoder_layers", "decoder_layers", "d_model", "num_heads"),
    *("dff", "dropout_rate", "attention_dropout_rate", "key_dim", "value_dim", "norm_first"),
    *("norm_epsilon", "activation", "joint_vocab", "tied_logits", "logits_bias"),
    *("embedding_scale", "max_wavelength", "max_length"),
}


def check_architecture(model, name, expected):
    """Raises an ExportError that names the first property of a model that a format lacks.

    Args:
        model: Any model.
        name: The name of the format.
        expected: {field of a `TransformerConfig`: the values that the format supports}.
    """
    config = model.config
    if type(model).__name__ != "TranslationModel":
        raise ExportError(f"{name} has no counterpart of a {type(model).__name__}")
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        # A field that nobody told the formats about can only have its default.
        usual = (value,) if field.name in WRITTEN else (field.default,)
        if value not in expected.get(field.name, usual):
            raise ExportError(f"{name} has no counterpart of {field.name}={value!r}")
    width = config.d_model // config.num_heads
    for field in ("key_dim", "value_dim"):
        if getattr(config, field) not in (None, width):
            raise ExportError(f"{name} has no counterpart of {field}={getattr(config, field)}")


@contextlib.contextmanager
def folder(path: str | os.PathLike[str], translator: Any) -> Iterator[pathlib.Path]:
    """As `_files.whole`, with the SentencePiece models."""
    with _files.whole(path) as unfinished:
        for side, tokenizer in translator.tokenizers.items():
            (unfinished / f"{side}.spm").write_bytes(tokenizer.model_bytes)
        yield unfinished


def tokens(tokenizer):
    """The name of every id of a tokeniser."""
    names = tokenizer.pieces(np.arange(1, tokenizer.vocab_size)[None]).numpy()[0]
    return ["<pad>", *(name.decode() for name in names)]
