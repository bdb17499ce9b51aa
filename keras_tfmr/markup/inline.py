"""Text with inline tags to text for a translator, and its answer to text with the same tags.

In `Clique <b>aqui</b>!`, characters for private use stand in for the tags. A translator with slots
returns each of them once, anywhere. If they do not come back, the texts between the tags are
translated one by one.
"""

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
_CLOSING = r".,;:!?…)\]}»”’"
_ENDS = re.compile(rf"\A[\s{_CLOSING}]+")
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
        begin, end: Which of the words of the translation are in it.
        order: Of its opening tag among those in the translation.
        space: Before what is kept, in the translation.
    """

    opening: str
    closing: str = ""
    children: list["Element | str"] = field(default_factory=list)
    begin: int = 0
    end: int = 0
    order: int = 0
    space: str = ""

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
    translator = _Translator(say, encode, whole)
    groups = itertools.groupby(paired([*pieces]), lambda piece: piece.kind == "block")
    return "".join(
        "".join(piece.content for piece in some) if block else translator.inside(tree(some))
        for block, some in groups
    )


def paired(pieces: list[Piece]) -> list[Piece]:
    """The pieces, of which tags without a partner between the same blocks are blocks, too."""
    opened, alone = [], set()
    for i, piece in enumerate(pieces):
        if piece.kind == "close" and opened and pieces[opened[-1]].name == piece.name:
            opened.pop()
        elif piece.kind == "open" and len(opened) < _DEPTH:
            opened.append(i)
        elif piece.kind in ("open", "close", "block"):
            alone |= {i, *opened}
            opened = []
    alone |= {*opened}
    return [each._replace(kind="block") if i in alone else each for i, each in enumerate(pieces)]


def tree(pieces: Iterable[Piece]) -> Element:
    """An element with these pieces, in which each tag has its partner."""
    stack = [Element("")]
    for piece in pieces:
        if piece.kind == "text":
            stack[-1].children.append(piece.content)
        elif piece.kind == "close":
            stack.pop().closing = piece.content
        else:
            stack[-1].children.append(element := Element(piece.content))
            if piece.kind == "open":
                stack.append(element)
    return stack[0]


@dataclass
class _Translator:
    """Translates what is between two blocks; its arguments are those of `translate_pieces`."""

    say: Say
    encode: Encode
    whole: bool

    def inside(self, element: Element) -> str:
        """What is in an element."""
        if self.whole and element.elements and element.has_words():
            found = self.as_one(element)
            if found is not None:
                return found
        return "".join(
            self.encode(translate_text(child, self.say))
            if isinstance(child, str)
            else child.opening + self.inside(child) + child.closing
            for child in element.children
        )

    def as_one(self, element: Element) -> str | None:
        """What is in an element, from one text; None if its stand-ins do not come back."""
        source: list[str] = []
        groups: dict[str, list[tuple[Element, bool]]] = {}  # of a stand-in, which is for neighbours
        for tag in element.tags():
            if isinstance(tag, str):
                source.append(tag)
            elif source and source[-1] in groups:
                groups[source[-1]].append(tag)
            else:
                source.append(chr(0xE000 + len(groups)))
                groups[source[-1]] = [tag]
        text = "".join(source)
        answer = translate_text(text, self.say)
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
                        each.space, gap = gap, ""
                if not opens or not each.closing:
                    each.end = len(words)
            if token not in groups:
                words.append(gap + self.encode(token))
                gap = ""
        element.begin, element.end = 0, len(words)
        settle(element, words)
        before, _, after = answer.partition(answer.strip(_SPACE))
        return before + written(element, words, 0, len(words)).strip(_SPACE) + after


def settle(element: Element, words: list[str]) -> None:
    """Puts an element without a word around the next one, else the last; and all around theirs."""
    if element.has_words() and not any(map(_is_word, words[element.begin : element.end])):
        real = [i for i, word in enumerate(words) if _is_word(word)]
        if real:
            element.begin = next((i for i in real if i >= element.begin), real[-1])
            element.end = element.begin + 1
    for child in element.elements:
        settle(child, words)
        element.begin = min(element.begin, child.begin)
        element.end = max(element.end, child.end)


def _is_word(token):
    return any(map(str.isalnum, token))


def written(element: Element, words: list[str], begin: int, end: int) -> str:
    """Words with the elements in this one: all of them, in it, and one after the other."""
    found = []
    for child in sorted(element.elements, key=lambda child: (child.begin, child.order)):
        first = min(max(child.begin, begin), end)
        last = min(max(child.end, first), end)
        inside = written(child, words, first, last)
        text = inside.lstrip()
        space = child.space + inside[: len(inside) - len(text)]
        found += [*words[begin:first], space, child.opening, text, child.closing]
        begin = last
    return "".join([*found, *words[begin:end]])
