"""Text models from presets: what `TextModel.from_preset` does."""

import dataclasses
import inspect
import os
from collections.abc import Callable
from typing import Any

import keras

import keras_tfmr
from keras_tfmr.decoding import DecodingConfig
from keras_tfmr.presets import PresetError
from keras_tfmr.presets.find import found
from keras_tfmr.presets.folder import PresetFolder
from keras_tfmr.presets.languages import languages_of, with_abbreviations
from keras_tfmr.text.labels import Labels
from keras_tfmr.text.text_model import TextModel

# {kind of a model: its text model}; "masked" has none, and all others translate.
TEXT_MODELS = {"classify": "Classifier", "tag": "Tagger", "language": "Completer"}
DECODING = [field.name for field in dataclasses.fields(DecodingConfig)]


@dataclasses.dataclass
class Parts:
    """What a preset holds.

    Fields:
        kind: The class of its text model.
        make_model: A function of `weights` that makes the model.
        arguments: Arguments of the class, other than the model and the decoding config.
        decoding: Fields of a `DecodingConfig`, for a translator.
        record: What it says about where it is from, for exports.
        texts: Texts that it was evaluated on.
    """

    kind: type[TextModel]
    make_model: Callable[[Any], keras.Model]
    arguments: dict[str, Any]
    decoding: dict[str, Any]
    record: dict[str, Any]
    texts: list[str]


def load(
    cls: type[TextModel],
    preset: str | os.PathLike[str],
    weights: bool | str | os.PathLike[str],
    options: dict[str, Any],
) -> TextModel:
    """The text model of a preset: see `TextModel.from_preset`."""
    with found(preset) as path:
        parts = _of_run(PresetFolder(path))
        cls = _checked(cls, parts.kind, preset)
        arguments = _arguments(parts, options)
        text_model = cls(parts.make_model(weights), **arguments)
    text_model.record, text_model.texts = parts.record, parts.texts
    return text_model


def _checked(cls, kind, preset):
    """The class to make: the one that was asked, or the one of the preset if that is its base."""
    if not (issubclass(cls, kind) or issubclass(kind, cls)):
        raise PresetError(
            f"{preset} holds a {kind.__name__}: expected {kind.__name__}.from_preset. Received: "
            f"{cls.__name__}.from_preset"
        )
    return cls if issubclass(cls, kind) else kind


def _arguments(parts, options):
    """The arguments of the class: those of the preset, or the options instead."""
    arguments = parts.arguments | options
    parameters = inspect.signature(parts.kind).parameters.values()
    known = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]
    if parts.kind is keras_tfmr.Translator:
        known += DECODING
        fields = parts.decoding | {n: arguments.pop(n) for n in DECODING if n in options}
        beams = fields.setdefault("num_beams", DecodingConfig.num_beams)
        if "num_return_sequences" not in options:
            most = parts.decoding.get("num_return_sequences", beams)
            fields["num_return_sequences"] = min(most, beams)
        arguments["config"] = DecodingConfig(**fields)
    if unknown := sorted(options.keys() - known):
        raise PresetError(
            f"A {parts.kind.__name__} has no option {unknown[0]}; expected some of: "
            f"{', '.join(known)}"
        )
    return arguments


def _of_run(folder):
    """The parts of a training run's folder, or of one that `save_to_preset` wrote."""
    config, tokenizers = folder.read_config(), folder.tokenizers()
    kind = config["model"]["kind"]
    if kind == "masked":
        raise PresetError(
            f"{folder.path} is a run of --task masked, which cannot be served: train a classifier "
            "or tagger with --init_from"
        )
    if tokenizers is None:
        raise PresetError(
            f"{folder.path} has neither tokenizer.model nor source.model and target.model"
        )
    decoding, recorded = {}, config.get("text_model", {})
    if kind in TEXT_MODELS:
        arguments = {"tokenizer": tokenizers[0]}
        if isinstance(tokenizers[1], Labels):
            arguments[{"classify": "labels", "tag": "tags"}[kind]] = tokenizers[1].names
    else:
        settings = config["arguments"]
        decoding = {name: settings[name] for name in DECODING if name in settings}
        arguments = dict(zip(("source_tokenizer", "target_tokenizer"), tokenizers, strict=True))
        arguments["abbreviations"] = with_abbreviations(languages_of(config)[0])
        arguments["lexicon"] = folder.read_lexicon()
    return Parts(
        kind=getattr(keras_tfmr, TEXT_MODELS.get(kind, "Translator")),
        make_model=folder.model,
        arguments=arguments | recorded,
        decoding=decoding,
        record=folder.metadata(),
        texts=folder.sources(),
    )
