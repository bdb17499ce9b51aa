"""The formats that `TextModel.export` writes."""

import os
import pathlib
from collections.abc import Iterable
from typing import Any

from keras_tfmr import _files
from keras_tfmr.errors import ExportError
from keras_tfmr.text.strings import Text

FORMATS = ("saved_model", "ctranslate2", "transformers")


def export(
    text_model: Any,
    directory: str | os.PathLike[str],
    format: str,
    precision: str | None,
    texts: Iterable[Text] | None,
    check: bool,
) -> pathlib.Path:
    """Writes a text model in a format: see `TextModel.export`."""
    if format not in FORMATS:
        known = ", ".join(map(repr, FORMATS))
        raise ValueError(f"Expected a format of {known}. Received: {format!r}")
    _files.check_folder(directory, empty=format != "saved_model")
    if format == "saved_model":
        from keras_tfmr.export.write import write_saved_model

        return write_saved_model(text_model, directory, precision, texts, check)
    options_given = {"precision": precision, "texts": texts, "check": None if check else check}
    if useless := [name for name, value in options_given.items() if value is not None]:
        raise ValueError(f"{useless[0]} has no effect on the format {format!r}")
    if not hasattr(text_model, "translate"):
        kind = type(text_model).__name__
        raise ExportError(f"The format {format!r} needs a translator. Received: a {kind}")
    if format == "ctranslate2":
        from keras_tfmr.export.ctranslate2 import write_ctranslate2

        return write_ctranslate2(text_model, directory)
    from keras_tfmr.export.marian_mt import write_marian_mt

    return write_marian_mt(text_model, directory)
