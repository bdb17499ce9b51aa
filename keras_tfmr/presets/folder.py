"""The files of a preset: its config, tokenizers and weights, as a training run leaves them."""

import os
import pathlib
from typing import Any

import keras
import numpy as np

from keras_tfmr._files import read_json
from keras_tfmr.errors import PresetError
from keras_tfmr.presets.models import model_of
from keras_tfmr.presets.registered import registered_class, registered_name
from keras_tfmr.text.labels import Labels
from keras_tfmr.text.tokenizer import Tokenizer

# The entries that config.json must have, each an object.
ENTRIES = ("text_model", "model", "tokenizers")
SIDES = ("source", "target")
INDEX = "store.json"  # of the ids of a run's pairs, in the folder `encoded`


class PresetFolder:
    """Paths of a preset, and its parts as they are loaded.

    The entries of config.json are the class and the config of the text model (`text_model`) and of
    both tokenizers (`tokenizers`), and the function that makes the model, with its config
    (`model`). Tokenizers and weights have files of their own.

    Args:
        path: The folder; it need not exist.

    >>> PresetFolder("runs/mine").config.name
    'config.json'
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path = pathlib.Path(path)
        self.config = path / "config.json"
        self.joint_tokenizer = path / "tokenizer.model"
        self.side_tokenizers = (path / "source.model", path / "target.model")
        self.best = path / "weights" / "best.weights.h5"
        self.texts = path / "texts.txt"
        self.results = path / "results.json"
        self.encoded = path / "encoded"

    def read_config(self) -> dict[str, Any]:
        """The content of config.json; raises a PresetError if it is not that of a preset."""
        config = read_json(self.config)
        entries = config if isinstance(config, dict) else {}
        if missing := [name for name in ENTRIES if not isinstance(entries.get(name), dict)]:
            raise PresetError(
                f"{self.config} is not the config of a run or preset: expected the entries "
                f"{', '.join(ENTRIES)}, found no {missing[0]}. Folders of earlier versions cannot "
                "be loaded: train or import again, into another folder, or delete this one"
            )
        return config

    def metadata(self) -> dict[str, Any]:
        """The record of the preset, for exports."""
        results = read_json(self.results) if self.results.exists() else None
        return {"config": self.read_config(), "results": results}

    def tokenizers(self) -> tuple[Any, Any] | None:
        """The `(source, target)` tokenizers, one twice if joint; None if a file is missing.

        A classifier has `Labels` in place of the target's.
        """
        entries = self.read_config()["tokenizers"]
        source, target = (self._checked(side, entries.get(side)) for side in SIDES)
        files = [self.path / entry["file"] for entry in (source, target) if "file" in entry]
        if not all(file.exists() for file in files):
            return None
        first = self._tokenizer(source)
        return first, first if target == source else self._tokenizer(target)

    def _checked(self, side, entry):
        """An entry, with the class of its name."""
        entry = entry if isinstance(entry, dict) else {}
        where = f"{self.config}: tokenizers.{side}"
        kind = registered_class(entry.get("class_name"), (Tokenizer, Labels), where)
        return {"config": {}, **entry, "class": kind}

    def _tokenizer(self, entry):
        content, path = b"", self.config
        if "file" in entry:
            path = self.path / entry["file"]
            content = path.read_bytes()
        try:
            return entry["class"].from_config(entry["config"], content)
        except (ValueError, TypeError) as error:
            raise PresetError(f"Cannot read {path}: {error}") from error

    def tokenizer_entries(self, tokenizers: tuple[Any, Any]) -> dict[str, dict[str, Any]]:
        """The entry `tokenizers` of config.json."""
        entries = {}
        for side, path, tokenizer in zip(SIDES, self._paths(tokenizers), tokenizers, strict=True):
            entries[side] = {
                "class_name": registered_name(type(tokenizer)),
                "config": tokenizer.get_config(),
            }
            if tokenizer.model_bytes:
                entries[side]["file"] = path.name
        return entries

    def tokenizer_files(self, tokenizers: tuple[Any, Any]) -> dict[pathlib.Path, bytes]:
        """{path: content} of `(source, target)` tokenizers, one file if they are the same."""
        pairs = zip(self._paths(tokenizers), tokenizers, strict=True)
        return {path: tokenizer.model_bytes for path, tokenizer in pairs if tokenizer.model_bytes}

    def _paths(self, tokenizers):
        joint = tokenizers[0] is tokenizers[1]
        return (self.joint_tokenizer,) * 2 if joint else self.side_tokenizers

    def model(self, weights: str | os.PathLike[str] | bool = True) -> keras.Model:
        """The model with its weights, or with those of another file; with new ones for False."""
        try:
            model = model_of(self.read_config()["model"])
        except PresetError as error:
            raise PresetError(f"{self.config}: {error}") from error
        if weights is False:
            return model
        path = self.best if weights is True else pathlib.Path(weights)
        if not path.is_file():
            raise PresetError(f"there is no file of weights {path}")
        try:
            model.load_weights(path)
        except (ValueError, OSError, KeyError, RuntimeError) as error:  # h5py raises all of them
            raise PresetError(f"{path} does not fit the model of its run: {error}") from error
        return model

    def pairs(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The ids of the pairs that a run learned from: `(values, offsets)` of each side.

        Line i of a side is `values[offsets[i]:offsets[i + 1]]`.
        """
        arrays = read_json(self.encoded / INDEX)["arrays"]

        def read(name):
            return np.fromfile(self.encoded / name, arrays[name]["dtype"])

        return [(read(f"{side}.values"), read(f"{side}.offsets")) for side in SIDES]

    def sources(self) -> list[str]:
        """Texts that the model was evaluated on; none before the evaluation."""
        if not self.texts.exists():
            return []
        return self.texts.read_text(encoding="utf-8", errors="replace").split("\n")
