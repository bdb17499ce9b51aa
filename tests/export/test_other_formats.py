"""Our models in other engines' formats, as the engines themselves read them."""

import functools
import tempfile
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from helpers import full_disk
from marian_models import write_published

from keras_tfmr.decoding import DecodingConfig
from keras_tfmr.errors import ExportError
from keras_tfmr.models import Transformer, TransformerConfig
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
    model, rng = Transformer(config), np.random.default_rng(5)
    for weight in model.trainable_variables:
        weight.assign(weight + rng.normal(scale=0.3, size=weight.shape))
    return Translator(model, tokenizer(), config=DECODING)


@functools.cache
def imported():
    with tempfile.TemporaryDirectory() as folder:
        translator = Translator.from_preset(write_published(Path(folder) / "opus"))
    return translator.replace(**DECODING.to_dict())


CASES = {
    "imported": imported,
    "untied": lambda: scrambled(tied_logits=False, joint_vocab=False, activation="gelu"),
    "pre-norm": lambda: scrambled(norm_first=True, activation="silu"),
}


@pytest.mark.needs("torch", "transformers")
@pytest.mark.parametrize("name", ["imported", "untied"])
def test_transformers_computes_the_same(tmp_path, name):
    import torch
    import transformers

    translator = CASES[name]()
    texts = translator.source_tokenizer.tagged(TEXTS)
    folder = translator.export(tmp_path / "exported", format="transformers")
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
        logits.numpy(), translator.model([ids.numpy(), target]).numpy(), atol=1e-3
    )
    found = translator.target_tokenizer.decode(tf.constant(found.numpy()[:, 1:], tf.int32))
    assert [text.decode() for text in found.numpy()] == translator.translate(texts)


@pytest.mark.needs("ctranslate2")
@pytest.mark.parametrize("name", ["untied", "pre-norm"])
def test_ctranslate2_translates_the_same(tmp_path, name):
    import ctranslate2

    translator = CASES[name]()
    path = translator.export(tmp_path / "exported", format="ctranslate2")
    engine = ctranslate2.Translator(str(path), compute_type="float32")
    ids, _ = translator.source_tokenizer.encode_truncated(TEXTS, 64)
    pieces = translator.source_tokenizer.pieces(ids).numpy()
    answers = engine.translate_batch(
        [[piece.decode() for piece in row if piece][:-1] for row in pieces],
        beam_size=1, max_decoding_length=10, min_decoding_length=0, disable_unk=True,
        suppress_sequences=[["<pad>"], ["<s>"]],
    )  # fmt: skip
    target = translator.target_tokenizer
    names = target.pieces(np.arange(target.vocab_size)[None]).numpy()[0]
    numbers = {name.decode(): number for number, name in enumerate(names)}
    rows = [[numbers[piece] for piece in answer.hypotheses[0]] for answer in answers]
    found = target.decode(tf.ragged.constant(rows, dtype=tf.int32)).numpy()
    assert [text.decode() for text in found] == translator.translate(TEXTS)
    # More tokens than the translator's own longest, as CTranslate2 allows by default.
    (longer,) = engine.translate_batch([["▁a"]], beam_size=1, min_decoding_length=255)
    assert len(longer.hypotheses[0]) >= 255


@pytest.mark.needs("ctranslate2")
@pytest.mark.parametrize("format", ["transformers", "ctranslate2"])
def test_a_folder_appears_complete_or_not_at_all(tmp_path, format):
    with full_disk(), pytest.raises(ExportError, match=r"Cannot write .* too large"):
        scrambled().export(tmp_path / "a path", format=format)
    assert list(tmp_path.iterdir()) == []
