"""Reads text files in blocks of lines: plain, gzip, bzip2 or Zstandard."""

import bz2
import glob
import gzip
import hashlib
import io
import itertools
import os
import pathlib
import zlib
from typing import NamedTuple

LINES = 20_000  # in a block


class CorpusError(ValueError):
    """An error in a corpus, in one line for the user."""


class TextFile(NamedTuple):
    """A file that was read: its path as given, checksum, lines, size and modification time."""

    path: str
    sha256: str
    lines: int
    bytes: int = 0
    modified: int = 0


class Block(NamedTuple):
    """Lines `first`, `first + 1`, … of one file or of two aligned ones, as bytes."""

    paths: tuple
    first: int
    texts: tuple


def find(pattern):
    """The paths that match a name or a pattern with `*`, `?` or `[…]`, sorted.

    Raises:
        CorpusError: If there are none.
    """
    if os.path.exists(pattern):
        return [pathlib.Path(pattern)]
    found = sorted(path for path in glob.glob(str(pattern), recursive=True))
    if not found:
        raise CorpusError(f"{pattern}: No such file or directory")
    return [pathlib.Path(path) for path in found]


def blocks(paths, read):
    """The lines of a file of two columns, or of two aligned files.

    Args:
        paths: One path or two.
        read: A list, to which a `TextFile` is added for each path at the end.

    Yields:
        `Block`s of at most `LINES` lines.

    Raises:
        CorpusError: If a file is empty or damaged, or the two differ in their number of lines.
        OSError: If a file cannot be read.
    """
    files = [_Digested(path) for path in paths]
    streams = [_unpacked(path, file) for path, file in zip(paths, files, strict=True)]
    names, number = tuple(map(str, paths)), 0
    while True:
        texts = [_lines(stream, name) for stream, name in zip(streams, names, strict=True)]
        counts = [text.count(b"\n") + (text[-1:] not in (b"", b"\n")) for text in texts]
        if not number:
            for name, count in zip(names, counts, strict=True):
                if not count:
                    raise CorpusError(f"{name}: the file is empty")
            texts = [text.removeprefix(b"\xef\xbb\xbf") for text in texts]
        if counts[0] != counts[-1]:
            ended, other = names if counts[0] < counts[-1] else names[::-1]
            raise CorpusError(
                f"{ended} ends after line {number + min(counts)}, but {other} has a line "
                f"{number + min(counts) + 1}: the two files must have the same number of lines"
            )
        if not counts[0]:
            break
        yield Block(names, number + 1, tuple(texts))
        number += counts[0]
    for path, file in zip(paths, files, strict=True):
        size, modified = stamp(path)
        read.append(TextFile(str(path), file.finish(), number, size, modified))


def stamp(path):
    """Size and modification time of a file; while they are the same, the content is too."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def sha256(path):
    """The SHA-256 checksum of a file, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def text_of(block, column):
    """The lines of one file of a block as one str.

    Raises:
        CorpusError: If they are not UTF-8; it names the line.
    """
    try:
        return block.texts[column].decode("utf-8")
    except UnicodeDecodeError:
        pass
    for number, line in enumerate(block.texts[column].split(b"\n"), block.first):
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise CorpusError(
                f"{block.paths[column]}, line {number}: not UTF-8 at byte {error.start} of the "
                f"line (0x{line[error.start]:02x})"
            ) from error
    raise AssertionError("a text is UTF-8 if its lines are")


def rows(block):
    """Yields the `(source, target)` of each line of a block, unchanged.

    Raises:
        CorpusError: If a line does not have two columns or is not UTF-8; it names file and line.
    """
    columns = [_split(text_of(block, column)) for column in range(len(block.texts))]
    if len(columns) == 2:
        yield from zip(*columns, strict=True)
        return
    for number, line in enumerate(columns[0], block.first):
        row = line.split("\t")
        if len(row) != 2:
            raise CorpusError(
                f"{block.paths[0]}, line {number}: expected two columns with a tab between them, "
                f"found {len(row)} column{'s' * (len(row) > 1)}: {line[:80]!r}"
            )
        yield row


def _split(text):
    return [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]


def _lines(stream, name):
    try:
        return b"".join(itertools.islice(stream, LINES))
    except (EOFError, gzip.BadGzipFile, zlib.error, _DamagedError) as error:
        raise CorpusError(f"{name}: not a whole {_format(name)} file ({error})") from error
    except OSError as error:
        if _format(name) == "bzip2" and error.errno is None:
            raise CorpusError(f"{name}: not a whole bzip2 file ({error})") from error
        raise


def _format(name):
    endings = {".gz": "gzip", ".bz2": "bzip2", ".zst": "zstd"}
    return endings.get(pathlib.Path(name).suffix.lower())


def _unpacked(path, file):
    kind = _format(path)
    if kind == "gzip":
        return io.BufferedReader(gzip.GzipFile(fileobj=file))
    if kind == "bzip2":
        return bz2.BZ2File(file)
    if kind == "zstd":
        return io.BufferedReader(_Zstandard(path, file))
    return file


class _Digested(io.BufferedReader):
    """A file whose checksum is computed while it is read."""

    def __init__(self, path):
        self._raw = _Digesting(path)
        super().__init__(self._raw, 1 << 20)

    def finish(self):
        while self.read(1 << 20):  # anything after the end of the compressed data
            pass
        self.close()
        return self._raw.digest.hexdigest()


class _Digesting(io.FileIO):
    def __init__(self, path):
        super().__init__(path)
        self.digest = hashlib.sha256()

    def readinto(self, buffer):
        count = super().readinto(buffer)
        self.digest.update(memoryview(buffer)[:count])
        return count

    def readall(self):
        return b"".join(iter(lambda: self.read(1 << 20), b""))

    def read(self, size=-1):
        buffer = bytearray(size)
        return bytes(buffer[: self.readinto(buffer)])


class _DamagedError(Exception):
    pass


class _Zstandard(io.RawIOBase):
    """The content of a file of Zstandard frames; a frame that is cut off is an error."""

    def __init__(self, path, file):
        try:
            import zstandard
        except ImportError as error:
            raise CorpusError(f"{path}: reading .zst needs `pip install zstandard`") from error
        self._library, self._file = zstandard, file
        self._frame, self._text = None, memoryview(b"")

    def readable(self):
        return True

    def readinto(self, buffer):
        while not self._text:
            packed = self._frame.unused_data if self._frame and self._frame.eof else b""
            packed = packed or self._file.read(1 << 18)
            if not packed:
                if self._frame and not self._frame.eof:
                    raise _DamagedError("the last frame is cut off")
                return 0
            if self._frame is None or self._frame.eof:
                self._frame = self._library.ZstdDecompressor().decompressobj()
            try:
                self._text = memoryview(self._frame.decompress(packed))
            except self._library.ZstdError as error:
                raise _DamagedError(str(error)) from error
        count = min(len(buffer), len(self._text))
        buffer[:count], self._text = self._text[:count], self._text[count:]
        return count
