"""Start and end of a script: its memory, signals, errors and exit status."""

import ctypes
import resource
import signal
import sys

from keras_tfmr.errors import ExportError, PresetError

STOPPING = (signal.SIGINT, signal.SIGTERM)
MALLOPT = {-4: 0, -8: 1, -1: 2**31 - 1}  # MMAP_MAX, ARENA_MAX and TRIM_THRESHOLD of malloc.h


def command(program, function, *arguments):
    """Calls the function of a script; returns the script's exit status.

    Ctrl-C and SIGTERM raise KeyboardInterrupt in it, so that every `with` and `finally` on the way
    leaves nothing half done; a second one ends the process.

    Args:
        program: The script's name, for its errors.
        function: Returns its exit status, or None for 0.
    """
    sys.stdout.reconfigure(errors="backslashreplace")  # a text of any language, in any terminal
    for number in STOPPING:
        signal.signal(number, interrupt)
    try:
        return function(*arguments) or 0
    except (PresetError, ExportError, OSError) as error:
        print(f"{program}: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as stopped:
        return 128 + stopped.args[0]


def interrupt(number, frame):
    """Ends what a script does; the next signal ends the process at once."""
    for stopping in STOPPING:
        signal.signal(stopping, signal.SIG_DFL)
    raise KeyboardInterrupt(number)


def keep_freed_memory():
    """Makes glibc keep the memory that the process frees.

    By default it returns large blocks to the system, which clears every page of the blocks of the
    next update: a quarter to a third of the time of an update on some virtual machines. Must be
    called before other threads allocate memory. Without glibc, nothing happens.
    """
    glibc = ctypes.CDLL(None)
    for option, value in MALLOPT.items() if hasattr(glibc, "mallopt") else ():
        glibc.mallopt(option, value)


def peak_memory_mib():
    """Peak memory of this process, in MiB."""
    unit = 1 << (20 if sys.platform == "darwin" else 10)  # macOS counts bytes, others KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // unit
