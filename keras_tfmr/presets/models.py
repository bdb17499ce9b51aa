"""The models of presets: how `config.json` describes one, and what is made of the description."""

from collections.abc import Mapping
from typing import Any

import keras

from keras_tfmr import models, recurrent
from keras_tfmr.config import Config
from keras_tfmr.errors import PresetError
from keras_tfmr.precision import is_quantized

# {kind: its config}. Those of `RECURRENT` are classes; functions make the others.
MODELS: dict[str, type[Config]] = {
    "transformer": models.TransformerConfig,
    "seq2seq": recurrent.Seq2SeqConfig,
    "rnnsearch": recurrent.RNNSearchConfig,
    "convolutional": recurrent.ConvolutionalConfig,
    "classify": models.TransformerConfig,
    "language": models.TransformerConfig,
}
RECURRENT = {
    "seq2seq": recurrent.Seq2SeqModel,
    "rnnsearch": recurrent.RNNSearchModel,
    "convolutional": recurrent.ConvolutionalModel,
}
OWN = "own"  # the kind of a model that somebody combined


def make_model(
    kind: str, config: Config, classes: int | None = None, precision: str = "float32"
) -> keras.Model:
    """A new model.

    Args:
        kind: A key of `MODELS`.
        config: Its config.
        classes: Number of classes of a classifier.
        precision: The dtype policy of its layers.
    """
    if kind in RECURRENT:
        with recurrent.dtype_policy(precision):
            return RECURRENT[kind](config)
    if kind == "classify":
        return models.TransformerClassifier(config, classes, dtype=precision)
    if kind == "language":
        return models.TransformerLanguageModel(config, dtype=precision)
    return models.Transformer(config, dtype=precision)


def read_config(kind: str, fields: Mapping[str, Any]) -> Config:
    """The config of a kind of model; a PresetError if its fields contradict each other."""
    try:
        return MODELS[kind].from_dict(fields)
    except ValueError as error:
        raise PresetError(str(error)) from error


def read_model(described: Mapping[str, Any]) -> keras.Model:
    """The model, with new weights, of what `describe` gave."""
    kind = described["kind"]
    if kind == OWN:
        return keras.saving.deserialize_keras_object(described["keras"])
    config = MODELS[kind].from_dict(described["config"])
    return make_model(kind, config, described.get("classes"))


def describe(model: keras.Model) -> dict[str, Any]:
    """What config.json says of a model: its kind and config; of one's own, what Keras says of it.

    Raises:
        PresetError: If it is quantised.
    """
    if is_quantized(model):
        raise PresetError(f"Expected a model that is not quantised. Received: {model.name!r}")
    for kind, model_class in RECURRENT.items():
        if type(model) is model_class:
            return {"kind": kind, "config": model.config.to_dict()}
    config = getattr(model, "config", None)
    if config is None:
        described = keras.saving.serialize_keras_object(model)
        described.pop("compile_config", None)
        return {"kind": OWN, "keras": described}
    config = config.to_dict()
    if isinstance(model, models.TranslationModel):
        return {"kind": "transformer", "config": config}
    if isinstance(model, models.LanguageModel):
        return {"kind": "language", "config": config}
    return {"kind": "classify", "config": config, "classes": model.output_shape[-1]}
