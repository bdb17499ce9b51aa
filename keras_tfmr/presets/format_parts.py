"""Shared by the formats of other engines: supported models, arrays, names of tokens."""

import contextlib
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_tfmr import _files
from keras_tfmr.errors import ExportError

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
    widths = (None, config.d_model // config.num_heads)
    expected = {**expected, "key_dim": widths, "value_dim": widths}
    expected |= dict.fromkeys(config.only_in_layers, ())
    for field, values in expected.items():
        if (value := getattr(config, field)) not in values:
            raise ExportError(f"{name} has no counterpart of {field}={value!r}")


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
