"""The folder that one training run writes and everything after it reads."""

import contextlib
import csv
import fcntl
import io
import json
import os
import shutil
from pathlib import Path

from training.corpus import store


class RunError(Exception):
    """What the user has to know about a run folder, in one line."""


class RunFolder:
    """Paths and files of a run.

    `config.json` says everything needed to rebuild the model. It is written first, so that it
    marks a folder as a run's; `results.json` is written last, so that it marks a finished run.

    Args:
        path: The folder; made if it is missing.

    Raises:
        RunError: If it cannot be made or written, or another process trains in it.
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
        self.checkpoints = self.path / "checkpoints"
        self.tensorboard = self.path / "tensorboard"
        self.saved_model = self.path / "saved_model"
        self.encoded = self.path / "encoded"
        self.best = self.path / "weights" / "best.weights.h5"
        self.last = self.path / "weights" / "last.weights.h5"
        self.goes_on = False  # whether an unfinished run does, known from `begin` on
        with explained(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        self._claim()

    def _claim(self):
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise RunError(f"Another process is training in {self.path}") from error

    def close(self):
        """Lets another process have the folder."""
        os.close(self._lock)

    def begin(self, training, arguments, *, overwrite=False):
        """Claims the folder for a run with these settings; says whether one goes on here.

        Args:
            training: {setting: value} that the weights depend on.
            arguments: {setting: value} of all settings.
            overwrite: Whether to delete an earlier run. Not an unfinished one that was begun with
                the very same arguments: whoever repeats the command of a run that was killed
                wants its checkpoints.

        Returns:
            True if an unfinished run with the same settings goes on.

        Raises:
            RunError: If the folder holds a finished run, one with other settings, or files that
                are no run's.
        """
        before = self._config_before()
        if before is None:
            return False
        finished = self.results.exists()
        changes = differences(before["arguments"], arguments).keys() - {"run", "overwrite"}
        if overwrite and (finished or changes):
            self.clear()
            return False
        if finished:
            raise RunError(f"{self.path} holds a finished run: name another --run, or --overwrite")
        if others := differences(before["training"], training):
            told = ", ".join(f"{n} {old!r} -> {new!r}" for n, (old, new) in others.items())
            raise RunError(
                f"{self.path} holds an unfinished run with other settings ({told}): "
                "repeat its command, name another --run, or --overwrite"
            )
        self.goes_on = True
        return True

    def keep_to(self, corpus, *, overwrite=False):
        """Makes sure that a run that goes on learns from what it began with.

        Args:
            corpus: Counts and checksums, as config.json has them.
            overwrite: Whether to start anew with another corpus.

        Raises:
            RunError: If the corpus is another one.
        """
        if not self.goes_on or not (others := differences(self._config_before()["corpus"], corpus)):
            return
        if not overwrite:
            told = ", ".join(f"{n} {old!r} -> {new!r}" for n, (old, new) in others.items())
            raise RunError(
                f"The corpus is not the one that the run in {self.path} began with ({told}): "
                "name another --run, or --overwrite"
            )
        self.clear()

    def _config_before(self):
        """The config.json of the run that is here, or None if the folder is free for one.

        Raises:
            RunError: If the folder has somebody else's files under the names that a run writes.
        """
        if not self.config.exists():
            stranger = next(self._written(), None)
            if stranger is None:
                return None
            raise RunError(
                f"{stranger} would be overwritten, but {self.path} holds no run: "
                "name another --run, or move the file away"
            )
        config = read_json(self.config)
        # A run has more in it; this is what is compared.
        kinds = ("model", "training", "arguments", "corpus")
        if not isinstance(config, dict) or any(type(config.get(k)) is not dict for k in kinds):
            raise RunError(f"{self.config} is not the configuration of a run: name another --run")
        return config

    def _written(self):
        """What there is under the names that a run writes; what marks it as a run comes last."""
        yield from self.checkpoints.glob("step-*.npz")
        yield from self.tensorboard.glob("events.out.tfevents.*")
        yield from self._exports()
        yield from (path for path in self._files() if path.exists())

    def _files(self):
        joint, both = tokenizer_paths(self.path)
        return (
            joint, *both, self.best, self.last, self.history, self.translations, self.report,
            self.curves, self.attention, self.results, self.config,
        )  # fmt: skip

    def _exports(self):
        numbers = self.saved_model.glob("[0-9]*")
        return (path for path in numbers if path.name.isdigit() and any(path.glob("*.pb")))

    def clear(self):
        """Deletes the run that is here, by the names of its files: nothing that no run wrote."""
        self.goes_on = False
        unfinished = (path.with_name(f".{path.name}") for path in self._files())
        with explained(self.path):
            for path in (*self.checkpoints.glob(".step-*"), *unfinished):
                path.unlink(missing_ok=True)
            self.clear_exports()
            store.delete(self.encoded)
            for path in self._written():
                path.unlink()
        for folder in (self.checkpoints, self.tensorboard, self.best.parent):
            remove_if_empty(folder)

    def clear_exports(self):
        """Deletes the exported versions of the run that is here."""
        with explained(self.saved_model):
            for path in [*self.saved_model.glob(".unfinished-*")]:
                shutil.rmtree(path)
            for path in [*self._exports()]:  # renamed, so that a server never sees half of one
                shutil.rmtree(path.rename(path.with_name(f".unfinished-{path.name}")))
        remove_if_empty(self.saved_model)


def tokenizer_paths(path):
    """Where a run folder has its tokenizers: of a joint vocabulary, and of (source, target)."""
    return path / "tokenizer.model", (path / "source.model", path / "target.model")


def differences(before, now):
    """{name: (value before, value now)} of what differs in two dictionaries, once they are JSON."""
    now = json.loads(json.dumps(now))
    names = sorted({*before, *now})
    pairs = {name: (before.get(name), now.get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def remove_if_empty(folder):
    """Deletes a folder unless it is missing or something is left in it."""
    with contextlib.suppress(OSError):
        folder.rmdir()


@contextlib.contextmanager
def explained(path):
    """Turns the operating system's errors into one that names the file and the reason."""
    try:
        yield
    except OSError as error:
        # HDF5 has an errno too, and a message of several lines.
        reason = os.strerror(error.errno) if error.errno else error
        raise RunError(f"Cannot write {path}: {reason}") from error


def write_atomically(path, content):
    """Writes bytes or text so that the file is either whole or as it was before.

    Raises:
        RunError: If that cannot be done; nothing is left behind.
    """
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}")  # nobody else writes in this folder
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_directory(path.parent)


def _sync_directory(path):
    """Makes a rename last through a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def save_weights(model, path):
    """Keras's weights file of a model, written atomically."""
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}")  # Keras insists on the ending
        try:
            model.save_weights(temporary)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def write_json(path, value):
    """A JSON file, atomically."""
    write_atomically(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path):
    """The value of a JSON file.

    Raises:
        RunError: If it is none.
    """
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RunError(f"Cannot read {path}: {error}") from error


def write_table(path, columns, rows, dialect="excel"):
    """A CSV (or "excel-tab") file of dictionaries, atomically."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, dialect=dialect, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, text.getvalue())
