"""Slots in pairs to learn from, in the vocabulary, and in a run's evaluation and settings."""

import collections

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from keras_tfmr import SubwordTokenizer, TransformerConfig
from keras_tfmr.text.spans import DEFAULT, SLOTS
from training.command.disk import write_json
from training.corpus.slots import SlotInserter
from training.data import encode
from training.run.run_folder import RunFolder
from training.settings.init_from import Start
from training.settings.training_config import TrainingConfig
from training.tasks import TranslationTask

SPANS = ("`c`", "<b>", "</b>", "{x}", "--o", "https://a.b/c")
TEXTS = st.lists(st.sampled_from([*SPANS, *SPANS, "Tom", "cão", "3.5", "é", ",", SLOTS[3]]))


@hypothesis.settings(deadline=None, max_examples=200)
@hypothesis.given(TEXTS, TEXTS, st.integers(0, 9))
@hypothesis.example(["`c`"] * 17 + [SLOTS[3]], ["`c`"] * 17 + [SLOTS[3]], 0)  # beyond all slots
def test_slots_stand_for_what_both_sides_share(source, target, seed):
    """Word for word, because no span of these has a space."""
    found = SlotInserter(DEFAULT, seed)(" ".join(source), " ".join(target))
    stands_for, order = [], []
    for before, after in zip((source, target), found, strict=True):
        words = dict(enumerate(before))
        after = after.split(" ") if before else []
        assert len(before) == len(after)
        changed = [(slot, words[i]) for i, slot in enumerate(after) if slot in SLOTS]
        stands_for.append(dict(changed))
        order.append([slot for slot, _ in changed])
        assert len(order[-1]) == len(stands_for[-1])  # each slot once
        for old, new in zip(before, after, strict=True):
            assert new in SLOTS or new == (old if old not in SLOTS else "\ufffd")
    assert stands_for[0] == stands_for[1]
    assert [*map(ord, order[0])] == [ord(order[0][0]) + i for i in range(len(order[0]))]
    own, its = (collections.Counter(w for w in side if w in SPANS) for side in (source, target))
    slots = collections.Counter(w for w in stands_for[0].values() if w in SPANS)
    if len(order[0]) < len(SLOTS):  # all that both sides have equally often, or none
        assert slots in ({word: n for word, n in own.items() if its[word] == n}, {})


def test_a_share_of_the_words_become_slots_and_all_slots_occur():
    protect, used = SlotInserter(DEFAULT, 1), collections.Counter()
    for i in range(4000):
        source, target = protect(f"Vi {i} e o gato Tom", f"I saw {i} and Tom the cat")
        used.update(char for char in source if char in SLOTS)
        assert "gato" in source and "cat" in target
    assert 0.12 < used.total() / 8000 < 0.18
    assert len(used) == 16 and used[SLOTS[0]] > used.total() / 3 and min(used.values()) > 10


def corpus(folder, rows):
    path = folder / "pairs.tsv"
    path.write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
    return str(path)


def test_a_run_learns_from_slots_and_reads_texts_with_them(tmp_path):
    rows = [(f"o gato {i} usa `code_{i}`", f"cat {i} uses `code_{i}`") for i in range(60)]
    settings = TrainingConfig(data=(corpus(tmp_path, rows),), vocab_size=330, protect=DEFAULT)
    found, tokenizers = encode(settings, tmp_path / "encoded")
    ids = [tokenizers[0].encode([slot]).to_list()[0][-1] for slot in SLOTS]
    tick = tokenizers[0].encode(["`"]).to_list()[0][-1]
    for side in found.sides:
        lines = [[*map(int, row)] for row in np.split(side[0], side[1][1:-1])]
        spelt = [row.count(tick) for row in lines]
        assert 10 < spelt.count(2) < 40 and spelt.count(2) + spelt.count(0) == len(lines) > 40
        assert all(n or set(row) & set(ids) for n, row in zip(spelt, lines, strict=True))
    assert found.held_out["validation"][0] in rows  # as text
    task = TranslationTask(settings, tokenizers)
    rows = found.held_out["validation"]
    read = task.read([source for source, _ in rows])
    assert all(SLOTS[0] in text.decode() and b"`" not in text for text in read.numpy())
    said = tokenizers[0].encode([t.replace(t.split()[-1], SLOTS[0]) for _, t in rows]).to_list()
    scores, texts, _ = task.measured(said, rows)
    assert texts == [target for _, target in rows] and scores["bleu"] == pytest.approx(100)


def test_a_tag_that_would_be_a_span_is_refused(tmp_path):
    path = corpus(tmp_path, [("um", "one"), ("dois", "two")] * 9)
    settings = TrainingConfig(data=(path,), tag=(f"{path}=<b>",), protect=("tag",))
    with pytest.raises(ValueError, match=r"--protect would make a span of --tag <b>.*>>b<<"):
        encode(settings, tmp_path / "encoded")


def test_a_run_without_slots_is_begun_from_without(tmp_path):
    folder = RunFolder(tmp_path)
    model = {"made_by": "keras_tfmr>Transformer", "config": TransformerConfig().to_dict()}
    translator = {"class_name": "keras_tfmr>Translator", "config": {}}
    described = {"model": model, "text_model": translator, "tokenizers": {}, "arguments": {}}
    for protect, given, expected in (
        ([], {}, []),
        ([], {"protect": []}, []),
        (["code"], {}, ["code"]),
        (["code"], {"protect": ["url"]}, ["url"]),
        (["code"], {"protect": []}, []),
    ):
        given = {"task": "translation", **given}
        translator["config"] = {"protect": protect}
        write_json(folder.config, described)
        folder.best.parent.mkdir(exist_ok=True)
        folder.best.touch(), folder.results.touch()
        assert Start(tmp_path).settings_for(given).get("protect") == expected
    translator["config"] = {}
    write_json(folder.config, described)
    with pytest.raises(ValueError, match=r"which the vocabulary of --init_from .* lacks: leave"):
        Start(tmp_path).settings_for({"task": "translation", "protect": ["url"]})


def test_a_vocabulary_keeps_symbols_whole():
    lines = ["o gato \ue000preto\ue001", "the black\ue000 cat"] * 9
    tokenizer = SubwordTokenizer.learn(lines, 330, symbols=SLOTS)
    pieces = [piece.decode() for piece in tokenizer.pieces(np.arange(tokenizer.vocab_size)).numpy()]
    assert {piece for piece in pieces if {*piece} & {*SLOTS}} == {*SLOTS}
    ids = [pieces.index(slot) for slot in SLOTS]
    text = f" \u0301{'a'.join(SLOTS)}{''.join(SLOTS)}\u0301`"
    (row,) = tokenizer.encode([text]).to_list()
    assert [i for i in row if i in ids] == ids * 2 and tokenizer.encode_lines([text])[
        0
    ].tolist() == row
    assert tokenizer.decode([row]).numpy()[0].decode() == text
