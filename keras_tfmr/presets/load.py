"""Text models from presets: what `from_preset` does."""

import dataclasses
import os
from typing import Any

import keras

from keras_tfmr.decoding import DecodingConfig
from keras_tfmr.errors import PresetError
from keras_tfmr.presets.find import find, name_of
from keras_tfmr.presets.folder import Content, PresetFolder
from keras_tfmr.presets.languages import languages_of, with_abbreviations
from keras_tfmr.presets.marian_mt.folder import is_marian_mt
from keras_tfmr.presets.marian_mt.folder import read as read_marian_mt
from keras_tfmr.presets.models import MODELS, OWN
from keras_tfmr.text.labels import Labels
from keras_tfmr.text.sentences import SentenceSplitter

DECODING = [field.name for field in dataclasses.fields(DecodingConfig)]

# The classes of text models by what they do, which `text_models.load` knows.
CLASSES = {"translation": "Translator", "classify": "Classifier", "language": "Completer"}
# {class of a model of one's own: the kind of its text model}; any other labels texts.
OF_CLASSES = {"TranslationModel": "translation", "LanguageModel": "language"}

Weights = bool | str | os.PathLike[str]


def kind_of(preset: str | os.PathLike[str]) -> str:
    """What the model of a preset does: a key of `CLASSES`."""
    path = find(preset)
    if is_marian_mt(path):
        return "translation"
    folder = PresetFolder(path)
    described = folder.read_config()["model"]
    kind = described.get("kind")
    if kind == OWN:
        return OF_CLASSES.get(described["keras"]["class_name"], "classify")
    if kind not in MODELS:
        known = ", ".join(MODELS)
        raise PresetError(f"{folder.config}: model.kind must be one of {known}. Received: {kind!r}")
    return kind if kind in CLASSES else "translation"


def load(
    cls: Any, preset: str | os.PathLike[str], weights: Weights, options: dict[str, Any]
) -> Any:
    """The text model of a class, whose `kind` must be that of the preset.

    The arguments are those of `TextModel.from_preset`.
    """
    if (backend := keras.backend.backend()) != "tensorflow":
        raise PresetError(
            f"Translating and exporting run on TensorFlow. Received: KERAS_BACKEND={backend}"
        )
    path, options = find(preset), dict(options)
    if (kind := kind_of(path)) != cls.kind:
        raise PresetError(
            f"{preset} holds a {CLASSES[kind]}: expected {CLASSES[kind]}.from_preset. "
            f"Received: {cls.__name__}.from_preset"
        )
    translates = kind == "translation"
    language = options.pop("language", None) if translates else None
    try:
        if not is_marian_mt(path):
            content = _of_folder(PresetFolder(path), translates, weights, language)
        elif isinstance(weights, bool):
            content = read_marian_mt(path, name_of(preset), weights, language)
        else:
            raise PresetError(f"a published model has no other weights. Received: {weights}")
        if translates:
            searched = {name: options.pop(name) for name in DECODING if name in options}
            content.arguments["config"] = _search(content.decoding, searched)
        text_model = cls(content.model, **content.arguments | options)
    except PresetError:
        raise
    except (ValueError, TypeError) as error:  # of what it says, or of the options
        raise PresetError(f"{preset}: {error}") from error
    text_model.record, text_model.texts = content.record, content.texts
    return text_model


def _search(known, given):
    """The `DecodingConfig` of a preset's fields and of options, which go first."""
    beams = given.get("num_beams", known.get("num_beams", DecodingConfig.num_beams))
    most = min(known.get("num_return_sequences", beams), beams)
    return DecodingConfig(**known | {"num_beams": beams, "num_return_sequences": most} | given)


def _of_folder(
    folder: PresetFolder, translates: bool, weights: Weights, language: str | None
) -> Content:
    """Of a training run's folder, or of one that `save_to_preset` wrote."""
    config, tokenizers = folder.read_config(), folder.tokenizers()
    if tokenizers is None:
        raise PresetError(
            f"{folder.path} has neither tokenizer.model nor source.model and target.model"
        )
    kind, settings, record = config["model"]["kind"], config["arguments"], folder.metadata()
    if kind != OWN and isinstance(tokenizers[1], Labels) != (kind == "classify"):
        expected = "labels" if kind == "classify" else "subwords"
        raise PresetError(
            f"{folder.path}: its tokenizer.model or target.model must hold {expected}"
        )
    own, decoding = dict(config.get("text_model", {})), {}
    if translates:
        source, target = tokenizers
        if language:
            source = source.into(language)
            record["config"].setdefault("published", {})["target_language"] = language
        spoken = own.get("abbreviations", with_abbreviations(languages_of(config)[0]))
        words = folder.abbreviations if folder.abbreviations.exists() else spoken
        own |= {
            "source_tokenizer": source,
            "target_tokenizer": target,
            "abbreviations": SentenceSplitter(words),
            "protect": own["protect"] if "protect" in own else settings.get("protect"),
        }
        decoding = {name: settings[name] for name in DECODING if name in settings}
    else:
        own["tokenizer"] = tokenizers[0]
        if isinstance(tokenizers[1], Labels):
            own["labels"] = tokenizers[1].names
    return Content(
        model=folder.model(weights),
        arguments=own,
        decoding=decoding,
        record=record,
        texts=folder.sources(),
    )
