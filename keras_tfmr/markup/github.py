"""GitHub's Markdown, as markdown-it-py reads it: where its pieces stand, and what a text holds.

markdown-it-py tells the lines of each block. Its rules for what stands within lines are wrapped, so
that their tokens tell their places, too. Two rules are added: for addresses, which GitHub makes
links wherever they stand, and for the placeholders of templates.
"""

import collections
import functools
import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.rules_block import html_block, table
from markdown_it.rules_block.html_block import HTML_SEQUENCES
from markdown_it.token import Token

from keras_tfmr.text.spans import TEMPLATE as _TEMPLATES

TEMPLATE = re.compile(_TEMPLATES, re.A)
# A link for the template's program; CommonMark knows no spaces in addresses.
LINK = re.compile(
    rf"(!?\[)([^\[\]\n]+)(\]\((?:{_TEMPLATES}|[^\s()<>])+(?:[ \t]+\"[^\"\n]*\")?\))", re.A
)
_ADDRESS = re.compile(r"(?:(?:https?|ftp)://(?=[^\W_])|www\.)[^\s<]*", re.A | re.I)
_SCHEME = re.compile(r"(?:https?|ftp)(?=://)|www(?=\.)", re.A | re.I)
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+", re.A)
_TRANSLATED = re.compile(
    r"""(\s(?:alt|aria-label|placeholder|title)\s*=\s*)("[^"]*"|'[^']*'|[^\s>]+)""", re.I
)
_BRACKET = re.compile(r"\\.|(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)|[\[\]]", re.S)  # outside code
_TILDES = re.compile(r"(?<![\\~])~{1,2}(?!~)")
_DELIMITERS = re.compile(r"(?=.*-)[\s|:-]+")  # of a table's head
_TAG = HTML_SEQUENCES[-1][0]  # alone in its line
_UNDERLINE = re.compile(r"-+\s*")
# Whether these are references depends on how a program counts brackets.
_REFERENCE = re.compile(r"""\[[^\]]+\]:\s*[^\s()]*[()]\S*(?:[ \t]*(?:\n|\Z)|\s+["'(])""")
_NOTE = re.compile(r"(?<!\\)\[\^[^\]\s]+\]")


@functools.cache
def parser(whole: bool = False) -> MarkdownIt:
    """The parser, to which placeholders are text, or as a whole tokens."""
    made = MarkdownIt("commonmark", {"strikethrough_single_tilde": True})
    made = made.enable(["table", "strikethrough"]).disable(["text_join", "fragments_join"])
    made.block.ruler.at("table", lambda *_: False)
    made.block.ruler.before("lheading", "github_table", _table, {"alt": ["paragraph", "reference"]})
    made.block.ruler.at("html_block", _html, {"alt": ["paragraph", "reference", "blockquote"]})
    rules = made.inline.ruler
    rules.before("text", "address", _address)
    if whole:
        rules.before("text", "template", _template)
        rules.before("link", "template_link", _template_link)
    for name, rule in zip(rules.get_active_rules(), rules.getRules(""), strict=True):
        rules.at(name, _text if name == "text" else _placed(name, rule))
    return made


def parsed(text: str, env: dict, whole: bool = False) -> list[Token]:
    """The tokens of a page, whose references are put into `env`.

    With `whole`, what `env["protected"]` finds is a token, where emphasis might begin in it.
    """
    # Without a last line end, markdown-it-py raises an IndexError on some pages.
    return parser(whole).parse(text + "\n", env)


def _table(state, first, last, silent):
    """A table, unless its first line begins any other block, or the paragraph has been tried."""
    if not table(state, first, last, True):
        return False
    delimiters = _line(state, first + 1)
    above = itertools.takewhile(str.strip, (_line(state, n) for n in range(first, 0, -1)))
    is_tried = silent and any(map(_DELIMITERS.fullmatch, above))
    return not (is_tried or _UNDERLINE.fullmatch(delimiters)) and table(state, first, last, silent)


def _html(state, first, last, silent):
    """HTML, which may begin with any tag where it ends the list or quotation that it is not in."""
    leaves = state.parentType == "blockquote" or state.sCount[first] < state.blkIndent
    if silent and leaves and _TAG.match(_line(state, first)):
        return True
    return html_block(state, first, last, silent)


def _line(state, n):
    return state.src[state.bMarks[n] + state.tShift[n] : state.eMarks[n]]


def _text(state, silent):
    """Text, up to a character that may begin something else, or to an address."""
    end = state.md.inline.terminator_re.search(state.src, state.pos)
    end = end.start() if end else state.posMax
    address = _SCHEME.search(state.src, state.pos, end + 3)
    if address and address.start() > state.pos:
        end = min(end, address.start())
    if end == state.pos:
        return False
    if not silent:
        state.append_pending(state.src[state.pos : end])
    state.pos = end
    return True


def _address(state, silent):
    before = state.src[state.pos - 1] if state.pos else " "
    match = _ADDRESS.match(state.src, state.pos, state.posMax)
    if not match or before.isalpha() or _in_brackets(state):
        return False
    if match[0][:3].lower() == "www" and not (before.isspace() or before in "*_~("):
        return False
    address, before = match[0], ""
    unpaired = address.count(")") - address.count("(")
    while address != before:
        before, address = address, re.sub(r"(?:&\w+)?;\Z", "", address.rstrip("?!.,:*_~'\""))
        if unpaired > 0 and address.endswith(")"):
            address, unpaired = address[:-1], unpaired - 1
    return _kept(state, silent, "address", address)


def _in_brackets(state):
    """Whether a bracket is open, with or without an end: GitHub finds no addresses there."""
    text, at, depth = state.env.get("brackets", ("", 0, 0))
    if text is not state.src or at > state.pos:
        at, depth = 0, 0
    for match in _BRACKET.finditer(state.src, at, state.pos):
        if len(match[0]) == 1:
            depth = depth + 1 if match[0] == "[" else max(0, depth - 1)
    state.env["brackets"] = state.src, state.pos, depth
    return depth > 0


def _template(state, silent):
    first = state.src[state.pos]
    pattern = state.env["protected"] if first in "{%$#-" else TEMPLATE
    match = first in "{%$#-<" and pattern.match(state.src, state.pos, state.posMax)
    return bool(match) and _kept(state, silent, "template", match[0])


def _template_link(state, silent):
    match = LINK.match(state.src, state.pos, state.posMax)
    if not match or not re.search(r"\s", match[3].partition(' "')[0]) or state.linkLevel:
        return False
    return _kept(state, silent, "template_link", match[0])


def _kept(state, silent, kind, content):
    if not silent:
        state.push(kind, "", 0).content = content
    state.pos += len(content)
    return True


def _placed(name, rule):
    """A rule whose tokens tell where they stand: `meta["at"]` is (begin, end)."""

    def placed(state, silent):
        begin, count = state.pos, len(state.tokens) + bool(state.pending)
        if not rule(state, silent):
            return False
        # A new line takes away what spaces are before it.
        tokens, end = state.tokens[-1 if name == "newline" else count :], state.pos
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


class Structure(NamedTuple):
    """What a block holds.

    Attributes:
        held: How often it has each element, and where.
        spans: How often its texts have each protected span.
        characters: How often they have each character.
        line: The first one of the block, or of one around it.
    """

    held: collections.Counter
    spans: collections.Counter
    characters: collections.Counter
    line: int


def structure(token: Token, pattern: re.Pattern[str], line: int = 0) -> Structure:
    """What a block of text holds; `pattern` is what is protected."""
    held, way, texts = collections.Counter(), [], [[(), ""]]
    for child in token.children or ():
        if child.nesting < 0:
            way.pop()
        if child.type in ("text", "text_special", "softbreak"):
            texts[-1][1] += "\n" if child.type == "softbreak" else child.content
            continue
        content = child.content
        if child.type == "html_inline":
            content = _TRANSLATED.sub(r"\1", content)
        elif child.type == "image":
            content = ""
        attributes = {name: value for name, value in child.attrs.items() if name != "alt"}
        if child.nesting >= 0:
            held[(*way, child.type, str(attributes), re.sub(r"\s+", " ", content))] += 1
        if child.nesting > 0:
            way.append((child.type, str(attributes)))
        texts.append([tuple(way), ""])
    for note in _NOTE.findall(token.content):
        held[note] += 1
    spans = collections.Counter()
    for place, text in texts:
        spans.update(match[0] for match in pattern.finditer(text))
        for email in _EMAIL.findall(text):
            held[(*place, email)] += 1
    # Which of several strike a text through, two programs of GitHub's do not agree on.
    tildes = len(_TILDES.findall(token.content))
    held["~"] = tildes * (tildes > 1)
    return Structure(held, spans, characters("".join(text for _, text in texts)), line)


def is_ambiguous(token: Token) -> bool:
    """Whether programs disagree on what a block of text is.

    To GitHub's own, nothing is emphasised across tildes that strike nothing through, and what is
    beside them emphasises otherwise.
    """
    depth, marks, closes = 0, "", False
    for child in token.children or ():
        if child.type.startswith(("em_", "strong_")):
            depth += child.nesting
        elif child.type == "text" and "at" in child.meta and child.content:
            begin, end = child.meta["at"]
            sides = token.content[max(begin - 1, 0) : begin], token.content[end : end + 1]
            is_word = child.content == "_" and all(map(str.isalnum, sides))
            if any(map(str.strip, sides)) and not is_word:
                marks += child.content[0]
                closes |= marks[-1] == "~" and bool(sides[0].strip())
                if marks[-1] == "~" and (depth or {*sides} & {"*", "_"}):
                    return True
    if closes and marks.count("~") > 1:  # of which one might strike through, to some
        return True
    return bool(re.search(r"[*_].*~.*[*_]", marks) or _REFERENCE.match(token.content))


def outline(tokens: list[Token], env: dict, pattern: re.Pattern[str]) -> Iterator[Structure]:
    """What each block of a page holds, in order, and the page's references."""
    line, empty = 0, collections.Counter()
    for token in tokens:
        line = token.map[0] if token.map else line
        if token.type == "inline":
            yield structure(token, pattern, line)
        else:
            content = "" if token.type == "html_block" else token.content
            look = token.type, token.tag, token.markup, token.info, token.hidden, str(token.attrs)
            yield Structure(collections.Counter([(*look, content)]), empty, empty, line)
    for name, reference in env.get("references", {}).items():
        pair = name, reference["href"], reference["title"]
        yield Structure(collections.Counter([pair]), empty, empty, line)


def characters(text: str) -> collections.Counter:
    """How often a text has each character, but for white space."""
    return collections.Counter("".join(text.split()))
