"""What reads and writes files: one error for users, whatever is wrong with a file."""

import errno
import json
import os
import pathlib
import zipfile
import zlib
from typing import Any

# What NumPy raises for an .npz that is damaged, cut short, or none.
DAMAGED = (OSError, EOFError, ValueError, TypeError, KeyError, zipfile.BadZipFile, zlib.error)


class PresetError(ValueError):
    """A preset cannot be found, read or written; the message is a line for users."""


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
    elif not os.access(above, os.W_OK | os.X_OK):
        reason = errno.EACCES
    else:
        return
    raise OSError(reason, os.strerror(reason), str(path))
