"""The files of a preset: its config, tokenizers and weights, as a training run leaves them."""

import os
import pathlib
from typing import TYPE_CHECKING, Any, NamedTuple

from keras_tfmr._files import read_json
from keras_tfmr.errors import PresetError
from keras_tfmr.text.labels import Labels

if TYPE_CHECKING:
    import keras


class Content(NamedTuple):
    """Everything that a text model is made of, whichever form the files of its preset have.

    Fields:
        model: The model, with its weights.
        arguments: Arguments of the text model's class, other than the model and the search.
        decoding: Fields of a `DecodingConfig`, for a translator.
        record: What the preset says about where it is from, for exports.
        texts: Texts that it was evaluated on.
    """

    model: "keras.Model"
    arguments: dict[str, Any]
    decoding: dict[str, Any]
    record: dict[str, Any]
    texts: list[str]


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
        parts = config if isinstance(config, dict) else {}
        if not all(isinstance(parts.get(name), dict) for name in ("model", "arguments")):
            raise PresetError(
                f"{self.config} is not the configuration of a run or preset: choose another folder"
            )
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

        model = read_model(self.read_config()["model"])
        if weights is False:
            return model
        path = self.best if weights in (None, True) else pathlib.Path(weights)
        if not path.is_file():
            raise PresetError(f"there is no file of weights {path}")
        try:
            model.load_weights(path)
        except (ValueError, OSError, KeyError, RuntimeError) as error:  # h5py raises all of them
            raise PresetError(f"{path} does not fit the model of its run: {error}") from error
        return model

    def sources(self) -> list[str]:
        """Texts that the model was evaluated on; none before the evaluation."""
        if not self.texts.exists():
            return []
        return self.texts.read_text(encoding="utf-8", errors="replace").split("\n")


def load_tokenizer(path: pathlib.Path) -> Any:
    """The tokenizer of one side, of whichever kind it is, or its `Labels`."""
    from keras_tfmr.presets.marian_mt.tokenizer import MarianTokenizer, is_joined  # TensorFlow
    from keras_tfmr.text.tokenizer import SubwordTokenizer

    content = path.read_bytes()
    try:
        if labels := Labels.of_bytes(content):
            return labels
        return (MarianTokenizer if is_joined(content) else SubwordTokenizer)(content)
    except ValueError as error:
        raise PresetError(f"Cannot read {path}: {error}") from error
