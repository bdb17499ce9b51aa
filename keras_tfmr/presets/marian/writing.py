"""Writes a Transformer in the form that transformers loads as a MarianMTModel, or Marian itself."""

import os
import pathlib
from typing import Any

from keras_tfmr.errors import ExportError
from keras_tfmr.presets.format_parts import COMMON, check_architecture, folder, tokens
from keras_tfmr.presets.marian import release, transformers_folder


def write_marian(translator: Any, path: str | os.PathLike[str]) -> pathlib.Path:
    """Writes a MarianMTModel, its vocabulary and SentencePiece models, as transformers saves them.

    The positions of a model decide: those of a model that was read from a release of Marian are
    Marian's own, so it becomes such a release again.

    Args:
        translator: A `Translator` of a post-norm `TranslationModel` with sinusoidal positions.
        path: The folder to write to.

    Returns:
        The path.

    Raises:
        ExportError: If the program that reads it has no such architecture, or the folder is not
            empty.
    """
    config = translator.model.config
    if config.d_model < 4 or config.d_model % 2:
        raise ExportError(f"MarianMTModel needs an even width. Received: {config.d_model=}")
    own = release.wavelength(config.d_model)
    expected = {**COMMON, "norm_first": (False,), "max_wavelength": (10_000, own)}
    check_architecture(translator.model, "MarianMTModel", expected)
    if config.norm_epsilon > transformers_folder.EPSILON:
        raise ExportError(f"MarianMTModel has no counterpart of {config.norm_epsilon=}")
    form = release if config.max_wavelength == own else transformers_folder
    with folder(path, translator) as unfinished:
        names = {side: tokens(tokenizer) for side, tokenizer in translator.tokenizers.items()}
        form.write(translator, unfinished, names)
    return pathlib.Path(path)
