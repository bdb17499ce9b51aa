"""The folder that one training run writes and everything after it reads."""

import csv
import dataclasses
import zipfile
from pathlib import Path

from training.run.files import RunError, read_json, save_weights, write_atomically, write_json


class RunFolder:
    """Paths of a run, and what can be loaded from them.

    `config.json` holds everything needed to rebuild the model. It is written first, so it marks
    a run folder; `results.json` is written last, so it marks a finished run.

    Args:
        path: The folder; it need not exist.

    >>> RunFolder("runs/mine").config.name
    'config.json'
    """

    def __init__(self, path):
        self.path = Path(path)
        self.config = self.path / "config.json"
        self.results = self.path / "results.json"
        self.history = self.path / "history.csv"
        self.translations = self.path / "translations.tsv"
        self.report = self.path / "report.md"
        self.curves = self.path / "curves.png"
        self.attention = self.path / "attention.png"
        self.predictions = self.path / "predictions.tsv"
        self.confusion = self.path / "confusion.png"
        self.checkpoints = self.path / "checkpoints"
        self.tensorboard = self.path / "tensorboard"
        self.saved_model = self.path / "saved_model"
        self.encoded = self.path / "encoded"
        self.best = self.path / "weights" / "best.weights.h5"
        self.last = self.path / "weights" / "last.weights.h5"
        self.lexicon = self.path / "lexicon.npz"
        self.joint_tokenizer = self.path / "tokenizer.model"
        self.side_tokenizers = (self.path / "source.model", self.path / "target.model")

    def read_config(self):
        """The content of config.json, a dictionary.

        Raises:
            RunError: If there is none, or it is not that of a run.
        """
        config = read_json(self.config)
        kinds = ("model", "training", "arguments", "corpus")  # among other entries
        if not isinstance(config, dict) or any(type(config.get(k)) is not dict for k in kinds):
            raise RunError(
                f"{self.config} is not the configuration of a run: choose another folder"
            )
        return config

    def write_config(self, config):
        """Writes config.json, which marks the folder as that of a run."""
        write_json(self.config, config)

    def metadata(self):
        """What an export records about its run."""
        results = read_json(self.results) if self.results.exists() else None
        return {"config": self.read_config(), "results": results}

    def tokenizers(self):
        """The `(source, target)` tokenizers, one twice if joint; None if there are none."""
        if self.joint_tokenizer.exists():
            return (load_side(self.joint_tokenizer),) * 2
        if all(path.exists() for path in self.side_tokenizers):
            return tuple(load_side(path) for path in self.side_tokenizers)
        return None

    def save_tokenizers(self, tokenizers):
        """Writes `(source, target)`, into one file if they are the same."""
        joint = tokenizers[0] is tokenizers[1]
        paths = (self.joint_tokenizer,) if joint else self.side_tokenizers
        for tokenizer, path in zip(tokenizers, paths, strict=False):
            write_atomically(path, tokenizer.model_bytes)

    def save_best(self, model):
        """Writes the weights that scored best so far."""
        save_weights(model, self.best)

    def model(self, weights=None):
        """The run's model with its best weights, or with those of another file."""
        from training.run.models import make_model

        config = self.read_config()["model"]
        model = make_model(config["kind"], config["config"])
        model.load_weights(weights or self.best)
        return model

    def translator(self, weights=None, max_source_length=128, **decoding):
        """The run's `Translator`.

        Args:
            weights: A weights file; the best ones if left out.
            max_source_length: Most tokens of a source text.
            **decoding: Fields of a `DecodingConfig`; those of the run if left out.

        Raises:
            RunError: If the folder holds no run, or no tokenizers.
        """
        from keras_tfmr.decoding import DecodingConfig
        from keras_tfmr.text.translator import Translator

        arguments = self.read_config()["arguments"]
        names = {field.name for field in dataclasses.fields(DecodingConfig)}
        of_the_run = {name: arguments[name] for name in names & arguments.keys()}
        tokenizers = self.tokenizers()
        if tokenizers is None:
            raise RunError(
                f"{self.path} has neither {self.joint_tokenizer.name} nor "
                f"{' and '.join(path.name for path in self.side_tokenizers)}, so no run began in it"
            )
        fields = {"num_beams": arguments["beams"]} | of_the_run | decoding
        fields.setdefault("num_return_sequences", fields["num_beams"])
        return Translator(
            self.model(weights),
            *tokenizers,
            config=DecodingConfig(**fields),
            max_source_length=max_source_length,
            lexicon=self.read_lexicon(),
        )

    def read_lexicon(self):
        """The run's `Lexicon`, or None if it has none."""
        from keras_tfmr.text.lexicon import Lexicon

        if not self.lexicon.exists():
            return None
        try:
            return Lexicon.load(self.lexicon)
        except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise RunError(
                f"{self.lexicon} is not a lexicon of training/learn_lexicon.py: {error}"
            ) from error

    def sources(self, count=16):
        """The first texts that the run was evaluated on, or None before the evaluation."""
        columns = {self.translations: "source", self.predictions: "text"}
        for path, column in columns.items():
            if path.exists():
                with path.open(encoding="utf-8", newline="") as lines:
                    rows = csv.DictReader(lines, dialect="excel-tab", quoting=csv.QUOTE_NONE)
                    return [row[column] for row, _ in zip(rows, range(count), strict=False)] or None
        return None


def load_side(path):
    """The tokenizer of one side of a run, or its labels."""
    from keras_tfmr.text.tokenizer import SubwordTokenizer
    from training.text.labels import Labels

    return Labels.of_bytes(path.read_bytes()) or SubwordTokenizer.load(path)
