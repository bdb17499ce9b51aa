"""The folder that one training run writes and everything after it reads."""

import contextlib
import csv
import fcntl
import io
import json
import os
import shutil
from pathlib import Path


class RunError(Exception):
    """What the user has to know about a run folder, in one line."""


class RunFolder:
    """Paths and files of a run.

    `config.json` says everything needed to rebuild the model; `results.json` is written last, so
    that it marks a finished run.

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
        self.best = self.path / "weights" / "best.weights.h5"
        self.last = self.path / "weights" / "last.weights.h5"
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

    def clear(self):
        """Deletes what an earlier run left here, and nothing that no run wrote."""
        for path in (self.checkpoints, self.tensorboard, self.saved_model, self.best.parent):
            shutil.rmtree(path, ignore_errors=True)
        files = (self.results, self.config, self.history, self.translations, self.report)
        for path in (*files, self.curves, self.attention, *self.path.glob("*.model")):
            path.unlink(missing_ok=True)

    def begin(self, training, *, overwrite=False):
        """Claims the folder for a run with these settings; says whether one goes on here.

        Args:
            training: {setting: value} that the weights depend on.
            overwrite: Whether to delete an earlier run.

        Returns:
            True if an unfinished run with the same settings goes on.

        Raises:
            RunError: If the folder holds a finished run, or one with other settings.
        """
        if overwrite:
            self.clear()
        if self.results.exists():
            raise RunError(f"{self.path} holds a finished run: name another --run, or --overwrite")
        if not self.config.exists():
            return False
        before = read_json(self.config)["training"]
        training = json.loads(json.dumps(training))
        other = sorted(
            name for name in {*before, *training} if before.get(name) != training.get(name)
        )
        if other:
            told = ", ".join(f"{n} {before.get(n)!r} -> {training.get(n)!r}" for n in other)
            raise RunError(
                f"{self.path} holds an unfinished run with other settings ({told}): "
                "repeat its command, name another --run, or --overwrite"
            )
        return True


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
