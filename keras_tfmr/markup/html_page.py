"""HTML: which parts of a page are text; everything else stays byte for byte.

No tree is built of a page, so that missing and wrong tags stay as they are.
"""

import html
import re
from collections.abc import Iterator

from keras_tfmr.markup.inline import Piece, Say, translate_pieces, translate_text


def _set(names):
    return frozenset(names.split())


INLINE = _set(
    "a abbr acronym b bdi bdo big cite data del dfn em font i ins mark q s small span strike "
    "strong sub sup time tt u"
)
_ALONE = _set("img wbr")  # inline elements without an end
_VOID = _ALONE | _set("area base br col embed hr input link meta source track")
# What stays with all that it holds; the first ones have a place in a sentence.
_WORDS = _set("code kbd math samp svg var")
_KEPT = _WORDS | _set("object pre")
_RAW = "iframe|noembed|noframes|plaintext|script|style|textarea|xmp"  # also kept; holds no tags
# Elements that end where one of these begins.
_ENDED_BY = {
    **dict.fromkeys(["dd", "dt"], _set("dd dt")),
    **dict.fromkeys(["td", "th"], _set("td th tr")),
    **{name: _set(name) for name in ("li", "option", "tr")},
    "p": _set("blockquote div dl h1 h2 h3 h4 h5 h6 ol p pre section table ul"),
}
_ATTRIBUTES = _set("alt aria-label placeholder title")
_ENCODING = re.compile(rb"""(?:charset|encoding)\s*=\s*["']?\s*([\w:.-]+)""", re.I)

# Tokens as in HTML's standard, in place of `html.parser`, whose versions read unfinished tags in
# different ways: of 3,000 broken pages, 35 came out with other tags, and of 12,000 none with this.
_NAME = r"[^\s/>][^\s/>=]*+"
_VALUE = r"""(?:"[^"]*+(?:"|\Z)|'[^']*+(?:'|\Z)|[^\s>"'][^\s>]*+)"""
_ATTRIBUTE = re.compile(rf"({_NAME})(?:(\s*=\s*)({_VALUE})?)?", re.A)
_REST = rf"(?:[\s/]|{_NAME}(?:\s*=\s*{_VALUE}?)?)*+>"  # of a tag
_TOKEN = re.compile(
    rf"""(?P<text>(?:[^<]++|<(?![a-z/!?]))+)
    |(?P<kept><!--(?:-?>|.*?--!?>))
    |<(?P<raw>{_RAW})(?=[\s/>]){_REST}.*?(?:</(?P=raw)(?=[\s/>]){_REST}|\Z)
    |<(?P<start>[a-z][^\s/>]*+){_REST}
    |</(?P<end>[a-z][^\s/>]*+){_REST}
    |(?P<block><(?:/?[a-z]|!--).*|<[^>]*+>?)""",
    re.X | re.A | re.I | re.S,
)


def declared_encoding(page: bytes) -> str | None:
    """The encoding that a page says it has."""
    match = _ENCODING.search(page, 0, 1024)
    return match and match[1].decode()


def translate_page(page: str, say: Say, whole: bool = True) -> str:
    """A page whose texts are translated; `whole` as for `translate_pieces`."""
    return translate_pieces(pieces(page, say), say, _encode, whole)


def pieces(page: str, say: Say) -> Iterator[Piece]:
    """The pieces of a page; the texts in their attributes are translated."""
    return (piece(*token, say) for token in tokens_of(page))


def tokens_of(page: str) -> Iterator[tuple[str, str, str]]:
    """The tokens of a page: kind, name and what the page writes. What stays as it is, is one."""
    tokens = [(each.lastgroup, each[each.lastgroup], each[0]) for each in _TOKEN.finditer(page)]
    tokens, i = [(kind, name.lower(), raw) for kind, name, raw in tokens], 0
    while i < len(tokens):
        kind, name, raw = tokens[i]
        if kind == "start" and _is_kept(name, raw):
            first, i = i, _end_of(tokens, i)
            is_whole = name in _VOID or tokens[i - 1][:2] == ("end", name)
            is_inline = is_whole and name in _WORDS | INLINE | _ALONE
            raw = "".join(raw for _, _, raw in tokens[first:i])
            yield "kept" if is_inline else "block", "", raw
        else:
            yield tokens[i]
            i += 1


def _end_of(tokens, first):
    """The number of the token after the element that begins with a token."""
    opened: list[str] = []
    for i in range(first, len(tokens)):
        kind, name, _ = tokens[i]
        if kind == "start":
            while opened and name in _ENDED_BY.get(opened[-1], ()):
                opened.pop()
            if i > first and not opened:
                return i
            if name not in _VOID:
                opened.append(name)
        elif kind == "end":
            if name not in opened:  # of an element around it
                return i
            del opened[-1 - opened[::-1].index(name) :]
        if not opened:
            return i + 1
    return len(tokens)


def _is_kept(name, raw):
    found = {each[1].lower(): _value(each[3]) for each in _ATTRIBUTE.finditer(raw, 1 + len(name))}
    off = found.get("translate", "").lower() == "no"
    return off or name in _KEPT or "notranslate" in found.get("class", "").split()


def piece(kind: str, name: str, raw: str, say: Say) -> Piece:
    """The piece that a token is."""
    if kind == "text":
        return Piece("text", html.unescape(raw))
    if kind == "start":
        begin = 1 + len(name)
        raw = raw[:begin] + _ATTRIBUTE.sub(lambda match: _attribute(match, say), raw[begin:])
    if name in INLINE:
        return Piece("open" if kind == "start" else "close", raw, name)
    return Piece("kept" if kind == "kept" or name in _ALONE else "block", raw)


def _attribute(match, say):
    """An attribute, whose value is translated if it is text."""
    name, equals, value = match.groups()
    if name.lower() not in _ATTRIBUTES or not value:
        return match[0]
    quote = "'" if value[0] == "'" else '"'
    text = _encode(translate_text(_value(value), say)).replace(quote, f"&#{ord(quote)};")
    return f"{name}{equals}{quote}{text}{quote}"


def _value(raw):
    """The text of an attribute, of which a page may write the value in quotes."""
    raw = raw or ""
    return html.unescape(raw[1:-1] if raw[:1] in ('"', "'") else raw)


def _encode(text):
    return html.escape(text, quote=False).replace("\xa0", "&nbsp;")
