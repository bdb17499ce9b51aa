"""The form of all command lines: `--underscored_options`, and `(default: …)` in the help."""

import argparse
from typing import Any


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Adds the default to the help of each option, unless the help names it."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text = action.help or ""
        value = action.default
        unsaid = value is None or value is False or value in ("", (), argparse.SUPPRESS)
        if unsaid or "default: " in text or not action.option_strings:
            return text
        if isinstance(value, list | tuple):
            return f"{text} (default: {' '.join(map(str, value))})"
        return f"{text} (default: {'yes' if value is True else '%(default)s'})"


def parser(documentation: str, **options: Any) -> argparse.ArgumentParser:
    """A parser, to which the script adds its options.

    Args:
        documentation: The script's docstring. `--help` prints its first line before the options,
            and the rest after them.
        options: As for `argparse.ArgumentParser`.

    >>> own = parser("Counts lines.", prog="count.py", usage=argparse.SUPPRESS, add_help=False)
    >>> _ = own.add_argument("--at_most", type=int, default=9, metavar="N", help="lines")
    >>> print(own.format_help().splitlines()[-1])
      --at_most N  lines (default: 9)
    """
    introduction, _, rest = documentation.partition("\n")
    return argparse.ArgumentParser(
        description=introduction, epilog=rest, formatter_class=_Formatter, **options
    )


class Switch(argparse.Action):
    """`--name` and `--no_name`, for an option that is on or off."""

    def __init__(self, option_strings: list[str], dest: str, **options: Any) -> None:
        off = [name.replace("--", "--no_", 1) for name in option_strings]
        super().__init__([*option_strings, *off], dest, nargs=0, **options)

    def format_usage(self) -> str:
        return " | ".join(self.option_strings)

    def __call__(self, parser, namespace, values, option_string=None):
        setattr(namespace, self.dest, not option_string.startswith("--no_"))
