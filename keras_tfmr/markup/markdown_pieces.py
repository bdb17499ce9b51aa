"""The pieces of the text of a block of Markdown: what is translated, and what stays beside it."""

import itertools
import re
from collections.abc import Iterator

from keras_tfmr.markup import html_page
from keras_tfmr.markup.github import LINK, TEMPLATE
from keras_tfmr.markup.inline import Piece, has_words, pieces_of

# Text for CommonMark, but footnotes, check boxes and the like for others.
BRACKETS = r"\[(?: |[^\]\s]*)\]:?"
IN_BRACKETS = re.compile(BRACKETS)
# What makes a line of its own for others, and what makes a line that ends with it.
_MARK = re.compile(
    r"\[\^[^\]\s]+\]:[ \t]*|\[![A-Za-z]+\]|:::+[ \t]*[\w-]*|:[ \t]+|(?:!!!|\?\?\?)\+?[ \t]*[\w-]*"
    r"|\*\[[^\]]+\]:|\$\$|\{(?::|[.#](?!if|each))[^{}]*\}|\[\[?_?TOC_?\]\]?|\|"
)
# A line end in the text of a block, which stays one: U+F000 is the first, and so on.
FIRST, MOST = 0xF000, 0x800
LINE_END = "[\uf000-\uf7ff]"


class Pieces:
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
                self.hard.add(chr(FIRST + i - 1))
            if mark:
                at = begin + line.index(text)
                self.children.append(((at, at + mark.end()), None))
            begin += len(line) + 1
        self.content = "".join(line + chr(FIRST + min(i, MOST)) for i, line in enumerate(lines))[
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
        for part in re.split(f"({LINE_END})", text):
            if part:
                self.atoms.append((" " if re.match(LINE_END, part) else part, part))

    def _flushed(self):
        """The pieces of the text that has been read."""
        atoms, self.atoms = self.atoms, []
        for is_hard, group in itertools.groupby(atoms, lambda atom: atom[1] in self.hard):
            if is_hard:
                yield from (Piece("block", raw) for _, raw in group)
                continue
            for piece in pieces_of([*group], self.page.pattern):
                if piece.kind == "unit" and IN_BRACKETS.fullmatch(piece.raw):
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
                re.search(LINE_END, raw) or self._is_line(child.meta["at"])
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
        return all(not end or re.match(LINE_END, end) for end in ends)

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
