"""The form of all command lines: `--underscored_options`, `(default: …)` in the help, and an error
for an option that would have no effect.
"""

import argparse
import functools
import math
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any


def end_at_ctrl_c() -> None:
    """From here on, Ctrl-C ends the process at once and says nothing; exit status 130.

    Every script begins with it, before what takes long to import: an exception would be a traceback
    there, or be lost in what the import catches. It holds until a `Stop` or the script itself has
    something to clean up.
    """
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(128 + number))


class _Option(argparse.Action):
    """An option that is given once, or a list, whose values add up; its help ends in its default.

    Args:
        only_with: Options without which it has no effect, one of which must be given too: a name,
            or a name and a value, as in `--documents file`.
        not_with: Options that it cannot be given with.
        any_bytes: Whether a value may be no UTF-8. A path that is none could be opened, but not
            recorded in any file, nor told.
        options: As for `argparse.Action`.
    """

    def __init__(
        self,
        *args: Any,
        only_with: Sequence[str] = (),
        not_with: Sequence[str] = (),
        any_bytes: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.only_with, self.not_with, self.any_bytes = only_with, not_with, any_bytes
        value, text = self.default, self.help or ""
        unsaid = value is None or value is False or value in ("", ()) or "default: " in text
        if not unsaid:
            values = value if isinstance(value, list | tuple) else [value]
            shown = " ".join("yes" if item is True else str(item) for item in values)
            self.help = f"{text} (default: {shown.replace('%', '%%')})"

    def __call__(self, parser, namespace, values, option_string=None):
        if values == [] and self.const is not None:
            values = self.const
        if not self.any_bytes:
            for value in values if isinstance(values, list) else [values]:
                self._check_utf8(value)
        if option_string is not None:
            if self in parser.given and self.nargs not in ("+", "*"):
                raise argparse.ArgumentError(self, "given twice")
            if self in parser.given:
                values = [*parser.given[self], *values]
            parser.given[self] = values
        setattr(namespace, self.dest, values)

    def _check_utf8(self, value):
        text = str(value)
        try:
            text.encode()
        except UnicodeEncodeError:
            message = f"expected UTF-8. Received: {os.fsencode(text)!r}"
            if (encoding := sys.getfilesystemencoding()) != "utf-8":
                message += f", which Python reads as {encoding}: set PYTHONUTF8=1"
            raise argparse.ArgumentError(self, message) from None


class Switch(_Option):
    """`--name` and `--no_name`, for an option that is on or off."""

    def __init__(self, option_strings: list[str], dest: str, **options: Any) -> None:
        off = [name.replace("--", "--no_", 1) for name in option_strings]
        super().__init__([*option_strings, *off], dest, nargs=0, **options)

    def format_usage(self) -> str:
        return " | ".join(self.option_strings)

    def __call__(self, parser, namespace, values, option_string=None):
        is_on = not option_string.startswith("--no_")
        super().__call__(parser, namespace, is_on, option_string)


class _Parser(argparse.ArgumentParser):
    """Refuses options that are repeated, or have no effect beside or without others.

    Attributes:
        given: {option: its value} of the options that the command line has.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **options)
        flag = functools.partial(_Option, nargs=0, const=True, default=False)
        for name, kind in ((None, _Option), ("store", _Option), ("store_true", flag)):
            self.register("action", name, kind)

    def parse_known_args(self, args=None, namespace=None):
        self.given: dict[argparse.Action, Any] = {}
        parsed = super().parse_known_args(args, namespace)
        words = {
            word
            for option, value in self.given.items()
            for name in option.option_strings
            for word in (name, f"{name} {value}")
        }
        for option in self.given:
            name = option.option_strings[0]
            if option.only_with and words.isdisjoint(option.only_with):
                self.error(f"{name} has no effect without {' or '.join(option.only_with)}")
            if beside := [other for other in option.not_with if other in words]:
                self.error(f"{name} cannot be given with {beside[0]}")
        return parsed


def parser(documentation: str, **options: Any) -> _Parser:
    """A parser, to which the script adds its options.

    Beside what argparse knows, `add_argument` takes `only_with` and `not_with`: lists of options
    without which, or with which, this one cannot be given.

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
    return _Parser(description=introduction, epilog=rest, **options)


def at_least(least: float) -> Callable[[str], float]:
    """The type of an option that is a number: a whole one if `least` is an int.

    >>> at_least(0.0)("2")
    2.0
    """
    kind, what = (int, "a whole number") if isinstance(least, int) else (float, "a number")

    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not least <= value < math.inf:
            raise argparse.ArgumentTypeError(
                f"must be {what} of {least} or more. Received: {text!r}"
            )
        return value

    return read


def above(least: float) -> Callable[[str], float]:
    """The type of an option that is a number greater than `least`.

    >>> above(0.0)("0.5")
    0.5
    """

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least < value < math.inf:
            raise argparse.ArgumentTypeError(
                f"must be a number greater than {least:g}. Received: {text!r}"
            )
        return value

    return read


def protected(words: Sequence[str]) -> list[str]:
    """What `--protect` names; nothing for `none`.

    >>> protected(["url", "code"]), protected(["none"])
    (['url', 'code'], [])
    """
    return [] if [*words] == ["none"] else [*words]
