"""Files that are either whole or as they were before, and errors in one line."""

import contextlib
import csv
import io
import json
import os


class RunError(Exception):
    """What the user has to know about a run or its folder, in one line."""


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
    """Writes a file so that it is either whole or as it was before.

    Args:
        path: The file; its folder is made if it is missing.
        content: Bytes, text, or a function that writes into an open binary file.

    Raises:
        RunError: If that cannot be done; nothing is left behind.
    """
    content = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}")  # nobody else writes in this folder
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
