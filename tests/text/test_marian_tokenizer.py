"""Published Marian models' tokenizers against SentencePiece itself, by spelling."""

import functools
import io
import itertools

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_tfmr.text.marian_tokenizer import MarianTokenizer, joined
from keras_tfmr.text.tokenizer import SubwordTokenizer
from training import phrasebook

TAGS = [">>por<<", ">>eng<<"]
TEXTS = [
    "O gato está na mesa.",
    ">>por<<  The cat is on the table.",
    ">>xxx<< The cat >>por<<",
    " >>eng<<O gato",
    "ﬁ ① Ｏ gato 🐈🐈 çã \u200b\u00ad x",
    "   a\t\tb \n c   ",
    "",
    ">>por<<",
    "word " * 300,
    "e\u0301 \u2581 </s> <pad> <un>",
]
PAIRS = phrasebook.generate(1000, seed=1)


def learned(lines, kind):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=300, model_type=kind,
        hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    return model.getvalue()


@functools.cache
def publish(kind):
    """Two SentencePiece models as OPUS-MT's are learned, and a joint vocabulary with gaps."""
    sides = [learned(lines, kind) for lines in zip(*PAIRS, strict=True)]
    processors = [sentencepiece.SentencePieceProcessor(model_proto=side) for side in sides]
    pieces = {p.id_to_piece(i) for p in processors for i in range(p.get_piece_size())}
    pieces = sorted(pieces - {"</s>", "<unk>"})  # "<s>" stays: some vocabularies have it
    return sides, processors, [*pieces[:40], *pieces[45:], "", *TAGS]


@pytest.fixture(params=["unigram", "bpe"])
def published(request):
    return publish(request.param)


def reference_ids(processor, pieces, text, default=None):
    """What the transformers tokenizer makes of a text, ids as ours are numbered."""
    ids = {piece: number for number, piece in enumerate(pieces, 4) if piece and piece != "<s>"}
    found = [ids[default]] if default else []
    if text.lstrip().startswith(tuple(TAGS)):
        found, text = [ids[text.lstrip()[:7]]], text.lstrip()[7:]
    return found + [ids.get(piece, 1) for piece in processor.encode(text, out_type=str)]


def test_ids_are_the_vocabulary_s_as_the_published_model_has_them(published):
    sides, processors, pieces = published
    for default in (None, "por"):
        spm = joined(sides[0], pieces, reads_tags=True, target_language=default)
        tokenizer = MarianTokenizer(spm)
        tag = default and f">>{default}<<"
        expected = [reference_ids(processors[0], pieces, text, tag) for text in TEXTS]
        assert tokenizer.encode(TEXTS).to_list() == expected
        assert any(1 in row for row in expected)  # what the vocabulary lacks is among it
        values, offsets = tokenizer.encode_lines(TEXTS)
        assert [values[a:b].tolist() for a, b in itertools.pairwise(offsets)] == expected
    ids, truncated = tokenizer.encode_truncated(TEXTS, 20)
    assert truncated.numpy().tolist() == [len(row) > 19 for row in expected]
    for row, found in zip(expected, ids.numpy(), strict=True):
        assert found[found != 0].tolist() == [*row[:19], 3]
    assert not tokenizer.encode_truncated(["a" + " " * 90_000 + "b"], 20)[1].numpy()[0]


def test_what_is_written_is_what_sentencepiece_writes(published):
    sides, _, pieces = published
    tokenizer = MarianTokenizer(joined(sides[1], pieces))
    ids = np.random.default_rng(1).integers(4, 4 + len(pieces), (40, 12))
    ids[:, 9] = 3  # what comes behind the end is not written
    ids[::2, 4] = [0, 1, 2, -5, 10**6] * 4
    names = [None] * 4 + [p if p != "<s>" else None for p in pieces]
    for row, text in zip(ids, tokenizer.decode(ids).numpy(), strict=True):
        known = [i for i in row[:9] if 3 < i < len(names)]
        expected = "".join(
            names[i] or f"<{'none' if not pieces[i - 4] else 's'} {i}>" for i in known
        )
        assert text.decode() == expected.replace("\u2581", " ").strip()
    shown = tokenizer.pieces(ids).numpy()
    assert shown[1, 9] == b"</s>" and shown[0, 4] == b""


@pytest.fixture(scope="module")
def small():
    spm = learned([*(pair[0] for pair in PAIRS[:300]), *["o a"] * 99], "unigram")
    return MarianTokenizer(joined(spm, ["\u2581o", "a", *TAGS], reads_tags=True))


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=3))
@settings(max_examples=60, deadline=None)
def test_any_bytes_are_a_text(small, texts):
    ids, _ = small.encode_truncated(tf.constant(texts), 16)
    assert (ids.numpy() < small.vocab_size).all() and (ids.numpy()[:, 0] > 0).all()
    for text in small.decode(ids).numpy():
        text.decode()


def test_a_file_says_of_itself_which_kind_it_is(tmp_path, small):
    small.save(tmp_path / "source.model")
    loaded = SubwordTokenizer.load(tmp_path / "source.model")
    assert type(loaded) is MarianTokenizer and loaded.tags == TAGS
    assert loaded.encode([">>por<< o a"]).to_list()[0][:2] == [6, 4]


def test_subwords_of_another_tokenizer_come_after_the_vocabulary():
    sides, processors, pieces = publish("unigram")
    words = ["tanque blindado", "armoured tank"]
    sources = [source for source, _ in PAIRS[:300]]
    other = SubwordTokenizer.learn([*words * 99, *TAGS * 99, *sources], vocab_size=500)
    options = {"reads_tags": True, "target_language": "por"}
    before = [MarianTokenizer(joined(side, pieces, **options)) for side in sides]
    after = [tokenizer.extended(other) for tokenizer in before]
    everything = np.arange(after[0].vocab_size)
    spelled, same = (tokenizer.pieces(everything).numpy().tolist() for tokenizer in after)
    assert spelled == same  # one vocabulary, two segmentations
    size = before[0].vocab_size
    assert spelled[:size] == before[0].pieces(everything[:size]).numpy().tolist()
    learned = sentencepiece.SentencePieceProcessor(model_proto=other.model_bytes)
    own = {learned.id_to_piece(i).encode() for i in range(260, len(learned))}
    assert set(spelled[size:]) == own - set(spelled[:size])
    lacked = {processors[0].id_to_piece(i).encode() for i in range(3, len(processors[0]))}
    assert own & lacked - set(spelled[:size])  # read as unknown until now
    for old, new in zip(before, after, strict=True):
        assert len(new.encode(words[:1])[0]) < len(old.encode(words[:1])[0])
        ids = new.encode(words).to_tensor()[:, 1:]  # without the tag
        assert new.decode(ids).numpy().tolist() == [word.encode() for word in words]
        texts = [">>eng<< O gato", "O gato"]
        firsts = [[row[0] for row in one.encode(texts).to_list()] for one in (old, new)]
        assert firsts[0] == firsts[1] == [4 + pieces.index(tag) for tag in reversed(TAGS)]


def test_errors_name_what_is_wrong():
    spm = learned(["o gato"] * 20, "unigram")
    tags = {"reads_tags": True, "target_language": "deu"}
    with pytest.raises(ValueError, match="language 'deu'; the model's are: por, eng"):
        joined(spm, TAGS, **tags)
    with pytest.raises(ValueError, match="none, the model has one target language"):
        joined(spm, ["a"], **tags)
    with pytest.raises(ValueError, match="not a SentencePiece model"):
        joined(b"nothing", [])
    with pytest.raises(ValueError, match="not joined with a Marian vocabulary"):
        MarianTokenizer(SubwordTokenizer.learn(["o gato"] * 20, vocab_size=300).model_bytes)
    sides, _, pieces = publish("bpe")
    with pytest.raises(ValueError, match=r"only a unigram .* can be extended, not BPE"):
        MarianTokenizer(joined(sides[0], pieces)).extended(MarianTokenizer(joined(spm, ["a"])))
