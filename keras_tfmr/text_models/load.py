"""The text model of a preset, of whatever kind it is."""

import os
from typing import Any

from keras_tfmr.presets.load import kind_of
from keras_tfmr.text_models.classifier import Classifier
from keras_tfmr.text_models.completer import Completer
from keras_tfmr.text_models.text_model import TextModel
from keras_tfmr.text_models.translator import Translator

CLASSES: dict[str, type[TextModel]] = {
    "translation": Translator,
    "classify": Classifier,
    "language": Completer,
}


def load_text_model(
    preset: str | os.PathLike[str],
    load_weights: bool | str | os.PathLike[str] = True,
    **options: Any,
) -> TextModel:
    """The `Translator`, `Classifier` or `Completer` of a preset, by its class's `from_preset`."""
    return CLASSES[kind_of(preset)].from_preset(preset, load_weights, **options)
