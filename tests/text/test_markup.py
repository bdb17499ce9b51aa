"""Translated pages: only the words change, whatever a translator does with them.

Other programs judge: html5lib reads HTML, lxml XHTML, and GitHub's own program Markdown.
"""

import codecs
import functools
import random
import re
import sys
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pages import MARKDOWN, PAGES, XHTML, parsed, rendered, texts, tree

from keras_tfmr import markup

URL = "https://a.example/b_(c)?d=1&amp;e=_2"
# What a text may hold that is protected: as a page has it, and as it is read.
SPANS = {
    URL: "https://a.example/b_(c)?d=1&e=_2",
    "ana_b@a.example": "ana_b@a.example",
    "{0:*^10}": "{0:*^10}",
    **{
        span: span
        for span in (
            "{{ user | upper }}", "{{{ html }}}", "{% if a %}", "{{ c[0].d }}", "{{ _('x y') }}",
            "${a + b}", "{n, plural, one {# gato} other {# gatos}}", "%(n)d", "--all-of",
        )
    },
}  # fmt: skip


SPACED = [f" {span} " for span in SPANS]


def scrambled(texts, seed=0):
    """Translations in which words and stand-ins are anywhere, with odd characters and spaces."""
    draw = random.Random(seed)
    found = []
    for text in texts:
        parts = re.findall(r"[\ue000-\uefff]|\w+|[^\w\s\ue000-\uefff]+", text)
        draw.shuffle(parts)
        parts += draw.sample(
            ["<b>", "&amp;", '"', "'", "<", "a  b", "\0", "*", "_c_", "[z](y)", "`", "~x~",
             "\ue00f",
             "www.a.pt", "{{", "|", "#", "a@b.pt", "\\", "-", "1."], 3,
        )  # fmt: skip
        parts = [part for part in parts if draw.random() < 0.9 or part in text[:1]]
        found.append("".join(part + draw.choice(["", "", " ", "  "]) for part in parts))
    return found


def scrambled_around(texts, seed=0):
    """All stand-ins come back once, with words of any kind against them."""
    draw = random.Random(seed)
    found = []
    for text in texts:
        parts = [
            *re.findall(r"[\ue000-\uefff]", text),
            "palavra",
            *draw.sample("ab.,)(\"'/_-*é", 6),
        ]
        draw.shuffle(parts)
        found.append("".join(part + draw.choice(["", "", " "]) for part in parts))
    return found


def shouted(texts):
    return [text.upper() for text in texts]


def without_stand_ins(texts):
    return [re.sub("[\ue000-\uefff]", "", text).upper() for text in texts]


def lost(texts):
    return ["" for _ in texts]


TRANSLATORS = (shouted, without_stand_ins, lost, scrambled, scrambled_around)


def html(page, translate):
    return markup.run(markup.html([page]), translate)[0]


def markdown(page, translate):
    return markup.run(markup.markdown([page]), translate)[0]


def spans_of(page):
    """How often a page has each protected span in one text."""
    return {span: sum(text.count(span) for text in texts(page)) for span in SPANS.values()}


def assert_kept(translate_page, page, read=str, kept=True, seed=0):
    """That a page is changed in its words only; `read` gives what a judge reads."""
    assert translate_page(page, list) == page
    before = tree(read(page), kept), spans_of(read(page))
    for translate in TRANSLATORS:
        takes_seed = translate in (scrambled, scrambled_around)
        how = functools.partial(translate, seed=seed) if takes_seed else translate
        found = translate_page(page, how)
        assert (tree(read(found), kept), spans_of(read(found))) == before, found
        for span in SPANS:
            assert found.count(span) == page.count(span)


@pytest.mark.parametrize("page", [*PAGES.values(), *XHTML.values()], ids=[*PAGES, *XHTML])
def test_pages_keep_their_tags(page):
    assert_kept(html, page)


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


WITH_MARKS = [
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
]


@pytest.mark.parametrize("mark, encoding", WITH_MARKS)
def test_byte_order_marks_decide(mark, encoding):
    page = mark + "---\nt: um\n...\n\nOlá → gato\n".encode(encoding)
    assert markup.run(markup.markdown([page]), list) == [page]
    assert markup.run(markup.markdown([page]), shouted) == [
        mark + "---\nt: um\n...\n\nOLÁ → GATO\n".encode(encoding)
    ]
    page = mark + "<meta charset=latin-1><p>Olá".encode(encoding)
    assert markup.run(markup.html([page]), shouted)[0] == page.replace(
        "Olá".encode(encoding), "OLÁ".encode(encoding)
    )


@pytest.mark.parametrize(
    "declared, encoding",
    [
        ("<meta charset='iso-8859-1'>", "cp1252"),
        ("<meta http-equiv=x content='text/html; charset=Windows-1252'>", "cp1252"),
        ("<?xml version='1.0' encoding='ISO-8859-2'?>", "iso-8859-2"),
        ("<meta charset=Shift_JIS>", "cp932"),
        ("<meta charset=utf-16>", "utf-8"),  # which it cannot be
        ('<!-- <meta charset=x> --><p class="encoding=y">', "utf-8"),
        ("", "utf-8"),
    ],
)
def test_bytes_are_of_the_encoding_that_a_page_declares(declared, encoding):
    page = f"{declared}<p>– gato".encode(encoding, "xmlcharrefreplace")
    assert markup.run(markup.html([page]), list) == [page]
    [found] = markup.run(markup.html([page]), lambda texts: ["Γεια → á" for _ in texts])
    assert found.startswith(declared.encode())
    assert parsed(found.decode(encoding).replace("<?xml", "<?"))[-1].text == "Γεια → á"


@pytest.mark.parametrize(
    "page, reason",
    [
        (b"<meta charset=undefined>", "declares the encoding 'undefined', which is unknown"),
        (b"<meta charset=latin-99>", "declares the encoding 'latin-99', which is unknown"),
        (b"<meta charset=rot13>", "declares the encoding 'rot13', which is unknown"),
        (b"<meta charset=utf-7>", "declares the encoding 'utf-7', which is unknown"),
        (b"<meta charset=utf-8>\xe1", "declares 'utf-8', but 'utf-8' codec can't decode"),
        (b"<p>Ol\xe1</p>", "declares no encoding, so that it must be UTF-8, but"),
        (codecs.BOM_UTF16_LE + b"<", "begins as UTF-16-LE does, but"),
    ],
)
def test_pages_that_cannot_be_read_are_named(page, reason):
    with pytest.raises(markup.PageError, match=f"^pages\\[1\\]: the page {reason}") as caught:
        markup.run(markup.html([b"<p>", page]), list)
    assert caught.value.index == 1


def test_what_is_protected_can_be_chosen():
    page = "<p>Um BUG  17 e {nome}, <b>gato</b>: {{ x | y }}"
    steps = markup.html([page], protect=["[A-Z]+ +[0-9]+"])
    [found] = markup.run(steps, lambda texts: ["\ue003 \ue001\ue002 {nome}\ue000é" for _ in texts])
    assert found == "<p>{{ x | y }} <b>{nome}</b>BUG  17 é"
    with pytest.raises(ValueError, match="must not match nothing"):
        markup.html([page], protect=[r"\b"])


def test_what_is_not_a_list_of_pages():
    with pytest.raises(TypeError, match=r"`pages` must be a list of str\. Received: '<p>'"):
        markup.run(markup.html("<p>"), list)


def test_markdown_without_its_parser(monkeypatch):
    monkeypatch.delattr(markup, "markdown_page", raising=False)
    monkeypatch.setitem(sys.modules, "keras_tfmr.markup.markdown_page", None)
    with pytest.raises(ImportError, match="pip install markdown-it-py"):
        markup.markdown([])


def test_many_tags_and_deep_ones_take_no_long():
    """A page that is eight times as long takes about eight times as long, not 64 times."""
    parts = {
        html: ["<b>um ", "um</b> ", "<i>um</i> e ", "<code>", "{{ ", "<!--",
        "<p translate=no>a</b>",
               "<a title='{{", "&amp;um", "{{ a }}um", "<?a", "<title>"],
        markdown: ["<b>um</b> e ", "<i>um ", "*um* ", "[um](x) ", "`um` ", "[", "{{ a } ",
        "<code>um ",
                   "https://a.b/) ", "um\n", "> ", "[^1]: um\n", "~um ", "\\*um ", "| um "],
    }  # fmt: skip
    for translate_page, of in parts.items():
        for part in of:
            took = []
            for count in (125, 1000):
                start = time.process_time()
                assert translate_page(part * count, scrambled)
                took.append(time.process_time() - start)
            assert took[1] < max(0.4, 24 * took[0]), (part, took)


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
    st.sampled_from([*SPACED, "<%= a > b %>", "{% if a < b %}", "{{ '<b>' }}", "{{", "}}", "&x;"]),
    st.sampled_from(["<b =x>", '<b title="u>m">', "<p translate=no>", "<textarea>", "</textarea>"]),
    st.sampled_from(["<title>", "</title>", "<svg/>", "<p/>", "<?php a->b ?>", "<![CDATA[x]]>"]),
    st.sampled_from(["<br>", "<img alt='um gato'>", "<!-- um -->", "<i class=x></i>", "<a "]),
    st.sampled_from(TAGS).map("<{}>".format),
    st.sampled_from(TAGS).map(lambda tag: f"</{tag.split()[0]}>"),
)


@settings(deadline=None, max_examples=100, derandomize=True)
@given(st.lists(PARTS, max_size=30).map("".join), st.integers(0, 999))
@example("<i><b =x></i>um<!-- um -->", 1)
@example('<script></script <b title="u>m"><!--', 0)
def test_broken_pages_keep_their_tags(page, seed):
    assert_kept(html, page, kept=False, seed=seed)


def elements(children):
    """Elements of XHTML, which are well-formed."""
    names = st.sampled_from(["p", "b", "i", "div", "code", "textarea", "script", "span title='um'"])
    return st.tuples(names, st.lists(children, max_size=4).map("".join)).map(
        lambda pair: f"<{pair[0]}>{pair[1]}</{pair[0].split()[0]}>"
    )


XML_TEXTS = st.sampled_from(
    ["um", " dois ", "\n", "&lt;", "&#160;", "<br/>", "<b/>", "<svg/>", "<textarea/>", "<script/>",
     "<![CDATA[ x > y ]]>", "<!-- um -->", "<?a b?>", *SPACED]
)  # fmt: skip


@settings(deadline=None, max_examples=100, derandomize=True)
@given(st.lists(st.recursive(XML_TEXTS, elements, max_leaves=20), max_size=5), st.integers(0, 999))
def test_any_xhtml_keeps_its_tags(parts, seed):
    start = "<?xml version='1.0'?><html xmlns='http://www.w3.org/1999/xhtml'>"
    assert_kept(html, f"{start}{''.join(parts)}</html>", kept=False, seed=seed)


@pytest.mark.parametrize("page", MARKDOWN.values(), ids=MARKDOWN)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_markdown_keeps_what_is_not_text(page, line_end, caplog):
    page = page.replace("\n", line_end)
    assert_kept(markdown, page, rendered)
    caplog.clear()
    markdown(page, shouted)
    assert not caplog.records


def test_a_text_that_cannot_be_written_stays_and_is_named(caplog):
    """Emphasis begins in one protected span and ends in another; in a page, HTML goes on."""
    page = f"---\nt: um\n---\n# gato\n\n[ um {URL} e\n{URL} ]\n\ndois"
    assert markdown(page, shouted) == page.replace("gato", "GATO").replace("dois", "DOIS")
    assert [record.message for record in caplog.records] == [
        f"pages[0], line 6 stays as it is: {f'[ um {URL} e {URL} ]'!r:.80}"
    ]


def test_texts_behind_translated_attributes_are_not_lost():
    page = '![um](um) <img alt="um"> dois <b title="um">três</b> <kbd>um</kbd>, <?um > ?> fim.'
    found = markdown(page, lambda texts: [re.sub("um", "uma coisa", text) for text in texts])
    assert found == re.sub('(?<=")um|(?<=!.)um', "uma coisa", page)
    for page in ("<code>> um", "> 1. <pre>\n> \t"):  # without their ends
        assert markdown(page, list) == page


@pytest.mark.parametrize(
    "page",
    ["\xa0\nUm gato.\n", "\u2003\n\u3000\num", "\x0c\num\n", "> \xa0\n> um\n", "\x1fum\x1f\n",
     "um\0 e\n",
     "- \xa0\n  um", "\ufeff# um"],
)  # fmt: skip
def test_odd_spaces_in_markdown(page):
    assert markdown(page, list) == page
    found = markdown(page, shouted)
    assert found.replace("UM", "um").replace("\ufffd", "\0").casefold() == page.casefold() != found


@pytest.mark.parametrize(
    "page",
    [
        "Um [^1]: gato\n[^2]: dois gatos\n[^3]: três gatos\n",
        "> [!NOTE]\n> um gato\n",
        "::: warning\num gato\n:::\n",
        "Termo\n: um gato\n: dois\n",
        "{% if a %}\num gato\n{% endif %}\num",
    ],
)
def test_lines_that_others_read_stay_lines(page):
    found = markdown(page, lambda texts: [text.replace("gato", "cat") for text in texts])
    assert found == page.replace("gato", "cat")


def test_texts_are_escaped_only_where_they_would_be_something_else():
    for said, expected in {
        "a_b, 5 * 3 [x] ~10 #1 C# AT&T <": "a_b, 5 * 3 [x] ~10 #1 C# AT&T <",
        "*a* b": r"\*a\* b",
        "- a": r"\- a",
        "1. a": r"1\. a",
        "a &lt; b": r"a \&lt; b",
        "[z]": r"\[z]",
        "~a~": r"\~a\~",
        "www.a.pt b": r"www\.a.pt b",
    }.items():
        page = markdown("um\n\n[z]: y\n", lambda texts, said=said: [said for _ in texts])
        assert page == f"{expected}\n\n[z]: y\n"


def test_what_a_page_escapes_stays_escaped():
    assert markdown(r"\*um\* gato \# 1\. x_y", shouted) == r"\*UM\* GATO \# 1\. X_Y"


LINES = st.lists(
    st.sampled_from(
        ["um", " dois", "*", "**", "_", "~", "~~", "`", "[", "](x)", "](", "!", "<b>", "</b>",
         "\\*",
         "  \n", "\n", "\n\n", "> ", "- ", "1. ", "    ", "# ", "| ", "|-|-|\n", "[z]",
         "[z]: y\n", "<",
         "&amp;", "```\n", "[^1]", "[^1]: ", "[ ] ", "\n===\n", "\n---\n", "<!-- um -->", *SPACED]
    ),
    max_size=25,
)  # fmt: skip


@settings(deadline=None, max_examples=100, derandomize=True)
@given(LINES.map("".join), st.integers(0, 999))
@example("<b>  \n</b>um", 0)
@example(f"[ {URL}  {URL} ~~", 304)
@example(f"| | [^1]_[** {URL} [^1][^1]", 192)
@example(r"[^1]: um1. um# - ~~[^1]# \*~~1. _> ", 567)
@example(f"um <[^1]~~ {URL} |-|-|\n\n[^1]: [^1]</b>1. ](x)|-|-|\n", 995)
@example("um](x) {0:*^10} <  \n|-|-|\n|-|-|\n {0:*^10} \\*&amp;> um. \n", 1)
@example("[z]: y\n         ana_b \n===\n {{{ html }}} gato", 441)
@example("[z]: y\n {{ _('x y') }} **](x)[z]: y\n](x)", 441)
@example(" --all-of \n===\n- - `](x) \\*1. [^1][` [z]: y\n %(n)d ", 3)
@example("[ ] - _um[^1]: ~um~~um_um~~[^1]~~` {{{ html }}} [[^1]", 659)
@example("1. um </b><- !| \n---\n um !<b> ](x)_**\n===\num", 59)
@example("1. ~~```\n<b>\n===\n1. 1. um~~\n---\n **<b>[z]: y\n", 5)
@example("[z]: y\n<!-- um -->| um\\*1. ~~[z]: y\n|-|-|\n`<b>**    ~](  \n| |  um _~~", 59)
def test_odd_markdown_keeps_what_is_not_text(page, seed):
    assert_kept(markdown, page, rendered, kept=False, seed=seed)
