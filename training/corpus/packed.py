"""Files that may be compressed, as the ending of their names says."""

import functools
import gzip
import importlib
import io
import zlib
from pathlib import Path

from training.command.disk import RunError

BOM = b"\xef\xbb\xbf"
# {ending: format and Python modules of it, the first that there is}; each has `open`, `compress`.
_FORMATS = {
    ".gz": ("gzip", "gzip"),
    ".bz2": ("bzip2", "bz2"),
    ".xz": ("xz", "lzma"),
    ".zst": ("zstd", "compression.zstd", "backports.zstd"),
}


def lines(raw, path):
    """Yields the lines of a binary file, unpacked, without a byte order mark at its beginning.

    Args:
        raw: The open file.
        path: Its name, whose ending counts; None for standard input.

    Raises:
        RunError: If it is damaged or cut short.
    """
    name, module = _format(path)
    stream = io.BufferedReader(module.open(raw), 1 << 20) if module else raw
    names = ("LZMAError", "ZstdError")  # of which a module has one or none
    damaged = [getattr(module, error) for error in names if hasattr(module, error)]
    try:
        first = next(stream, b"").removeprefix(BOM)
        if first:
            yield first
        yield from stream
    except (OSError, EOFError, zlib.error, *damaged) as error:
        if not module or getattr(error, "errno", None):  # of the system, not of the content
            raise
        raise RunError(f"{path}: not a whole {name} file ({error})") from error


def packer(path):
    """A function from bytes to what a file of this name holds; several in a row are a file too."""
    _, module = _format(path)
    if module is gzip:
        return functools.partial(gzip.compress, mtime=0)  # the same bytes at any time
    return module.compress if module else bytes


def is_packed(path):
    """Whether the name says that the file is compressed."""
    return _format(path)[1] is not None


def _format(path):
    """The name of a file's format and the module that reads it; None if it is plain."""
    ending = Path(path or "").suffix.lower()
    name, *modules = _FORMATS.get(ending, ("plain",))
    for module in modules:
        try:
            return name, importlib.import_module(module)
        except ImportError:  # an older Python, or one that was built without the library
            continue
    if modules:
        advice = ": `pip install backports.zstd`" if name == "zstd" else " with its library"
        raise RunError(f"{path}: {ending} needs a Python that reads {name}{advice}")
    return name, None
