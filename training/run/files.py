"""Files that are written atomically, and errors in one line."""

import contextlib
import csv
import io
import json
import os


class RunError(Exception):
    """An error in a run or its folder to show to the user, in one line."""


@contextlib.contextmanager
def explained(path):
    """Turns the operating system's errors into a RunError that names the path and the reason."""
    try:
        yield
    except OSError as error:
        # HDF5's errors have an errno too, but messages of several lines.
        reason = os.strerror(error.errno) if error.errno else error
        raise RunError(f"Cannot write {path}: {reason}") from error


def write_atomically(path, content):
    """Writes a file so that it has either its new content or its old one.

    Args:
        path: The file; its folder is made if it is missing.
        content: Bytes, text, or a function that writes into an open binary file.

    Raises:
        RunError: If the file cannot be written; no partial file is left.
    """
    content = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}")  # no other process writes in this folder
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                content(file) if callable(content) else file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_directory(path.parent)


def _sync_directory(path):
    """Makes a rename survive a power failure."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def save_weights(model, path):
    """Keras's weights file of a model, written atomically."""
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}")  # with the extension that Keras requires
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
        RunError: If the file cannot be read or is not JSON.
    """
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RunError(f"Cannot read {path}: {error}") from error


def write_table(path, columns, rows):
    """A CSV file of dictionaries, atomically."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, text.getvalue())
