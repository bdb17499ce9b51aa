"""Files that may be compressed, as the ending of their names says."""

import bz2
import gzip
import lzma
import zlib
from pathlib import Path

from training.command.disk import RunError

BOM = b"\xef\xbb\xbf"
NAMES = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}


def is_packed(path):
    """Whether the name says that the file is compressed."""
    return Path(path).suffix.lower() in NAMES


def lines(path):
    """Yields the lines of a file, bytes, without a byte order mark at its beginning.

    Raises:
        RunError: If it is damaged or cut short.
    """
    ending = Path(path).suffix.lower()
    if ending == ".gz":
        opener, damage = gzip.open, (OSError, EOFError, zlib.error)
    elif ending == ".bz2":
        opener, damage = bz2.open, (OSError, EOFError)
    elif ending == ".xz":
        opener, damage = lzma.open, (EOFError, lzma.LZMAError)
    elif ending == ".zst":
        module = zstd(path)
        opener, damage = module.open, (EOFError, module.ZstdError)
    else:
        opener, damage = open, ()
    with opener(path, "rb") as file:
        try:
            first = next(file, b"").removeprefix(BOM)
            if first:
                yield first
            yield from file
        except damage as error:
            raise RunError(f"{path}: not a whole {NAMES[ending]} file ({error})") from error


def zstd(path):
    """The module that reads .zst: Python's own since 3.14."""
    try:
        from compression import zstd
    except ImportError:
        try:
            from backports import zstd
        except ImportError as error:
            raise RunError(f"{path} needs `pip install backports.zstd`") from error
    return zstd
