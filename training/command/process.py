"""The process of a script: errors, exit status, memory."""

import ctypes
import resource
import sys

from keras_tfmr.errors import ExportError, PresetError

MALLOPT = {-4: 0, -8: 1, -1: 2**31 - 1}  # MMAP_MAX, ARENA_MAX and TRIM_THRESHOLD of malloc.h


def command(program, function, *arguments):
    """Calls the function of a script; returns the script's exit status.

    Args:
        program: The script's name, for its errors.
        function: Returns its exit status, or None for 0.
    """
    # A text of any language, in any terminal; each line at once, also in the logs of a cluster.
    sys.stdout.reconfigure(errors="backslashreplace", line_buffering=True)
    try:
        return function(*arguments) or 0
    except (PresetError, ExportError, OSError) as error:
        print(f"{program}: error: {error}", file=sys.stderr)
        return 1


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
