"""What of a text must not change, as patterns: needs neither TensorFlow nor Keras.

A protected span travels through a model as a slot: one character for private use, which is one
token. `protection` puts slots into texts and spans back, in the graph.
"""

import re
from collections.abc import Iterable

# The slots of a vocabulary: the spans of a text from left to right.
SLOTS = tuple(chr(0xE000 + i) for i in range(16))

# Characters that are always protected, so that none can be mistaken for a slot. UTF-8 writes all
# of them, and no others, with this first byte.
PRIVATE, PRIVATE_BYTE = "[\ue000-\uefff]", 0xEE

_WIDE = "\u3000-\u303f\uff00-\uffef"  # punctuation of languages that write no spaces
_IN_URL = rf"""\s()<>"“”«»{_WIDE}"""
_WITHIN = rf"\([^{_IN_URL}]*\)"

# What RE2 and Python's `re` read alike, if \w, \s and \b are those of ASCII.
PATTERNS = {
    "code": r"``[^\n]+?``|`[^`\n]+`",
    "tag": r"""<!--.*?-->|</?[A-Za-z][\w:-]*(?:\s(?:"[^"]*"|'[^']*'|[^<>"'])*)?/?>""",
    # Without the punctuation behind it.
    "url": rf"""(?:(?:https?|ftp)://|www\.)(?:{_WITHIN}|[^{_IN_URL}])*"""
    rf"""(?:{_WITHIN}|[^{_IN_URL}'’.,;:!?…\]}}])""",
    "email": r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
    # {}, {name}, {0:.2f}, {{ name }}, ${name}, %{name}; then %s, %(name)s, %1$s, %.2f, %@.
    "placeholder": r"[$%#]?\{\{? ?[\w.$-]*(?:[!:,][^{}\n]*)? ?\}?\}"
    r"|%(?:\(\w+\)|\d+\$)?[+#0-]*\d*(?:\.\d+)?(?:@|(?:hh?|ll?|[zjtL])?[diufFeEgGxXoscr]\b)",
    "option": r"\B--[a-z](?:[\w-]*\w)?(?:=[^\s,;]*\w)?",
    "number": r"\d+(?:[.,:/]\d+)*",
}
DEFAULT = tuple(name for name in PATTERNS if name != "number")


def combined(protect: Iterable[str]) -> str:
    """One pattern for all that is protected, private characters included.

    Args:
        protect: Names of `PATTERNS`, and patterns of one's own, which come first.

    Raises:
        ValueError: If a word is not one of the names: probably one that was meant to be.

    >>> combined(["number", "[A-Z]{2}-[0-9]+"]).startswith("(?:[A-Z]{2}-[0-9]+)|(?:")
    True
    """
    if isinstance(protect, str):
        raise TypeError(f"What to protect must be a list of str. Received: {protect!r}")
    protect = list(protect)
    for word in protect:
        if word.isidentifier() and word not in PATTERNS:
            raise ValueError(
                f"{word!r} is none of {', '.join(PATTERNS)}; for the word itself, give "
                f"{f'({word})'!r}"
            )
    own = [each for each in protect if each not in PATTERNS]
    known = [pattern for name, pattern in PATTERNS.items() if name in protect]
    return "|".join(f"(?:{each})" for each in [*own, *known, PRIVATE])


def python_pattern(protect: Iterable[str]) -> re.Pattern[str]:
    """`combined` for Python's `re`, with the classes of RE2.

    Raises:
        ValueError: As `combined`; or if `re` cannot read a pattern, or it matches the empty text.
    """
    try:
        pattern = re.compile(f"(?a:{combined(protect)})")
    except re.error as error:
        raise ValueError(f"Python's re cannot read a pattern of {protect}: {error}") from None
    if pattern.match(""):
        raise ValueError(f"A pattern must not match the empty text. Received: {protect}")
    return pattern
