"""Text models from presets: what `TextModel.from_preset` does."""

import dataclasses
import inspect
import os
import pathlib
from typing import Any

import keras

import keras_tfmr
from keras_tfmr import marian
from keras_tfmr._files import PresetError
from keras_tfmr.decoding import DecodingConfig
from keras_tfmr.presets.find import found, name_of
from keras_tfmr.presets.folder import PresetFolder
from keras_tfmr.presets.languages import languages_of, with_abbreviations
from keras_tfmr.text.labels import Labels
from keras_tfmr.text.sentences import SentenceSplitter
from keras_tfmr.text.text_model import TextModel

# {kind of a model: its text model}; "masked" has none, and all others translate.
TEXT_MODELS = {"classify": "Classifier", "tag": "Tagger", "language": "Completer"}
DECODING = [field.name for field in dataclasses.fields(DecodingConfig)]

Weights = bool | str | os.PathLike[str]


@dataclasses.dataclass
class Parts:
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
    cls: type[TextModel],
    preset: str | os.PathLike[str],
    weights: Weights,
    options: dict[str, Any],
) -> TextModel:
    """The text model of a preset: see `TextModel.from_preset`."""
    if (backend := keras.backend.backend()) != "tensorflow":
        raise PresetError(
            f"Translating and exporting run on TensorFlow. Received: KERAS_BACKEND={backend}"
        )
    with found(preset) as path:
        published = marian.recognise(path) is not None
        kind = keras_tfmr.Translator if published else _kind_of(PresetFolder(path))
        if not (issubclass(cls, kind) or issubclass(kind, cls)):
            raise PresetError(
                f"{preset} holds a {kind.__name__}: expected {kind.__name__}.from_preset. "
                f"Received: {cls.__name__}.from_preset"
            )
        _check_options(kind, options)
        if published:
            parts = _of_marian(path, name_of(preset), weights, options.get("language"))
        else:
            parts = _of_folder(PresetFolder(path), weights, options.get("language"))
        arguments = _arguments(kind, parts, options)
        text_model = (cls if issubclass(cls, kind) else kind)(parts.model, **arguments)
    text_model.record, text_model.texts = parts.record, parts.texts
    return text_model


def _kind_of(folder):
    """The class of a folder's text model."""
    kind = folder.read_config()["model"]["kind"]
    if kind == "masked":
        raise PresetError(
            f"{folder.path} is a run of --task masked, which cannot be served: train a classifier "
            "or tagger with --init_from"
        )
    return getattr(keras_tfmr, TEXT_MODELS.get(kind, "Translator"))


def _check_options(kind, options):
    """Raises a PresetError for an option that the class does not have."""
    parameters = inspect.signature(kind).parameters.values()
    known = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]
    if kind is keras_tfmr.Translator:
        known += [*DECODING, "language"]
    if unknown := sorted(options.keys() - known):
        raise PresetError(
            f"A {kind.__name__} has no option {unknown[0]}; expected some of: {', '.join(known)}"
        )


def _arguments(kind, parts, options):
    """The arguments of the class: those of the preset, or the options instead."""
    others = {n: v for n, v in options.items() if n not in (*DECODING, "language")}
    arguments = parts.arguments | others
    if kind is keras_tfmr.Translator:
        fields = parts.decoding | {n: v for n, v in options.items() if n in DECODING}
        beams = fields.setdefault("num_beams", DecodingConfig.num_beams)
        if "num_return_sequences" not in options:
            most = parts.decoding.get("num_return_sequences", beams)
            fields["num_return_sequences"] = min(most, beams)
        arguments["config"] = DecodingConfig(**fields)
    return arguments


def _of_folder(folder: PresetFolder, weights: Weights, language: str | None) -> Parts:
    """Of a training run's folder, or of one that `save_to_preset` wrote."""
    config, tokenizers = folder.read_config(), folder.tokenizers()
    if tokenizers is None:
        raise PresetError(
            f"{folder.path} has neither tokenizer.model nor source.model and target.model"
        )
    kind, settings, record = config["model"]["kind"], config["arguments"], folder.metadata()
    decoding = {}
    if kind in TEXT_MODELS:
        arguments = {"tokenizer": tokenizers[0]}
        if isinstance(tokenizers[1], Labels):
            arguments[{"classify": "labels", "tag": "tags"}[kind]] = tokenizers[1].names
    else:
        decoding = {name: settings[name] for name in DECODING if name in settings}
        arguments = dict(zip(("source_tokenizer", "target_tokenizer"), tokenizers, strict=True))
        if language:
            arguments["source_tokenizer"] = _into(tokenizers[0], language)
            record["config"].setdefault("published", {})["target_language"] = language
        spoken = with_abbreviations(languages_of(config)[0])
        own = folder.abbreviations.exists()
        arguments["abbreviations"] = SentenceSplitter(folder.abbreviations if own else spoken)
        arguments["lexicon"] = folder.read_lexicon()
        arguments["protect"] = settings.get("protect")
    return Parts(
        model=folder.model(weights),
        arguments=arguments | config.get("text_model", {}),
        decoding=decoding,
        record=record,
        texts=folder.sources(),
    )


def _into(tokenizer, language):
    try:
        return tokenizer.into(language)
    except ValueError as error:
        raise PresetError(str(error)) from error


def _of_marian(path: pathlib.Path, name: str, weights: Weights, language: str | None) -> Parts:
    """Of a published model of Marian."""
    if not isinstance(weights, bool):
        raise PresetError(f"a published model has no other weights. Received: {weights}")
    found = marian.read(path, weights=weights, language=language, name=name)
    source, target = found.source_tokenizer, found.target_tokenizer
    about = {
        "name": found.name, "form": found.form, "source_language": found.source_language,
        "target_language": found.target_language, "target_languages": source.target_languages,
        "notes": found.notes,
    }  # fmt: skip
    return Parts(
        model=found.model,
        arguments={
            "source_tokenizer": source,
            "target_tokenizer": target,
            "abbreviations": with_abbreviations(languages_of({"published": about})[0]),
        },
        decoding=found.decoding.to_dict(),
        record={"config": {"published": about}},
        texts=list(found.texts),
    )
