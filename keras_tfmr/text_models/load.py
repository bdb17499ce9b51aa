"""The text model of a preset, of whatever class it is."""

import os
from typing import Any

# Each registers its class with Keras, so that a preset can state it.
from keras_tfmr.text_models.classifier import Classifier  # noqa: F401
from keras_tfmr.text_models.completer import Completer  # noqa: F401
from keras_tfmr.text_models.text_model import TextModel
from keras_tfmr.text_models.translator import Translator  # noqa: F401


def load_text_model(
    preset: str | os.PathLike[str],
    load_weights: bool | str | os.PathLike[str] = True,
    **options: Any,
) -> TextModel:
    """The `Translator`, `Classifier`, `Completer` or other class that a preset states."""
    return TextModel.from_preset(preset, load_weights, **options)
