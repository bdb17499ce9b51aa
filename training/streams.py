"""Files of lines, read and written so that a killed process goes on where it was."""

import contextlib
import gzip
import itertools
import json
import os
import sys
import time

from training.files import RunError


class Lines:
    """The lines of a binary stream, without line ends; knows how much of it has been read."""

    def __init__(self, raw, packed, begin=0, end=None):
        self._raw, self._begin, self._end = raw, begin, end
        self._lines = gzip.GzipFile(fileobj=raw) if packed else raw
        try:
            self.size = os.fstat(raw.fileno()).st_size if raw.seekable() else 0
        except OSError:  # a stream that is not a file
            self.size = 0

    def __iter__(self):
        return self

    def __next__(self):
        if self._end is not None and self._raw.tell() >= self._end:
            raise StopIteration
        try:
            return next(iter(self._lines)).rstrip(b"\r\n")
        except (EOFError, gzip.BadGzipFile) as error:
            raise RunError(f"The input is not a complete gzip file: {error}") from error

    def share(self):
        """The share of the input that has been read, or None if its size is unknown."""
        end = self.size if self._end is None else self._end
        return (self._raw.tell() - self._begin) / (end - self._begin) if end > self._begin else None


@contextlib.contextmanager
def opened_input(path, shard=None):
    """The `Lines` of a file, or of a part of it, or of standard input."""
    if path is None:
        yield Lines(sys.stdin.buffer, packed=False)
        return
    with path.open("rb") as file:
        if shard:
            index, count = shard
            size = path.stat().st_size
            begin, end = ((size * i) // count for i in (index - 1, index))
            if begin:  # a line belongs to the part in which it begins
                file.seek(begin - 1)
                file.readline()
            yield Lines(file, False, begin, end)
            return
        yield Lines(file, packed=path.suffix.lower() == ".gz")


def paragraphs(lines):
    """Yields the lines of each paragraph joined to one, and blank lines as empty ones."""
    for blank, group in itertools.groupby(lines, lambda line: not line.strip()):
        if blank:
            yield from (b"" for _ in group)
        else:
            first, *others = group
            yield b" ".join([first.rstrip(), *(line.strip() for line in others)])


class Stream:
    """Standard output."""

    def __init__(self, file):
        self._file, self.lines = file, 0

    def write(self, data, lines):
        """Writes the translations of `lines` lines."""
        self._file.write(data)
        self._file.flush()
        self.lines += lines

    def finish(self):
        """Does nothing: everything has been written."""

    close = finish


def is_complete(options):
    """Whether an earlier process wrote the whole output."""
    path = options.output
    begun = path.with_name(path.name + ".progress").exists()
    return path.exists() and not begun and not options.overwrite


class Output:
    """An output file that a later process can resume; `lines` is the number of lines in it.

    Until the file is complete, `NAME.progress` beside it records the command, and how many lines
    and bytes are safely on the disk.
    """

    def __init__(self, options):
        self.path = options.output
        self._packed = self.path.suffix.lower() == ".gz"
        self._progress = self.path.with_name(self.path.name + ".progress")
        # The options that the output depends on.
        free = ("output", "overwrite", "threads")
        self._command = {k: str(v) for k, v in vars(options).items() if k not in free}
        if options.input:
            status = options.input.stat()
            self._command["input bytes"] = status.st_size
        self.lines, certain = self._begun(options.overwrite)
        self._save(certain)  # first, because an output without it counts as complete
        self._file = self.path.open("r+b" if certain else "wb")
        self._file.truncate(certain)
        self._file.seek(certain)

    def _begun(self, overwrite):
        if overwrite or not self.path.exists():
            return 0, 0
        if not self._progress.exists():
            raise RunError(f"{self.path} exists: choose another --output, or give --overwrite")
        try:
            before = json.loads(self._progress.read_text())
            certain = before["lines"], before["bytes"]
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(
                f"{self._progress} is damaged: give --overwrite to start again"
            ) from error
        if before["command"] != self._command:
            raise RunError(
                f"{self.path} was begun by another command: repeat that command, choose another "
                "--output, or give --overwrite"
            )
        return certain

    def write(self, data, lines):
        """Writes the translations of `lines` lines to the disk, then records that."""
        self._file.write(gzip.compress(data, mtime=0) if self._packed else data)
        self._file.flush()
        os.fsync(self._file.fileno())
        self.lines += lines
        self._save(self._file.tell())

    def _save(self, certain):
        state = {"lines": self.lines, "bytes": certain, "command": self._command}
        temporary = self._progress.with_name(f".{self._progress.name}")
        temporary.write_text(json.dumps(state))
        temporary.replace(self._progress)

    def finish(self):
        """Marks the file as complete."""
        self._progress.unlink()

    def close(self):
        self._file.close()


class Progress:
    """A line on standard error: sentences a second, time left."""

    def __init__(self, lines, before):
        self._lines, self._before = lines, before
        self._begun, self._share = time.monotonic(), lines.share()

    def show(self, done):
        """Tells how far it is."""
        seconds = max(time.monotonic() - self._begun, 1e-9)
        told = f"{done:,} line{'s' * (done != 1)}, {(done - self._before) / seconds:,.1f} a second"
        share = self._lines.share()
        if share is not None and share > (self._share or 0):
            left = seconds * (1 - share) / (share - (self._share or 0))
            told += f", {share:.0%} read, {left / 60:.1f} minutes left"
        if sys.stderr.isatty():
            print(f"\r\033[K{told}", end="", file=sys.stderr, flush=True)
        self._told = told

    _told = "0 lines"

    def end(self):
        """Tells what was done."""
        print(("\r\033[K" if sys.stderr.isatty() else "") + self._told, file=sys.stderr)
