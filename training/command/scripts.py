"""What all scripts share: start and end, errors, memory, and the form of their command lines.

That is `--underscored_options`, and `(default: …)` in the help. What is wrong with an argument is
said before any work begins.
"""

import argparse
import ctypes
import math
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from keras_tfmr._files import check_writable
from keras_tfmr.errors import ExportError, PresetError

MALLOPT = {-4: 0, -8: 1, -1: 2**31 - 1}  # MMAP_MAX, ARENA_MAX and TRIM_THRESHOLD of malloc.h


def begin_quietly(stopped: str = "Stopped.") -> None:
    """From here on, Ctrl-C and SIGTERM end the process with one line.

    Every script begins with it, before what takes long to import. The handler ends the process
    itself, since TensorFlow swallows some of the exceptions that a handler raises within its calls.
    Files are written whole or not at all, so nothing is left to undo.

    Args:
        stopped: The line.
    """

    errors = os.dup(2)  # standard error is elsewhere while libraries are loaded

    def stop(number: int, frame: object) -> None:
        os.write(errors, f"{stopped}\n".encode())  # print() could be interrupted by itself
        os._exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)


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


class _Help(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    """Shows defaults, where there are any."""

    def _get_help_string(self, action):
        nothing = action.default in (None, False, [], "") or "default: " in action.help
        return action.help if nothing else super()._get_help_string(action)


def parser(documentation: str, **options: Any) -> argparse.ArgumentParser:
    """A parser, to which the script adds its options.

    Args:
        documentation: The script's docstring. `--help` prints its first line before the options,
            and the rest after them.
        options: As for `argparse.ArgumentParser`.

    >>> own = parser("Counts lines.", prog="count.py", usage=argparse.SUPPRESS, add_help=False)
    >>> _ = own.add_argument("--at_most", type=number_from(1), default=9, metavar="N", help="lines")
    >>> print(own.format_help().splitlines()[-1])
      --at_most N  lines (default: 9)
    """
    introduction, _, rest = documentation.partition("\n")
    about = {"description": introduction, "epilog": rest, "formatter_class": _Help}
    return argparse.ArgumentParser(**about, **options)


def number_from(lowest: float, most: float = math.inf) -> Callable[[str], float]:
    """The type of an option that is a number, a whole one if `lowest` is an int; `most` may be it.

    >>> number_from(0.0)("2")
    2.0
    """
    kind = type(lowest)

    def number(text: str) -> float:
        value = kind(text)
        if not lowest <= value <= most or value == math.inf:
            to = f" to {most}" if most < math.inf else ""
            raise argparse.ArgumentTypeError(f"must be from {lowest}{to}. Received: {text}")
        return value

    number.__name__ = kind.__name__  # argparse names it if the text is no number
    return number


port = number_from(0, 65535)


def file_to_read(text: str) -> Path:
    """The type of an option that names a file to read, as a path."""
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"there is no file {text}")
    return Path(text)


def picture(text: str) -> str:
    """The type of an option that names a picture to write."""
    if Path(text).suffix != ".png":
        raise argparse.ArgumentTypeError(f"must end in .png. Received: {text}")
    try:
        check_writable(Path(text))
    except OSError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text
