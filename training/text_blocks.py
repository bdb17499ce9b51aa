"""Lines of text files in blocks, so that a corpus may be larger than memory.

An error names the file and the line.
"""

import contextlib
import hashlib
import itertools
import os
import re
from typing import NamedTuple

from training import packed
from training.files import RunError

LINES = 20_000  # in a block
LONGEST_LINE = 600  # characters; a longer line of plain text is cut between words
NOTHING = "-"  # stands for the source side of plain text


class TextFile(NamedTuple):
    """A file that was read: its path as given, checksum, lines, size and modification time."""

    path: str
    sha256: str
    lines: int
    bytes: int
    modified: int


class Block(NamedTuple):
    """Lines `first`, `first + 1`, … of one file or of two aligned ones, as bytes."""

    paths: tuple
    first: int
    texts: tuple


def read_blocks(paths, read):
    """Yields the lines of a file of two columns, or of two aligned files, as `Block`s.

    Args:
        paths: One path or two.
        read: A list, to which a `TextFile` is added for each path at the end.
    """
    names, number = tuple(map(str, paths)), 0
    with contextlib.ExitStack() as opened:
        files = [opened.enter_context(open(path, "rb", buffering=1 << 20)) for path in paths]
        streams = [packed.lines(file, path) for file, path in zip(files, paths, strict=True)]
        while True:
            chunks = [list(itertools.islice(stream, LINES)) for stream in streams]
            counts = [len(chunk) for chunk in chunks]
            for name, count in zip(names, counts, strict=True):
                if not (count or number):
                    raise RunError(f"{name}: the file is empty")
            if counts[0] != counts[-1]:
                ended, other = names if counts[0] < counts[-1] else names[::-1]
                raise RunError(
                    f"{ended} ends after line {number + min(counts)}, but {other} has a line "
                    f"{number + min(counts) + 1}: the two files must have the same number of lines"
                )
            if not counts[0]:
                break
            yield Block(names, number + 1, tuple(map(b"".join, chunks)))
            number += counts[0]
    for path in paths:
        size, modified = stamp(path)
        read.append(TextFile(str(path), sha256(path), number, size, modified))


def stamp(path):
    """Size and modification time of a file; while they are the same, the content is too."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def sha256(path):
    """The SHA-256 checksum of a file, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def in_memory(rows):
    """Rows in memory as blocks of lines; tabs and line ends within a cell become spaces."""
    rows, first = iter(rows), 1
    while chunk := list(itertools.islice(rows, LINES)):
        lines = ("\t".join(re.sub(r"[\t\n]", " ", cell) for cell in row) for row in chunk)
        yield Block(("memory",), first, ("".join(f"{line}\n" for line in lines).encode(),))
        first += len(chunk)


def rows(block):
    """Yields the `(source, target)` of each line of a block, unchanged."""
    columns = [[line.rstrip("\r") for line in lines_of(block, i)] for i in range(len(block.texts))]
    if len(columns) == 2:
        for pair in zip(*columns, strict=True):
            yield tuple(line.replace("\t", " ") for line in pair)
        return
    for number, line in enumerate(columns[0], block.first):
        row = line.split("\t")
        if len(row) != 2:
            raise RunError(
                f"{block.paths[0]}, line {number}: expected two columns with a tab between them, "
                f"found {len(row)} column{'s' * (len(row) > 1)}: {line[:80]!r}"
            )
        yield row


def _labelled(block):
    for number, (text, label) in enumerate(rows(block), block.first):
        if len(label.split()) != 1:
            raise RunError(
                f"{block.paths[0]}, line {number}: expected `text<TAB>label`, a label without "
                f"spaces. Received: {label[:80]!r}"
            )
        yield text, label.strip()


def _tagged(block):
    for number, (tokens, tags) in enumerate(rows(block), block.first):
        counts = len(tokens.split()), len(tags.split())
        if counts[0] != counts[1]:
            raise RunError(
                f"{block.paths[0]}, line {number}: expected `tokens<TAB>tags`, one tag for each "
                f"token. Received {counts[0]} tokens and {counts[1]} tags: {tokens[:80]!r}"
            )
        yield " ".join(tokens.split()), " ".join(tags.split())


def _plain(block):
    for line in lines_of(block, 0):
        line = re.sub(r"\s+", " ", line).strip()
        begin = 0
        while len(line) > begin + LONGEST_LINE:  # a word that is too long is cut too
            cut = line.rfind(" ", begin + 1, begin + LONGEST_LINE)
            cut = cut if cut > 0 else begin + LONGEST_LINE
            yield NOTHING, line[begin:cut]
            begin = cut + (line[cut] == " ")
        yield NOTHING, line[begin:]


# For each task, a function that yields the (source, target) of the lines of a block.
READERS = {
    "translation": rows, "classify": _labelled, "tag": _tagged, "language": _plain,
    "masked": _plain,
}  # fmt: skip


def lines_of(block, column):
    """The lines of one file of a block, list of str."""
    lines = block.texts[column].removesuffix(b"\n").split(b"\n")
    try:
        return b"\n".join(lines).decode("utf-8").split("\n")
    except UnicodeDecodeError:
        pass
    for number, line in enumerate(lines, block.first):
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise RunError(
                f"{block.paths[column]}, line {number}: not UTF-8 at byte {error.start} of the "
                f"line (0x{line[error.start]:02x})"
            ) from error
    raise AssertionError("a text is UTF-8 if its lines are")
