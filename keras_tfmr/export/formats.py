"""The formats that `TextModel.export` writes."""

import importlib
import os
import pathlib
from collections.abc import Iterable

from keras_tfmr.export import publishing
from keras_tfmr.export.check import ExportError
from keras_tfmr.export.write import write_saved_model
from keras_tfmr.signatures.inputs import Text
from keras_tfmr.text.text_model import TextModel

SAVED_MODEL = "saved_model"
# {format of another engine: module and function that write it}
OTHERS = {
    "ctranslate2": ("keras_tfmr.export.ctranslate2_format", "write_ctranslate2"),
    "marian": ("keras_tfmr.marian.writing", "write_marian"),
}


def export(
    text_model: TextModel,
    directory: str | os.PathLike[str],
    format: str,
    precision: str | None,
    texts: Iterable[Text] | None,
    check: bool,
) -> pathlib.Path:
    """Writes a text model in a format: see `TextModel.export`."""
    publishing.check(directory, empty=format != SAVED_MODEL)
    if format == SAVED_MODEL:
        return write_saved_model(text_model, directory, precision, texts, check)
    if format not in OTHERS:
        known = ", ".join(map(repr, (SAVED_MODEL, *OTHERS)))
        raise ValueError(f"Expected a format of {known}. Received: {format!r}")
    given = {"precision": precision, "texts": texts, "check": None if check else check}
    if useless := [name for name, value in given.items() if value is not None]:
        raise ValueError(f"{useless[0]} has no effect on the format {format!r}")
    if not hasattr(text_model, "translate"):
        kind = type(text_model).__name__
        raise ExportError(f"The format {format!r} needs a translator. Received: a {kind}")
    module, name = OTHERS[format]
    return getattr(importlib.import_module(module), name)(text_model, directory)
