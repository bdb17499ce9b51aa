"""The form of all command lines: `--underscored_options`, and `(default: …)` in the help.

What is wrong with an argument is said before any work begins.
"""

import argparse
import math
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from keras_tfmr._files import check_writable


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
