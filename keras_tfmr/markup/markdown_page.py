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
    LINK,
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
    Piece,
    Say,
    has_words,
    pieces_of,
    translate_pieces,
    translated,
    write,
)  # fmt: skip

_FRONT_MATTER = re.compile(
    r"\A\ufeff?(?:---[ \t]*\r?\n.*?^(?:---|\.\.\.)|\+\+\+[ \t]*\r?\n.*?^\+\+\+)[ \t]*\r?$",
    re.S | re.M,
)
_CELLS = ("td_open", "th_open")
_LINE_ENDS = re.compile(r"(?<=\n)|(?<=\r)(?!\n)")
# Text for CommonMark, but footnotes, check boxes and the like for others.
BRACKETS = r"\[(?: |[^\]\s]*)\]:?"
_BRACKETS = re.compile(BRACKETS)
# What makes a line of its own for others, and what makes a line that ends with it.
_MARK = re.compile(
    r"\[\^[^\]\s]+\]:[ \t]*|\[![A-Za-z]+\]|:::+[ \t]*[\w-]*|:[ \t]+|(?:!!!|\?\?\?)\+?[ \t]*[\w-]*"
    r"|\*\[[^\]]+\]:|\$\$|\{(?::|[.#](?!if|each))[^{}]*\}|\[\[?_?TOC_?\]\]?|\|"
)
# A line end in the text of a block, which stays one: U+F000 is the first, and so on.
_FIRST, _MOST = 0xF000, 0x800
# To some programs, the title of the reference above.
_TITLE = re.compile(r"""\s*["'(]""")
_TRIES = 8  # to write a page, each with a block more that stays; then all of them stay
_LINE_END = "[\uf000-\uf7ff]"
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
        if len(ends) > _MOST or re.search(_LINE_END, source):
            return None
        block = _Pieces(token, self)
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
                after = self._structure(re.sub(_LINE_END, "\n", text), opening)
                if (
                    after
                    and after.held == before.held
                    and after.characters == own + _characters(parts)
                    and before.spans <= after.spans
                    and not (follows and _TITLE.match(text))
                ):
                    text = _in_cell(text) if opening.type in _CELLS else text
                    kept = rf"[ \t]*({_LINE_END})[ \t]*"
                    return re.sub(kept, lambda match: ends[ord(match[1]) - _FIRST], text)
        return None

    def _is_torn(self, text):
        """Whether an element of a text begins in a protected span and ends outside it, or so."""
        spans, at = [], 0
        while match := self.pattern.search(text, at):
            if _BRACKETS.fullmatch(match[0]):
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
            begins = bool(re.search(rf"{_LINE_END}\s*\Z", raw)) or (begins and not raw.strip())

    def label(self, text):
        """The label of a picture, translated unless there is markup in it."""
        if _SPECIAL.search(text) or re.search(_LINE_END, text):
            return text
        pieces = pieces_of([(text, text)], self.pattern)
        return translate_pieces(pieces, self.say, lambda said: _SPECIAL.sub(r"\\\g<0>", said))


class _Pieces:
    """The pieces of a block's text, for which an iterator is made.

    Args:
        token: Its token.
        page: The page that it is in.
    """

    def __init__(self, token, page):
        self.page, self.atoms, self.hard = page, [], set()
        self.named, self.is_changed = [], False
        self.escapes = {
            child.content for child in token.children if child.markup == f"\\{child.content}"
        }
        lines = token.content.split("\n")
        self.content, begin = "", 0
        self.children = [
            (child.meta["at"], child) for child in token.children if "at" in child.meta
        ]
        alone = False
        for i, line in enumerate(lines):
            text = line.strip(" \t")
            mark, was_alone = _MARK.match(text), alone
            heads = mark and (
                mark[0].strip() == text or (mark[0][0] in "!?:" and mark[0][1] != " ")
            )
            alone = bool(heads or TEMPLATE.fullmatch(text))
            # HTML may end the list or quotation that it does not stand in.
            leaves = token.level > 1 and text.startswith("<")
            if i and (mark or alone or was_alone or leaves):
                self.hard.add(chr(_FIRST + i - 1))
            if mark:
                at = begin + line.index(text)
                self.children.append(((at, at + mark.end()), None))
            begin += len(line) + 1
        self.content = "".join(line + chr(_FIRST + min(i, _MOST)) for i, line in enumerate(lines))[
            :-1
        ]

    def __iter__(self) -> Iterator[Piece]:
        at = 0
        for (begin, end), child in sorted(
            self.children, key=lambda place: (place[0], place[1] is not None)
        ):
            kind = child.type if child else "mark"
            begin, end = begin - (kind == "strong_open"), end + (kind == "strong_close")
            if begin < at or kind in ("text", "softbreak"):  # in what is kept; no tag
                continue
            if kind == "hardbreak":
                begin = len(self.content[at:begin].rstrip(" ")) + at
            self._add(self.content[at:begin])
            raw = self.content[begin:end]
            if kind == "text_special":  # escaped
                self.atoms.append((child.content, raw))
            else:
                yield from self._flushed()
                if kind == "html_inline":
                    token = next(html_page.Reader().tokens(self.content, begin))
                    end = max(end, begin + len(token.raw))
                    yield from self._html(token, self.content[begin:end])
                elif kind == "template_link":
                    opening, label, closing = LINK.fullmatch(raw).groups()
                    yield Piece("open", opening, name=kind)
                    self._add(label)
                    yield from self._flushed()
                    yield Piece("close", closing, name=kind)
                else:
                    yield self._piece(kind, child, raw)
            at = end
        self._add(self.content[at:])
        yield from self._flushed()

    def _add(self, text):
        for part in re.split(f"({_LINE_END})", text):
            if part:
                self.atoms.append((" " if re.match(_LINE_END, part) else part, part))

    def _flushed(self):
        """The pieces of the text that has been read."""
        atoms, self.atoms = self.atoms, []
        for is_hard, group in itertools.groupby(atoms, lambda atom: atom[1] in self.hard):
            if is_hard:
                yield from (Piece("block", raw) for _, raw in group)
                continue
            for piece in pieces_of([*group], self.page.pattern):
                if piece.kind == "unit" and _BRACKETS.fullmatch(piece.raw):
                    stays = piece.raw in ("[ ]", "[x]", "[X]") or piece.raw.endswith(":")
                    piece = Piece("block" if stays else "kept", piece.raw)
                yield piece

    def _html(self, token, raw):
        for piece in html_page.pieces_of_token(token, self.page.html):
            longer = raw.removeprefix(token.raw)  # for what is cut off in the middle
            kind = "block" if piece.kind == "comment" else piece.kind
            self.is_changed |= piece.kind != "text" and piece.raw != token.raw
            yield piece._replace(kind=kind, raw=piece.raw + longer)

    def _piece(self, kind, child, raw):
        """The piece that a token is."""
        name, _, side = kind.rpartition("_")
        if kind in ("address", "template") or (child and child.markup == "autolink"):
            is_line = kind == "template" and (
                re.search(_LINE_END, raw) or self._is_line(child.meta["at"])
            )
            return Piece("block" if is_line else "unit", raw)
        if kind in ("mark", "hardbreak"):
            return Piece("block", raw)
        if kind == "image":
            end = 2 + len(child.content)
            label = self.page.label(raw[2:end])
            self.is_changed |= label != raw[2:end]
            return Piece("kept", f"![{label}{self._named(child, raw[end:])}")
        if kind == "link_close":
            return Piece("close", self._named(child, raw), name=name)
        return Piece(side, raw, name=name) if side in ("open", "close") else Piece("kept", raw)

    def _is_line(self, at):
        before, after = self.content[: at[0]].rstrip(" \t"), self.content[at[1] :].lstrip(" \t")
        ends = before[-1:], after[:1]
        return all(not end or re.match(_LINE_END, end) for end in ends)

    def _named(self, child, rest):
        """The end of a link or picture whose label names its address: which names it behind."""
        label = child.content.replace("\n", " ")
        if rest not in ("]", "][]") or not has_words(label):
            return rest
        self.named.append((f"[{label}][{label}]", f"[{label}{rest}"))
        return f"][{label}]"

    def short(self, text):
        """A text in which labels that are as they were name their addresses alone, as before."""
        for long, short in self.named:
            text = text.replace(long, short)
        return text


def _legible(page):
    """A page as the parser reads it, of the same length."""
    return page.replace("\0", "\ufffd")


def _in_cell(text):
    return text.replace("|", r"\|")


def _characters(parts):
    return characters("".join(part.text for part in parts))


def _kinds(text):
    return [token.type for token in parsed(text, {})]
