"""Translated pages: the same tags in the same elements, whatever a translator does with them."""

import random
import re
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from pages import MARKDOWN, PAGES, parsed, rendered, tree, words

from keras_tfmr import markup


def scrambled(texts, seed=0):
    """Translations in which words and stand-ins are anywhere, with odd characters and spaces."""
    draw = random.Random(seed)
    found = []
    for text in texts:
        parts = re.findall(r"[\ue000-\uefff]|\w+|[^\w\s\ue000-\uefff]+", text)
        draw.shuffle(parts)
        parts += draw.sample(
            ["<b>", "&amp;", '"', "'", "<", "a  b", "\0", "*", "_c_", "[z](y)", "`"], 3
        )
        found.append("".join(part + draw.choice(["", " ", "  "]) for part in parts))
    return found


def shouted(texts):
    return [text.upper() for text in texts]


def without_stand_ins(texts):
    return [re.sub("[\ue000-\uefff]", "", text).upper() for text in texts]


def html(page, translate):
    return markup.run(markup.html([page]), translate)[0]


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_pages_keep_their_tags(page):
    assert tree(html(page, list)) == tree(page)
    assert words(html(page, list)) == words(page)
    for translate in (scrambled, shouted, without_stand_ins):
        assert tree(html(page, translate)) == tree(page)


def arranged(template):
    """A translator that answers with a template; `{0}` is the first stand-in of the text."""
    return lambda texts: [template.format(*re.findall("[\ue000-\uefff]", text)) for text in texts]


@pytest.mark.parametrize(
    ("page", "template", "expected"),
    [
        ("Clique <b>aqui</b>!", "{0}Here{1}: click!", "<b>Here</b>: click!"),
        # Spaces within a pair go outside.
        ("Clique <b>aqui</b>!", "Click {0} here {1} now", "Click <b>here</b> now"),
        ("Clique <b>aqui</b>!", "Click {0}here {1} ! Or ?", "Click <b>here</b>! Or ?"),
        # It closes before it opens, or has nothing in it: it is put around a word.
        ("Clique <b>aqui</b>!", "{1} Click {0} right here!", "Click <b>right</b> here!"),
        ("Clique <b>aqui</b>!", "Click here{0} !{1}", "Click <b>here</b> !"),
        ("x <i></i> y", "{0}A b", "<i></i>A b"),
        # What is in an element stays in it; what is not stays out.
        ("<a>a <b>b</b> c</a> d", "{1}A {0}B{3} C {2}D", "<a><b>A B C</b></a> D"),
        ("x <a>um</a> <b>dois</b>", "X {0}one {2}two{1} three{3}", "X <a>one two</a> <b>three</b>"),
        ("x <a>um</a> <code>d</code>", "{0}one {2} two{1} x", "<a>one two</a> <code>d</code> x"),
    ],
)
def test_where_tags_go(page, template, expected):
    assert html(page, arranged(template)) == expected


def test_what_a_translator_is_given():
    """Sentences with characters for their tags, each text once; nothing that has no words."""
    asked = []
    page = """<title>Olá &amp; "adeus"</title><p>
    Um <i class=x></i><b>gato</b>&nbsp;preto. </p>
    <ul><li><a>Um <u>rato</u></a> | <a href=y>Fim</a><li>Fim<li>5 &lt; 6</ul><img alt='Fim'>"""
    assert html(page, lambda texts: asked.append(texts) or texts) == page
    sentences = ["Um \ue000gato\ue001\xa0preto.", "Um \ue000rato\ue001"]
    assert sorted(asked.pop()) == ["Fim", 'Olá & "adeus"', *sentences]
    # If they do not come back, the texts between them follow.
    html(
        "<p>Um <b>gato</b> <i>5</i>, preto", lambda texts: asked.append(texts) or ["x"] * len(texts)
    )
    assert asked == [["Um \ue000gato\ue001 \ue0025\ue003, preto"], ["Um", "gato", "preto"]]


@pytest.mark.parametrize("encoding", ["iso-8859-1", "utf-8", "Windows-1252", None])
def test_bytes_are_of_the_encoding_that_a_page_declares(encoding):
    page = "<p>Olá" if encoding is None else f"<meta charset='{encoding}'><p>Olá"
    page = page.encode(encoding or "latin-1")
    [found] = markup.run(markup.html([page]), lambda texts: ["Γεια → á"])
    assert found.startswith(page[:-4])
    assert parsed(found.decode(encoding or "latin-1"))[-1].text == "Γεια → á"
    assert markup.run(markup.markdown([page]), list) == [page]


def test_what_is_not_a_list_of_pages():
    with pytest.raises(TypeError, match=r"`pages` must be a list of str\. Received: '<p>'"):
        markup.run(markup.html("<p>"), list)


def test_markdown_without_its_parser(monkeypatch):
    monkeypatch.delattr(markup, "markdown_page", raising=False)
    monkeypatch.setitem(sys.modules, "keras_tfmr.markup.markdown_page", None)
    with pytest.raises(ImportError, match="pip install markdown-it-py"):
        markup.markdown([])


def test_many_tags_and_deep_ones_take_no_long():
    for page in ("<b>um " * 5000, "um</b> " * 5000, "<i>um</i> e " * 5000, "<code>" * 5000):
        assert html(page, scrambled)


TAGS = [
    "b",
    "i",
    "a href=x",
    "span title='um gato'",
    "code",
    "p",
    "div",
    "li",
    "td",
    "table",
    "svg",
    "h1",
]
PARTS = st.one_of(
    st.sampled_from([" ", "um", "dois ", " três", ". ", "&lt;", "&amp", "&nbsp;", "<", "&", "\n"]),
    st.sampled_from(['"', "'", "=", "/>", "</", "<!--", "--!>", "<?", "<script>", "</script "]),
    st.sampled_from(["<b =x>", '<b title="u>m">', "<p translate=no>", "<textarea>", "</textarea>"]),
    st.sampled_from(["<br>", "<img alt='um gato'>", "<!-- um -->", "<i class=x></i>", "<a "]),
    st.sampled_from(TAGS).map("<{}>".format),
    st.sampled_from(TAGS).map(lambda tag: f"</{tag.split()[0]}>"),
)


@settings(deadline=None, max_examples=200)
@given(st.lists(PARTS, max_size=30).map("".join), st.integers(0, 999))
@example("<i><b =x></i>um<!-- um -->", 1)
@example('<script></script <b title="u>m"><!--', 0)
def test_broken_pages_keep_their_tags(page, seed):
    for translate in (lambda texts: scrambled(texts, seed), without_stand_ins):
        assert tree(html(page, translate), False) == tree(page, False)


def markdown(page, translate):
    return markup.run(markup.markdown([page]), translate)[0]


@pytest.mark.parametrize("page", MARKDOWN.values(), ids=MARKDOWN)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_markdown_keeps_what_is_not_text(page, line_end):
    page = page.replace("\n", line_end)
    same = rendered(markdown(page, list))
    assert tree(same) == tree(rendered(page))
    assert words(same) == words(rendered(page))
    for translate in (scrambled, shouted, without_stand_ins):
        found = markdown(page, translate)
        assert tree(rendered(found)) == tree(rendered(page))


def test_texts_behind_translated_attributes_are_not_lost():
    page = '![um](um) <img alt="um"> dois <b title="um">três</b> <kbd>um</kbd>, <?um > ?> fim.'
    found = markdown(page, lambda texts: [re.sub("um", "uma coisa", text) for text in texts])
    assert found == re.sub('(?<=")um|(?<=!.)um', "uma coisa", page)
    for page in ("<code>> um", "> 1. <pre>\n> \t"):  # without their ends
        assert markdown(page, list) == page


LINES = st.lists(
    st.sampled_from(
        ["um", " dois", "*", "**", "_", "~~", "`", "[", "](x)", "](", "!", "<b>", "</b>", "\\*",
         "  \n", "\n", "\n\n", "> ", "- ", "1. ", "    ", "# ", "| ", "[z]", "[z]: y\n", "<",
         "&amp;", "```\n"]
    ),
    max_size=25,
)  # fmt: skip


@settings(deadline=None, max_examples=200)
@given(LINES.map("".join), st.integers(0, 999))
@example("<b>  \n</b>um", 0)
def test_odd_markdown_keeps_what_is_not_text(page, seed):
    # Not as GitHub's program reads it, which knows other delimiters in odd places.
    read = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render
    for translate in (lambda texts: scrambled(texts, seed), without_stand_ins):
        found = markdown(page, translate)
        assert tree(read(found), False) == tree(read(page), False), found
