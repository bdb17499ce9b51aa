"""The folder of a run: its files, and who may write them."""

import contextlib
import dataclasses
import shlex
import shutil
import sys
import uuid

import filelock

from keras_tfmr.config import PACKAGES, versions
from keras_tfmr.presets.folder import PresetFolder
from keras_tfmr.text.spans import DEFAULT
from training.command.disk import (
    RunError,
    changes_in_words,
    differences,
    write_atomically,
    write_json,
)
from training.run.device import default_precision
from training.settings.training_config import FREE


class RunFolder(PresetFolder):
    """A preset with the other files of the run that wrote it.

    `config.json` marks a run folder; `results.json` is written last and marks a finished run.

    Args:
        path: The folder; it need not exist.

    >>> RunFolder("runs/mine").history.name
    'history.csv'
    """

    def __init__(self, path):
        super().__init__(path)
        self.history = self.path / "history.csv"
        self.translations = self.path / "translations.tsv"
        self.predictions = self.path / "predictions.tsv"
        self.report = self.path / "report.md"
        self.curves = self.path / "curves.png"
        self.attention = self.path / "attention.png"
        self.confusion = self.path / "confusion.png"
        self.checkpoints = self.path / "checkpoints"
        self.tensorboard = self.path / "tensorboard"
        self.saved_model = self.path / "saved_model"

    def begin(self, config, tokenizers, new):
        """Writes config.json and the `(source, target)` tokenizers.

        Args:
            new: Whether to delete an earlier run.
        """
        if new:
            self.clear()
        write_json(self.config, config | {"tokenizers": self.tokenizer_entries(tokenizers)})
        for path, content in self.tokenizer_files(tokenizers).items():
            write_atomically(path, content)

    def files(self):
        """The files of a run that exist, config.json last."""
        yield from self.checkpoints.glob("step-*.npz")
        yield from self.tensorboard.rglob("events.out.tfevents.*")
        yield from self.exports()
        paths = (
            self.history, self.report, self.curves, self.attention, self.confusion,
            self.joint_tokenizer, *self.side_tokenizers, self.best, self.translations,
            self.predictions, self.texts, self.results, self.config,
        )  # fmt: skip
        yield from (path for path in paths if path.exists())

    def exports(self):
        """The exported versions."""
        numbers = self.saved_model.glob("[0-9]*")
        return (path for path in numbers if path.name.isdigit() and any(path.glob("*.pb")))

    def clear_exports(self):
        """Deletes the exported versions; each is renamed first, so that no server loads half."""
        for path in [*self.exports()]:
            path.rename(path.with_name(f".unfinished-{uuid.uuid4().hex}"))
        for path in [*self.saved_model.glob(".unfinished-*")]:
            shutil.rmtree(path)
        _remove_if_empty(self.saved_model)

    def clear(self):
        """Deletes the files of the run by their names, except its encoded corpus."""
        self.clear_exports()
        for path in [*self.path.rglob(".*.tmp*"), *self.files()]:
            path.unlink()
        logs = [path for path in self.tensorboard.glob("*") if path.is_dir()]
        for folder in (*logs, self.tensorboard, self.checkpoints, self.best.parent):
            _remove_if_empty(folder)


@contextlib.contextmanager
def run_lock(folder):
    """A context in which no other process writes into a run folder.

    The folder keeps a file `.lock`: a process that waits for it must not find another one.

    Args:
        folder: A `RunFolder`; made if it is missing.

    Raises:
        RunError: If another process is training in it.
    """
    folder.path.mkdir(parents=True, exist_ok=True)
    try:
        lock = filelock.FileLock(folder.path / ".lock", blocking=False).acquire()
    except filelock.Timeout as error:
        raise RunError(f"Another process is training in {folder.path}") from error
    with lock:
        yield


def holds_run(folder):
    """Whether a folder holds a run.

    Raises:
        RunError: If it holds none, but files that a run would overwrite.
    """
    if folder.config.exists():
        return True
    if stranger := next(folder.files(), None):
        raise RunError(
            f"{stranger} would be overwritten, but {folder.path} holds no run: "
            "choose another --output, or move the file away"
        )
    return False


def begin(folder, asked):
    """The config.json of the unfinished run in a folder, to resume it; None if a run is to begin.

    Trained weights stay on the disk whatever the moment of a kill and the options of the repeat,
    unless `overwrite` is given with other settings. Even then they stay until the new run has read
    its corpus.

    Args:
        asked: The settings of the command.

    Raises:
        RunError: If the folder holds a finished run, one with other settings, or files that a run
            would overwrite but did not write.
    """
    if not holds_run(folder):
        return None
    before, finished = folder.read_config(), folder.results.exists()
    changes = differences(before.get("arguments", {}), settle(asked, before).to_dict())
    left_out = {"output", "overwrite"} if asked.minutes else {"output", "overwrite", "minutes"}
    changes = {name: pair for name, pair in changes.items() if name not in left_out}
    if asked.overwrite and changes:
        return None
    others = {name: pair for name, pair in changes.items() if finished or name not in FREE}
    if others:
        more = "; --steps N changes its length" if "minutes" in others and not finished else ""
        raise RunError(
            f"{folder.path} holds {'a finished' if finished else 'an unfinished'} run with other "
            f"settings ({changes_in_words(others)}): repeat its command, choose another --output, "
            f"or give --overwrite{more}"
        )
    if finished:
        raise RunError(
            f"{folder.path} holds the finished run of this command: choose another --output, or "
            "delete the folder to train again"
        )
    return before


def settle(asked, before=None):
    """The settings of a run: those asked for, with what they leave open as in the resumed run.

    These are the spans to protect, the precision, whose default depends on the device, and the
    number of updates that the same `--minutes` has become.
    """
    known, changes = before.get("arguments", {}) if before else {}, {}
    if asked.task == "translation" and asked.protect is None:
        changes["protect"] = tuple(known.get("protect", DEFAULT))
    if asked.precision is None:
        changes["precision"] = known.get("precision") or default_precision()
    if asked.minutes and known.get("steps") and asked.minutes == before.get("minutes"):
        changes |= {"minutes": None, "steps": known["steps"]}
    return dataclasses.replace(asked, **changes)


def new_config(task, config, corpus, start):
    """The content of a new run's config.json, without its settings and tokenizers."""
    content = {
        **task.entries(config),
        "command": shlex.join(["python", *sys.argv]),
        "corpus": corpus,
        "phrasebook": task.settings.phrasebook,  # which the demo page says
        "versions": versions(*PACKAGES, "sacrebleu"),
    }
    if start:
        content["start"] = start.record()
    return content


def record_steps(folder, steps):
    """Records the updates that `--minutes` became, so that config.json repeats the run."""
    config = folder.read_config()
    config["arguments"] |= {"minutes": None, "steps": steps}
    write_json(folder.config, config)


def _remove_if_empty(folder):
    with contextlib.suppress(OSError):
        folder.rmdir()
