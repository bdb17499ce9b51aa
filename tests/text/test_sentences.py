"""Documents to sentences: nothing lost, borders where readers see them, nothing left too long."""

import re

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from text_models import tokenizer

from keras_tfmr.text.sentences import SentenceSplitter

PT, EN = SentenceSplitter("pt"), SentenceSplitter("en")
LIMIT = 24
SHORT = {"tokenizer": tokenizer(), "max_length": LIMIT}


@tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
def both(texts):
    return PT.split(texts), PT.split(texts, **SHORT)


SPACE_AT_ENDS = re.compile(
    r"^[ \t\r\n\v\f\x85\xa0\u2000-\u200a\u2028\u2029\u3000]|[ \t\r\n\u2028]$"
)
TEXTS = st.lists(
    st.one_of(
        st.sampled_from([". ", "! ", "?", "…", "  ", "\t", ", ", "; ", "- ", "12. ", "Sr. "]),
        st.sampled_from(["n. 5", "J. ", "”", '"', "。", "Olá", "olá"]),
        st.sampled_from(["\n", "\r\n\r\n", "\u2028", "\ufdd0", "\ufdd2", "\x00"]),
        st.sampled_from(["palavra " * 40, "palavra" * 90, "uma, duas; " * 30]),
        st.text(max_size=8),
    ),
    max_size=24,
).map("".join)


def pieces_of(answer):
    """All pieces of the only text, and those that are sentences."""
    pieces = [piece.decode() for piece in answer[0].to_list()[0]]
    return pieces, [p for p, real in zip(pieces, answer[1].to_list()[0], strict=True) if real]


def sentences(text, splitter=PT, **options):
    return pieces_of(splitter.split(tf.constant([text]), **options))[1]


@settings(max_examples=80, deadline=None)
@given(TEXTS)
def test_the_pieces_joined_are_the_text_and_no_sentence_is_cut_off(text):
    for pieces, real in map(pieces_of, both(tf.constant([text]))):
        assert "".join(pieces) == text
        assert not any(SPACE_AT_ENDS.search(piece) for piece in real)
    assert not tokenizer().encode_truncated(tf.constant(real, tf.string), LIMIT)[1].numpy().any()


def test_borders_of_portuguese():
    for text, count in (
        ("O Sr. e a Dra. Reis vivem na R. Augusta, n.º 5, às 8.30. Sim?", 2),
        ("Ver a fig. 3 e o art. 5. Não. E o J. R. Silva? Claro!", 4),
        ('Ele disse: "Vamos embora." Eu fiquei.', 2),
        ('"Socorro!" gritou ele. "Já vou!" — disse ela.', 2),
        ("Bem... não sei. Talvez… Quem sabe?! (Ninguém.) Fim", 5),
        ("Olá.Tudo bem? Use Node.js ou a U.S.A. hoje.", 3),
        ("你好。再见！「好。」吗？", 4),
        ("Uma linha\noutra linha\r\n\r\n  * um ponto\n1. outro\n2) mais um", 5),
        ("\u00a0 ", 0),
        ("", 0),
    ):
        assert len(sentences(text)) == count, sentences(text)


def test_abbreviations_are_those_of_the_language(tmp_path, monkeypatch):
    text = "Mrs. Smith said No. 5 is open. He said no. I left at 5 p.m. daily."
    assert len(sentences(text, EN)) == 3
    assert len(sentences("Mrs. Smith left.")) == 2
    for language, text in {
        "de": "Am 3. Mai kam Hr. Reis z. B. zu Dr. Horn, Nr. 45. Und du?",
        "es": "La Sra. Reis vive en la Avda. Sol, núm. 5. ¿Y Ud. no?",
        "fr": "Mme. Reis voit le Dr. Horn, p. 5. Et toi?",
        "it": "La Sig.ra Reis vede il Dott. Horn, pag. 5. E tu?",
        "nl": "Dhr. Reis ziet Prof. Horn, blz. 5. En jij?",
        None: "Dr. Reis träffar Prof. Horn, vol. 5. Och du?",  # shared by several lists
    }.items():
        assert len(sentences(text, SentenceSplitter(language))) == 2, language
    assert len(sentences("Hon såg Excmo. Alla log. Bra.", SentenceSplitter())) == 3
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "sv"
    for words, count in (("t.ex\r\n\r\nNr #", 5), ("\ufefft.ex\n\n", 6), ("Nr #\n", 6), ("\n", 7)):
        own.write_text(words, "utf-8")
        text = 'Ta T.ex. Te. Se Nr. 5 nu. "Ja". Nr. Nej.'
        assert len(sentences(text, SentenceSplitter("sv"))) == count, words
    (tmp_path / "pt").write_text("", "utf-8")  # a corpus, say
    assert len(sentences("O Sr. Reis.", SentenceSplitter("pt"))) == 1
    own.write_bytes(b"\xe9tc")
    for wrong, said in ((own, "sv is not UTF-8"), ("xx", "'xx'.*de, en, es, fr, it, nl, pt")):
        with pytest.raises(ValueError, match=said):
            SentenceSplitter(wrong)


def test_too_long_a_sentence_is_cut_at_clauses_then_at_words():
    cut = sentences(", ".join(["the black cat sees the dog"] * 6), **SHORT)
    assert len(cut) > 1 and all(piece.rstrip(",").endswith("dog") for piece in cut)
    words = sentences("gato " * 90, **SHORT)
    assert {word for piece in words for word in piece.split()} == {"gato"}
