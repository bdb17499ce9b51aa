"""Text models to presets: what `TextModel.save_to_preset` does."""

import json
import os
import pathlib
from typing import Any

from keras_tfmr import _files
from keras_tfmr.config import PACKAGES, versions
from keras_tfmr.precision import copy_of
from keras_tfmr.presets.folder import PresetFolder
from keras_tfmr.presets.models import describe
from keras_tfmr.text.labels import Labels
from keras_tfmr.text.sentences import LANGUAGES

# Arguments of a text model that config.json records; the others have files of their own.
RECORDED = ("max_source_length", "max_length", "max_new_tokens", "protect")


def save(text_model: Any, path: str | os.PathLike[str]) -> pathlib.Path:
    """Writes the folder of a text model: see `TextModel.save_to_preset`."""
    with _files.whole(path) as unfinished:
        _write(text_model, PresetFolder(unfinished))
    return pathlib.Path(path)


def _write(text_model, folder):
    model, arguments = text_model.model, text_model.arguments()
    described = describe(model)
    copy = copy_of(model, "float32")  # with LoRA merged into its weights
    before = text_model.record.get("config", {})
    search = arguments["config"].to_dict() if "config" in arguments else {}
    if search.get("num_return_sequences") == search.get("num_beams"):
        search.pop("num_return_sequences", None)  # as many as there are beams, of whatever number
    own = {name: arguments[name] for name in RECORDED if name in arguments}
    if splitter := arguments.get("abbreviations"):
        if splitter.abbreviations in (None, *LANGUAGES):
            own["abbreviations"] = splitter.abbreviations
        else:
            words = "\n".join(sorted(splitter.words))
            folder.abbreviations.write_text(words, encoding="utf-8")
    config = before | {
        "model": described,
        "arguments": before.get("arguments", {}) | search,
        "text_model": own,
        "versions": versions(*PACKAGES),
    }
    _write_json(folder.config, config)
    for file, content in folder.tokenizer_files(_sides(text_model)).items():
        file.write_bytes(content)
    folder.best.parent.mkdir(exist_ok=True)
    copy.save_weights(folder.best)
    if text_model.texts:
        lines = (" ".join(text.split()) for text in text_model.texts)
        folder.texts.write_text("\n".join(lines), encoding="utf-8")
    results = text_model.record.get("results") or {"parameters": int(model.count_params())}
    _write_json(folder.results, results)


def _write_json(path, value):
    text = json.dumps(value, indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def _sides(text_model):
    """`(source, target)` tokenizers, or what takes the place of one."""
    source, *target = text_model.tokenizers.values()
    if text_model.kind == "classify":
        target = [Labels(text_model.labels)]
    return source, *(target or [source])
