"""Sampled subwords: the same text, other pieces, as often as asked for, the same in any process."""

import collections
import itertools
import subprocess
import sys
import zlib

import numpy as np
import pytest

from keras_tfmr.text.tokenizer import SubwordTokenizer
from training.corpus import sampled_subwords
from training.corpus.sampled_subwords import SampledBatches, SampledSubwords

LINES = [
    "o gato preto dorme na cadeira velha",
    "  os gatos pretos dormem nas cadeiras velhas",
    "",
    "the black cat sleeps on the old chair",
    "the black cats were sleeping \N{CAT FACE} on old chairs",
    "gato",
] * 60


@pytest.fixture(scope="module")
def tokenizer():
    return SubwordTokenizer.learn(LINES, vocab_size=340)


@pytest.fixture(scope="module")
def ids(tokenizer):
    return tokenizer.encode_lines(LINES)


def rows(ids):
    values, offsets = ids
    return [values[a:b].tolist() for a, b in itertools.pairwise(offsets)]


def texts(ids, tokenizer):
    return [
        tokenizer.decode(np.array([row], "int32").reshape(1, -1)).numpy()[0].decode()
        for row in rows(ids)[:6]
    ]


def test_the_text_stays_and_the_pieces_change(tokenizer, ids):
    sampled = SampledSubwords(ids, tokenizer, share=0.5, seed=[1, 0])
    drawn = sampled.draw(0)
    assert texts(drawn, tokenizer) == LINES[:6] == texts(ids, tokenizer)
    assert drawn[0].dtype == ids[0].dtype and len(drawn[1]) == len(ids[1])
    changed = [a != b for a, b in zip(rows(drawn), rows(ids), strict=True)]
    assert 0.5 < np.mean(changed) < 0.9  # a sixth of the lines is empty
    assert rows(sampled.draw(1)) != rows(drawn)


def test_a_share_of_nothing_changes_nothing(tokenizer, ids):
    drawn = SampledSubwords(ids, tokenizer, share=0.0, seed=[1, 0]).draw(3)
    assert rows(drawn) == rows(ids)


def test_words_are_drawn_as_often_as_their_probabilities_say(tokenizer):
    word = tokenizer.encode_lines(["gato"])
    many = np.tile(word[0], 40_000), np.arange(40_001) * len(word[0])
    drawn = rows(SampledSubwords(many, tokenizer, share=0.3, seed=[1, 0]).draw(0))
    counts = collections.Counter(map(tuple, drawn))
    best, *others = tokenizer.spellings(word[0].tolist(), 8)
    assert best[0] == word[0].tolist()
    weights = np.exp(0.2 * np.array([score for _, score in others]))
    expected = [0.7, *(0.3 * weights / weights.sum())]
    found = [counts.pop(tuple(pieces)) / 40_000 for pieces, _ in (best, *others)]
    assert not counts
    np.testing.assert_allclose(found, expected, atol=0.01)


def test_spellings_are_those_of_sentencepiece_best_first(tokenizer):
    (word,) = rows(tokenizer.encode_lines(["gatos"]))
    found = tokenizer.spellings(word, 8)
    assert found[0][0] == word and len({tuple(pieces) for pieces, _ in found}) == len(found) > 1
    assert [score for _, score in found] == sorted((s for _, s in found), reverse=True)
    for pieces, _ in found:
        assert tokenizer.decode(np.array([pieces])).numpy()[0] == b"gatos"


def test_another_process_draws_the_same(tokenizer, ids, tmp_path):
    tokenizer.save(tmp_path / "tokenizer.model")
    code = """
import sys, zlib
from keras_tfmr.text.tokenizer import SubwordTokenizer
from training.corpus import sampled_subwords
from training.corpus.sampled_subwords import SampledSubwords
tokenizer = SubwordTokenizer.load(sys.argv[1])
ids = tokenizer.encode_lines(eval(sys.argv[2]) * 60)
values, offsets = SampledSubwords(ids, tokenizer, share=0.4, seed=[7, 1]).draw(5)
print(zlib.crc32(values.tobytes()), zlib.crc32(offsets.tobytes()))
"""
    values, offsets = SampledSubwords(ids, tokenizer, share=0.4, seed=[7, 1]).draw(5)
    wanted = f"{zlib.crc32(values.tobytes())} {zlib.crc32(offsets.tobytes())}"
    found = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "tokenizer.model", repr(LINES[:6])],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert found.stdout.split() == wanted.split()


def test_batches_hold_every_pair_of_every_epoch(tokenizer, ids):
    sides = [SampledSubwords(ids, tokenizer, share=0.3, seed=[1, side]) for side in (0, 1)]
    batches = SampledBatches(*sides, tokens_per_batch=512, seed=1, start_id=2, end_id=3)
    for epoch in (0, 1):
        fed = collections.Counter()
        found = list(batches.dataset(epoch).as_numpy_iterator())
        assert len(found) == batches.steps_per_epoch(epoch)
        for _, target in found:
            fed.update(tuple(row[row > 3].tolist()) for row in target if row.any())
        assert fed == collections.Counter(map(tuple, rows(sides[1].draw(epoch))))
    again = [target for _, target in batches.dataset(1, skip=2).as_numpy_iterator()]
    assert all((a == b).all() for a, b in zip(again, [t for _, t in found][2:], strict=True))


def test_a_corpus_in_files_is_drawn_from_alike(tokenizer, ids, tmp_path, monkeypatch):
    whole = SampledSubwords(ids, tokenizer, share=0.4, seed=[1, 0]).draw(2)
    monkeypatch.setattr(sampled_subwords, "LINES", 7)
    sampled = SampledSubwords(ids, tokenizer, share=0.4, seed=[1, 0], scratch=tmp_path)
    texts_drawn = rows(sampled.draw(2))
    assert [len(row) > 0 for row in texts_drawn] == [len(row) > 0 for row in rows(whole)]
    assert texts(sampled.draw(2), tokenizer) == LINES[:6] == texts(whole, tokenizer)
    in_memory = SampledSubwords(ids, tokenizer, share=0.4, seed=[1, 0]).draw(2)
    assert rows(in_memory) == texts_drawn and not list(tmp_path.iterdir())
