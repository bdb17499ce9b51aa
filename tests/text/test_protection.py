"""Protected spans: what is found, slots for it and back, against Python's `re`."""

import re

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_tfmr.text.protection import NO_SPAN, patterns, protect, restore
from keras_tfmr.text.spans import DEFAULT, PATTERNS, SLOTS, combined, python_pattern

# What is protected of each text, by its name.
FOUND = {
    "code": {"Use `pip install`, ``a ` b`` e ` não": ["`pip install`", "``a ` b``"]},
    "tag": {
        'É <b>já</b> <a title="a > b">x</a> se a < b e c > d<br/>': [
            "<b>", "</b>", '<a title="a > b">', "</a>", "<br/>",
        ],
    },
    "url": {
        "Veja (https://a.b/c?d=1), http://pt.w.org/A_(b). www.x.pt! «ftp://é/ã»": [
            "https://a.b/c?d=1", "http://pt.w.org/A_(b)", "www.x.pt", "ftp://é/ã",
        ],
        "看https://a.b/c。": ["https://a.b/c"],
    },
    "email": {"Escreva a a.b+c@d-e.pt.": ["a.b+c@d-e.pt"]},
    "placeholder": {
        "{} {0:.2f} {{ nome }} {nome!r}, ${x}: %(n)d %1$s, 100 % de 20%de %s.": [
            "{}", "{0:.2f}", "{{ nome }}", "{nome!r}", "${x}", "%(n)d", "%1$s", "%s",
        ],
        "{{{ a }}} {{ b | upper }}, {{ c[0].d }} {{ _('x') }}{% if a < 1 %}{# e f #}{#if g}": [
            "{{{ a }}}", "{{ b | upper }}", "{{ c[0].d }}", "{{ _('x') }}", "{% if a < 1 %}",
            "{# e f #}", "{#if g}",
        ],
        "{n, plural, one {# um} other {{m, select, a {x {y}} other {}}}}! <%= a > b %> %": [
            "{n, plural, one {# um} other {{m, select, a {x {y}} other {}}}}", "<%= a > b %>",
        ],
        "<?php if ($a->b): ?>${a + {b: 1}} {x[0].y:{n}} {um gato}, {{ aberto {a}": [
            "<?php if ($a->b): ?>", "${a + {b: 1}}", "{x[0].y:{n}}", "{a}",
        ],
    },
    "option": {"Com --all-of e --x=1.5, não a--b ou ---": ["--all-of", "--x=1.5"]},
    "number": {"Às 10:30 de 1.234,5.": ["10:30", "1.234,5"]},
}  # fmt: skip


def spans_of(text, pattern):
    texts, spans, _ = protect(tf.constant([text]), pattern)
    return texts.numpy()[0].decode(), [
        span.decode() for span in spans.numpy()[0] if span != NO_SPAN
    ]


@pytest.mark.parametrize("name", PATTERNS)
def test_named_patterns_find_the_same_in_re2_and_in_python(name):
    for text, expected in FOUND[name].items():
        found = [match.group() for match in re.finditer(python_pattern([name]), text)]
        assert spans_of(text, combined([name]))[1] == found == expected


TEXTS = st.text(st.sampled_from("ab `<>{}%s.-:/ \ue000\ue005\uefff\uf000\n\0é\u0301😀"))


@settings(deadline=None, max_examples=50)
@given(st.lists(TEXTS, min_size=1, max_size=3))
def test_texts_have_slots_for_their_spans_and_come_back(texts):
    pattern = combined(DEFAULT)
    protected, spans, crowded = protect(tf.constant(texts), pattern)
    for text, found, own, full in zip(
        texts, protected.numpy(), spans.numpy(), crowded.numpy(), strict=True
    ):
        outside, expected = (f(python_pattern(DEFAULT), text) for f in (re.split, re.findall))
        slots = [*SLOTS[: len(expected)], *expected[len(SLOTS) :]]
        assert found.decode() == "".join(map("".join, zip(outside, [*slots, ""], strict=True)))
        assert [span.decode() for span in own if span != NO_SPAN] == expected[: len(SLOTS)]
        assert full == (len(expected) > len(SLOTS))
    assert [text.decode() for text in restore(protected, spans).numpy()] == texts


def test_spans_stand_where_their_slots_do_and_missing_ones_at_the_end():
    spans = [["<b>", "</b>", "x y"], [], ["{a}"]]
    spans = tf.constant([[*own, *[NO_SPAN] * (len(SLOTS) - len(own))] for own in spans])
    texts = tf.constant([f"({SLOTS[1]}), {SLOTS[0]}a", f"a{SLOTS[3]}", ""])
    found = [text.decode() for text in restore(texts, spans).numpy()]
    assert found == ["(</b>), <b>a x y", f"a{SLOTS[3]}", "{a}"]


def test_texts_of_odd_characters_take_no_long():
    """Python's `re` would take minutes where a pattern can go on from each place to the end."""
    pattern = python_pattern(DEFAULT)
    begun = ["x", "{{", "{{ a ", "{a}{{", "{%", "<% ", "<?", "<!-- ", "{a, plural,", '<a "', "`"]
    for text in begun:
        assert pattern.sub("", text * (100_000 // len(text))) is not None


def test_wrong_patterns_are_named():
    with pytest.raises(ValueError, match=r"'urls' is none of code, tag, url.*give '\(urls\)'"):
        combined(["urls"])
    with pytest.raises(ValueError, match=r"RE2 cannot read the pattern '\(a'"):
        patterns(["(a"])
    for pattern in ("a*", r"\b", r"\Bx?", "a|^", r"(?:\bx?)*$"):  # some match "" elsewhere only
        for check in (patterns, python_pattern):
            with pytest.raises(ValueError, match=r"must not match nothing.*Received: "):
                check(["url", pattern])
    assert spans_of("urls", combined(["(urls)"]))[1] == ["urls"]
