"""HTML: which parts of a page are text; everything else stays byte for byte.

Python's own parser tells where tokens begin. No tree is built of a page, so that missing and wrong
tags stay as they are.
"""

import html
import html.parser
import itertools
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
_KEPT = _WORDS | _set("iframe noembed noframes object plaintext pre script style textarea xmp")
# Elements that end where one of these begins.
_ENDED_BY = {
    **dict.fromkeys(["dd", "dt"], _set("dd dt")),
    **dict.fromkeys(["td", "th"], _set("td th tr")),
    **{name: _set(name) for name in ("li", "option", "tr")},
    "p": _set("blockquote div dl h1 h2 h3 h4 h5 h6 ol p pre section table ul"),
}
_ATTRIBUTES = _set("alt aria-label placeholder title")
_ATTRIBUTE = re.compile(r"""([^\s/>=][^\s/>=]*)(?:(\s*=\s*)("[^"]*"|'[^']*'|[^\s>"']+))?""")
_UNFINISHED = re.compile("<[a-zA-Z/!?]")
_ENCODING = re.compile(rb"""(?:charset|encoding)\s*=\s*["']?\s*([\w:.-]+)""", re.I)


def declared_encoding(page: bytes) -> str | None:
    """The encoding that a page says it has."""
    match = _ENCODING.search(page, 0, 1024)
    return match and match[1].decode()


def translate_page(page: str, say: Say) -> str:
    """A page whose texts are translated."""
    return translate_pieces(pieces(page, say), say, _encode)


def pieces(page: str, say: Say) -> Iterator[Piece]:
    """The pieces of a page; the texts in their attributes are translated."""
    tokens, i = _Tokens(page).found, 0
    offsets = [*(offset for offset, *_ in tokens), len(page)]
    while i < len(tokens):
        offset, kind, name, attributes = tokens[i]
        is_kept = kind == "start" and _is_kept(name, attributes)
        after = _end_of(tokens, i) if is_kept else i + 1
        raw = page[offset : offsets[after]]
        if is_kept:
            is_whole = name in _VOID or tokens[after - 1][1:3] == ("end", name)
            is_inline = is_whole and name in _WORDS | INLINE | _ALONE
            yield Piece("kept" if is_inline else "block", raw)
        else:
            yield _piece(kind, name, raw, attributes, say)
        i = after


def _end_of(tokens, first):
    """The number of the token after the element that begins with a token."""
    opened: list[str] = []
    for i, (_, kind, name, _) in enumerate(tokens[first:], first):
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


class _Tokens(html.parser.HTMLParser):
    """Where the tokens of a page begin: a list of (offset, kind, name, attributes)."""

    def __init__(self, page):
        super().__init__()
        lengths = (len(line) + 1 for line in page.split("\n"))
        self._page, self._lines = page, [*itertools.accumulate(lengths, initial=0)]
        self.found = []
        try:
            self.feed(page)
            self.close()
        except AssertionError:  # some Pythons give up at a declaration that they do not know
            self._add("unfinished")

    def _add(self, kind, name="", attributes=()):
        self.found.append((self._offset(), kind, name, dict(attributes)))

    def _offset(self):
        line, column = self.getpos()
        return self._lines[line - 1] + column

    def handle_starttag(self, tag, attrs):
        self._add("start", tag, attrs)

    handle_startendtag = handle_starttag

    def handle_endtag(self, tag):
        self._add("end", tag)

    def handle_data(self, data):
        if _UNFINISHED.match(self._page, self._offset()):
            self._add("unfinished")
        elif not self.found or self.found[-1][1] not in ("text", "unfinished"):  # comes in parts
            self._add("text")

    def handle_comment(self, data):
        self._add("comment")

    def handle_decl(self, decl):
        self._add("declaration")

    handle_pi = unknown_decl = handle_decl


def _is_kept(name, attributes):
    off = (attributes.get("translate") or "").lower() == "no"
    return off or name in _KEPT or "notranslate" in (attributes.get("class") or "").split()


def _piece(kind, name, raw, attributes, say):
    """The piece that a token is, outside of what is kept."""
    if kind == "text":
        return Piece("text", html.unescape(raw))
    if kind == "start" and _ATTRIBUTES & attributes.keys():
        begin = 1 + len(name)
        raw = raw[:begin] + _ATTRIBUTE.sub(lambda match: _attribute(match, say), raw[begin:])
    if name in INLINE:
        return Piece("open" if kind == "start" else "close", raw, name)
    return Piece("kept" if kind == "comment" or name in _ALONE else "block", raw)


def _attribute(match, say):
    """An attribute, whose value is translated if it is text."""
    name, equals, value = match.groups()
    if name.lower() not in _ATTRIBUTES or not value:
        return match[0]
    quote = value[0] if value[0] in "\"'" else ""
    text = html.unescape(value.strip(quote) if quote else value)
    quote = quote or '"'
    text = _encode(translate_text(text, say)).replace(quote, f"&#{ord(quote)};")
    return f"{name}{equals}{quote}{text}{quote}"


def _encode(text):
    return html.escape(text, quote=False).replace("\xa0", "&nbsp;")
