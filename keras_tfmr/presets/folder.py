"""The files of a preset: its config, tokenizers and weights, as a training run leaves them."""

import os
import pathlib
from typing import TYPE_CHECKING, Any

from keras_tfmr._files import read_json
from keras_tfmr.errors import PresetError

if TYPE_CHECKING:
    import keras

# Parts of config.json, all of them objects. Only the first two must be there.
PARTS = ("model", "arguments", "text_model", "published", "asked", "corpus", "start")


class PresetFolder:
    """Paths of a preset, and what can be loaded from them.

    `config.json` holds everything needed to rebuild the model. Everything else but tokenizers and
    weights can be missing.

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
        self.abbreviations = path / "abbreviations.txt"
        self.texts = path / "texts.txt"
        self.results = path / "results.json"

    def read_config(self) -> dict[str, Any]:
        """The content of config.json; raises a PresetError if it is not that of a preset."""
        config = read_json(self.config)
        if not (isinstance(config, dict) and "model" in config and "arguments" in config):
            raise PresetError(
                f"{self.config} is not the configuration of a run or preset: choose another folder"
            )
        for part in PARTS:
            if not isinstance(value := config.get(part, {}), dict):
                raise PresetError(f"{self.config}: {part} must be an object. Received: {value!r}")
        return config

    def metadata(self) -> dict[str, Any]:
        """What an export records about its preset."""
        results = read_json(self.results) if self.results.exists() else None
        return {"config": self.read_config(), "results": results}

    def tokenizers(self) -> tuple[Any, Any] | None:
        """The `(source, target)` tokenizers, one twice if joint; None if there are none."""
        if self.joint_tokenizer.exists():
            return (load_tokenizer(self.joint_tokenizer),) * 2
        if all(path.exists() for path in self.side_tokenizers):
            source, target = map(load_tokenizer, self.side_tokenizers)
            return source, target
        return None

    def tokenizer_files(self, tokenizers: tuple[Any, Any]) -> dict[pathlib.Path, bytes]:
        """{path: content} of `(source, target)` tokenizers, one file if they are the same."""
        if tokenizers[0] is tokenizers[1]:
            return {self.joint_tokenizer: tokenizers[0].model_bytes}
        pairs = zip(self.side_tokenizers, tokenizers, strict=True)
        return {path: tokenizer.model_bytes for path, tokenizer in pairs}

    def model(self, weights: str | os.PathLike[str] | bool | None = None) -> "keras.Model":
        """The model with its weights, or with those of another file; with new ones for False."""
        from keras_tfmr.presets.models import read_model  # imports Keras, which takes a second

        path = self.best if isinstance(weights, bool | None) else pathlib.Path(weights)
        if weights is not False and not path.is_file():
            raise PresetError(f"there is no file of weights {path}")
        try:
            model = read_model(self.read_config()["model"])
        except (ValueError, TypeError) as error:
            raise PresetError(f"{self.config}: model: {error}") from error
        if weights is False:
            return model
        try:
            model.load_weights(path)
        except (ValueError, OSError, KeyError, RuntimeError) as error:  # h5py raises all of them
            raise PresetError(f"{path} does not fit the model of its run: {error}") from error
        return model

    def sources(self) -> list[str]:
        """Texts that the model was evaluated on; none before the evaluation."""
        if not self.texts.exists():
            return []
        try:
            return self.texts.read_text(encoding="utf-8").split("\n")
        except (OSError, ValueError) as error:
            raise PresetError(f"Cannot read {self.texts}: {error}") from error


def load_tokenizer(path: pathlib.Path) -> Any:
    """The tokenizer of one side, of whichever kind it is, or its `Labels`."""
    from keras_tfmr.presets.marian_mt.tokenizer import MarianTokenizer, is_joined  # TensorFlow
    from keras_tfmr.text.labels import Labels
    from keras_tfmr.text.tokenizer import SubwordTokenizer

    try:
        content = path.read_bytes()
        if labels := Labels.of_bytes(content):
            return labels
        kind = MarianTokenizer if is_joined(content) else SubwordTokenizer
        return kind.load(path)
    except (OSError, ValueError, TypeError) as error:
        raise PresetError(f"Cannot read {path}: {error}") from error
