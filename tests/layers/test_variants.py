"""Other kinds of Transformer: by fields, by parts, and by subclasses of the attention."""

import numpy as np
import pytest
from helpers import ON_JAX, OPTIONS, check_steps, random_ids, randomize, to_numpy
from keras import ops

from keras_tfmr import TransformerConfig, TranslationModel
from keras_tfmr.layers import MultiHeadAttention

VOCAB, LENGTH = 40, 5


def model_of(**fields):
    sizes = dict(source_vocab=VOCAB, target_vocab=VOCAB, encoder_layers=1, decoder_layers=1)
    model = TranslationModel(TransformerConfig.preset("tiny", **{**sizes, **fields}))
    randomize(model)
    return model


def sources():
    """Of several lengths."""
    ids = random_ids(3, 6, vocab=VOCAB)
    return ids * (np.arange(6) < np.array([[6], [4], [1]])).astype("int32")


@pytest.mark.parametrize("name", ["modern", "relative", "alibi", "grouped wide values", "ssru"])
def test_fields_decode_as_they_train(name):
    model = model_of(**OPTIONS[name])
    check_steps(model, sources(), 1)
    if not ON_JAX:  # where caches have one size anyway
        check_steps(model, sources(), 3)
    check_steps(model, sources(), 3, fixed=True, xla=name == "modern")


class OwnScore(MultiHeadAttention):
    def attend(self, queries, keys, values, mask=None, **options):
        return super().attend(3.0 * queries, keys, values, mask, **options)


class OwnQuery(MultiHeadAttention):
    def project_query(self, x, rotation=None):
        return ops.tanh(super().project_query(x, rotation))


class OwnKey(MultiHeadAttention):
    def project(self, key, value=None, rotation=None):
        keys, values = super().project(key, value, rotation)
        return ops.sin(3.0 * keys), ops.maximum(values, 0.0)


class OwnSelf(MultiHeadAttention):
    def project_self(self, x, rotation=None):
        queries, keys, values = super().project_self(x, rotation)
        return queries, 2.0 * keys, -values


class OwnOutput(MultiHeadAttention):
    def project_output(self, heads, length):
        return 2.0 * super().project_output(ops.tanh(heads), length)


@pytest.mark.parametrize("kind", [OwnScore, OwnQuery, OwnKey, OwnSelf, OwnOutput])
def test_an_override_trains_and_decodes_the_same_function(kind, monkeypatch):
    inputs = [sources(), random_ids(3, LENGTH, vocab=VOCAB, seed=1)]
    before = to_numpy(model_of()(inputs))
    monkeypatch.setattr("keras_tfmr.layers.CausalSelfAttention.attention_class", kind)
    monkeypatch.setattr("keras_tfmr.layers.CrossAttention.attention_class", kind)
    model = model_of()
    assert np.abs(to_numpy(model(inputs)) - before).max() > 0.05, "it overrides nothing"
    check_steps(model, sources(), 3, fixed=True)
