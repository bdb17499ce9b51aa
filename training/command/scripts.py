"""The form of all command lines: `--underscored_options`, and `(default: …)` in the help."""

import argparse
import math
import os
import signal
from collections.abc import Callable
from typing import Any


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
    >>> _ = own.add_argument("--at_most", type=at_least(1), default=9, metavar="N", help="lines")
    >>> print(own.format_help().splitlines()[-1])
      --at_most N  lines (default: 9)
    """
    introduction, _, rest = documentation.partition("\n")
    about = {"description": introduction, "epilog": rest, "formatter_class": _Help}
    return argparse.ArgumentParser(**about, **options)


def at_least(least: float) -> Callable[[str], float]:
    """The type of an option that is a number: a whole one if `least` is an int.

    >>> at_least(0.0)("2")
    2.0
    """

    def number(text: str) -> float:
        value = type(least)(text)
        if not least <= value < math.inf:
            raise argparse.ArgumentTypeError(f"must be {least} or more. Received: {text!r}")
        return value

    return number
