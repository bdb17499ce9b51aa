"""What reads files of presets: one error for users, whatever is wrong with a file."""

import json
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
