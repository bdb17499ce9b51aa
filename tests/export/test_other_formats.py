"""Our models in other engines' formats: read again here, and by the engines where they are."""

import functools
import tempfile
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from helpers import full_disk
from marian_models import fixture, write_transformers_folder

from keras_tfmr.decoding import DecodingConfig
from keras_tfmr.errors import ExportError
from keras_tfmr.models import TransformerConfig, TranslationModel
from keras_tfmr.presets import marian
from keras_tfmr.presets.ctranslate2 import write_ctranslate2
from keras_tfmr.presets.marian import transformers_folder
from keras_tfmr.presets.marian.writing import write_marian
from keras_tfmr.text.tokenizer import SubwordTokenizer
from keras_tfmr.text_models.translator import Translator
from training import phrasebook

PAIRS = phrasebook.pairs(600)
TEXTS = [source for source, _ in PAIRS[:30]]
DECODING = DecodingConfig(num_beams=1, length_penalty=0.0, max_length=10)


@functools.cache
def tokenizer():
    return SubwordTokenizer.learn([text for pair in PAIRS for text in pair], vocab_size=500)


@functools.cache
def scrambled(**fields):
    """A translator of random weights, biases too."""
    size = tokenizer().vocab_size
    fields = {"num_heads": 4, "dff": 48, **fields}
    config = TransformerConfig.preset("tiny", source_vocab=size, target_vocab=size, **fields)
    model, rng = TranslationModel(config), np.random.default_rng(5)
    for weight in model.trainable_variables:
        weight.assign(weight + rng.normal(scale=0.3, size=weight.shape))
    return Translator(model, tokenizer(), config=DECODING)


@functools.cache
def imported():
    with tempfile.TemporaryDirectory() as folder:
        return translator_of(write_transformers_folder(Path(folder) / "opus", fixture()[1]))


def translator_of(path):
    """The translator of a published model."""
    published = marian.read(path)
    tokenizers = published.source_tokenizer, published.target_tokenizer
    return Translator(published.model, *tokenizers, DECODING)


def texts_for(translator):
    """Texts with the tags of target languages, if the model has any."""
    return translator.source_tokenizer.tagged(TEXTS)


CASES = {
    "imported": imported,
    "tied": scrambled,
    "untied": lambda: scrambled(tied_logits=False, joint_vocab=False, activation="gelu"),
    "pre-norm": lambda: scrambled(norm_first=True, activation="silu"),
}


@pytest.mark.parametrize("name", ["imported", "tied", "untied"])
def test_a_marian_folder_is_the_same_model(tmp_path, name):
    translator = CASES[name]()
    texts = texts_for(translator)
    folder = write_marian(translator, tmp_path / "marian")
    again, described = translator_of(folder), transformers_folder.describe(folder)
    order = described.vocabularies[0].order
    ids, _ = translator.source_tokenizer.encode_truncated(texts, 64)
    ids_again, _ = again.source_tokenizer.encode_truncated(texts, 64)
    assert np.where(ids_again == 0, 0, order[ids_again]).tolist() == ids.numpy().tolist()
    expected = translator.model([ids, ids[:, :5]]).numpy()
    found = again.model([ids_again, ids_again[:, :5]]).numpy()
    real = order > 2  # what our search never writes is banned in the folder
    np.testing.assert_allclose(found[:, :, real], expected[:, :, order[real]], atol=1e-3)


@pytest.mark.needs("torch", "transformers")
@pytest.mark.parametrize("name", ["imported", "tied", "untied"])
def test_transformers_loads_the_marian_folder(tmp_path, name):
    import torch
    import transformers

    translator = CASES[name]()
    texts = texts_for(translator)
    folder = write_marian(translator, tmp_path / "marian")
    # In float64, so that no more than our own rounding is seen.
    model = transformers.MarianMTModel.from_pretrained(folder).eval().double()
    theirs = transformers.MarianTokenizer.from_pretrained(folder)(texts)["input_ids"]
    ids, _ = translator.source_tokenizer.encode_truncated(texts, 64)
    assert [row[row != 0].tolist() for row in ids.numpy()] == theirs
    source, target = torch.tensor(ids.numpy()).long(), ids.numpy()[:, :5]
    inputs = {"input_ids": source, "attention_mask": (source != 0).long()}
    with torch.inference_mode():
        logits = model(**inputs, decoder_input_ids=torch.tensor(target).long()).logits
        found = model.generate(**inputs, num_beams=1, max_new_tokens=10)
    np.testing.assert_allclose(
        logits.numpy(), translator.model([ids.numpy(), target]).numpy(), atol=1e-4
    )
    found = translator.target_tokenizer.decode(tf.constant(found.numpy()[:, 1:], tf.int32))
    assert [text.decode() for text in found.numpy()] == translator.translate(texts)


def by_ctranslate2(engine, translator, texts):
    """What an engine makes of texts, whose subwords are the translator's."""
    ids, _ = translator.source_tokenizer.encode_truncated(texts, 64)
    pieces = translator.source_tokenizer.pieces(ids).numpy()
    pieces = [[piece.decode() for piece in row if piece][:-1] for row in pieces]
    answers = engine.translate_batch(
        pieces, beam_size=1, max_decoding_length=10, min_decoding_length=0, disable_unk=True,
        suppress_sequences=[["<pad>"], ["<s>"]],
    )  # fmt: skip
    target = translator.target_tokenizer
    names = target.pieces(np.arange(target.vocab_size)[None]).numpy()[0]
    numbers = {name.decode(): number for number, name in enumerate(names)}
    rows = [[numbers[piece] for piece in answer.hypotheses[0]] for answer in answers]
    found = target.decode(tf.ragged.constant(rows, dtype=tf.int32)).numpy()
    return [text.decode() for text in found]


@pytest.mark.needs("ctranslate2")
@pytest.mark.parametrize("name", ["tied", "untied", "pre-norm"])
def test_ctranslate2_translates_the_same(tmp_path, name):
    import ctranslate2

    translator = CASES[name]()
    path = write_ctranslate2(translator, tmp_path / "ctranslate2")
    engine = ctranslate2.Translator(str(path), compute_type="float32")
    assert by_ctranslate2(engine, translator, TEXTS) == translator.translate(TEXTS)
    # More tokens than the translator's own longest, as CTranslate2 allows by default.
    (longer,) = engine.translate_batch([["▁a"]], beam_size=1, min_decoding_length=255)
    assert len(longer.hypotheses[0]) >= 255


@pytest.mark.needs("ctranslate2")
@pytest.mark.parametrize(
    ("write", "fields", "said"),
    [
        (write_marian, {"norm_first": True}, "MarianMTModel has no counterpart of norm_first=True"),
        (write_marian, {"decoder_self": "ssru"}, "no counterpart of decoder_self='ssru"),
        (write_ctranslate2, {"positions": "rotary"}, "CTranslate2 has no .* positions='rotary'"),
        (write_ctranslate2, {"decoder_self": "ssru"}, "no counterpart of decoder_self='ssru'"),
    ],
)
def test_what_has_no_counterpart_is_named(tmp_path, write, fields, said):
    with pytest.raises(ExportError, match=said):
        write(scrambled(**fields), tmp_path / "folder")


@pytest.mark.needs("ctranslate2")
@pytest.mark.parametrize("write", [write_marian, write_ctranslate2])
def test_a_folder_appears_complete_or_not_at_all(tmp_path, write):
    with full_disk(), pytest.raises(ExportError, match=r"Cannot write .* too large"):
        write(scrambled(), tmp_path / "a path")
    assert list(tmp_path.iterdir()) == []


def test_a_taken_folder_is_left_alone(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ExportError, match="is not empty"):
        write_marian(scrambled(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
