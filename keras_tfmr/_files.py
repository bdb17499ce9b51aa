"""Files and folders: what is wrong with one as an error in a line; folders that appear whole.

Whatever is killed, nothing half is left to load.
"""

import contextlib
import errno
import fcntl
import json
import os
import pathlib
import re
import shutil
import uuid
from collections.abc import Iterator
from typing import Any

from keras_tfmr.errors import ExportError, PresetError

_UNFINISHED = ".unfinished-"  # not a number, so that no server loads it
# A folder is a version if its whole name is a number, leading zeros or not.
_VERSION = re.compile(r"[0-9]+")


def read_json(path: pathlib.Path) -> Any:
    """The value of a JSON file; a PresetError if it cannot be read or is not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PresetError(f"Cannot read {path}: {error}") from error


def check_writable(path: pathlib.Path, is_folder: bool = False) -> None:
    """Raises the OSError that writing a file, or into a folder, would end in; it touches nothing.

    Folders that are missing above it are no error: they are made when it is written.
    """
    folder = path if is_folder else path.parent
    above = next(above for above in (folder, *folder.absolute().parents) if above.exists())
    if not above.is_dir():
        reason = errno.ENOTDIR
    elif not is_folder and path.is_dir():
        reason = errno.EISDIR
    elif os.statvfs(above).f_flag & os.ST_RDONLY:
        reason = errno.EROFS
    elif not os.access(above, os.W_OK | os.X_OK):
        reason = errno.EACCES
    else:
        return
    raise OSError(reason, os.strerror(reason), str(path))


@contextlib.contextmanager
def writing(path: pathlib.Path) -> Iterator[None]:
    """Inside, an error of the file system is an ExportError that names `path`."""
    try:
        yield
    except Exception as error:
        # TensorFlow, which writes the largest files, has errors of its own: "file; reason".
        if not isinstance(error, OSError) and not hasattr(error, "error_code"):
            raise
        # HDF5's errors have an errno too, but messages of several lines.
        number, message = getattr(error, "errno", None), getattr(error, "message", error)
        reason = os.strerror(number) if number else str(message).rsplit("; ", 1)[-1]
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


def check_folder(path: str | os.PathLike[str], empty: bool = False) -> None:
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
    check_folder(path, empty=True)
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
