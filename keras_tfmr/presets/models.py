"""The models of presets: how `config.json` describes one, and what is made of the description."""

from collections.abc import Mapping
from typing import Any

import keras

from keras_tfmr import models, recurrent
from keras_tfmr.config import Config
from keras_tfmr.errors import PresetError
from keras_tfmr.faster.precision import assign, merged_weights
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
    if kind not in MODELS:
        raise ValueError(f"kind must be one of {', '.join(MODELS)}. Received: {kind!r}")
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


def read_model(described: Mapping[str, Any]) -> keras.Model:
    """The model, with new weights, of what `describe` gave."""
    return make_model(described["kind"], described["config"], described.get("classes"))


def describe(model: keras.Model) -> dict[str, Any]:
    """What config.json says of a model."""
    kind = next((kind for kind, (_, cls) in MODELS.items() if type(model) is cls), None)
    if kind is None:
        known = ", ".join(sorted({cls.__name__ for _, cls in MODELS.values()}))
        raise PresetError(f"Expected a model of {known}. Received: a {type(model).__name__}")
    described = {"kind": kind, "config": model.config.to_dict()}
    classes = getattr(model, "num_classes", None)
    return described | ({"classes": classes} if classes else {})


def plain_copy(model: keras.Model) -> keras.Model:
    """A model of the same config in float32, with LoRA merged into its weights."""
    copy, values = read_model(describe(model)), merged_weights(model)
    try:
        assign(copy, values)
    except (KeyError, ValueError) as error:
        raise PresetError(
            "Expected a model with the layers of its config, in float32 or bfloat16. Received: "
            f"{model.name!r}, which differs in {error}"
        ) from error
    return copy
