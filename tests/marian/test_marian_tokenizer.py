"""Published Marian models' tokenizers against SentencePiece itself, by spelling."""

import io
import itertools

import numpy as np
import pytest
import sentencepiece

from keras_tfmr.presets.marian_mt.tokenizer import MarianTokenizer, joined
from keras_tfmr.text.tokenizer import SubwordTokenizer
from training import phrasebook

TAGS = [">>por<<", ">>eng<<"]
TEXTS = [
    "O gato está na mesa.", ">>por<<  The cat is on the table.", ">>xxx<< The cat >>por<<",
    " >>eng<<O gato", "ﬁ ① Ｏ gato 🐈🐈 çã \u200b\u00ad x", "   a\t\tb \n c   ", "", ">>por<<",
    "word " * 300, "e\u0301 \u2581 </s> <pad> <un>",
]  # fmt: skip
PAIRS = phrasebook.pairs(1000)


def learned(lines, kind):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=300, model_type=kind,
        hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    return model.getvalue()


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def published(request):
    """Two SentencePiece models as OPUS-MT's are learned, and a joint vocabulary with gaps."""
    sides = [learned(lines, request.param) for lines in zip(*PAIRS, strict=True)]
    processors = [sentencepiece.SentencePieceProcessor(model_proto=side) for side in sides]
    pieces = {p.id_to_piece(i) for p in processors for i in range(p.get_piece_size())}
    pieces = sorted(pieces - {"</s>", "<unk>"})  # "<s>" stays: some vocabularies have it
    return sides, processors, [*pieces[:40], *pieces[45:], "", *TAGS]


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
        tokenizer = MarianTokenizer(joined(sides[0], pieces, reads_tags=True))
        tokenizer = tokenizer if default is None else tokenizer.into(default)
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


def test_it_is_made_again_of_its_config_and_file_and_any_bytes_are_a_text(tmp_path, published):
    sides, _, pieces = published
    tokenizer = MarianTokenizer(joined(sides[0], pieces, reads_tags=True)).into("eng")
    tokenizer.save(tmp_path / "source.model")
    content = (tmp_path / "source.model").read_bytes()
    found = MarianTokenizer.from_config(tokenizer.get_config(), content)
    assert (found.target_language, found.target_languages) == ("eng", ("por", "eng"))
    ids, _ = found.encode_truncated(np.random.default_rng(0).bytes(4000).split(b"a"), 16)
    assert (ids.numpy() < found.vocab_size).all() and (ids.numpy()[:, 0] > 0).all()
    assert [text.decode() for text in found.decode(ids).numpy()]


def test_errors_name_what_is_wrong():
    with pytest.raises(ValueError, match="not a SentencePiece model"):
        joined(b"nothing", [])
    with pytest.raises(ValueError, match="not joined with a Marian vocabulary"):
        MarianTokenizer(SubwordTokenizer.learn(["o gato"] * 20, vocab_size=300).model_bytes)
