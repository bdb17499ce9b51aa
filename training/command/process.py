"""Start and end of a script: its memory, signals, log lines, errors and exit status."""

import contextlib
import ctypes
import os
import re
import resource
import select
import signal
import sys
import threading

from training.command.disk import RunError

_NOISE = re.compile(
    rb"WARNING: All log messages before|To enable the following instructions|normalizer\.cc"
    rb"|[IWE]\d{4} [\d:. ]+\w+\.cc:\d+\]|\d{4}-\d\d-\d\d [\d:. ]+ [IWE] "
)
_MALLOPT = {-4: 0, -8: 1, -1: 2**31 - 1}  # MMAP_MAX, ARENA_MAX and TRIM_THRESHOLD of malloc.h

STOPPING = (signal.SIGINT, signal.SIGTERM)
GRACE = 20.0  # seconds in which a command ends


def command(program, function, *arguments, stop=None):
    """Calls the function of a script; returns the script's exit status.

    Args:
        program: The script's name, for its errors.
        function: Returns its exit status, or None for 0.
        stop: The `Stop`, if the function postpones a signal.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if hasattr(sys.stdout, "reconfigure"):  # a text of any language, in a terminal of ASCII
        sys.stdout.reconfigure(errors="backslashreplace")
    with without_noise(), stop or Stop() as stop:
        try:
            return function(*arguments) or 0
        except (RunError, OSError) as error:
            print(f"{program}: error: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 128 + (stop.received or signal.SIGINT)


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


class Stop:
    """How Ctrl-C and SIGTERM end a command, within seconds; a context manager.

    A signal raises KeyboardInterrupt, so that every `with` and `finally` on the way leaves nothing
    half done and no child behind. Where a checkpoint has to be written before, the first signal is
    only remembered: see `postponed`. From the moment that nothing is postponed, the process has
    `GRACE` seconds: then it ends, whatever C++ code it is in, where no exception reaches it.

    Attributes:
        received: The number of the signal, or None.
    """

    def __init__(self):
        self.received, self._waits = None, False

    def __enter__(self):
        self.received, self._waits = None, False
        read, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._before = {number: signal.signal(number, self._receive) for number in STOPPING}
        self._woke = signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, args=(read,), daemon=True).start()
        return self

    def __exit__(self, *error):
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._woke)
        os.close(self._wake)  # which ends the watch

    @contextlib.contextmanager
    def postponed(self, on=True):
        """A context in which the first signal is only remembered; with `on` False, one within it
        in which a signal is not, as usual. A second signal always raises KeyboardInterrupt.
        """
        before, self._waits = self._waits, on
        try:
            self.check()
            yield
        finally:
            self._waits = before
        self.check()

    def check(self):
        """Raises KeyboardInterrupt if a signal was remembered that nothing postpones any more."""
        if self.received and not self._waits:
            os.write(self._wake, b"\0")
            raise KeyboardInterrupt

    def _receive(self, number, frame):
        first, self.received = self.received is None, number
        if not (first and self._waits):
            raise KeyboardInterrupt
        print("\nStopping soon, with a checkpoint; Ctrl-C again stops at once.", flush=True)

    def _watch(self, read):
        """Ends the process `GRACE` seconds after a signal; in a thread, which C++ code leaves free.

        Python writes each signal to a pipe as it arrives, even while no handler can run.
        """
        received, status = 0, None
        with open(read, "rb", buffering=0) as woken:
            while status is None or select.select([woken], [], [], GRACE)[0]:
                number = woken.read(1)
                if not number:
                    return
                received += number[0] in STOPPING
                if received > 1 or not self._waits:
                    status = 128 + (number[0] or self.received)
        os._exit(status)


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
