"""Loads presets: `TextModel.from_preset`."""

import os
from typing import Any

import keras

from keras_tfmr.errors import PresetError
from keras_tfmr.presets.find import find, name_of
from keras_tfmr.presets.folder import PresetFolder
from keras_tfmr.presets.marian_mt.folder import MarianFolder, is_marian_mt
from keras_tfmr.presets.registered import registered_class


def load(
    cls: Any,
    base: type,
    preset: str | os.PathLike[str],
    weights: bool | str | os.PathLike[str],
    options: dict[str, Any],
) -> Any:
    """The text model of a preset.

    Args:
        cls: The class whose `from_preset` was called.
        base: The class of all text models.
        preset, weights, options: As for `TextModel.from_preset`.
    """
    if (backend := keras.backend.backend()) != "tensorflow":
        raise PresetError(
            f"Translating and exporting run on TensorFlow. Received: KERAS_BACKEND={backend}"
        )
    path = find(preset)
    try:
        folder = MarianFolder(path, name_of(preset)) if is_marian_mt(path) else PresetFolder(path)
        entry = folder.read_config()["text_model"]
        stated = registered_class(entry.get("class_name"), base, f"{folder.config}: text_model")
        if not (issubclass(stated, cls) or issubclass(cls, stated)):
            raise PresetError(
                f"{preset} holds a {stated.__name__}: expected {stated.__name__}.from_preset. "
                f"Received: {cls.__name__}.from_preset"
            )
        if (tokenizers := folder.tokenizers()) is None:
            raise PresetError(f"{path} lacks a file of its tokenizers, which {folder.config} names")
        made = stated if issubclass(stated, cls) else cls
        config = {**entry.get("config", {}), **options}
        text_model = made.from_config(config, folder.model(weights), tokenizers)
    except PresetError:
        raise
    except (ValueError, TypeError) as error:  # in the preset or in the options
        raise PresetError(f"{preset}: {error}") from error
    text_model.record, text_model.texts = folder.metadata(), folder.sources()
    return text_model
