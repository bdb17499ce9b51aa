"""Files of lines, read and written so that a killed process resumes."""

import contextlib
import hashlib
import itertools
import json
import os
import sys
import time
from pathlib import Path

from keras_tfmr._files import read_json
from training.command.disk import (
    RunError,
    changes_in_words,
    check_writable,
    differences,
    explained,
    write_json,
)
from training.corpus import packed

BEGINNING = 1 << 20  # bytes of an input whose checksum is taken
NAMED = 4  # changes that are named


class Lines:
    """The lines of a binary file, without line ends; knows how much of it has been read.

    Args:
        raw: The open file.
        path: Its name; None for standard input.
        begin, end: The place of its first byte, and that behind the last line's first byte.
    """

    def __init__(self, raw, path, begin=0, end=None):
        self._raw, self._begin, self._end = raw, begin, end
        self._lines = raw if begin else packed.lines(raw, path)
        self.size = 0  # of a pipe
        with contextlib.suppress(OSError):
            self.size = os.fstat(raw.fileno()).st_size

    def __iter__(self):
        return self

    def __next__(self):
        if self._end is not None and self._raw.tell() >= self._end:
            raise StopIteration
        return next(self._lines).rstrip(b"\r\n")

    def share(self):
        """Fraction of the input that has been read, or None if its size is unknown."""
        end = self.size if self._end is None else self._end
        return (self._raw.tell() - self._begin) / (end - self._begin) if end > self._begin else None


@contextlib.contextmanager
def opened_input(path, shard=None):
    """The `Lines` of a file, or of a part of it, or of standard input."""
    if path is None:
        yield Lines(sys.stdin.buffer, None)
        return
    with path.open("rb") as file:
        if not shard:
            yield Lines(file, path)
            return
        index, count = shard
        size = path.stat().st_size
        begin, end = ((size * i) // count for i in (index - 1, index))
        if begin:  # a line belongs to the part in which it begins
            file.seek(begin - 1)
            file.readline()
        yield Lines(file, path, begin, end)


def described(path):
    """What tells an input from another one: its size and the checksum of its beginning.

    It is read as far as that, so that one that cannot be unpacked is refused.
    """
    if path is None or path.is_fifo() or path.is_char_device():
        return "a stream"
    with path.open("rb") as file:
        checksum = hashlib.sha256(file.read(BEGINNING)).hexdigest()[:12]
        size = os.fstat(file.fileno()).st_size
        file.seek(0)
        next(packed.lines(file, path), None)
    return {"bytes": size, "beginning": checksum}


def paragraphs(lines):
    """Yields the lines of each paragraph joined to one, and blank lines as empty ones."""
    for blank, group in itertools.groupby(lines, lambda line: not line.strip()):
        if blank:
            yield from (b"" for _ in group)
        else:
            first, *others = group
            yield b" ".join([first.rstrip(), *(line.strip() for line in others)])


class Stream:
    """An output of which nothing is kept track, standard output; `lines` is how many it has."""

    def __init__(self, file):
        self._file, self.lines = file, 0

    def begin(self):
        """Opens it; returns a context that closes it."""
        return contextlib.nullcontext()

    def write(self, data, lines):
        """Writes the translations of `lines` lines."""
        self._file.write(data)
        self._file.flush()
        self.lines += lines

    def finish(self):
        """Marks the output as complete."""


class Record:
    """What an output was begun with, in the file `NAME.progress` beside it until it is complete.

    A later process goes on only if nothing has changed that the output depends on. Nothing is
    written before `write`.

    Args:
        path: The output, a file or a folder.
        overwrite: Whether to begin again, whatever there is.

    Attributes:
        before: What an earlier process recorded, {name: value}; empty if there was none.

    Raises:
        RunError: If the record cannot be read.
    """

    def __init__(self, path, overwrite=False):
        self.path, self._file, self._basis, self.before = path, progress_of(path), {}, {}
        check_writable(self._file)
        if self._file.exists() and not overwrite:
            with refusing_damaged(self._file):
                self.before = read_json(self._file)
                self.before["basis"].items()

    def depends_on(self, **basis):
        """Adds {name: value as JSON}; a RunError names what differs from the earlier process's."""
        basis = json.loads(json.dumps(basis, default=str))
        self._basis |= basis
        if not self.before:
            return
        before = {name: self.before["basis"].get(name) for name in basis}
        if changes := differences(flattened(before), flattened(basis)):
            first = dict(itertools.islice(changes.items(), NAMED))
            raise RunError(
                f"{self.path} was started by another command ({changes_in_words(first)}): repeat "
                "that command, choose another --output, or give --overwrite"
            )

    def write(self, **state):
        """Records what the output depends on, and how far it is."""
        write_json(self._file, {**state, "basis": self._basis})

    def remove(self):
        """The output is complete."""
        self._file.unlink(missing_ok=True)


class Output(Stream):
    """An output file that a later process can resume; `begin` before `write`.

    Args:
        path: The file.
        overwrite: Whether to begin again if it exists.

    Attributes:
        record: Its `Record`, of how many lines and bytes are safely on the disk.

    Raises:
        RunError: If it exists and cannot be resumed.
    """

    def __init__(self, path, overwrite=False):
        self.path, self._pack, self._certain = path, packed.packer(path), 0
        check_writable(path)
        self.record = Record(path, overwrite)
        super().__init__(None)
        if not path.exists() or overwrite:
            return
        if not self.record.before:
            raise RunError(f"{path} exists: choose another --output, or give --overwrite")
        with refusing_damaged(progress_of(path)):
            self.lines, self._certain = (int(self.record.before[n]) for n in ("lines", "bytes"))
        if path.stat().st_size < self._certain:
            raise RunError(f"{path} has lost what was written: give --overwrite to start again")

    def begin(self):
        """Opens the file, behind what an earlier process is known to have written."""
        self._write_record()  # first, because an output without it counts as complete
        with explained(self.path):
            self._file = self.path.open("r+b" if self._certain else "wb")
            self._file.truncate(self._certain)
            self._file.seek(self._certain)
        return self._file

    def write(self, data, lines):
        """Writes the translations of `lines` lines to the disk, then records that."""
        with explained(self.path):
            super().write(self._pack(data), lines)
            os.fsync(self._file.fileno())
        self._certain = self._file.tell()
        self._write_record()

    def _write_record(self):
        self.record.write(lines=self.lines, bytes=self._certain)

    def finish(self):
        self.record.remove()


@contextlib.contextmanager
def refusing_damaged(file):
    """Turns errors about what a record holds into a RunError."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{file} is damaged: give --overwrite to start again") from error


def flattened(values, prefix=""):
    """{path of names: value} of nested dictionaries, so that a difference is named in a few words.

    >>> flattened({"model": {"decoding": {"num_beams": 4}}, "scores": False})
    {'model decoding num_beams': 4, 'scores': False}
    """
    flat = {}
    for name, value in values.items():
        inner = flattened(value, f"{prefix}{name} ") if isinstance(value, dict) else None
        flat |= {prefix + name: value} if inner is None else inner
    return flat


def progress_of(path):
    """The file beside an output that records how far it is."""
    path = Path(os.path.abspath(path))  # for the folder `.`
    return path.with_name(path.name + ".progress")


def is_complete(path):
    """Whether an earlier process wrote the whole output."""
    return path.exists() and not progress_of(path).exists()


class Progress:
    """A line on standard error: sentences a second, time left."""

    def __init__(self, lines, before):
        self._lines, self._before = lines, before
        self._begun, self._share = time.monotonic(), lines.share() or 0
        self._terminal, self._told = sys.stderr.isatty(), "0 lines"

    def show(self, done):
        """Tells how far it is, on a terminal."""
        seconds = max(time.monotonic() - self._begun, 1e-9)
        speed, share = (done - self._before) / seconds, self._lines.share()
        self._told = f"{done:,} line{'s' * (done != 1)}, {speed:,.1f} a second"
        if share is not None and share > self._share:
            left = seconds * (1 - share) / (share - self._share)
            self._told += f", {share:.0%} read, {left / 60:.1f} minutes left"
        if self._terminal:
            print(f"\r\033[K{self._told}", end="", file=sys.stderr, flush=True)

    def end(self):
        """Tells what was done."""
        print(("\r\033[K" if self._terminal else "") + self._told, file=sys.stderr)
