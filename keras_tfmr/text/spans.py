"""Patterns of the spans of a text that must not change. Needs neither TensorFlow nor Keras.

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


def _balanced(depth):
    """Any text whose braces have their partners, in braces up to `depth` times."""
    return rf"(?:[^{{}}]|\{{{_balanced(depth - 1)}\}})*" if depth else "[^{}]*"


_INNER = _balanced(5)
_FORMATS = "plural|select|selectordinal|number|date|time|spellout|ordinal|duration|choice|list"
# The placeholders of template languages, whole: what is in them is a program.
_TEMPLATE = "|".join(
    [
        # Jinja, Liquid, Handlebars, Vue, Angular: {{ a | b }}, {{{ a }}}, {% if a %}, {# a #}.
        rf"\{{\{{{_INNER}\}}\}}|\{{%{_INNER}%\}}|\{{#{_INNER}#\}}",
        rf"[$#]\{{{_INNER}\}}",  # ${a + b}
        # MessageFormat: {n, plural, one {# cat} other {# cats}}.
        rf"\{{\s*\w+\s*,\s*(?:{_FORMATS})\s*(?:,{_INNER})?\}}",
        r"\{[#/:@][a-z][^{}\n]*\}",  # Svelte: {#if a}, {:else}, {/if}, {@html a}
        r"<%(?:[^%<]|<[^%]|%+[^%>])*%+>",  # ERB: <%= a %>
        r"<\?(?:[^?<]|<[^?]|\?+[^?>])*\?+>",  # PHP: <?= $a->b ?>
    ]
)

# What RE2 and Python's `re` read alike, if \w, \s and \b are those of ASCII.
PATTERNS = {
    "code": r"``[^\n]+?``|`[^`\n]+`",
    "tag": r"""<!--(?:[^<\n]|<[^!\n])*?-->"""
    r"""|</?[A-Za-z][\w:-]*(?:\s(?:"[^"]*"|'[^']*'|[^<>"'])*)?/?>""",
    # Without the punctuation behind it.
    "url": rf"""(?:(?:https?|ftp)://|www\.)(?:{_WITHIN}|[^{_IN_URL}])*"""
    rf"""(?:{_WITHIN}|[^{_IN_URL}'’.,;:!?…\]}}])""",
    # No longer than addresses may be: Python's `re` would try from each letter of a long word.
    "email": r"[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+",
    # Those of templates; {}, {name}, {0:.2f}, {a[0].b}, {x:{n}}, %{name}; then %s, %(name)s, %1$s,
    # %.2f, %@.
    "placeholder": rf"{_TEMPLATE}"
    r"|%?\{ ?[\w.$-]*(?:\[[^\[\]{}\n]*\][\w.$-]*)*(?:[!:,](?:[^{}\n]|\{[^{}\n]*\})*)? ?\}"
    r"|%(?:\(\w+\)|\d+\$)?[+#0-]*\d*(?:\.\d+)?(?:@|(?:hh?|ll?|[zjtL])?[diufFeEgGxXoscr]\b)",
    "option": r"\B--[a-z](?:[\w-]*\w)?(?:=[^\s,;]*\w)?",
    "number": r"\d+(?:[.,:/]\d+)*",
}
MATCHES_NOTHING = "A pattern must not match nothing: it would hide the others. Received: {!r}"
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
        ValueError: As `combined`; or if `re` cannot read a pattern, or it can match nothing.
    """
    try:
        pattern = re.compile(f"(?a:{combined(protect)})")
        if re.match(without_borders(pattern.pattern), ""):
            raise ValueError(MATCHES_NOTHING.format(protect))
    except re.error as error:
        raise ValueError(f"Python's re cannot read a pattern of {protect}: {error}") from None
    return pattern


def without_borders(pattern: str) -> str:
    r"""A pattern without `\b` and `\B`: it matches the empty text if it ever matches nothing.

    >>> without_borders(r"\bx*|\\b")
    '(?:)x*|\\\\b'
    """
    return re.sub(r"(\\\\)|\\[bB]", lambda match: match[1] or "(?:)", pattern)
