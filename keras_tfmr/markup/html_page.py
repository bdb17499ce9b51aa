"""HTML and XHTML: which parts of a page are text; everything else stays byte for byte.

No tree is built of a page, so that missing and wrong tags stay as they are.
"""

import collections
import html
import re
from collections.abc import Iterator
from typing import NamedTuple

from keras_tfmr.markup.inline import Encode, Piece, Say, pieces_of, translate_pieces
from keras_tfmr.text.spans import TEMPLATE


def _set(names):
    return frozenset(names.split())


INLINE = _set(
    "a abbr acronym b bdi bdo big cite data del dfn em font i ins mark q s small span strike "
    "strong sub sup time tt u"
)
_ALONE = _set("img wbr")  # inline elements without an end
_VOID = _ALONE | _set("area base br col embed hr input link meta source track")
# What stays with all that it holds; the first ones have a place in a sentence.
_FOREIGN = _set("math svg")
_WORDS = _FOREIGN | _set("code kbd samp var")
_KEPT = _WORDS | _set("object pre")
_RAW = "iframe|noembed|noframes|plaintext|script|style|textarea|xmp"  # also kept; holds no tags
# What may be in a kept element that a model moves: none of these ends a paragraph around it.
_PHRASES = INLINE | _ALONE | _WORDS
# Elements that end where one of these begins.
_ENDED_BY = {
    **dict.fromkeys(["dd", "dt"], _set("dd dt")),
    **dict.fromkeys(["td", "th"], _set("td th tr")),
    **{name: _set(name) for name in ("li", "option", "tr")},
    "p": _set("blockquote div dl h1 h2 h3 h4 h5 h6 ol p pre section table ul"),
}
# Elements whose texts and comments have the same parent.
_FLOW = _set("button caption dd div dt figcaption h1 h2 h3 h4 h5 h6 label li p summary td th")
_ATTRIBUTES = _set("alt aria-label placeholder title")

# Tokens as in HTML's standard, in place of `html.parser`, whose versions read unfinished tags in
# different ways: of 3,000 broken pages, 35 came out with other tags, and of 12,000 none with this.
# A template's code is a token, in a tag too, where `>` does not end the tag.
_CODE = r"(?:[^{}<]|<(?![a-z/!?]))*"
_IN_TAG = rf"\{{\{{{_CODE}\}}\}}|\{{%{_CODE}%\}}|<%(?:[^%<]|%(?!>))*%>|<\?(?:[^?<]|\?(?!>))*\?>"
_NAME = rf"(?:{_IN_TAG}|[^\s/>])(?:{_IN_TAG}|[^\s/>=])*+"
_VALUE = rf"""(?:"(?:{_IN_TAG}|[^"])*+(?:"|\Z)|'(?:{_IN_TAG}|[^'])*+(?:'|\Z)|[^\s>"'][^\s>]*+)"""
_ATTRIBUTE = re.compile(rf"({_NAME})(?:(\s*=\s*)({_VALUE})?)?", re.A | re.I)
_REST = rf"(?:[\s/]|{_NAME}(?:\s*=\s*{_VALUE}?)?)*+>"  # of a tag
_START = rf"<(?P<start>[a-z][^\s/>]*+){_REST}"
_TOKENS = (
    r"(?P<text>[^<{$#]++|[{$#]|<(?![a-z/!?]))"
    r"|(?P<comment><!--(?:-?>|.*?--!?>))"
    rf"|<(?P<raw>{_RAW})(?=[\s/>]){_REST}.*?(?:</(?P=raw)(?=[\s/>]){_REST}|\Z)"
    rf"|{_START}"
    rf"|</(?P<end>[a-z][^\s/>]*+){_REST}"
    r"|(?P<block><(?:/?[a-z]|!--).*|<[^>]*+>?)"
)
_PLAIN = re.compile(_TOKENS, re.A | re.I | re.S)
_TOKEN = re.compile(rf"(?P<template>{TEMPLATE})|{_TOKENS}", re.A | re.I | re.S)
_TAG = re.compile(_START, re.A | re.I)
_ONLY_IN_XML = re.compile(
    r"(?P<kept><!\[CDATA\[.*?\]\]>)|(?P<block><!DOCTYPE[^\[>]*(?:\[.*?\]\s*)?>)", re.S
)
_IS_XML = re.compile(
    r"""\A\ufeff?\s*(?:<\?xml\s|(?:<!--.*?-->\s*)*(?:<!DOCTYPE\s[^>]*//DTD\sXHTML[^>]*>\s*)?
    <html\s[^>]*?\bxmlns\s*=|<!DOCTYPE\s[^>]*//DTD\sXHTML)""",
    re.X | re.I | re.S,
)
ENTITY = r"&\w+;"  # one that is left when all are read is none of HTML's: it stays as it is
_ENTITY = re.compile(r"&(?:#[0-9]+|#[xX][0-9a-fA-F]+|\w+);?")


class Token(NamedTuple):
    """A token of a page: "text", "unit", "comment", "start", "end", "empty", "kept" or "block".

    An "empty" one is a tag of XML without an end.

    Attributes:
        kind: What it is; a kept element is "kept" if it has a place in a sentence, else "block".
        name: Of a tag.
        raw: As the page writes it.
    """

    kind: str
    name: str
    raw: str


class Page(NamedTuple):
    """How a page is read and written.

    Attributes:
        say: Translates a text.
        pattern: What is protected.
        encode: Writes a text.
    """

    say: Say
    pattern: re.Pattern[str]
    encode: Encode


def translate_page(page: str, say: Say, pattern: re.Pattern[str], whole: bool = True) -> str:
    """A page whose texts are translated.

    Args:
        page: HTML, or XHTML if it says that it is.
        say: Translates a text.
        pattern: What is protected.
        whole: As for `translated`.
    """
    how = Page(say, pattern, encoder(page))
    reader = Reader(bool(_IS_XML.match(page)))
    pieces = [piece for token in reader.tokens(page) for piece in pieces_of_token(token, how)]
    pieces = _settled(pieces, reader.is_xml, reader.is_sound)
    return translate_pieces(pieces, say, how.encode, whole)


def encoder(page: str) -> Encode:
    """A function that writes texts as a page does: what it has as an entity, and what it must."""
    table = str.maketrans({">": "&gt;", **style_of(page), "&": "&amp;", "<": "&lt;"})
    return lambda text: text.translate(table)


def style_of(page: str) -> dict[str, str]:
    """The entities of a page, by the characters that they are; letters of ASCII need none."""
    style: dict[str, str] = {}
    for entity in dict.fromkeys(_ENTITY.findall(page)):
        character = html.unescape(entity)
        is_letter = character < "\x80" and character.isalnum()
        if len(character) == 1 and entity[-1] == ";" and not is_letter:
            style.setdefault(character, entity)
    return style


class Reader:
    """Reads the tokens of a page, which may come in several parts.

    Attributes:
        is_xml: Whether `<a/>` has no content, and there are CDATA sections.
        kept: The elements that are open in one that stays, from that one on; empty outside it.
        around: How many elements of each name are open around it.
        is_sound: Whether all tags in elements that stay had their partners.
    """

    def __init__(self, is_xml: bool = False) -> None:
        self.is_xml = is_xml
        self.kept: list[str] = []
        self.around: collections.Counter[str] = collections.Counter()
        self.is_sound = True
        self._first = ""  # of the names of `kept`
        self._is_phrase = True  # whether what is kept may be moved

    def tokens(self, page: str, begin: int = 0) -> Iterator[Token]:
        """The tokens of a page from a place on. An element that stays as it is, is one."""
        raws: list[str] = []
        for token in self._scan(page, begin):
            if self.kept:
                inside = self._goes_on(token)
                if inside:
                    raws.append(token.raw)
                if not self.kept:
                    name = raws and self._first
                    can_move = inside and self._is_phrase and name in _WORDS | INLINE
                    yield Token("kept" if can_move else "block", "", "".join(raws))
                    raws = []
                if inside:
                    continue
            if token.kind == "start" and _is_kept(token):
                if token.name in _VOID or self._is_empty(token):
                    can_move = token.name in _WORDS | INLINE | _ALONE
                    yield Token("kept" if can_move else "block", "", token.raw)
                    continue
                self.kept, self._first, self._is_phrase = [token.name], token.name, True
                raws = [token.raw]
                continue
            self._count(token)
            is_empty = token.kind == "start" and self._is_empty(token)
            yield token._replace(kind="empty") if is_empty else token
        if raws:
            yield Token("block", "", "".join(raws))

    def _goes_on(self, token):
        """Whether a token is in the element that stays, of which `kept` has what is still open."""
        kind, name, _ = token
        if kind == "start":
            self._is_phrase &= name in _PHRASES | {"br"} or bool(_FOREIGN & {*self.kept} - {name})
            while self.kept and name in _ENDED_BY.get(self.kept[-1], ()):
                self.kept.pop()
            if not self.kept:
                return False
            if name not in _VOID and not self._is_empty(token):
                self.kept.append(name)
        elif kind == "end" and name in self.kept:
            at = len(self.kept) - 1 - self.kept[::-1].index(name)
            if at < len(self.kept) - 1 and not _FOREIGN & {*self.kept}:
                self._is_phrase = self.is_sound = False
            del self.kept[at:]
        elif kind == "end":
            self._is_phrase = self.is_sound = False
            if self.around[name] and not (name in INLINE and {*self.kept} - INLINE):
                self.kept = []  # of an element around it
                return False
        return True

    def _is_empty(self, token):
        foreign = token.name in _FOREIGN or _FOREIGN & {*self.kept}
        return token.raw.endswith("/>") and (self.is_xml or bool(foreign))

    def _count(self, token):
        """Keeps `around`."""
        if token.kind == "start" and token.name not in _VOID and not self._is_empty(token):
            self.around[token.name] += 1
            if token.name in _ENDED_BY["p"]:
                self.around["p"] = int(token.name == "p")
        elif token.kind == "end" and self.around[token.name]:
            self.around[token.name] -= 1

    def _scan(self, page, begin):
        """The tokens of a page, those of elements that stay too; neighbouring texts are one."""
        text = begin  # where the text that is being read begins
        while begin < len(page):
            kind, name, raw = self._next(page, begin)
            if kind != "text":
                if text < begin:
                    yield Token("text", "", page[text:begin])
                yield Token(kind, name, raw)
                text = begin + len(raw)
            begin += len(raw)
            if name == "title" and kind == "start" and not (self.is_xml or self.kept):
                begin = _title_end(page, begin)
        if text < begin:
            yield Token("text", "", page[text:begin])

    def _next(self, page, begin):
        """The token that begins at a place; a text may go on behind it."""
        match = self.is_xml and _ONLY_IN_XML.match(page, begin)
        match = match or _TOKEN.match(page, begin)
        if match.lastgroup == "template":
            if kind := template_kind(match[0]):
                return kind, "", match[0]
            match = _PLAIN.match(page, begin)
        kind, raw = match.lastgroup, match[0]
        if kind == "raw":
            tag = _TAG.match(page, begin)[0]
            return "block", "", tag if self.is_xml and tag.endswith("/>") else raw
        return kind, match[kind].lower() if kind in ("start", "end") else "", raw


def _title_end(page, begin):
    """Where the text of a title ends, which holds no tags."""
    match = re.compile(r"</title[\s/>]", re.I).search(page, begin)
    return match.start() if match else len(page)


def template_kind(raw: str) -> str:
    """What a placeholder of a template is in a page, for whose parser it is text and tags.

    Returns:
        "unit", if it may be moved; "comment", as which PHP is read; "block", if it has tags that
        stay where they are; "" if it is none, as tags of the page begin or end in it.
    """
    rest = re.sub(r"\A<\?[^>]*>", "", raw)
    kind = "unit" if len(rest) == len(raw) else "comment"
    opened: list[str] = []
    for match in _PLAIN.finditer(rest):
        name = match.lastgroup in ("start", "end") and match[match.lastgroup].lower()
        if match.lastgroup != "text" and not match[0].endswith(">"):
            return ""
        if match.lastgroup == "start" and name in INLINE:
            opened.append(name)
        elif match.lastgroup == "end" and opened and opened[-1] == name:
            opened.pop()
        elif match.lastgroup != "text":
            if raw[0] != "<":
                return ""
            kind = "block"
    return "block" if opened else kind


def _is_kept(token):
    attributes = {
        match[1].lower(): _value(match[3])
        for match in _ATTRIBUTE.finditer(token.raw, 1 + len(token.name))
    }
    off = attributes.get("translate", "").lower() == "no"
    return off or token.name in _KEPT or "notranslate" in attributes.get("class", "").split()


def pieces_of_token(token: Token, page: Page) -> Iterator[Piece]:
    """The pieces that a token is; the texts in its attributes are translated."""
    kind, name, raw = token
    if kind == "text":
        yield from pieces_of(_atoms(raw), page.pattern)
    elif kind == "empty":
        yield Piece("kept" if name in _PHRASES else "block", _tag(token, page), name=name)
    elif name in INLINE:
        yield Piece("open" if kind == "start" else "close", _tag(token, page), name=name)
    elif kind == "start":
        yield Piece("kept" if name in _ALONE else "block", _tag(token, page), name=name)
    else:
        yield Piece("block" if kind == "end" else kind, raw)


def _atoms(raw):
    """What a page writes, in parts: as it is read, and as it stands there."""
    atoms, at = [], 0
    for match in _ENTITY.finditer(raw):
        atoms += [(raw[at : match.start()],) * 2, (html.unescape(match[0]), match[0])]
        at = match.end()
    return [*atoms, (raw[at:],) * 2]


def _tag(token, page):
    """A tag, whose attributes are translated where they are text."""
    if token.kind == "end":
        return token.raw
    begin = 1 + len(token.name)

    def attribute(match):
        name, equals, value = match.groups()
        is_own = match.start() and token.raw[begin + match.start() - 1] in " \t\r\n\f/"
        if not (is_own and value and name.lower() in _ATTRIBUTES):
            return match[0]
        quote = value[0] if value[0] in "'\"" else ""
        content = value[1:-1] if quote else value
        quote = quote or '"'
        if quote in content:  # in the code of a template: for the page, the value ends there
            return match[0]
        said = translate_pieces(
            pieces_of(_atoms(content), page.pattern),
            page.say,
            lambda text: page.encode(text).replace(quote, f"&#{ord(quote)};"),
        )
        return match[0] if said == content else f"{name}{equals}{quote}{said}{quote}"

    return token.raw[:begin] + _ATTRIBUTE.sub(attribute, token.raw[begin:])


def _value(raw):
    """The text of an attribute, of which a page may write the value in quotes."""
    raw = raw or ""
    return html.unescape(raw[1:-1] if raw[:1] in ('"', "'") else raw)


def _settled(pieces, is_xml, is_sound):
    """Pieces whose comments may move, or not.

    Where a tag lacks its partner, a parser of HTML opens elements again at the next text, but not
    at a comment; and at the top of a page, it puts a comment elsewhere than a text.
    """
    is_sound, is_flow = is_sound and _all_paired(pieces), False
    for piece in pieces:
        if piece.kind == "comment":
            moves = is_xml or (is_sound and is_flow)
            piece = piece._replace(kind="kept" if moves else "block")
        elif piece.kind == "block":
            is_flow = piece.name in _FLOW
        yield piece


def _all_paired(pieces):
    """Whether each tag of an inline element has its partner between the same blocks."""
    opened: list[str] = []
    for piece in pieces:
        if piece.kind == "open":
            opened.append(piece.name)
        elif piece.kind == "close":
            if not opened or opened.pop() != piece.name:
                return False
        elif piece.kind == "block" and opened:
            return False
    return not opened
