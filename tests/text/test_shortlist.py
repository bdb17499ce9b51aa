"""Translations among candidates, against the whole model whose other logits are minus infinity."""

import json
import re

import numpy as np
import pytest
import tensorflow as tf
from text_models import (
    ADVERSARIAL,
    LINES,
    Plain,
    classifier,
    tiny_model,
    tiny_translator,
    tokenizer,
)

from keras_tfmr import Translator
from keras_tfmr.decoding import DecodingStep, banned_ids
from keras_tfmr.errors import PresetError
from keras_tfmr.export.write import METADATA_FILE
from keras_tfmr.finished import int8
from keras_tfmr.shortlist import Shortlist
from keras_tfmr.shortlist.learn import learned
from keras_tfmr.text.spans import SLOTS
from keras_tfmr.text_models.shortlist import learn_shortlist, shortlist_for
from serving import export
from training import translate
from training.corpus import store

TEXTS = [*LINES, *ADVERSARIAL]
TERMS = {"gato": "tiger", "Bom dia": "Olá 👋🏽"}


class OthersAreImpossible(DecodingStep):
    """A step whose logits are minus infinity but for the candidates of each example."""

    shrinks = True

    def __init__(self, step):
        self.step, self.num_beams, self.max_length = step, step.num_beams, step.max_length

    def next(self, tokens, state):
        log_probs, of_model = self.step.next(tokens, state["model"])
        allowed = tf.repeat(state["allowed"], self.num_beams, axis=0)
        log_probs = tf.nn.log_softmax(tf.where(allowed, log_probs, -np.inf))
        return log_probs, {**state, "model": of_model}

    def reorder(self, state, rows):
        return {**state, "model": self.step.reorder(state["model"], rows)}

    def select_examples(self, state, examples):
        of_model = self.step.select_examples(state["model"], examples)
        return {"model": of_model, "allowed": tf.gather(state["allowed"], examples)}


class WholeModel:
    """A model of which a `Translator` sees the candidates of a shortlist only."""

    def __init__(self, model, shortlist, target_tokenizer):
        self.model, self.weights, self.explain = model, model.weights, model.explain
        table, vocab = shortlist.table.copy(), model.vocab_size
        table[0] = 0  # padding has no candidates
        self.table = tf.constant(table)
        never = {0, *banned_ids(target_tokenizer)}
        always = {*shortlist.always.tolist(), *target_tokenizer.slot_ids, target_tokenizer.eos_id}
        self.always = np.isin(np.arange(vocab), [*always - never])
        self.never = np.isin(np.arange(vocab), [*never])

    def start(self, source_ids, num_beams, *, max_length):
        step, state = self.model.start(source_ids, num_beams, max_length=max_length)
        mine = tf.one_hot(tf.gather(self.table, source_ids), len(self.never))  # [b, s, k, vocab]
        allowed = (tf.reduce_max(mine, axis=[1, 2]) > 0) & ~self.never | self.always
        return OthersAreImpossible(step), {"model": state, "allowed": allowed}


def with_slots(**fields):
    size = tokenizer(SLOTS).vocab_size
    return tiny_model(source_vocab=size, target_vocab=size, **fields)


def some(translator, seed=1):
    """A shortlist of a few random ids."""
    rng, size = np.random.default_rng(seed), translator.target_tokenizer.vocab_size
    table = rng.integers(0, size, (translator.source_tokenizer.vocab_size, 4)).astype("int32")
    return Shortlist(table, np.array([1, 2, 3, 280, 290], "int32"))


def none(translator):
    """A table without entries."""
    return Shortlist(
        np.zeros((translator.source_tokenizer.vocab_size, 1), "int32"), np.zeros(0, "int32")
    )


def shortened(translator, shortlist, precision=None):
    """The translator with a shortlist, and what it must equal."""
    whole = translator.for_decoding(precision, LINES)
    reference = Translator(
        WholeModel(whole.model, shortlist, translator.target_tokenizer),
        *translator.sides(),
        translator.config,
        max_source_length=translator.max_source_length,
    )
    return whole.with_shortlist(shortlist), reference


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert (one.text, one.truncated) == (other.text, other.truncated)
        assert one.score == pytest.approx(other.score, abs=1e-3)


CASES = {
    "greedy": ({"num_beams": 1, "num_return_sequences": 1}, {}, some),
    "beams": (
        {"num_beams": 3, "num_return_sequences": 3, "min_length": 4}, {"tied_logits": False}, some,
    ),
    "no entries": ({"num_beams": 8, "num_return_sequences": 8}, {"logits_bias": True}, none),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_answers_are_those_of_the_whole_model_without_other_tokens(name):
    decoding, fields, make = CASES[name]
    translator = tiny_translator(with_slots(**fields), symbols=SLOTS, **decoding)
    short, reference = shortened(translator, make(translator))
    found = short.translate(TEXTS)
    assert_same(found, reference.translate(TEXTS))
    assert_same(
        short.translate_with_terms(TEXTS, TERMS), reference.translate_with_terms(TEXTS, TERMS)
    )
    several = zip(short.translate_nbest(TEXTS), reference.translate_nbest(TEXTS), strict=True)
    for one, other in several:
        assert_same(one, other)
    alone = [answer for text in TEXTS for answer in short.translate([text])]
    assert_same(alone, found)


@pytest.mark.ci
def test_integers_are_those_of_the_whole_product(monkeypatch):
    monkeypatch.setattr(int8, "LEAST_WEIGHTS", 0)
    translator = tiny_translator(tiny_model(logits_bias=True), num_beams=2)
    short, reference = shortened(translator, some(translator), "int8")
    for texts in (TEXTS, TEXTS[::-1], *([text] for text in TEXTS)):
        assert_same(short.translate(texts), reference.translate(texts))
    # What a shortlist leaves alone answers with other tokens.
    whole = translator.for_decoding("int8", LINES)
    found, expected = (each.explain(LINES[:1])[0].target_tokens for each in (short, whole))
    assert found == expected != reference.explain(LINES[:1])[0].target_tokens


@pytest.mark.ci
def test_export_answers_like_the_translator_and_says_what_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(int8, "LEAST_WEIGHTS", 0)
    translator = tiny_translator(kind=Plain, num_beams=2, min_length=3, max_source_length=64)
    shortlist = some(translator)
    with pytest.warns(UserWarning, match="does not pay: of 6 translations, .* stay the same"):
        path = translator.export(tmp_path, texts=LINES, shortlist=shortlist)
    facts = json.loads((path / METADATA_FILE).read_text())["run"]["shortlist"]
    whole = translator.for_decoding()
    ids = whole.source_tokenizer.encode(LINES).to_list()
    counts = [len({*shortlist.table[row].ravel(), *shortlist.always} - {0}) for row in ids]
    assert (
        facts["texts"] == 6
        and facts["vocabulary"] == tokenizer().vocab_size
        and 0 <= facts["bleu"] < 50
    )
    assert facts["candidates"] == pytest.approx(np.mean(counts), abs=1)
    found = tf.saved_model.load(path).signatures["translate"](text=tf.constant(LINES))
    for i, answer in enumerate(whole.with_shortlist(shortlist).translate(LINES)):
        assert found["translation"][i].numpy().decode() == answer
        assert float(found["score"][i]) == pytest.approx(answer.score, abs=1e-4)
    assert (
        b"shortlist"
        not in (translator.export(tmp_path, check=False) / "saved_model.pb").read_bytes()
    )


@pytest.mark.needs("ctranslate2")
def test_ctranslate2_reads_the_same_table(tmp_path):
    import ctranslate2

    translator = tiny_translator(num_beams=1, num_return_sequences=1, max_source_length=64)
    shortlist = some(translator)
    shortlist.table[translator.source_tokenizer.eos_id] = 0  # CTranslate2 asks for words only
    path = translator.export(tmp_path / "exported", format="ctranslate2", shortlist=shortlist)
    engine = ctranslate2.Translator(str(path), compute_type="float32")
    subwords, short = (
        translator.target_tokenizer,
        translator.for_decoding().with_shortlist(shortlist),
    )
    names = subwords.names()
    for line in LINES:
        ids = translator.source_tokenizer.encode([line]).to_list()[0]
        (answer,) = engine.translate_batch(
            [[names[i] for i in ids]], beam_size=1, max_decoding_length=12, min_decoding_length=0,
            disable_unk=True, suppress_sequences=[["<pad>"], ["<s>"]], use_vmap=True,
        )  # fmt: skip
        found = subwords.decode([[names.index(name) for name in answer.hypotheses[0]]])
        assert found.numpy()[0].decode() == short.translate([line])[0]


@pytest.mark.ci
def test_files_of_pairs_of_texts_and_the_pairs_of_a_run(tmp_path, translator, whole):
    sources = ["O gato preto dorme.", "A casa é branca."]
    targets = translator.replace(num_beams=1, num_return_sequences=1).translate(sources)
    pairs, texts = tmp_path / "pairs.tsv", tmp_path / "texts.txt"
    pairs.write_text("".join(f"{s}\t{t}\n" for s, t in zip(sources, targets, strict=True)))
    texts.write_text("\n".join(sources))
    expected = learn_shortlist(translator, sources, targets)
    for file in (pairs, texts):
        np.testing.assert_array_equal(shortlist_for(translator, whole, file).table, expected.table)
    index = json.loads((whole / "encoded" / store.INDEX).read_text())
    sides = store.opened(whole / "encoded", index).sides
    expected = learned(*sides, *translator.sides())
    np.testing.assert_array_equal(shortlist_for(translator, whole, "").table, expected.table)


def test_what_has_no_shortlist_is_refused(tmp_path, translator, whole):
    mixed = tmp_path / "mixed.tsv"
    mixed.write_text("a\tb\nc\n")
    with pytest.raises(ValueError, match=r"all of a text, a tab .* 2 lines, of \[1, 2\] columns"):
        shortlist_for(translator, whole, mixed)
    with pytest.raises(PresetError, match="has no pairs that a shortlist could be learned from"):
        shortlist_for(translator, tmp_path, "")
    tiny = tiny_translator()
    with pytest.raises(ValueError, match=r"needs a model of `for_decoding`.*PositionalEmbedding"):
        tiny.with_shortlist(some(tiny))
    with pytest.raises(ValueError, match="Received: 9 source ids, target ids up to 4"):
        tiny.for_decoding().with_shortlist(Shortlist(np.full((9, 1), 4), np.zeros(0, int)))
    with pytest.raises(ValueError, match="Received: a Classifier"):
        classifier().export(tmp_path / "export", shortlist=some(tiny))
    with pytest.raises(ValueError, match="shortlist has no effect on the format 'transformers'"):
        tiny.export(tmp_path / "export", format="transformers", shortlist=some(tiny))


@pytest.mark.ci
def test_commands_take_it_from_a_file_or_from_the_run(tmp_path, translator, whole):
    pairs, out = tmp_path / "pairs.tsv", tmp_path / "out.txt"
    pairs.write_text("O gato preto dorme.\tThe black cat sleeps.\nA casa.\tThe house.\n")
    inputs = tmp_path / "in.txt"
    inputs.write_text("\n".join(LINES))
    words = [str(whole), "--shortlist", str(pairs), "--input", str(inputs), "--output", str(out)]
    assert translate.main(words) == 0
    shortlist = shortlist_for(translator, whole, pairs)
    expected = translator.for_decoding().with_shortlist(shortlist).translate(LINES)
    assert out.read_text() == "".join(re.sub("[\r\n]+", " ", text) + "\n" for text in expected)
    words = [
        str(whole),
        "--shortlist",
        "--format",
        "ctranslate2",
        "--output",
        str(tmp_path / "ct2"),
    ]
    assert export.main(words) == 0
    lines = (tmp_path / "ct2" / "vmap.txt").read_text().splitlines()
    names = translator.target_tokenizer.names()
    found = dict(line.split("\t") for line in lines)
    assert found[""].split() == [names[i] for i in shortlist_for(translator, whole, "").always]
