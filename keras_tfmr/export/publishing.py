"""Folders that appear complete, or not at all: whatever is killed, nothing half is left to load."""

import contextlib
import fcntl
import os
import pathlib
import re
import shutil
import uuid
from collections.abc import Iterator

from keras_tfmr._files import check_writable
from keras_tfmr.export.check import ExportError

_UNFINISHED = ".unfinished-"  # not a number, so that no server loads it
# A folder is a version if its whole name is a number, leading zeros or not.
_VERSION = re.compile(r"[0-9]+")


@contextlib.contextmanager
def writing(path: pathlib.Path) -> Iterator[None]:
    """Inside, an error of the file system is an ExportError: nothing can be written to `path`."""
    try:
        yield
    except Exception as error:
        # TensorFlow, which writes the largest files, has errors of its own: "file; reason".
        if not isinstance(error, OSError) and not hasattr(error, "error_code"):
            raise
        reason = getattr(error, "strerror", None) or str(getattr(error, "message", error))
        reason = reason.rsplit("; ", 1)[-1]
        raise ExportError(f"Cannot write {path}: {reason}") from error


@contextlib.contextmanager
def unfinished(directory: pathlib.Path) -> Iterator[pathlib.Path]:
    """A new folder inside `directory`, on its file system, so that renaming it is atomic.

    At the end it is removed, unless it was renamed. Those of processes that were killed go at the
    beginning: the system has freed the locks that they held.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for left in directory.glob(f"{_UNFINISHED}*"):
        if (lock := _locked(left)) is not None:
            shutil.rmtree(left, ignore_errors=True)
            os.close(lock)
    name = uuid.uuid4().hex
    new, folder = directory / f".new-{name}", directory / f"{_UNFINISHED}{name}"
    new.mkdir()
    lock = _locked(new)
    try:
        new.rename(folder)  # only now that it is locked does it have the name that others remove
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _locked(folder):
    """A file descriptor that locks the folder until it is closed; None if another process does."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # another process has just renamed or removed it
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def check(path: str | os.PathLike[str], empty: bool = False) -> None:
    """Raises an ExportError if a folder cannot be written to, or is to be empty and is not."""
    path = pathlib.Path(path)
    with writing(path):
        check_writable(path, is_folder=True)
        if empty and path.exists() and any(path.iterdir()):
            raise ExportError(f"{path} is not empty")


@contextlib.contextmanager
def whole(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """A folder to write to, which appears at `path` complete: an empty folder, or missing."""
    path = pathlib.Path(path)
    check(path, empty=True)
    with writing(path), unfinished(path.resolve().parent) as folder:
        yield folder
        folder.rename(path.resolve())


def publish(folder: pathlib.Path, directory: pathlib.Path) -> pathlib.Path:
    """Gives a finished version the next free number; simultaneous exports get different ones."""
    names = (entry.name for entry in directory.iterdir() if _VERSION.fullmatch(entry.name))
    # A server takes an int64; it ignores folders with a greater number.
    number = max((n for n in map(int, names) if n < 2**63 - 1), default=0) + 1
    while True:
        path = directory / str(number)
        try:
            # Fails if another export has just taken the number.
            os.rename(folder, path)
            return path
        except OSError:
            if not path.exists():
                raise
            number += 1
