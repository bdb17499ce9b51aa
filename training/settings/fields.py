"""A field of the settings: its type, range and help.

Nothing here imports Keras.
"""

import dataclasses
import functools
import math
from typing import Any, NamedTuple


class Rule(NamedTuple):
    """A condition on a value, in words and as a test."""

    words: str
    holds: Any


TYPES = {
    int: Rule("a whole number", lambda value: type(value) is int),
    float: Rule(
        "a finite number, such as 0.5 or 1.0e-3",
        lambda value: type(value) in (int, float) and math.isfinite(value),
    ),
    bool: Rule("true or false", lambda value: type(value) is bool),
    str: Rule("a text, not an empty one", lambda value: type(value) is str and value != ""),
    tuple: Rule(
        "a list of texts, none of them empty",
        lambda value: type(value) in (list, tuple) and all(map(TYPES[str].holds, value)),
    ),
}
POSITIVE = Rule("positive", lambda value: value > 0)
NOT_NEGATIVE = Rule("0 or more", lambda value: value >= 0)
SHARE = Rule("in [0, 1)", lambda value: 0 <= value < 1)
PERCENT = Rule("above 0 and at most 100", lambda value: 0 < value <= 100)
SEED = Rule("in [0, 2**31)", lambda value: 0 <= value < 2**31)


def option(default, help, range=None, *, flag=True, metavar="FILE", choices=(), resumes=False,
           tasks=None):  # fmt: skip
    """A field of `TrainingConfig`.

    Args:
        default: The value if none is given; None if it follows from other fields.
        help: A phrase for `--help`.
        range: A `Rule` for values of the right type; numbers are positive without one.
        flag: Whether it has an option of its own.
        metavar: What the value of a text or of a list is.
        choices: The texts that it may be, if they are few.
        resumes: Whether it may change when the run is resumed.
        tasks: The tasks that read it; None for all.
    """
    metadata = {key: value for key, value in locals().items() if key != "default"}
    return dataclasses.field(default=default, metadata=metadata)


setting = functools.partial(option, flag=False)


def what_is_wrong(field, value):
    """The condition that a field's value violates, in words; None if it is right."""
    choices, range = field.metadata["choices"], field.metadata["range"]
    rules = [TYPES[field.type], range or (POSITIVE if field.type in (int, float) else None)]
    if choices:
        rules.append(Rule(f"one of {', '.join(choices)}", lambda value: value in choices))
    if value is not None or field.default is not None:
        for words, holds in filter(None, rules):
            if not holds(value):
                return f"must be {words}. Received: {value!r}"
    return None
