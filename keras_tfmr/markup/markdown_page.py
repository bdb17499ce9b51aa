"""Markdown: which parts of a page are text; everything else stays byte for byte.

markdown-it-py tells the lines of each block. Its rules for what stands within lines are wrapped, so
that their tokens tell their places, too.
"""

import collections
import functools
import itertools
import re
from collections.abc import Iterator

from markdown_it import MarkdownIt

from keras_tfmr.markup import html_page
from keras_tfmr.markup.inline import Piece, Say, has_words, translate_pieces, translate_text

_FRONT_MATTER = re.compile(r"\A(---|\+\+\+)[ \t]*\r?\n.*?^\1[ \t]*\r?$", re.S | re.M)
_LINE_ENDS = re.compile(r"(?<=\n)|(?<=\r)(?!\n)")
_PARAGRAPH = ["paragraph_open", "inline", "paragraph_close"]
# Text for CommonMark, but footnotes, check boxes and the like for others.
_BRACKETS = re.compile(r"(\[(?: |[^\]\s]*)\]:?)")
# What would not be text; what would begin a block.
_SPECIAL = re.compile(r"[\\`*<[~]|(?<!\w)_|_(?!\w)|&(?=#?\w+;)")
_BLOCK = re.compile(r"\A(\d{1,9}(?=[.)]\s)|(?=(?:[+-]|#+)\s|>))")


def translate_page(page: str, say: Say) -> str:
    """A page whose texts are translated."""
    start = match.end() if (match := _FRONT_MATTER.match(page)) else 0
    lines = map(len, _LINE_ENDS.split(page[start:]))
    offsets = [*itertools.accumulate(lines, initial=start)]
    found, at, before, env = [], 0, "", {}
    # Without a last line end, markdown-it-py 4 raises an IndexError on some pages.
    for token in _parser().parse(page[start:] + "\n", env):
        if token.type == "html_block" and not token.level:
            begin, end = (offsets[line] for line in token.map)
            found += [page[at:begin], _translate_html(page[begin:end], say)]
            at = end
        elif token.type == "inline" and has_words(token.content):
            cell = before in ("td_open", "th_open")
            places = [*_places(page, token, offsets, at if cell else None)]
            text = _translate_block(token, say, env)
            text = text.replace("|", r"\|") if cell else text
            if len(places) > 1:  # line ends in the text are hard breaks; now with what is before it
                text = text.replace("\n", page[places[0][1] : places[1][0]].lstrip(" \t"))
            found += [page[at : places[0][0]], text]
            at = places[-1][1]
        before = token.type
    return "".join([*found, page[at:]])


def _translate_html(block, say):
    """A block of HTML, which is kept as it is if it would be no block of HTML any more."""
    for whole in (True, False):
        text = html_page.translate_page(block, say, whole)
        if _kinds(text) == _kinds(block):
            return text
    return block


def _kinds(text):
    return [token.type for token in _parser().parse(text)]


def _places(page, token, offsets, after):
    """The offsets of each line of a block's text, `after` that of the cell before in a table."""
    for i, text in enumerate(token.content.split("\n"), token.map[0]):
        text = text.strip()
        if after is None:  # marks of lists and quotations stand before it
            begin = page.rindex(text, offsets[i], offsets[i + 1])
        else:
            text = text.replace("|", r"\|")
            begin = page.index(text, max(after, offsets[i]))
        yield begin, begin + len(text)


def _translate_block(token, say, env):
    """The text of a block, which is kept as it is if all else would change what is in it."""
    for whole in (True, False):
        text = translate_pieces(_pieces(token, say), say, _encode, whole)
        text = _BLOCK.sub(r"\1\\", text)
        parsed = _parser().parse(text, {**env})
        is_one = [each.type for each in parsed] == _PARAGRAPH
        if is_one and _structure(parsed[1]) == _structure(token):
            return text
    return token.content


def _structure(token):
    """What is in a block apart from text."""
    return collections.Counter(
        (child.type, str(child.attrs), child.content if child.type == "code_inline" else "")
        for child in token.children
        if child.type not in ("text", "text_special", "softbreak")
    )


def _encode(text):
    return _SPECIAL.sub(r"\\\g<0>", text).replace("\xa0", "&nbsp;")


@functools.cache
def _parser():
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable("text_join")
    rules = parser.inline.ruler
    for name, rule in zip(rules.get_active_rules(), rules.getRules(""), strict=True):
        rules.at(name, _placed(name, rule))
    return parser


def _placed(name, rule):
    """A rule whose tokens tell where they stand: `meta["at"]` is (begin, end)."""

    def placed(state, silent):
        begin, count = state.pos, len(state.tokens) + bool(state.pending)
        if not rule(state, silent):
            return False
        tokens, end = state.tokens[count:], state.pos
        if silent or not tokens:
            return True
        if name in ("emphasis", "strikethrough"):  # delimiters in a row
            for token in tokens:
                token.meta["at"] = begin, begin + len(token.content)
                begin += len(token.content)
        elif name == "link":
            closes = state.md.helpers.parseLinkLabel(state, begin)
            tokens[0].meta["at"], tokens[-1].meta["at"] = (begin, begin + 1), (closes, end)
            tokens[-1].content = state.src[begin + 1 : closes]  # its label, as images have theirs
        else:
            tokens[0].meta["at"] = begin, end
        return True

    return placed


def _pieces(token, say) -> Iterator[Piece]:
    """The pieces of a block's text."""
    content, at = token.content.replace("\n", " "), 0
    children = [child for child in token.children if "at" in child.meta]
    for child in sorted(children, key=lambda child: child.meta["at"]):
        begin, end = child.meta["at"]
        begin, end = begin - (child.type == "strong_open"), end + (child.type == "strong_close")
        if begin < at or child.type in ("text", "softbreak"):  # in what is kept; no tag
            continue
        yield from _texts(content[at:begin])
        if child.type == "html_inline":
            kind, name, raw = next(html_page.tokens_of(content[begin:]))
            end = max(end, begin + len(raw))
            yield html_page.piece(kind, name, content[begin:end], say)
        else:
            yield _piece(child, content[begin:end], say)
        at = end
    yield from _texts(content[at:])


def _texts(text):
    for i, part in enumerate(_BRACKETS.split(text)):
        if i % 2:  # check boxes and the labels of notes stay where they are
            stays = part in ("[ ]", "[x]", "[X]") or part.endswith(":")
            yield Piece("block" if stays else "kept", part)
        elif part:
            yield Piece("text", part)


def _piece(child, raw, say):
    """The piece that a token is."""
    name, _, side = child.type.rpartition("_")
    if child.type == "text_special":  # escaped
        return Piece("text", child.content)
    if child.type == "hardbreak":
        return Piece("block", raw.strip(" ") + "\n")
    if child.type in ("image", "link_close"):
        label = child.content.replace("\n", " ")
        rest = raw.removeprefix(f"![{label}")
        if rest in ("]", "][]") and has_words(label):  # it names its address
            rest = f"][{label}]"
        if side == "close":
            return Piece("close", rest, name)
        alt = label if _SPECIAL.search(label) else _encode(translate_text(label, say))
        return Piece("kept", f"![{alt}{rest}")
    if side in ("open", "close") and child.markup != "autolink":
        return Piece(side, raw, name)
    return Piece("kept", raw)
