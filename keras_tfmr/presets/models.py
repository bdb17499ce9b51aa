"""The kinds of models that a preset can have, made from its config.json."""

from collections.abc import Mapping
from typing import Any

import keras

from keras_tfmr import _checks, models, recurrent
from keras_tfmr.config import Config
from keras_tfmr.errors import PresetError
from keras_tfmr.layers.base import dtype_policy

MODELS: dict[str, tuple[type[Config], type[keras.Model]]] = {  # kind: its config, and itself
    "transformer": (models.TransformerConfig, models.TranslationModel),
    "seq2seq": (recurrent.Seq2SeqConfig, recurrent.Seq2SeqModel),
    "rnnsearch": (recurrent.RNNSearchConfig, recurrent.RNNSearchModel),
    "convolutional": (recurrent.ConvolutionalConfig, recurrent.ConvolutionalModel),
    "classify": (models.TransformerConfig, models.SequenceClassifier),
    "language": (models.TransformerConfig, models.LanguageModel),
}
WITH_CLASSES = ("classify",)


def make_model(
    kind: str,
    config: Config | Mapping[str, Any],
    classes: int | None = None,
    precision: str = "float32",
) -> keras.Model:
    """A new model.

    Args:
        kind: A key of `MODELS`.
        config: Its config, or the dictionary of one.
        classes: Number of classes of an encoder with labels.
        precision: The dtype policy of its layers.

    Raises:
        ValueError: If the kind is unknown, the fields of the config contradict each other, or there
            is a number of classes for a model without, or none for one with them.
    """
    _checks.one_of("kind", kind, tuple(MODELS))
    if bool(classes) != (kind in WITH_CLASSES):
        expected = "a positive integer" if kind in WITH_CLASSES else "left out"
        raise ValueError(
            f"`classes` of a model of {kind} must be {expected}. Received: classes={classes!r}"
        )
    if isinstance(config, Mapping):
        config = read_config(kind, config)
    with dtype_policy(precision):
        return MODELS[kind][1](config, *([classes] if classes else []))


def read_config(kind: str, fields: Mapping[str, Any]) -> Config:
    """The config of a kind of model; a PresetError if its fields contradict each other."""
    try:
        return MODELS[kind][0].from_dict(fields)
    except ValueError as error:
        raise PresetError(str(error)) from error
