"""Lines of text files in blocks, and the rows of a block: where a corpus is read.

A file is read once, and its checksum is taken on the way; a block is decoded once, in the process
that cleans it. An error names the file and the line.
"""

import contextlib
import functools
import hashlib
import io
import itertools
import os
import re
from typing import NamedTuple

from training.command.disk import RunError
from training.corpus import packed

LINES, BYTES = 20_000, 1 << 24  # in a block, at most; a line is never cut
LONGEST_LINE = 600  # characters; a longer line of plain text is cut between words
NOTHING = "-"  # stands for the source side of plain text


class TextFile(NamedTuple):
    """A file that was read: its path as given, checksum, lines, size and modification time."""

    path: str
    sha256: str
    lines: int
    bytes: int
    modified: int


class LineBlock(NamedTuple):
    """Lines `first`, `first + 1`, … of one file or of two aligned ones, as bytes."""

    paths: tuple
    first: int
    texts: tuple


class _Hashed(io.RawIOBase):
    """An open file whose checksum is taken as it is read."""

    def __init__(self, file):
        self._file, self._sha256, self._stamp = file, hashlib.sha256(), stamp(file.name)

    def readable(self):
        return True

    def readinto(self, buffer):
        count = self._file.readinto(buffer)
        self._sha256.update(memoryview(buffer)[:count])
        return count

    def summary(self, lines):
        """The `TextFile`, at the end."""
        return TextFile(str(self._file.name), self._sha256.hexdigest(), lines, *self._stamp)


def read_blocks(paths, files):
    """Yields the lines of a file of two columns, or of two aligned files, as `LineBlock`s.

    Args:
        paths: One path or two.
        files: A list, to which a `TextFile` is added for each path at the end.
    """
    names, number = tuple(map(str, paths)), 0
    with contextlib.ExitStack() as opened:
        unbuffered = functools.partial(open, mode="rb", buffering=0)
        raws = [_Hashed(opened.enter_context(unbuffered(path))) for path in paths]
        buffered = [io.BufferedReader(raw, 1 << 20) for raw in raws]
        streams = [packed.lines(*pair) for pair in zip(buffered, paths, strict=True)]
        while True:
            texts = [_some(streams[0])]
            texts += [list(itertools.islice(stream, len(texts[0]) or 1)) for stream in streams[1:]]
            counts = [len(text) for text in texts]
            if not (number or all(counts)):
                raise RunError(f"{names[counts.index(0)]}: the file is empty")
            if counts[0] != counts[-1]:
                ended, other = names if counts[0] < counts[-1] else names[::-1]
                raise RunError(
                    f"{ended} ends after line {number + min(counts)}, but {other} has a line "
                    f"{number + min(counts) + 1}: the two files must have the same number of lines"
                )
            if not counts[0]:
                break
            yield LineBlock(names, number + 1, tuple(map(b"".join, texts)))
            number += counts[0]
        for raw, file in zip(raws, buffered, strict=True):
            while file.read(1 << 20):  # what follows the packed lines counts too
                pass
            files.append(raw.summary(number))


def _some(stream):
    """The next lines of a stream, as many as a block has."""
    lines, size = [], 0
    while size < BYTES and (more := list(itertools.islice(stream, min(LINES - len(lines), 1000)))):
        lines += more
        size += sum(map(len, more))
    return lines


def stamp(path):
    """Size and modification time of a file; while they are the same, the content is too."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def in_memory(rows):
    """Rows in memory as blocks of lines; tabs and line ends within a cell become spaces."""
    rows, first = iter(rows), 1
    while chunk := list(itertools.islice(rows, LINES)):
        lines = ("\t".join(re.sub(r"[\t\n]", " ", cell) for cell in row) for row in chunk)
        yield LineBlock(("memory",), first, ("".join(f"{line}\n" for line in lines).encode(),))
        first += len(chunk)


def text_column(task):
    """The column of a task's rows that holds the text; the other has its labels, if any."""
    return int(task == "language")


def rows(block, task="translation", longest=None):
    """Yields the `(source, target)` of each line of a block, in the form that a task needs.

    Args:
        task: What the lines are for.
        longest: Characters of plain text in a row; `LONGEST_LINE` by default.
    """
    read = _READERS[task]
    if text_column(task):
        read = functools.partial(read, longest=longest or LONGEST_LINE)
    lines = zip(*(_decoded(block, column) for column in range(len(block.texts))), strict=True)
    for number, cells in enumerate(lines, block.first):
        try:
            pairs = read(*cells)
        except ValueError as error:
            raise RunError(f"{block.paths[0]}, line {number}: {error}") from error
        yield from pairs


def _decoded(block, column):
    """The lines of one file of a block, list of str."""
    lines = block.texts[column].removesuffix(b"\n").split(b"\n")
    try:
        return [line.decode().rstrip("\r") for line in lines]
    except UnicodeDecodeError as error:
        at = error.start
        raise RunError(
            f"{block.paths[column]}, line {block.first + lines.index(error.object)}: not UTF-8 at "
            f"byte {at} of the line (0x{error.object[at]:02x})"
        ) from error


def _pair(*cells):
    """The source and the target in one line, or in a line of each of two files."""
    if len(cells) == 2:
        return [[cell.replace("\t", " ") for cell in cells]]
    columns = cells[0].split("\t")
    if len(columns) != 2:
        raise ValueError(
            "expected two columns with a tab between them, found "
            f"{len(columns)} column{'s' * (len(columns) > 1)}: {cells[0][:80]!r}"
        )
    return [columns]


def _labelled(*cells):
    ((text, label),) = _pair(*cells)
    if len(label.split()) != 1:
        raise ValueError(
            f"expected `text<TAB>label`, a label without spaces. Received: {label[:80]!r}"
        )
    return [(text, label.strip())]


def _plain(line, longest):
    """The line in pieces, cut between words; a word that is too long is cut too."""
    line, begin, pieces = re.sub(r"\s+", " ", line).strip(), 0, []
    while len(line) > begin + longest:
        cut = line.rfind(" ", begin + 1, begin + longest)
        cut = cut if cut > 0 else begin + longest
        pieces.append((NOTHING, line[begin:cut]))
        begin = cut + (line[cut] == " ")
    return [*pieces, (NOTHING, line[begin:])]


# For each task, a function from the line, or the lines of both files, to rows.
_READERS = {
    "translation": _pair,
    "classify": _labelled,
    "language": _plain,
}
