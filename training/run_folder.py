"""The folder of a run: its files, and who may write them."""

import contextlib
import csv
import dataclasses
import fcntl
import json
import shlex
import shutil
import sys
import uuid
from pathlib import Path

from keras_tfmr.config import versions
from keras_tfmr.text.spans import DEFAULT
from training.config import best_precision
from training.corpus.read import sha256
from training.files import DAMAGED, RunError, explained, read_json, write_atomically, write_json
from training.languages import languages_of, with_abbreviations
from training.recipes import RECIPES

PACKAGES = ("tensorflow", "tensorflow-text", "keras", "numpy", "sentencepiece", "sacrebleu")
# {attribute of a `RunFolder`: file}; the last one marks the folder as that of a run.
FILES = {
    "joint_tokenizer": "tokenizer.model", "source_tokenizer": "source.model",
    "target_tokenizer": "target.model", "lexicon": "lexicon.npz",
    "best": "weights/best.weights.h5", "last": "weights/last.weights.h5",
    "history": "history.csv", "translations": "translations.tsv",
    "predictions": "predictions.tsv", "report": "report.md", "curves": "curves.png",
    "attention": "attention.png", "confusion": "confusion.png", "results": "results.json",
    "config": "config.json",
}  # fmt: skip
FOLDERS = ("checkpoints", "tensorboard", "encoded", "saved_model")


class RunFolder:
    """Paths of a run, and what can be loaded from them.

    `config.json` holds everything needed to rebuild the model and marks a run folder;
    `results.json` is written last and marks a finished run.

    Args:
        path: The folder; it need not exist.

    >>> RunFolder("runs/mine").config.name
    'config.json'
    """

    def __init__(self, path):
        self.path = Path(path)
        for name, file in (FILES | dict(zip(FOLDERS, FOLDERS, strict=True))).items():
            setattr(self, name, self.path / file)
        self.side_tokenizers = (self.source_tokenizer, self.target_tokenizer)

    def read_config(self):
        """The content of config.json; raises a RunError if it is not that of a run."""
        config = read_json(self.config)
        parts = (config.get("model"), config.get("arguments")) if isinstance(config, dict) else ()
        if not (parts and all(isinstance(part, dict) for part in parts)):
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
            return (load_tokenizer(self.joint_tokenizer),) * 2
        if all(path.exists() for path in self.side_tokenizers):
            return tuple(load_tokenizer(path) for path in self.side_tokenizers)
        return None

    def save_tokenizers(self, tokenizers):
        """Writes `(source, target)`, into one file if they are the same."""
        joint = tokenizers[0] is tokenizers[1]
        paths = (self.joint_tokenizer,) if joint else self.side_tokenizers
        for tokenizer, path in zip(tokenizers, paths, strict=False):
            write_atomically(path, tokenizer.model_bytes)

    def model(self, weights=None):
        """The run's model with its best weights, or with those of another file."""
        from training.models import make_model

        described = self.read_config()["model"]
        model = make_model(described["kind"], described["config"], described.get("classes"))
        path = weights or self.best
        try:
            model.load_weights(path)
        except (OSError, ValueError, KeyError) as error:
            raise RunError(f"{path} does not fit the model of its run: {error}") from error
        return model

    def text_model(self, weights=None, max_source_length=128, **decoding):
        """The run's `Translator`, `Classifier`, `Tagger` or `Completer`."""
        from training.tasks import TASKS

        needs_tensorflow()
        kind = self.read_config()["model"]["kind"]
        if kind in RECIPES:
            return self.translator(weights, max_source_length, **decoding)
        model = self.model(weights)  # a RunError if the kind is unknown
        return TASKS[kind].text_model(self, model, max_source_length)

    def translator(self, weights=None, max_source_length=128, abbreviations=None, **decoding):
        """The run's `Translator`.

        Args:
            weights: A weights file; the best ones if left out.
            max_source_length: Most tokens of a source text.
            abbreviations: See `Translator`; those of the run's source language if left out.
            **decoding: Fields of a `DecodingConfig`; those of the run if left out.
        """
        from keras_tfmr.decoding import DecodingConfig
        from keras_tfmr.text.translator import Translator

        needs_tensorflow()
        tokenizers = self.tokenizers()
        if tokenizers is None:
            raise RunError(
                f"{self.path} has neither tokenizer.model nor source.model and target.model: "
                "expected the run of a translator"
            )
        config = self.read_config()
        arguments = config["arguments"]
        names = {field.name for field in dataclasses.fields(DecodingConfig)}
        fields = {name: arguments[name] for name in names & arguments.keys()} | decoding
        fields.setdefault("num_return_sequences", fields.get("num_beams", 4))
        return Translator(
            self.model(weights),
            *tokenizers,
            config=DecodingConfig(**fields),
            max_source_length=max_source_length,
            lexicon=self.read_lexicon(),
            abbreviations=abbreviations or with_abbreviations(languages_of(config)[0]),
        )

    def read_lexicon(self):
        """The run's `Lexicon`, or None if it has none."""
        from keras_tfmr.text.lexicon import Lexicon

        if not self.lexicon.exists():
            return None
        try:
            return Lexicon.load(self.lexicon)
        except DAMAGED as error:
            raise RunError(
                f"{self.lexicon} is not a lexicon of training/learn_lexicon.py: {error}"
            ) from error

    def rows(self):
        """The rows of translations.tsv or predictions.tsv, dictionaries; none before the end."""
        for path in (self.translations, self.predictions):
            if path.exists():
                with path.open(encoding="utf-8", newline="") as lines:
                    return list(csv.DictReader(lines, dialect="excel-tab", quoting=csv.QUOTE_NONE))
        return []

    def sources(self, count=16):
        """The first texts that the run was evaluated on, or None before the evaluation."""
        rows = self.rows()[:count]
        return [row["source"] if "source" in row else row["text"] for row in rows] or None

    def files(self):
        """The files of a run that exist, config.json last."""
        yield from self.checkpoints.glob("step-*.npz")
        yield from self.tensorboard.rglob("events.out.tfevents.*")
        yield from self.exports()
        yield from (path for name in FILES if (path := getattr(self, name)).exists())

    def exports(self):
        """The exported versions."""
        numbers = self.saved_model.glob("[0-9]*")
        return (path for path in numbers if path.name.isdigit() and any(path.glob("*.pb")))

    def clear_exports(self):
        """Deletes the exported versions; each is renamed first, so that no server loads half."""
        with explained(self.saved_model):
            for path in [*self.exports()]:
                path.rename(path.with_name(f".unfinished-{uuid.uuid4().hex}"))
            for path in [*self.saved_model.glob(".unfinished-*")]:
                shutil.rmtree(path)
        _remove_if_empty(self.saved_model)

    def clear(self):
        """Deletes the run in the folder, by the names of its files, but for its encoded corpus."""
        with explained(self.path):
            self.clear_exports()
            for path in [*self.files(), *self.path.rglob(".*.tmp*")]:
                path.unlink()
        logs = [path for path in self.tensorboard.glob("*") if path.is_dir()]
        for folder in (*logs, self.tensorboard, self.checkpoints, self.best.parent):
            _remove_if_empty(folder)


def needs_tensorflow():
    """Raises a RunError on another backend, whose models no text model can hold."""
    import keras

    if (backend := keras.backend.backend()) != "tensorflow":
        raise RunError(
            f"Translating and exporting run on TensorFlow. Received: KERAS_BACKEND={backend}"
        )


def load_tokenizer(path):
    """The tokenizer of one side of a run, or its labels."""
    from keras_tfmr.text.tokenizer import SubwordTokenizer
    from training.labels import Labels

    return Labels.of_bytes(path.read_bytes()) or SubwordTokenizer.load(path)


@contextlib.contextmanager
def run_lock(folder):
    """A context in which no other process writes in a run folder.

    Args:
        folder: A `RunFolder`; made if it is missing, and removed again if nothing was written.

    Raises:
        RunError: If the folder cannot be made, or another process is training in it.
    """
    with explained(folder.path):
        folder.path.mkdir(parents=True, exist_ok=True)
        path = folder.path / ".lock"
        path.touch()
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RunError(f"Another process is training in {folder.path}") from error
        try:
            yield
        finally:
            # While it is locked: a process that waits for it would lock a file without a name.
            path.unlink(missing_ok=True)
            _remove_if_empty(folder.path)


def begin(folder, asked, free=(), overwrite=False):
    """The config.json of the unfinished run in a folder, to resume it; None if a run is to begin.

    No run is ever lost: whatever the moment of a kill, the options of the repeat and the backend,
    the weights that were trained stay on the disk, unless `overwrite` is given with settings or a
    corpus that differ from those of the run. Even then they stay until the new run has read its
    corpus.

    Args:
        asked: {setting: value} of the command.
        free: Names of settings that may change when a run is resumed.
        overwrite: Whether another run in the folder is to be deleted.

    Raises:
        RunError: If the folder holds a finished run, one with other settings, or files that a run
            would overwrite but did not write.
    """
    if not folder.config.exists():
        if stranger := next(folder.files(), None):
            raise RunError(
                f"{stranger} would be overwritten, but {folder.path} holds no run: "
                "choose another --output, or move the file away"
            )
        return None
    before, finished = folder.read_config(), folder.results.exists()
    changes = _changes(before, asked)
    others = {name: pair for name, pair in changes.items() if finished or name not in free}
    if overwrite and (changes or _corpus_differs(before)):
        return None
    if others:
        more = "; --steps N changes its length" if "minutes" in others and not finished else ""
        raise RunError(
            f"{folder.path} holds {'a finished' if finished else 'an unfinished'} run with other "
            f"settings ({in_words(others)}): repeat its command, choose another --output, or give "
            f"--overwrite{more}"
        )
    if finished:
        raise RunError(
            f"{folder.path} holds the finished run of this command: choose another --output, or "
            "delete the folder to train again"
        )
    return before


def _changes(before, asked):
    """What a command asks for, unlike that of a run and unlike what its config.json repeats."""
    commands = [before["arguments"] | before.get("asked", {}), before["arguments"]]
    left_out = {"output", "overwrite"}
    if asked.get("precision") is None:  # that of the run
        left_out.add("precision")
    if asked.get("steps") or asked.get("epochs"):  # another length
        left_out.add("minutes")
    found = [differences(command, asked) for command in commands]
    found = [{n: pair for n, pair in each.items() if n not in left_out} for each in found]
    return min(found, key=len)


def _corpus_differs(before):
    """Whether a file has changed that a run learns from; a missing one has not."""
    files = [file for part in before.get("corpus", {}).values() for file in part["files"]]
    return any(Path(f["path"]).exists() and sha256(f["path"]) != f["sha256"] for f in files)


def settle(asked, before=None):
    """The settings of a run: those asked for, with what they leave open as in the resumed run.

    These are the precision, whose default depends on the processor, what is protected, which was
    nothing once, and the number of updates that `--minutes` has become.
    """
    known, found = (before or {}).get("arguments", {}), {}
    if asked.protect is None and asked.task == "translation":
        found["protect"] = tuple(known.get("protect") or ()) if before else DEFAULT
    if asked.precision is None:
        found["precision"] = known.get("precision") or best_precision()
    if asked.minutes and known.get("steps"):
        found |= {"minutes": None, "steps": known["steps"]}
    return dataclasses.replace(asked, **found)


def describe(task, config, corpus, start):
    """The content of a new run's config.json, without its settings."""
    model = {"kind": task.kind, "config": config.to_dict()}
    if task.classes:
        model["classes"] = task.classes
    return {
        "model": model,
        "command": shlex.join(["python", *sys.argv]),
        "corpus": corpus,
        "versions": versions(*PACKAGES),
        **({"start": start.record()} if start else {}),
    }


def record_steps(folder, steps):
    """Records the updates that `--minutes` became, so that config.json repeats the run."""
    config = folder.read_config()
    config["arguments"] |= {"minutes": None, "steps": steps}
    folder.write_config(config)


def differences(before, now):
    """{name: (value before, value now)} of what differs as JSON; an entry only one has may be off.

    >>> differences({"num_beams": 4}, {"num_beams": 4, "extend_vocab": False})
    {}
    """
    now = json.loads(json.dumps(now))
    pairs = {name: (before.get(name), now.get(name)) for name in sorted({*before, *now})}
    return {
        name: pair
        for name, pair in pairs.items()
        if (pair[0] != pair[1] if name in before and name in now else any(pair))
    }


def in_words(others):
    """Differences for an error message."""
    return "; ".join(f"{name}: {before}, now {now}" for name, (before, now) in others.items())


def _remove_if_empty(folder):
    with contextlib.suppress(OSError):
        folder.rmdir()
