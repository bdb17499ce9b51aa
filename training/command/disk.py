"""Files that are written whole or not at all, and what is recorded of them."""

import contextlib
import csv
import hashlib
import io
import json
import os

import numpy as np

from keras_tfmr.errors import PresetError

CHUNK = 1 << 20  # entries of an array handled at a time
# An error to show to the user, in one line: also those of the library about presets.
RunError = PresetError


@contextlib.contextmanager
def replacing(path):
    """A temporary path, which takes the name `path` when the context ends without an error."""
    temporary = path.with_name(f".{path.name}.tmp{''.join(path.suffixes[-2:])}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        handle = os.open(path.parent, os.O_RDONLY)  # the new name survives a power failure too
        os.fsync(handle)
        os.close(handle)
    except OSError as error:
        raise RunError(f"Cannot write {path}: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_atomically(path, content):
    """Writes a file so that it has either its new content or its old one.

    A path in a text that is not UTF-8 becomes escapes, which JSON reads back.

    Args:
        path: The file; its folder is made if it is missing.
        content: Bytes, text, or a function that writes into an open binary file.
    """
    if isinstance(content, str):
        content = content.encode("utf-8", "backslashreplace")
    with replacing(path) as temporary, temporary.open("wb") as file:
        content(file) if callable(content) else file.write(content)


def save_weights(model, path):
    """Keras's weights file of a model, written atomically."""
    with replacing(path) as temporary:
        model.save_weights(temporary)


def write_json(path, value):
    """A JSON file, atomically."""
    write_atomically(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_table(path, columns, rows):
    """A CSV file of dictionaries, atomically."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n", restval="", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, text.getvalue())


def mapped(path, dtype):
    """The entries of a file, mapped into memory; an empty file cannot be mapped."""
    if not path.stat().st_size:
        return np.zeros(0, dtype)
    return np.asarray(np.memmap(path, dtype, "r"))  # whose slices are made faster


def chunks(length, size=CHUNK):
    """Consecutive slices that cover `length` entries."""
    return (slice(begin, min(begin + size, length)) for begin in range(0, length, size))


def sha256(path):
    """The SHA-256 checksum of a file, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def differences(before, now):
    """{name: (value before, value now)} of what differs; None is the value of what is missing.

    >>> differences({"seed": 1, "steps": 9}, {"seed": 1, "steps": 7, "patience": None})
    {'steps': (9, 7)}
    """
    pairs = {name: (before.get(name), now.get(name)) for name in sorted({*before, *now})}
    return {name: (old, new) for name, (old, new) in pairs.items() if old != new}


def changes_in_words(changes):
    """Differences for an error message."""
    return "; ".join(f"{name}: {before}, now {now}" for name, (before, now) in changes.items())
