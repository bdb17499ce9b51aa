"""Text with inline tags to text for a translator, and its answer to text with the same tags.

In `Clique <b>aqui</b>, {nome}!`, characters for private use stand in for the tags and for what is
protected. A translator with slots returns each of them once, anywhere. If they do not come back,
the texts between them are translated one by one.

What is protected never reaches the translator: it is copied from the page as one unit, so that
nothing can be within it, and `apart` keeps words from joining it.
"""

import bisect
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Say = Callable[[str], str]  # from a text to its translation
Encode = Callable[[str], str]  # from a text to how a page writes it

_DEPTH = 64  # of elements in elements that are moved
_MOST = 0x1000  # stand-ins
_STAND_INS = "\ue000-\uefff"  # a translator with slots protects them all
_SPACE = " \t\r\n\f"
# No page may have them, but a model may.
_CONTROLS = re.compile(r"[\0-\x08\x0b\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_CLOSING = "].,;:!?…)}»”’"  # in this order, also the inside of a pattern's brackets
_ENDS = re.compile(rf"\A[{_CLOSING}\s]+")
_TOKEN = re.compile(rf"([{_SPACE}]*)([{_STAND_INS}]|[^{_SPACE}{_STAND_INS}]+)")
# What a word may have in common with a unit beside it, if the page has something else there.
_BEHIND = re.compile(rf"[{_CLOSING}]+(?:\s|\Z)")
_BEFORE = "([{\"'«“‘¿¡"


class Piece(NamedTuple):
    """A piece of a page.

    Attributes:
        kind: "text"; "open" or "close", a tag of an inline element; "kept", what stays and has a
            place among the words, as code has; "unit", a protected span of a text; "block", which
            no sentence goes across.
        raw: The piece as the page writes it.
        text: Of a text, what it reads as.
        name: The name of an inline element.
    """

    kind: str
    raw: str
    text: str = ""
    name: str = ""


class Part(NamedTuple):
    """A part of a translated page: what the page has, or a text that is not written yet.

    Attributes:
        raw: As the page writes it; None for a text that a translator gave.
        text: Of a text, what it reads as.
        unit: Of a protected span, its `Element`.
    """

    raw: str | None
    text: str = ""
    unit: "Element | None" = None


@dataclass(eq=False)
class Element:
    """An inline element, or what is kept, which has no children and no closing tag.

    Attributes:
        children: Texts and elements; of a page, also its blocks.
        is_unit: Whether it is a protected span.
        gap: The space before it, if it has no children.
        begin, end: Which of the words of the translation are in it.
        order: Of its opening tag among those in the translation.
    """

    opening: str = ""
    name: str = ""
    closing: str = ""
    children: list["Element | Piece"] = field(default_factory=list)
    is_unit: bool = False
    gap: str = ""
    begin: int = 0
    end: int = 0
    order: int = 0

    @property
    def elements(self) -> list["Element"]:
        return [child for child in self.children if isinstance(child, Element)]

    def has_words(self) -> bool:
        """Whether there is anything to translate, apart from what is in its elements."""
        return any(isinstance(child, Piece) and has_words(child.text) for child in self.children)

    def opens(self) -> Part:
        return Part(self.opening, unit=self if self.is_unit else None)

    def tags(self) -> Iterator["tuple[Element, bool] | Piece"]:
        """Its texts and elements in order; of an element, whether it opens, or closes."""
        for child in self.children:
            if isinstance(child, Piece):
                yield child
            else:
                yield child, True
                yield from child.tags()
                if child.closing:
                    yield child, False

    def source(self) -> Iterator[Part]:
        """The parts of what is in it, as the page has them."""
        for tag in self.tags():
            if isinstance(tag, Piece):
                yield Part(tag.raw, tag.text)
            else:
                yield tag[0].opens() if tag[1] else Part(tag[0].closing)


def has_words(text: str) -> bool:
    return any(map(str.isalpha, text))


def pieces_of(atoms: Sequence[tuple[str, str]], pattern: re.Pattern[str]) -> Iterator[Piece]:
    """The pieces of a text: units where a pattern matches, and texts.

    Args:
        atoms: The text in parts: as it is read, and as the page writes it.
        pattern: What is protected.
    """
    text, raw = ("".join(column) for column in zip(*atoms, strict=True)) if atoms else ("", "")
    spans = [match.span() for match in pattern.finditer(text) if match.end() > match.start()]
    places = [0]  # in the page, of each character
    if spans:
        for read, written in atoms:
            end = places[-1] + len(written)
            steps = range(places[-1] + 1, end) if len(read) == len(written) else [end] * len(read)
            places += [*steps[: len(read) - 1], end] if read else []
    at = 0
    for begin, end in [*spans, (len(text), len(text))]:
        if at < begin:
            stays = slice(places[at], places[begin]) if spans else slice(None)
            yield Piece("text", raw[stays], text[at:begin])
        if begin < end:
            yield Piece("unit", raw[places[begin] : places[end]])
        at = end


def translate_text(text: str, say: Say) -> str:
    """A text; white space at both ends is kept, and the end of a sentence at its beginning.

    A text that a translator leaves as it is, or without any word, is returned unchanged.
    """
    if not has_words(text):
        return text
    begin = len(text) - len(_ENDS.sub("", text))
    core = text[begin:].rstrip()
    asked = _one_line(core)
    said = _CONTROLS.sub("\ufffd", say(asked))
    if not re.search(f"[{_STAND_INS}]", asked):
        said = re.sub(f"[{_STAND_INS}]", "", said)
    said = _one_line(said).strip()
    if said == asked or not any(map(str.isalnum, said)):
        return text
    return text[:begin] + said + text[begin + len(core) :]


def _one_line(text):
    return re.sub(f"[{_SPACE}]+", " ", text)


def translate_pieces(pieces: Iterable[Piece], say: Say, encode: Encode, whole: bool = True) -> str:
    """A page, or a part of it: `translated`, written."""
    return write(translated(pieces, say, whole), encode)


def write(parts: Iterable[Part], encode: Encode) -> str:
    """Parts as a page has them; neighbouring texts that a translator gave are one."""
    groups = itertools.groupby(parts, lambda part: part.raw is None)
    return "".join(
        encode("".join(part.text for part in group))
        if is_new
        else "".join(part.raw or "" for part in group)
        for is_new, group in groups
    )


def translated(
    pieces: Iterable[Piece], say: Say, whole: bool = True, strict: bool = False
) -> list[Part]:
    """The parts of a page whose texts are translated.

    Args:
        pieces: Its pieces.
        say: Translates a text.
        whole: Whether tags may be moved; else the texts between them are translated one by one.
        strict: Whether no new punctuation may stand beside a unit, as links go on with some.
    """
    parts: list[Part] = []
    groups = itertools.groupby(tree(pieces).children, _is_block)
    for is_block, group in groups:
        if is_block:
            parts += [Part(piece.raw) for piece in group]
            continue
        element = Element(children=[*group])
        source = [*element.source()]
        answer = inside(element, say, whole)
        parts += source if answer == source else apart(answer, source, strict)
    return parts


def _is_block(child):
    return isinstance(child, Piece) and child.kind == "block"


def tree(pieces: Iterable[Piece]) -> Element:
    """A page as an element. Tags without a partner between the same blocks are blocks, too."""
    stack = [Element()]
    for piece in [*pieces, Piece("block", "")]:
        if piece.kind == "close" and piece.name == stack[-1].name:
            stack.pop().closing = piece.raw
        elif piece.kind == "open" and len(stack) <= _DEPTH:
            stack.append(Element(piece.raw, piece.name))
            stack[-2].children.append(stack[-1])
        elif piece.kind == "text":
            stack[-1].children.append(piece)
        elif piece.kind in ("kept", "unit"):
            stack[-1].children.append(Element(piece.raw, is_unit=piece.kind == "unit"))
        else:
            while len(stack) > 1:
                element = stack.pop()
                stack[-1].children[-1:] = [Piece("block", element.opening), *element.children]
            stack[0].children.append(piece._replace(kind="block"))
    return stack[0]


def inside(element: Element, say: Say, whole: bool) -> list[Part]:
    """What is in an element, translated."""
    if whole and element.elements and element.has_words():
        if (parts := as_one(element, say)) is not None:
            return parts
        whole = False
    parts = []
    for child in element.children:
        if isinstance(child, Element):
            parts += [child.opens(), *inside(child, say, whole)]
            parts += [Part(child.closing)] if child.closing else []
        else:
            said = translate_text(child.text, say)
            parts.append(Part(child.raw if said == child.text else None, said))
    return parts


def as_one(element: Element, say: Say) -> list[Part] | None:
    """What is in an element, from one text; None if its stand-ins do not come back."""
    texts: list[str] = []
    groups: dict[str, list[tuple[Element, bool]]] = {}  # of a stand-in, which is for neighbours
    for tag in element.tags():
        if isinstance(tag, Piece):
            texts.append(tag.text)
        elif texts and texts[-1] in groups:
            groups[texts[-1]].append(tag)
        else:
            texts.append(chr(0xE000 + len(groups)))
            groups[texts[-1]] = [tag]
    text = "".join(texts)
    answer = translate_text(text, say) if len(groups) <= _MOST else ""
    if answer == text:
        return [*element.source()]
    if sorted(re.findall(f"[{_STAND_INS}]", answer)) != [*groups]:
        return None
    tight = {*re.findall(f"([{_STAND_INS}])[{_CLOSING}]", text)}  # no space between
    words: list[str] = []
    gap, last, order = "", "", itertools.count()
    for space, token in _TOKEN.findall(answer):
        gap = "" if last in tight and token[0] in _CLOSING else gap or space
        last = token
        for child, opens in groups.get(token, ()):
            if opens:
                child.begin, child.order = len(words), next(order)
                if not child.children:
                    child.gap, gap = gap, ""
            if not opens or not child.closing:
                child.end = len(words)
        if token not in groups:
            words.append(gap + token)
            gap = ""
    element.end = len(words)
    settle(element, [i for i, word in enumerate(words) if any(map(str.isalnum, word))])
    before, _, after = answer.partition(answer.strip(_SPACE))
    parts = _trimmed(written(element, words, 0, len(words)))[1]
    return [Part(None, before), *parts, Part(None, after)]


def settle(element: Element, real: list[int]) -> None:
    """Puts an element without a word around the next one, else the last; and all around theirs.

    `real` are the numbers of the words that are more than punctuation.
    """
    if real and element.has_words():
        word = real[min(bisect.bisect_left(real, element.begin), len(real) - 1)]
        if not element.begin <= word < element.end:
            element.begin, element.end = word, word + 1
    for child in element.elements:
        settle(child, real)
        element.begin = min(element.begin, child.begin)
        element.end = max(element.end, child.end)


def written(element: Element, words: list[str], begin: int, end: int) -> list[Part]:
    """Words with the elements in this one: all of them, in it, and one after the other."""
    parts: list[Part] = []
    for child in sorted(element.elements, key=lambda child: (child.begin, child.order)):
        first = min(max(child.begin, begin), end)
        last = min(max(child.end, first), end)
        space, content = _trimmed(written(child, words, first, last))
        parts += [Part(None, word) for word in [*words[begin:first], child.gap + space]]
        parts += [child.opens(), *content, Part(child.closing)]
        begin = last
    return parts + [Part(None, word) for word in words[begin:end]]


def _trimmed(parts):
    """The white space with which parts begin, and the parts without it."""
    space, count = "", 0
    for part in parts:
        if part.raw is not None:
            break
        text = part.text.lstrip(_SPACE)
        space += part.text[: len(part.text) - len(text)]
        if text:
            return space, [Part(None, text), *parts[count + 1 :]]
        count += 1
    return space, parts[count:]


def apart(parts: list[Part], source: list[Part], strict: bool) -> list[Part]:
    """Parts with a space wherever a word, or another unit, would join a unit."""
    known = {*_meetings(source)}
    spaced: list[Part] = []
    for part in parts:
        left = spaced[-1] if spaced else Part("")
        meets = [*_meetings([left, part])]
        if meets and not (meets[0] in known or (not strict and _may_meet(left, part))):
            spaced.append(Part(None, " "))
        if part.raw != "" and (part.raw or part.text):
            spaced.append(part)
    return spaced


def _meetings(parts):
    """What stands beside each unit: pairs of units and characters that no space parts.

    A letter or figure stands for all of them.
    """
    parts = [part for part in parts if part.raw or part.text]
    for left, right in itertools.pairwise(parts):
        if left.unit or right.unit:
            sides = left.text[-1:], right.text[:1]
            sides = ["a" if side.isalnum() else side.strip() for side in sides]
            pair = left.unit or sides[0], right.unit or sides[1]
            if all(pair):
                yield pair


def _may_meet(left, right):
    if left.unit and right.unit:
        return False
    return bool(_BEHIND.match(right.text)) if left.unit else left.text[-1:] in _BEFORE
