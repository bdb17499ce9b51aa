"""Text with inline tags to text for a translator, and its answer to text with the same tags.

In `Clique <b>aqui</b>!`, characters for private use stand in for the tags. A translator with slots
returns each of them once, anywhere. If they do not come back, the texts between the tags are
translated one by one.
"""

import bisect
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

Say = Callable[[str], str]  # from a text to its translation
Encode = Callable[[str], str]  # from a text to how a page writes it

_DEPTH = 64  # of elements in elements that are moved
_STAND_INS = "\ue000-\uefff"  # a translator with slots protects them all
_SPACE = " \t\r\n\f"
_CONTROLS = re.compile(r"[\0-\x08\x0b\x0e-\x1f\x7f]")  # no page may have them, but a model may
_CLOSING = "].,;:!?…)}»”’"  # in this order, also the inside of a pattern's brackets
_ENDS = re.compile(rf"\A[{_CLOSING}\s]+")
_TOKEN = re.compile(rf"([{_SPACE}]*)([{_STAND_INS}]|[^{_SPACE}{_STAND_INS}]+)")


class Piece(NamedTuple):
    """A piece of a page.

    Attributes:
        kind: "text"; "open" or "close", a tag of an inline element; "kept", what stays and has a
            place among the words, as code has; "block", which no sentence goes across.
        content: A text as it is read, all else as the page writes it.
        name: The name of an inline element.
    """

    kind: str
    content: str
    name: str = ""


@dataclass(eq=False)
class Element:
    """An inline element, or what is kept, which has no children and no closing tag.

    Attributes:
        children: Texts and elements; of a page, also its blocks.
        begin, end: Which of the words of the translation are in it.
        order: Of its opening tag among those in the translation.
    """

    opening: str = ""
    name: str = ""
    closing: str = ""
    children: list["Element | str | Piece"] = field(default_factory=list)
    begin: int = 0
    end: int = 0
    order: int = 0

    @property
    def elements(self) -> list["Element"]:
        return [child for child in self.children if isinstance(child, Element)]

    def has_words(self) -> bool:
        """Whether there is anything to translate, apart from what is in its elements."""
        return has_words("".join(child for child in self.children if isinstance(child, str)))

    def tags(self) -> Iterator["tuple[Element, bool] | str"]:
        """Its texts and elements in order; of an element, whether it opens, or closes."""
        for child in self.children:
            if isinstance(child, str):
                yield child
            else:
                yield child, True
                yield from child.tags()
                if child.closing:
                    yield child, False


def has_words(text: str) -> bool:
    return any(map(str.isalpha, text))


def translate_text(text: str, say: Say) -> str:
    """A text; white space at both ends is kept, and the end of a sentence at its beginning."""
    if not has_words(text):
        return text
    core = _ENDS.sub("", text).rstrip()
    before, _, after = text.partition(core)
    said = _CONTROLS.sub("\ufffd", say(_one_line(core)))
    return before + _one_line(said).strip() + after


def _one_line(text):
    return re.sub(f"[{_SPACE}]+", " ", text)


def translate_pieces(pieces: Iterable[Piece], say: Say, encode: Encode, whole: bool = True) -> str:
    """A page, or a part of it.

    Args:
        pieces: Its pieces.
        say: Translates a text.
        encode: Writes a text.
        whole: Whether tags may be moved; else the texts between them are translated one by one.
    """

    def translated(text):
        return encode(translate_text(text, say))

    groups = itertools.groupby(tree(pieces).children, lambda child: isinstance(child, Piece))
    return "".join(
        "".join(piece.content for piece in some)
        if block
        else inside(Element(children=[*some]), translated, whole)
        for block, some in groups
    )


def tree(pieces: Iterable[Piece]) -> Element:
    """A page as an element. Tags without a partner between the same blocks are blocks, too."""
    stack = [Element()]
    for piece in [*pieces, Piece("block", "")]:
        if piece.kind == "close" and piece.name == stack[-1].name:
            stack.pop().closing = piece.content
        elif piece.kind == "open" and len(stack) <= _DEPTH:
            stack.append(Element(piece.content, piece.name))
            stack[-2].children.append(stack[-1])
        elif piece.kind in ("text", "kept"):
            is_text = piece.kind == "text"
            stack[-1].children.append(piece.content if is_text else Element(piece.content))
        else:
            while len(stack) > 1:
                element = stack.pop()
                stack[-1].children[-1:] = [Piece("block", element.opening), *element.children]
            stack[0].children.append(piece)
    return stack[0]


def inside(element: Element, say: Say, whole: bool) -> str:
    """What is in an element, translated; `say` answers with text as a page writes it."""
    if whole and element.elements and element.has_words():
        if (found := as_one(element, say)) is not None:
            return found
        whole = False
    return "".join(
        say(child)
        if isinstance(child, str)
        else child.opening + inside(child, say, whole) + child.closing
        for child in element.children
    )


def as_one(element: Element, say: Say) -> str | None:
    """What is in an element, from one text; None if its stand-ins do not come back."""
    text = ""
    groups: dict[str, list[tuple[Element, bool]]] = {}  # of a stand-in, which is for neighbours
    for tag in element.tags():
        if isinstance(tag, str):
            text += tag
        elif text[-1:] in groups:
            groups[text[-1]].append(tag)
        else:
            text += (stand_in := chr(0xE000 + len(groups)))
            groups[stand_in] = [tag]
    answer = say(text)
    if sorted(re.findall(f"[{_STAND_INS}]", answer)) != [*groups]:
        return None
    tight = {*re.findall(f"([{_STAND_INS}])[{_CLOSING}]", text)}  # no space between
    words: list[str] = []
    gap, last, order = "", "", itertools.count()
    for space, token in _TOKEN.findall(answer):
        gap = "" if last in tight and token[0] in _CLOSING else gap or space
        last = token
        for each, opens in groups.get(token, ()):
            if opens:
                each.begin, each.order = len(words), next(order)
                if not each.children:
                    each.opening, gap = gap + each.opening, ""
            if not opens or not each.closing:
                each.end = len(words)
        if token not in groups:
            words.append(gap + token)
            gap = ""
    element.end = len(words)
    settle(element, [i for i, word in enumerate(words) if any(map(str.isalnum, word))])
    before, _, after = answer.partition(answer.strip(_SPACE))
    return before + written(element, words, 0, len(words)).strip(_SPACE) + after


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


def written(element: Element, words: list[str], begin: int, end: int) -> str:
    """Words with the elements in this one: all of them, in it, and one after the other."""
    found = []
    for child in sorted(element.elements, key=lambda child: (child.begin, child.order)):
        first = min(max(child.begin, begin), end)
        last = min(max(child.end, first), end)
        content = written(child, words, first, last)
        text = content.lstrip()
        space = content[: len(content) - len(text)]
        found += [*words[begin:first], space, child.opening, text, child.closing]
        begin = last
    return "".join([*found, *words[begin:end]])
