"""Markdown: which parts of a page are text; everything else stays byte for byte.

Only the texts of blocks are written anew, and each of them is read again: it must hold what it held
before, every protected span whole, and its texts the characters that they should. So a text is
escaped only where it would otherwise be read as something else. In the end the page is read again:
a block that would be another one within it is left as it was, and named.
"""

import bisect
import collections
import itertools
import re
from collections.abc import Iterator

from keras_tfmr.markup import html_page
from keras_tfmr.markup.github import (
    TEMPLATE,
    characters,
    is_ambiguous,
    outline,
    parsed,
    parser,
    structure,
)
from keras_tfmr.markup.inline import (
    Part,
    Say,
    has_words,
    pieces_of,
    translate_pieces,
    translated,
    write,
)  # fmt: skip
from keras_tfmr.markup.markdown_pieces import FIRST, IN_BRACKETS, LINE_END, MOST, Pieces

_FRONT_MATTER = re.compile(
    r"\A\ufeff?(?:---[ \t]*\r?\n.*?^(?:---|\.\.\.)|\+\+\+[ \t]*\r?\n.*?^\+\+\+)[ \t]*\r?$",
    re.S | re.M,
)
_CELLS = ("td_open", "th_open")
_LINE_ENDS = re.compile(r"(?<=\n)|(?<=\r)(?!\n)")
# To some programs, the title of the reference above.
_TITLE = re.compile(r"""\s*["'(]""")
_TRIES = 8  # to write a page, each with a block more that stays; then all of them stay
# What would not be text; what would begin a block.
_SPECIAL = re.compile(r"[\\`*<[~]|(?<!\w)_|_(?!\w)|&(?=#?\w+;)|#(?=#*\Z)|:(?=//)|(?<=www)\.", re.I)
_BLOCK = re.compile(r"\A(\s*)(\d{1,9}(?=[.)])|(?=[-+=#>:|]))")


def translate_page(page: str, say: Say, pattern: re.Pattern[str], left: dict[int, str]) -> str:
    """A page whose texts are translated.

    Args:
        page: Markdown.
        say: Translates a text.
        pattern: What is protected.
        left: Is given the texts that stay, as no translation can be written in their places, by the
            numbers of their lines.
    """
    reader = _Page(page, say, pattern)
    while True:
        text = "".join(reader.translated())
        stays = None if text == page else reader.changed(text)
        if stays is None:
            first = 1 + page.count("\n", 0, reader.start)
            left.update((first + line, stays) for line, stays in reader.left.items())
            return text
        reader.stays.append(stays)
        if len(reader.stays) == _TRIES:  # as a page that an own pattern of protection spoils
            reader.stays = [*range(len(reader.offsets))]


class _Page:
    """A page that is being translated.

    Attributes:
        stays: The lines at which the blocks begin that stay as they are.
        left: The texts of blocks that could not be written otherwise, by their lines.
        written: The lines at which the other ones begin, if they are translated.
    """

    def __init__(self, page, say, pattern):
        self.page, self.say, self.pattern = page, say, pattern
        front = _FRONT_MATTER.match(page)
        self.start = front.end() if front else int(page.startswith("\ufeff"))
        lines = map(len, _LINE_ENDS.split(page[self.start :]))
        self.offsets = [*itertools.accumulate(lines, initial=self.start)]
        self.env, self.style = {"protected": pattern}, html_page.style_of(page)
        self.stays: list[int] = []
        self.left: dict[int, str] = {}
        self.written: list[int] = []
        self.html = html_page.Page(say, pattern, html_page.encoder(page))

    def translated(self) -> Iterator[str]:
        """The parts of the page."""
        at, before, reader, self.written = 0, None, html_page.Reader(), []
        for token in parsed(_legible(self.page[self.start :]), self.env, whole=True):
            stays = bool(reader.kept)
            if token.type == "html_block":
                begin, end = (self.offsets[line] for line in token.map)
                collections.deque(reader.tokens(self.page[begin:end]), 0)
                if not (token.level or stays):
                    yield self.page[at:begin]
                    yield self._noted(token, self._html, self.page[begin:end])
                    at = end
            elif stays and token.type == "inline":
                for child in token.children:
                    if child.type == "html_inline":
                        collections.deque(reader.tokens(child.content), 0)
            elif token.type == "inline" and has_words(token.content):
                places = self._places(token, at if before.type in _CELLS else None)
                if places is None:
                    self.left[token.map[0]] = token.content
                else:
                    yield self.page[at : places[0][0]]
                    source = self.page[places[0][0] : places[-1][1]]
                    yield self._noted(token, self._block, source, token, places, before)
                    at = places[-1][1]
            elif token.type == "code_block" and self._follows_reference(token):
                # To some programs, a paragraph, which goes on.
                rest = self.page[self.offsets[token.map[0]] :]
                count = sum(1 for _ in itertools.takewhile(str.strip, _LINE_ENDS.split(rest)))
                self.stays += range(token.map[0], token.map[0] + count)
            before = token
        yield self.page[at:]

    def changed(self, page) -> int | None:
        """The line of a block without which a translated page might be as this one; None if it is.

        Blocks are read one by one when they are written; here, what they are in their page.
        """
        had, has = (
            outline(parsed(_legible(text[self.start :]), env), env, self.pattern)
            for text, env in ((self.page, {}), (page, {}))
        )
        line = 0
        for before, after in itertools.zip_longest(had, has):
            line = before.line if before else line
            if not (before and after and before.held == after.held and before.spans <= after.spans):
                return max((n for n in self.written if n <= line), default=self.written[-1])
        return None

    def _follows_reference(self, token):
        line = token.map[0]
        return bool(line) and "]:" in self.page[self.offsets[line - 1] : self.offsets[line]]

    def _noted(self, token, translate, source, *how):
        """The text of a block: translated, or as it is where that cannot be written."""
        line = token.map[0]
        text = None if line in self.stays else translate(source, *how)
        if text is None:
            self.left[line] = source
            return source
        if text != source:
            self.written.append(line)
        return text

    def _html(self, block):
        """A block of HTML, translated; None if it would be no block of HTML any more."""
        for whole in (True, False):
            text = html_page.translate_page(block, self.say, self.pattern, whole)
            if text == block or _kinds(text) == _kinds(block):
                return text
        return None

    def _places(self, token, after):
        """Where each line of a block's text stands, `after` the cell before in a table.

        Marks of lists and quotations stand before a line. None if a line is not found.
        """
        lines = [line.strip(" \t") for line in token.content.split("\n")]
        first = token.map[0]
        if after is not None:
            text = lines[0].replace("|", r"\|")
            begin = self.page.find(text, max(after, self.offsets[first]))
            row = self.page[self.offsets[first] : self.offsets[first + 1]]
            for code in TEMPLATE.finditer(row):  # of which a part may be in another cell
                start, end = (self.offsets[first] + place for place in code.span())
                if re.search(r"(?<!\\)\|", code[0]) and start < begin + len(text) and begin < end:
                    return None
            return [(begin, begin + len(text))] if begin >= 0 else None
        # The parser leaves out first lines of nothing but odd spaces.
        for left_out in range(max(1, token.map[1] - first - len(lines) + 1)):
            places = [self._place(first + left_out + i, text) for i, text in enumerate(lines)]
            if all(places):
                return places
        return None

    def _place(self, line, text):
        if line + 1 >= len(self.offsets):
            return None
        begin, end = self.offsets[line], self.offsets[line + 1]
        at = _legible(self.page[begin:end]).rfind(text)
        return (begin + at, begin + at + len(text)) if at >= 0 else None

    def _block(self, source, token, places, opening):
        """The text of a block, translated; None if anything would change what else is in it."""
        ends = [self.page[a[1] : b[0]] for a, b in itertools.pairwise(places)]
        if len(ends) > MOST or re.search(LINE_END, source):
            return None
        block = Pieces(token, self)
        pieces = [*block]
        before = self._structure(token.content, opening)
        follows = self._follows_reference(token)
        if before is None or self._is_torn(token.content) or (follows and _TITLE.match(source)):
            return None
        own = before.characters - _characters(pieces)
        for whole, escaped in ((True, False), (True, True), (False, True)):
            parts = translated(pieces, self.say, whole, strict=escaped)
            if not block.is_changed and all(part.raw is not None for part in parts):
                return source
            long = write(
                self._escaped(parts) if escaped else parts,
                lambda said: self._encode(said, block.escapes),
            )
            for text in dict.fromkeys([block.short(long), long]):
                after = self._structure(re.sub(LINE_END, "\n", text), opening)
                if (
                    after
                    and after.held == before.held
                    and after.characters == own + _characters(parts)
                    and before.spans <= after.spans
                    and not (follows and _TITLE.match(text))
                ):
                    text = _in_cell(text) if opening.type in _CELLS else text
                    kept = rf"[ \t]*({LINE_END})[ \t]*"
                    return re.sub(kept, lambda match: ends[ord(match[1]) - FIRST], text)
        return None

    def _is_torn(self, text):
        """Whether an element of a text begins in a protected span and ends outside it, or so."""
        spans, at = [], 0
        while match := self.pattern.search(text, at):
            if IN_BRACKETS.fullmatch(match[0]):
                at = match.start() + 1  # they may be those of a link
            else:
                at = max(match.end(), at + 1)
                inner = match[0].strip("*_~")
                begin = match.start() + match[0].index(inner)
                spans += [begin, begin + len(inner)]
        opened: list[int] = []
        for child in parser().parseInline(text, self.env)[0].children:
            place = "at" in child.meta and bisect.bisect(spans, child.meta["at"][0])
            if child.nesting > 0:
                opened.append(place)
            elif child.nesting < 0 and (place != opened[-1] and (place % 2 or opened[-1] % 2)):
                return True
            elif child.nesting < 0:
                opened.pop()
        return False

    def _structure(self, text, opening):
        """What a block's text holds, read by itself; None if it is not one block."""
        before, after = "", ""
        if opening.type == "heading_open":
            is_atx = opening.markup[0] == "#"
            before, after = ("# ", "") if is_atx else ("", f"\n{opening.markup * 3}")
        elif opening.type in _CELLS:
            before, text, after = "|x|\n|-|\n|", _in_cell(text), "|"
        references = self.env.setdefault("references", {})
        count = len(references)
        tokens = parsed(f"{before}{text}{after}", self.env)
        is_one = len(references) == count
        while len(references) > count:
            references.popitem()
        kinds = [token.type for token in tokens if not token.type.startswith(("t", "inline"))]
        wanted = [opening.type, opening.type.replace("open", "close")]
        texts = [token for token in tokens if token.type == "inline"]
        is_one &= kinds == ([] if opening.type in _CELLS else wanted)
        is_one &= len(texts) == (2 if opening.type in _CELLS else 1)
        is_one = is_one and not is_ambiguous(texts[-1])
        return structure(texts[-1], self.pattern) if is_one else None

    def _encode(self, text, escapes=frozenset()):
        """A text as the page writes it: its entities, and what the block escapes."""
        style = {character: f"\\{character}" for character in escapes} | self.style
        return "".join(style.get(character, character) for character in text)

    def _escaped(self, parts):
        """Parts in which nothing that a translator says is more than text."""
        begins = True  # a line
        for part in parts:
            raw = part.raw
            if raw is None:
                raw = _SPECIAL.sub(
                    lambda match: ("" if match[0] in self.style else "\\") + match[0], part.text
                )
                raw = self._encode(_BLOCK.sub(r"\1\2\\", raw) if begins else raw)
            yield Part(raw)
            begins = bool(re.search(rf"{LINE_END}\s*\Z", raw)) or (begins and not raw.strip())

    def label(self, text):
        """The label of a picture, translated unless there is markup in it."""
        if _SPECIAL.search(text) or re.search(LINE_END, text):
            return text
        pieces = pieces_of([(text, text)], self.pattern)
        return translate_pieces(pieces, self.say, lambda said: _SPECIAL.sub(r"\\\g<0>", said))


def _legible(page):
    """A page as the parser reads it, of the same length."""
    return page.replace("\0", "\ufffd")


def _in_cell(text):
    return text.replace("|", r"\|")


def _characters(parts):
    return characters("".join(part.text for part in parts))


def _kinds(text):
    return [token.type for token in parsed(text, {})]
