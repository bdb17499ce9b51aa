"""Start and end of a script: its memory, signals, log lines, errors and exit status."""

import contextlib
import ctypes
import os
import re
import resource
import signal
import sys
import threading

from training.run.files import RunError

_NOISE = re.compile(
    rb"WARNING: All log messages before|To enable the following instructions|normalizer\.cc"
    rb"|[IWE]\d{4} [\d:. ]+\w+\.cc:\d+\]|\d{4}-\d\d-\d\d [\d:. ]+ [IWE] "
)
_MALLOPT = {-4: 0, -8: 1, -1: 2**31 - 1}  # MMAP_MAX, ARENA_MAX and TRIM_THRESHOLD of malloc.h


def command(program, function, *arguments):
    """Calls the function of a script, which returns its exit status or None; reports its errors."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with without_noise():
        try:
            return function(*arguments) or 0
        except (RunError, OSError) as error:
            print(f"{program}: error: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 128 + signal.SIGINT


def until_stopped(train, settings):
    """Calls `train(settings, signals)`, which tells if the run is finished; the exit status."""
    keep_freed_memory()
    signals = Signals()
    try:
        with signals:
            done = train(settings, signals)
    except KeyboardInterrupt:
        print("\nStopped. Run the same command to resume.", file=sys.stderr)
        return 128 + (signals.received or signal.SIGINT)
    return 0 if done else 128 + (signals.received or signal.SIGTERM)


def in_two_steps(prepare, *arguments):
    """Does the work of a script so that a command that cannot succeed touches no file.

    Args:
        prepare: `prepare(*arguments)` reads and checks all that the work depends on: model, terms,
            languages, encodings, paths. It changes no file, and returns the function that does the
            work and writes.
        arguments: Those of `prepare`.

    Returns:
        What the work returns: the exit status, or None.
    """
    work = prepare(*arguments)
    return work()


def keep_freed_memory():
    """Makes glibc keep the memory that the process frees.

    By default it returns large blocks to the system, which clears every page of the blocks of the
    next update: a quarter to a third of the time of an update on some virtual machines. Must be
    called before other threads allocate memory. Without glibc, nothing happens.
    """
    glibc = ctypes.CDLL(None)
    for option, value in _MALLOPT.items() if hasattr(glibc, "mallopt") else ():
        glibc.mallopt(option, value)


def peak_memory_mib():
    """Peak memory of this process, in MiB."""
    unit = 1 << (20 if sys.platform == "darwin" else 10)  # macOS counts bytes, others KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // unit


class Signals:
    """Remembers that Ctrl-C or SIGTERM asked the run to stop; a context manager.

    While `waits` is set, the first signal is only remembered, so that a checkpoint can be written.
    The second one, and any at another time, ends the process at once.
    """

    def __init__(self):
        self.received, self.waits = None, False

    def __enter__(self):
        numbers = (signal.SIGINT, signal.SIGTERM)
        self._before = {number: signal.signal(number, self._receive) for number in numbers}
        return self

    def __exit__(self, *error):
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number, frame):
        first, self.received = self.received is None, number
        if not (first and self.waits):
            raise KeyboardInterrupt
        print("\nStopping soon, with a checkpoint; Ctrl-C again stops at once.", flush=True)


@contextlib.contextmanager
def without_noise():
    """A context in which lines that C++ libraries write about themselves are not shown.

    TensorFlow's come before any log level is read, and some of its errors are none; so the
    process's standard error goes through a filter. Python's goes past it, and knows its terminal.
    """
    shown, (read, write) = os.dup(2), os.pipe()

    def show():
        with open(read, "rb") as lines:
            for line in lines:
                if not _NOISE.match(line):
                    os.write(shown, line)

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    os.dup2(write, 2)
    os.close(write)
    before = sys.stderr
    if before is sys.__stderr__:
        sys.stderr = os.fdopen(shown, "w", buffering=1, errors="backslashreplace", closefd=False)
    try:
        yield
    finally:
        sys.stderr.flush()
        sys.stderr = before
        os.dup2(shown, 2)
        thread.join(1.0)  # a child may still hold the other end
