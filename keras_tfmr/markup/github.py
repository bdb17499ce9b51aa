"""GitHub's Markdown, as markdown-it-py reads it: where its pieces stand, and what a text holds.

markdown-it-py tells the lines of each block. Its rules for what stands within lines are wrapped, so
that their tokens tell their places, too. Two rules are added: for addresses, which GitHub makes
links wherever they stand, and for the placeholders of templates.
"""

import collections
import functools
import re

from markdown_it import MarkdownIt
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
_NOTE = re.compile(r"(?<!\\)\[\^[^\]\s]+\]")


@functools.cache
def parser(templates: bool = False) -> MarkdownIt:
    """The parser, to which the placeholders of templates are text, or tokens."""
    made = MarkdownIt("commonmark", {"strikethrough_single_tilde": True})
    made = made.enable(["table", "strikethrough"]).disable("text_join")
    rules = made.inline.ruler
    rules.before("text", "address", _address)
    if templates:
        rules.before("text", "template", _template)
        rules.before("link", "template_link", _template_link)
    for name, rule in zip(rules.get_active_rules(), rules.getRules(""), strict=True):
        rules.at(name, _text if name == "text" else _placed(name, rule))
    return made


def parsed(text: str, env: dict, templates: bool = False) -> list[Token]:
    """The tokens of a page, whose references are put into `env`."""
    # Without a last line end, markdown-it-py raises an IndexError on some pages.
    return parser(templates).parse(text + "\n", env)


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
    if not match or state.linkLevel or before.isalpha():
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


def _template(state, silent):
    match = TEMPLATE.match(state.src, state.pos, state.posMax)
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


def structure(token: Token) -> tuple[collections.Counter, collections.Counter]:
    """What a block's text holds: its elements and where, and the characters of its texts."""
    held, way, texts = collections.Counter(), [], []
    for child in token.children or ():
        if child.nesting < 0:
            way.pop()
            continue
        if child.type in ("text", "text_special"):
            texts.append(child.content)
            continue
        content = child.content
        if child.type == "html_inline":
            content = _TRANSLATED.sub(r"\1", content)
        elif child.type in ("image", "softbreak"):
            content = ""
        attributes = {name: value for name, value in child.attrs.items() if name != "alt"}
        if child.type != "softbreak":
            held[(*way, child.type, str(attributes), re.sub(r"\s+", " ", content))] += 1
        if child.nesting > 0:
            way.append((child.type, str(attributes)))
    text = "".join(texts)
    for found in [*_EMAIL.findall(text), *_NOTE.findall(token.content)]:
        held[found] += 1
    return held, characters(text)


def characters(text: str) -> collections.Counter:
    """How often a text has each character, but for white space."""
    return collections.Counter("".join(text.split()))
