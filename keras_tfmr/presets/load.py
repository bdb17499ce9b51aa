"""Text models from presets: what `TextModel.from_preset` does."""

import dataclasses
import inspect
import os
import pathlib
from typing import Any

import keras

from keras_tfmr._checks import one_of
from keras_tfmr._files import blaming
from keras_tfmr.decoding import DecodingConfig
from keras_tfmr.errors import PresetError
from keras_tfmr.presets import marian
from keras_tfmr.presets.find import found, name_of
from keras_tfmr.presets.folder import PresetFolder
from keras_tfmr.presets.languages import languages_of, with_abbreviations
from keras_tfmr.presets.models import MODELS, WITH_CLASSES
from keras_tfmr.text.labels import Labels
from keras_tfmr.text.protection import patterns
from keras_tfmr.text.sentences import SentenceSplitter

DECODING = [field.name for field in dataclasses.fields(DecodingConfig)]

Weights = bool | str | os.PathLike[str]


@dataclasses.dataclass
class Content:
    """What a preset holds.

    Fields:
        model: The model, with its weights.
        arguments: Arguments of the text model's class, other than the model and the search.
        decoding: Fields of a `DecodingConfig`, for a translator.
        record: What it says about where it is from, for exports.
        texts: Texts that it was evaluated on.
    """

    model: keras.Model
    arguments: dict[str, Any]
    decoding: dict[str, Any]
    record: dict[str, Any]
    texts: list[str]


def load(
    cls: type,
    preset: str | os.PathLike[str],
    weights: Weights,
    options: dict[str, Any],
    classes: dict[str, type],
) -> Any:
    """The text model of a preset: see `TextModel.from_preset`.

    Args:
        cls: The class that was asked for.
        preset, weights, options: As there.
        classes: {kind of a model: the class of its text model}; "translation" for all others.
    """
    if (backend := keras.backend.backend()) != "tensorflow":
        raise PresetError(
            f"Translating and exporting run on TensorFlow. Received: KERAS_BACKEND={backend}"
        )
    with found(preset) as path:
        published = marian.recognise(path) is not None
        kind = classes["translation"] if published else _class_of(PresetFolder(path), classes)
        if not (issubclass(cls, kind) or issubclass(kind, cls)):
            raise PresetError(
                f"{preset} holds a {kind.__name__}: expected {kind.__name__}.from_preset. "
                f"Received: {cls.__name__}.from_preset"
            )
        _check_options(kind, options)
        if published:
            content = _of_marian(path, name_of(preset), weights, options.get("language"))
        else:
            content = _of_folder(PresetFolder(path), kind, weights, options.get("language"))
        arguments = _arguments(kind, content, options)
        with blaming(f"{preset}: {kind.__name__}"):
            text_model = (cls if issubclass(cls, kind) else kind)(content.model, **arguments)
    text_model.record, text_model.texts = content.record, content.texts
    return text_model


def _class_of(folder, classes):
    """The class of a folder's text model."""
    kind = folder.read_config()["model"]["kind"]
    with blaming(f"{folder.config}: model"):
        one_of("kind", kind, tuple(MODELS))
    return classes.get(kind, classes["translation"])


def _check_options(kind, options):
    """Raises a PresetError for an option that the class does not have."""
    parameters = inspect.signature(kind).parameters.values()
    known = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    if hasattr(kind, "translate"):
        known += [*DECODING, "language"]
    if unknown := sorted(options.keys() - known):
        raise PresetError(
            f"A {kind.__name__} has no option {unknown[0]}; expected some of: {', '.join(known)}"
        )


def _arguments(kind, content, options):
    """The arguments of the class: those of the preset, or the options instead."""
    others = {n: v for n, v in options.items() if n not in (*DECODING, "language")}
    arguments = content.arguments | others
    if hasattr(kind, "translate"):
        fields = content.decoding | {n: v for n, v in options.items() if n in DECODING}
        beams = fields.setdefault("num_beams", DecodingConfig.num_beams)
        if "num_return_sequences" not in options:
            most = content.decoding.get("num_return_sequences", beams)
            fields["num_return_sequences"] = min(most, beams)
        arguments["config"] = DecodingConfig(**fields)
    return arguments


def _of_folder(folder: PresetFolder, cls: type, weights: Weights, language: str | None) -> Content:
    """Of a training run's folder, or of one that `save_to_preset` wrote."""
    config, tokenizers = folder.read_config(), folder.tokenizers()
    if tokenizers is None:
        raise PresetError(
            f"{folder.path} has neither tokenizer.model nor source.model and target.model"
        )
    kind, settings, record = config["model"]["kind"], config["arguments"], folder.metadata()
    if isinstance(tokenizers[1], Labels) != (kind in WITH_CLASSES):
        expected = "labels" if kind in WITH_CLASSES else "subwords"
        raise PresetError(
            f"{folder.path}: its tokenizer.model or target.model must hold {expected}"
        )
    own, decoding = dict(config.get("text_model", {})), {}
    with blaming(f"{folder.config}: text_model"):
        _check_options(cls, own)
    if kind in ("classify", "language"):
        arguments = {"tokenizer": tokenizers[0]}
        if kind in WITH_CLASSES:
            arguments["labels"] = tokenizers[1].names
    else:
        decoding = {name: settings[name] for name in DECODING if name in settings}
        with blaming(f"{folder.config}: arguments"):
            DecodingConfig(**decoding | {"num_return_sequences": 1})
        arguments = dict(zip(("source_tokenizer", "target_tokenizer"), tokenizers, strict=True))
        if language:
            arguments["source_tokenizer"] = _into(tokenizers[0], language)
            record["config"].setdefault("published", {})["target_language"] = language
        with blaming(f"{folder.config}: arguments.languages"):
            spoken = own.get("abbreviations", with_abbreviations(languages_of(config)[0]))
        with blaming(f"{folder.config}: text_model.abbreviations"):
            words = folder.abbreviations if folder.abbreviations.exists() else spoken
            own |= {"abbreviations": SentenceSplitter(words)}
        part = "text_model" if "protect" in own else "arguments"
        own |= {"protect": config[part].get("protect")}
        with blaming(f"{folder.config}: {part}.protect"):
            patterns(own["protect"] or ())
    return Content(
        model=folder.model(weights),
        arguments=arguments | own,
        decoding=decoding,
        record=record,
        texts=folder.sources(),
    )


def _into(tokenizer, language):
    try:
        return tokenizer.into(language)
    except ValueError as error:
        raise PresetError(str(error)) from error


def _of_marian(path: pathlib.Path, name: str, weights: Weights, language: str | None) -> Content:
    """Of a published model of Marian."""
    if not isinstance(weights, bool):
        raise PresetError(f"a published model has no other weights. Received: {weights}")
    read = marian.read(path, weights=weights, language=language, name=name)
    source, target = read.source_tokenizer, read.target_tokenizer
    about = {
        "name": read.name, "form": read.form, "source_language": read.source_language,
        "target_language": read.target_language, "target_languages": source.target_languages,
        "notes": read.notes,
    }  # fmt: skip
    return Content(
        model=read.model,
        arguments={
            "source_tokenizer": source,
            "target_tokenizer": target,
            "abbreviations": with_abbreviations(languages_of({"published": about})[0]),
        },
        decoding=read.decoding.to_dict(),
        record={"config": {"published": about}},
        texts=list(read.texts),
    )
