"""Each span of a text stands in its translation exactly once, whatever the model is."""

import re

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from text_models import LINES, allow_int8, tiny, tiny_model, tokenizer

from keras_tfmr import Transformer, Translator, decoding
from keras_tfmr.decoding import DecodingConfig
from keras_tfmr.export.saved_session import SavedSession
from keras_tfmr.signatures.inputs import terms_of
from keras_tfmr.text.protection import NO_SPAN, restore
from keras_tfmr.text.spans import DEFAULT, SLOTS, python_pattern
from keras_tfmr.text.terms import parted, with_terms

OWN = ("code", r"\{[a-z]+\}", "#[0-9]{2,}", "url")


def protecting(seed=3, scale=3, *, protect=None, **decoding):
    """A translator with slots and random weights."""
    size = tokenizer(SLOTS).vocab_size
    sizes = {"source_vocab": size, "target_vocab": size}
    model = tiny(Transformer, seed=seed, scale=scale, logits_bias=True, **sizes)
    decoding = {"num_beams": 3, "num_return_sequences": 2, "max_length": 14, **decoding}
    return Translator(
        model, tokenizer(SLOTS), config=DecodingConfig(**decoding), max_source_length=24,
        protect=protect,
    )  # fmt: skip


def has_few_spans(text):
    return all(len(re.findall(python_pattern(each), text)) <= 16 for each in (DEFAULT, OWN))


SPANS = st.sampled_from(
    ["{nome}", "`a  b`", "https://a.b/c?d=ã", "<b>", "</b>", "%(n)d", "--all-of", "a@b.pt",
     "#12345", "\ue001", "\ue00f\ue000", "\uefff", "<a href='x y'>", "{x}\0", "<é"]
)  # fmt: skip
WORDS = st.sampled_from(
    ["gato", "Não ", ". ", "! ", " ", "  ", "\n", ", ", "(", ")", "é", "a b c. D "]
)
TEXTS = st.lists(SPANS | WORDS, max_size=60).map("".join).filter(has_few_spans)
BATCHES = st.lists(TEXTS, min_size=1, max_size=4)


def assert_once(text, translation, protect=DEFAULT):
    spans = re.findall(python_pattern(protect), text)
    for span in {*spans}:  # which may be a part of another one
        count = sum(other.count(span) for other in spans)
        assert translation.count(span) == count, (span, text, translation)
    assert not {*re.findall("[\ue000-\uefff]", translation)} - {*text}


def int8_session(translator, folder):
    """The function from texts to translations of an export in int8, in a session."""
    translator.signatures = {name: translator.signatures[name] for name in ("translate", "score")}
    with pytest.MonkeyPatch.context() as patch:
        allow_int8(patch)
        options = {"precision": "int8", "texts": [*LINES, "O {a}."], "check": False}
        session = SavedSession(translator.export(folder, **options))

    def translate(texts):
        texts = np.array([text.encode() for text in texts], object)
        return [
            [text.decode()] for text in session.run("translate", {"text": texts})["translation"]
        ]

    return translate


@pytest.fixture(scope="module")
def translator():
    return protecting()


LATER = [pytest.param(way, marks=pytest.mark.ci) for way in ("documents", "session")]


@pytest.fixture(scope="module", params=["beams", *LATER])
def way(request, translator, tmp_path_factory):
    """A function from texts to the translations of each, and what is protected."""
    if request.param == "beams":
        return translator.translate_nbest, DEFAULT
    if request.param == "session":
        exported = protecting(scale=1, num_beams=2)
        return int8_session(exported, tmp_path_factory.mktemp("export")), DEFAULT
    greedy = {"num_beams": 1, "num_return_sequences": 1, "seed": 5, "scale": 2}
    found = protecting(protect=OWN, max_length=9, **greedy).translate_document
    return lambda texts: [[one.text] for one in found(texts)], OWN


@settings(max_examples=15, deadline=None)
@given(texts=BATCHES)
def test_each_span_stands_once_in_what_any_model_says(way, texts):
    translate, protect = way
    for text, translations in zip(texts, translate(texts), strict=True):
        assert translations
        for translation in translations:
            assert_once(text, translation, protect)


def test_spans_are_one_token_and_attached_as_the_slots_are(translator):
    """The same as the slots themselves, which are protected characters of a text."""
    texts = ["Diz ({nome}), `a b`!", "Diz (\ue000), \ue001!"]
    one, other = translator.translate(texts)
    assert one == other.replace("\ue000", "{nome}").replace("\ue001", "`a b`")
    slotted = ["(\ue000)", "x\ue000, \ue001.", "\ue000\ue001"]
    decoded = translator.target_tokenizer.decode(translator.source_tokenizer.encode(slotted))
    assert [text.decode() for text in decoded.numpy()] == slotted


def test_a_span_is_one_token_of_an_explanation():
    """Of a model that says the slots it may say, and then the end."""
    translator, text = protecting(), "Diz ({nome}), `a b`!"
    bias = np.zeros(translator.target_tokenizer.vocab_size, "float32")
    bias[translator.target_tokenizer.eos_id] = 500
    bias[[*translator.target_tokenizer.slot_ids]] = 1000
    translator.model.get_layer("embedding").bias.assign(bias)
    [explained] = translator.explain([text])
    assert len(explained.source_tokens) == translator.token_counts(["Diz (\ue000), \ue001!"])
    assert {"{nome}", "`a b`"} < {*explained.source_tokens}
    assert {*explained.target_tokens} == {"{nome}", "`a b`", "</s>"}


def test_of_a_text_with_too_many_spans_the_first_are_protected(translator):
    """The others are text; sentences have 16 each."""
    sentences = [f"Diz {''.join(f'{{n{i}}}' for i in range(k, k + 9))} já." for k in (0, 9)]
    whole = " ".join(sentences)
    [found] = translator.translate([whole])
    assert_once(whole.replace("{n16}", "").replace("{n17}", ""), found)
    assert not translator.translate(sentences)[0].truncated
    assert not translator.translate(["{a}" * 16])[0].truncated
    crowded = ["{a}" * 17]
    found = translator.translate(crowded) + translator.translate_nbest(crowded)[0]
    assert all(one.truncated for one in found + translator.score(crowded, ["{a}"]))
    [found] = translator.translate_document([whole])
    assert found.text == " ".join(translator.translate(sentences)) and not found.truncated
    assert translator.translate_document(["Diz " + "{a}" * 17])[0].truncated


@pytest.mark.ci
def test_texts_of_spans_and_spaces_are_their_own_translations(translator):
    texts = [" {a} ", "", " ", "`x` {b}" * 8]
    expected = [" {a} ", "", "", "`x` {b}" * 8]
    found = translator.translate(texts)
    assert found == expected and [one.score for one in found] == [0.0] * 4
    assert translator.translate_nbest(texts) == [[text] for text in expected]
    texts.append("`x` {b}" * 20)
    assert [found.text for found in translator.translate_document(texts)] == texts


def test_scores_see_slots(translator):
    """Spans of a reference are numbered as in the text; the second of equal ones is the second."""
    texts, references = ["Diz {a}, {b}, {a}."] * 2, ["{b} says {a} {c} {a} {a}", "no"]
    slotted = [f"Diz {SLOTS[0]}, {SLOTS[1]}, {SLOTS[2]}."] * 2
    given = [f"{SLOTS[1]} says {SLOTS[0]} {{c}} {SLOTS[2]} {{a}}", "no"]
    source, _ = tokenizer(SLOTS).encode_truncated(slotted, 24)
    target, _ = tokenizer(SLOTS).encode_truncated(given, 14)
    fed = tf.pad(target[:, :-1], [[0, 0], [1, 0]], constant_values=tokenizer().bos_id)
    expected, tokens = decoding.score(translator.model([source, fed]), target)
    found = translator.score(texts, references)
    assert [one.tokens for one in found] == tokens.numpy().tolist()
    np.testing.assert_allclose([one.log_prob for one in found], expected, rtol=1e-4)


TERMS = {
    "gato": "CAT", "gato preto": "black {cat}", "ção": "?", "C++": "C plus plus", "Ana": "Anna",
    "d'água": "of water", "a.b": "AB", "preto": "", "  fim\fde  linha ": "end of line",
    "soma\xa0": "SUM", "straße ": "road", "Maçã": "Apple",
}  # fmt: skip


@pytest.mark.ci
def test_terms_have_the_given_translations(translator):
    cases = (
        ("O gato  preto e o Gato.", ["black {cat}", "CAT"], ["gato"]),
        ("Gatos, gatoé, nação, análi, axb", [], ["CAT", "?", "AB", "Anna"]),
        ("ana e Ana: C++, a.b", ["Anna", "C plus plus", "AB"], []),
        ("`gato` e {gato}, FIM de\nlinha d'água",
         ["`gato`", "{gato}", "end of line", "of water"], []),
        ("gato " * 16, ["CAT"] * 16, []),
        # Equal for Unicode, in other bytes.
        ("gato\xa0preto, fim\u2003de\u2009linha", ["black {cat}", "end of line"], ["CAT"]),
        ("A ſoma: STRASSE, STRAẞE, ſtraße, Mac\u0327a\u0303",
         ["SUM", *["road"] * 3, "Apple"], ["SS"]),
        ("\ufdd0gato\ufdd0 \ue005", ["CAT", "\ue005"], []),
    )  # fmt: skip
    answers = translator.translate_with_terms([text for text, *_ in cases], TERMS)
    for (_, present, absent), answer in zip(cases, answers, strict=True):
        assert all(answer.count(term) == present.count(term) for term in present), answer
        assert not any(term in answer for term in absent), answer
    assert answers[2] == translator.translate_with_terms([cases[2][0]], TERMS)[0]  # alone
    assert translator.translate_with_terms(["nada"], TERMS) == translator.translate(["nada"])
    [many] = translator.translate_with_terms(["gato " * 17], TERMS)
    assert many.count("CAT") == 16 and many.truncated
    function = translator.signatures["translate_with_terms"]
    with pytest.raises(tf.errors.InvalidArgumentError, match="same batch size"):
        function(tf.constant(["a"]), tf.constant(["a\tb", "a\tb"]))


WRONG_TERMS = [
    ({"a": 1}, TypeError, "must be a dict"),
    ({" ": "x"}, ValueError, "visible"),
    ({"a\tb": "x"}, ValueError, "without tabs"),
    ({SLOTS[3]: "x"}, ValueError, "U\\+E000"),
    ({"a": "x" * 8191}, ValueError, "8192 bytes.*8193 bytes for 'a'"),
]


def test_terms_that_cannot_be_sent_are_refused():
    for terms, error, words in WRONG_TERMS:
        with pytest.raises(error, match=words):
            terms_of(["a"], terms)
    assert terms_of(["a"], {"a": "x" * 8190})["terms"] == [b"a\t" + b"x" * 8190]


def slots_of(texts, terms, spans=()):
    """Texts with slots for their terms, and the spans of each."""
    given = [tf.constant(each, tf.string) for each in (texts, [*spans] * len(texts), terms)]
    slotted, found, _ = with_terms(*given)
    found = [[span for span in row if span != NO_SPAN] for row in found.numpy()]
    return [*zip(slotted.numpy(), [parted(row).numpy().tolist() for row in found], strict=True)]


# For each, the translation of "gato preto" or None, of the text "um gato preto".
LINES_OF_TERMS = [
    (b"gato preto\tcat", b"cat"),
    (b"gato\tx\r\ngato preto\tcat\r\n", b"cat"),
    (b"gato preto\ta\tb\nGATO PRETO\tc\ngato preto\td", b"a\tb"),
    (b"gato preto\t", b""),
    (b"gato preto", None),
    (b"\tx\n \tx\n\n\xc2\xa0\tx", None),
    (SLOTS[0].encode() + b"\tx\ngato" + SLOTS[0].encode() + b"\tx", None),
    (b"\xff\tx\n\0\tx\n\\\t\\1\n[\tx\n(?i\tx\n$^\tx", None),
    (b"gato preto\tcat\n" + b"a\t\n" * 3000, b"cat"),
    (b"a\t\n" * 3000 + b"gato preto\tcat", None),
    (b"gato preto\tcat" + b"x" * 8192, None),
    ("\u0130".encode() * 40_000 + b"\tx", None),
    (b". " * 40_000 + b"\tx", None),
]


def test_no_line_of_terms_harms_another_text():
    """What is no term is passed over: an error would be of the whole batch."""
    text, span = f"um gato preto {SLOTS[0]} {SLOTS[0]}".encode(), b"{s}"
    lines = [lines for lines, _ in LINES_OF_TERMS]
    together = slots_of([text] * len(lines), lines, [span, span])
    for (one, expected), found in zip(LINES_OF_TERMS, together, strict=True):
        own = [] if expected is None else [expected]
        assert found[1] == [*own, span, span] and found == slots_of([text], [one], [span, span])[0]
    assert slots_of([], []) == [] and slots_of([b"a"], [b""]) == [(b"a", [])]


def test_spaces_part_terms_from_other_words():
    """A model may put a subword without a space behind a slot. Other spans stay as it says."""
    terms = tf.constant(["um\tONE\ndois\t(two)\ntrês\ttrês x\nAna\t機\na\ta\nb\t"])
    text = f"um dois {SLOTS[0]} três Ana a b"
    _, spans, _ = with_terms(tf.constant([text]), tf.constant(["x\0é"]), terms)
    said = "x{0}é{1}y {2}{3}5{4}.{2}z{5}z{0}{6}z".format(*SLOTS)
    found = parted(restore(tf.constant([said]), spans)).numpy()[0].decode()
    assert found == "x ONE é(two)y x\0é três x 5機.x\0éz a z ONE z"


@pytest.mark.ci
def test_models_without_slots_leave_all_as_it_is():
    """A slot in their texts is a character like others."""
    plain = Translator(tiny_model(), tokenizer(), config=DecodingConfig(max_length=12))
    assert plain.get_config()["protect"] is None
    slotted = plain.protection.slotted(tf.constant(["Diz {a} \ue000!"]))
    assert slotted.texts.numpy()[0].decode() == "Diz {a} \ue000!"
    assert plain.translate_document(["{a}\ue005\n\ue006"])[0].text.endswith("\n\ue006")
    with pytest.raises(ValueError, match="both vocabularies must have slots"):
        Translator(tiny_model(), tokenizer(), protect=["url"])
    with pytest.raises(ValueError, match="translate_with_terms needs a model with slots"):
        plain.translate_with_terms(["o gato"], TERMS)
