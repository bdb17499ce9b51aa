"""The tokenizer: lossless, defined for any bytes and ids, one in and outside the graph."""

import io
import unicodedata

import keras
import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from keras_tfmr.text.tokenizer import SubwordTokenizer

TEXT = [
    "O gato preto dorme no sofá.",
    "A menina não quer comer o pão de queijo.",
    "Às vezes, nós vamos à praia com os irmãos.",
    "The black cat sleeps on the sofa.",
    "The girl does not want to eat the cheese bread.",
    "Sometimes we go to the beach with our brothers.",
    "São 23 horas e 45 minutos!",
] * 3

STRINGS = [
    "", "   ", "  O  gato   ", "x O gato", "a\nb\tc\r\n", "a\x00b\x01\x7f", "😀 👩‍👩‍👧 é bom",
    "\u2581a\u2581 \u2581", "<s> </s> <unk> <pad> <0x41>", "中文 and кириллица",
    "\ufeffx\u200b\u00a0y\u3000", "1234567890 3,14",
]  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer():
    return SubwordTokenizer.learn(TEXT, vocab_size=400)


def decoded(tokenizer, ids):
    return [text.decode("utf-8") for text in tokenizer.decode(ids).numpy()]


CHARACTERS = "  \n\taeiouãçéxậ각\u0323\u0302\u0301\u1100\u1161\u2581😀中\ud7ff\ue000\U0010ffff"


@given(st.lists(st.text(CHARACTERS), max_size=9))
@example(STRINGS)
@settings(max_examples=60, deadline=None)
def test_text_comes_back_composed(tokenizer, texts):
    """And outside of the graph it has the same ids, as composed text has, too."""
    ids = tokenizer.encode(tf.constant(texts, tf.string))
    composed = [unicodedata.normalize("NFC", text) for text in texts]
    assert decoded(tokenizer, ids) == composed
    assert set(range(4)).isdisjoint(ids.flat_values.numpy().tolist())
    for lines in (texts, composed):
        values, offsets = tokenizer.encode_lines(lines)
        # Of two splits that are as probable, such as e|ee and ee|e, each may take another one.
        np.testing.assert_array_equal(offsets, ids.row_splits)
        rows = np.split(values, offsets[1:-1]) if lines else []
        assert [sorted(row) for row in rows] == [sorted(row) for row in ids.to_list()]
        found = tf.RaggedTensor.from_row_splits(values, offsets)
        assert decoded(tokenizer, found) == composed


@pytest.mark.parametrize("bad", [b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80 b"])
def test_invalid_utf8_becomes_the_replacement_character(tokenizer, bad):
    text = decoded(tokenizer, tokenizer.encode(tf.constant([bad])))[0]
    assert "\ufffd" in text
    assert text.replace("\ufffd", "") == bad.decode("utf-8", "ignore")


def test_any_ids_decode_to_valid_utf8(tokenizer):
    draw = np.random.default_rng(0)
    ids = draw.integers(-3, tokenizer.vocab_size + 50, size=[200, 12])
    ids[:100] = draw.integers(4, 260, size=[100, 12])  # bytes, few of which make a character
    ids[0, :3] = [2**31 - 1, -(2**31), 400]
    for text in tokenizer.decode(ids).numpy():
        assert text.decode("utf-8").encode() == text


def test_decode_ends_at_the_end_id_and_skips_special_ids(tokenizer):
    gato = tokenizer.encode(["O gato"]).to_list()[0]
    end = tokenizer.eos_id
    rows = [
        [tokenizer.bos_id, *gato, end, *gato],
        [0, gato[0], 1, 10**9, -1, *gato[1:], end],
        [end, *gato, *gato],
    ]
    width = max(map(len, rows))
    rows = [row + [0] * (width - len(row)) for row in rows]
    assert decoded(tokenizer, rows) == ["O gato", "O gato", ""]


def test_a_tokenizer_outlives_tensorflows_cache_of_ops(tokenizer):
    before = tokenizer.encode(TEXT).to_list()
    keras.utils.set_random_seed(1)
    assert tokenizer.encode(TEXT).to_list() == before


def test_truncated_rows_end_with_the_end_id_and_are_reported(tokenizer):
    exact = "O gato preto"
    length = len(tokenizer.encode([exact]).to_list()[0]) + 1
    ids, truncated = tokenizer.encode_truncated([exact, exact + " dorme", "", "a" * 50_000], length)
    assert truncated.numpy().tolist() == [False, True, False, True]
    lengths = np.sum(ids.numpy() != 0, axis=1)
    assert lengths.tolist() == [length, length, 1, length]
    assert (ids.numpy()[range(4), lengths - 1] == tokenizer.eos_id).all()
    assert decoded(tokenizer, ids)[0] == exact
    with pytest.raises(ValueError, match="at least 1, not 0"):
        tokenizer.encode_truncated([exact], 0)


def test_learning_is_deterministic_and_a_file_holds_it_all(tokenizer, tmp_path):
    assert SubwordTokenizer.learn(iter(TEXT), vocab_size=400).model_bytes == tokenizer.model_bytes
    tokenizer.save(tmp_path / "tokenizer.model")
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.model"]
    loaded = SubwordTokenizer.load(tmp_path / "tokenizer.model")
    assert loaded.vocab_size == tokenizer.vocab_size
    assert loaded.encode(STRINGS).to_list() == tokenizer.encode(STRINGS).to_list()


def test_a_long_text_is_learned_from_evenly_spaced_lines():
    lines = ["aaa bbb"] * 100 + ["ccc ddd"] * 100
    sample = SubwordTokenizer.learn(lines[::4], vocab_size=280)
    learned = SubwordTokenizer.learn(lines, vocab_size=280, max_lines=50)
    assert learned.model_bytes == sample.model_bytes


def test_errors_name_what_was_received(tmp_path):
    with pytest.raises(ValueError, match="no text to learn a vocabulary from in 2 lines"):
        SubwordTokenizer.learn(["", " "])
    with pytest.raises(ValueError, match=r"must be at least \d+ for these 21 lines.*Received: 200"):
        SubwordTokenizer.learn(TEXT, vocab_size=200)
    (tmp_path / "broken.model").write_bytes(b"not a model")
    with pytest.raises(ValueError, match=r"broken\.model: not a SentencePiece model"):
        SubwordTokenizer.load(tmp_path / "broken.model")
    ids = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}
    for options, message in (({"pad_id": -1}, "ids 0 to 3"), (ids, "byte_fallback")):
        foreign = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(TEXT), model_writer=foreign, vocab_size=80, minloglevel=2,
            **options,
        )  # fmt: skip
        with pytest.raises(ValueError, match=message):
            SubwordTokenizer(foreign.getvalue())
