"""The files of a preset: its config, tokenizers and weights, as a training run leaves them."""

import csv
import os
import pathlib
from typing import TYPE_CHECKING, Any

from keras_tfmr._files import DAMAGED, blaming, read_json
from keras_tfmr.errors import PresetError
from keras_tfmr.presets.entries import check

if TYPE_CHECKING:
    import keras

# {attribute of a `PresetFolder`: file}
FILES = {
    "joint_tokenizer": "tokenizer.model", "source_tokenizer": "source.model",
    "target_tokenizer": "target.model",
    "best": "weights/best.weights.h5", "translations": "translations.tsv",
    "predictions": "predictions.tsv", "texts": "texts.txt",
    "abbreviations": "abbreviations.txt", "results": "results.json",
    "config": "config.json",
}  # fmt: skip


class PresetFolder:
    """Paths of a preset, and what can be loaded from them.

    `config.json` holds everything needed to rebuild the model. Everything else but tokenizers and
    weights can be missing.

    Args:
        path: The folder; it need not exist.

    >>> PresetFolder("runs/mine").config.name
    'config.json'
    """

    names = FILES

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = pathlib.Path(path)
        for name, file in self.names.items():
            setattr(self, name, self.path / file)
        self.side_tokenizers = (self.source_tokenizer, self.target_tokenizer)

    def read_config(self) -> dict[str, Any]:
        """The content of config.json; raises a PresetError if it is not that of a preset."""
        config = read_json(self.config)
        check(config, self.config)
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
        joint = tokenizers[0] is tokenizers[1]
        paths = (self.joint_tokenizer,) if joint else self.side_tokenizers
        return {
            path: tokenizer.model_bytes for path, tokenizer in zip(paths, tokenizers, strict=False)
        }

    def model(self, weights: str | os.PathLike[str] | bool | None = None) -> "keras.Model":
        """The model with its weights, or with those of another file; with new ones for False."""
        from keras_tfmr.presets.models import make_model

        path = self.best if isinstance(weights, bool | None) else pathlib.Path(weights)
        if weights is not False and not path.is_file():
            raise PresetError(f"there is no file of weights {path}")
        described = self.read_config()["model"]
        with blaming(f"{self.config}: model"):
            model = make_model(described["kind"], described["config"], described.get("classes"))
        if weights is False:
            return model
        # A RuntimeError is h5py's, for a file that is damaged within.
        with blaming(f"{path} does not fit the model of its run", *DAMAGED, RuntimeError):
            model.load_weights(path)
        return model

    def rows(self) -> list[dict[str, str]]:
        """The rows of translations.tsv or predictions.tsv; none before the end of a run."""
        for path in (self.translations, self.predictions):
            if path.exists():
                reading = blaming(f"Cannot read {path}", *DAMAGED, csv.Error)
                with reading, path.open(encoding="utf-8", newline="") as lines:
                    return list(csv.DictReader(lines, dialect="excel-tab", quoting=csv.QUOTE_NONE))
        return []

    def sources(self, count: int = 256) -> list[str]:
        """The first texts that the model was evaluated on; none before the evaluation."""
        if self.texts.exists():  # of a preset that is no run
            with blaming(f"Cannot read {self.texts}", *DAMAGED):
                return self.texts.read_text(encoding="utf-8").split("\n")[:count]
        rows = self.rows()[:count]
        with blaming(f"{self.translations} or {self.predictions.name} lacks a column", KeyError):
            return [row["source"] if "source" in row else row["text"] for row in rows]


def load_tokenizer(path: pathlib.Path) -> Any:
    """The tokenizer of one side, of whichever kind it is, or its `Labels`."""
    from keras_tfmr.presets.marian.tokenizer import MarianTokenizer, is_joined
    from keras_tfmr.text.labels import Labels
    from keras_tfmr.text.tokenizer import SubwordTokenizer

    with blaming(f"Cannot read {path}", *DAMAGED):
        content = path.read_bytes()
        kind = MarianTokenizer if is_joined(content) else SubwordTokenizer
        return Labels.of_bytes(content) or kind.load(path)
