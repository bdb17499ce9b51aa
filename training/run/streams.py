"""Files of lines, read and written so that a killed process resumes."""

import contextlib
import itertools
import os
import sys
import time

from keras_tfmr._files import read_json
from training.corpus import packed
from training.run.files import RunError, write_json


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

    def write(self, data, lines):
        """Writes the translations of `lines` lines."""
        self._file.write(data)
        self._file.flush()
        self.lines += lines

    def finish(self):
        """Marks the output as complete."""


class Output(Stream):
    """An output file that a later process can resume.

    Until the file is complete, `NAME.progress` beside it records the command, and how many lines
    and bytes are safely on the disk.
    """

    def __init__(self, options):
        path = options.output
        self._pack, self._progress = packed.packer(path), progress_of(path)
        # The options that the output depends on.
        free = ("output", "overwrite", "threads")
        self._command = {k: str(v) for k, v in vars(options).items() if k not in free}
        if options.input:
            self._command["input bytes"] = options.input.stat().st_size
        known = path.exists() and not options.overwrite
        lines, certain = begun(path, self._command) if known else (0, 0)
        self._record(lines, certain)  # first, because an output without it counts as complete
        super().__init__(path.open("r+b" if certain else "wb"))
        self._file.truncate(certain)
        self._file.seek(certain)
        self.lines = lines

    def write(self, data, lines):
        """Writes the translations of `lines` lines to the disk, then records that."""
        super().write(self._pack(data), lines)
        os.fsync(self._file.fileno())
        self._record(self.lines, self._file.tell())

    def _record(self, lines, certain):
        write_json(self._progress, {"lines": lines, "bytes": certain, "command": self._command})

    def finish(self):
        self._progress.unlink()
        self._file.close()


def progress_of(path):
    """The file beside an output that records how far it is."""
    return path.with_name(path.name + ".progress")


def is_complete(path):
    """Whether an earlier process wrote the whole output."""
    return path.exists() and not progress_of(path).exists()


def begun(path, command):
    """Lines and bytes of an output that the same command has written; raises a RunError."""
    progress = progress_of(path)
    if not progress.exists():
        raise RunError(f"{path} exists: choose another --output, or give --overwrite")
    try:
        before = read_json(progress)
        certain = before["lines"], before["bytes"]
        same = before["command"] == command
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{progress} is damaged: give --overwrite to start again") from error
    if path.stat().st_size < certain[1]:
        raise RunError(f"{path} has lost what was written: give --overwrite to start again")
    if not same:
        raise RunError(
            f"{path} was started by another command: repeat that command, choose another --output, "
            "or give --overwrite"
        )
    return certain


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
