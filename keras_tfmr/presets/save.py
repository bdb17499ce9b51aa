"""Writes presets: `TextModel.save_to_preset`."""

import json
import os
import pathlib
from typing import Any

from keras_tfmr import _files
from keras_tfmr.config import PACKAGES, versions
from keras_tfmr.errors import PresetError
from keras_tfmr.precision import copy_of, is_quantized, precision_of
from keras_tfmr.presets.folder import PresetFolder
from keras_tfmr.presets.models import entry_of
from keras_tfmr.presets.registered import registered_name


def save(text_model: Any, path: str | os.PathLike[str]) -> pathlib.Path:
    """Writes the folder of a text model: see `TextModel.save_to_preset`."""
    model = text_model.model
    if getattr(model, "precision", None) is not None or is_quantized(model):
        raise PresetError(
            "Expected a model that is neither quantised nor made for decoding. Received: "
            f"{model.name!r} in {precision_of(model)}"
        )
    with _files.whole(path) as unfinished:
        _write(text_model, PresetFolder(unfinished))
    return pathlib.Path(path)


def _write(text_model, folder):
    copy = copy_of(text_model.model, "float32", merge_lora=False)
    before, tokenizers = text_model.record.get("config", {}), text_model.sides()
    config = {"arguments": {}} | before
    config |= {
        "text_model": {
            "class_name": registered_name(type(text_model)),
            "config": text_model.get_config(),
        },
        "model": entry_of(copy),
        "tokenizers": folder.tokenizer_entries(tokenizers),
        "versions": versions(*PACKAGES),
    }
    _write_json(folder.config, config)
    for file, content in folder.tokenizer_files(tokenizers).items():
        file.write_bytes(content)
    folder.best.parent.mkdir(exist_ok=True)
    copy.save_weights(folder.best)
    if text_model.texts:
        lines = (" ".join(text.split()) for text in text_model.texts)
        folder.texts.write_text("\n".join(lines), encoding="utf-8")
    results = text_model.record.get("results") or {"parameters": int(copy.count_params())}
    _write_json(folder.results, results)


def _write_json(path, value):
    text = json.dumps(value, indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
