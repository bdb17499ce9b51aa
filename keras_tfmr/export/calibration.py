"""Texts that an export is calibrated and warmed up with, where it is given none."""

import importlib.resources
from collections.abc import Iterable
from typing import Any

from keras_tfmr.text.sentences import LANGUAGES
from keras_tfmr.text.strings import Text, checked_texts

_FOLDER = importlib.resources.files("keras_tfmr.export") / "sentences"
MOST = 256


def texts_for(text_model: Any, texts: Iterable[Text] | None) -> list[Text]:
    """At most `MOST` of the given texts; else those of the model's preset, or of its language."""
    if texts is None:
        texts = text_model.texts or sentences_of(text_model)
    return checked_texts(texts)[:MOST]


def sentences_of(text_model: Any) -> list[str]:
    """Sentences in the source language of a translator; none in another than those of the lists."""
    language = getattr(getattr(text_model, "splitter", None), "abbreviations", None)
    if language not in LANGUAGES:
        return []
    return (_FOLDER / f"{language}.txt").read_text(encoding="utf-8").splitlines()
