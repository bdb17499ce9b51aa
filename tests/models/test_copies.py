"""Copies of models whose parts are nested or have no names of their own."""

import keras
import numpy as np
import pytest
from helpers import random, random_ids, randomize, to_numpy
from own_models import inputs, logits_of
from text_models import Plain, tiny_translator, tokenizer

from keras_tfmr import Translator
from keras_tfmr.compat import flatten_layers
from keras_tfmr.finished import int8, optimize_for_decoding
from keras_tfmr.layers import Decoder, Encoder, LMHead, PositionalEmbedding
from keras_tfmr.models import TranslationModel
from keras_tfmr.precision import copy_of, precision_of, with_precision

SIZES = dict(num_layers=1, d_model=16, num_heads=2, dff=32)


def sequential():
    return keras.Sequential([keras.layers.Dense(16, "relu"), keras.layers.Dense(16)])


def in_a_sequential():
    return keras.Sequential([sequential(), keras.layers.LayerNormalization()])


def functional():
    x = keras.Input((None, 16))
    places = keras.ops.cast(keras.layers.Dense(1)(x) > 0, "int32")
    return keras.Model(x, keras.layers.Embedding(2, 16)(places[..., 0]))


def with_lora():
    layer = sequential()
    layer.build((None, None, 16))
    layer.layers[0].enable_lora(2)
    return layer


@keras.saving.register_keras_serializable(package="tests")
class TwoParts(keras.layers.Layer):
    """A layer of somebody's own, whose parts Keras names."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.first, self.second = (keras.layers.Dense(16, dtype=self.dtype_policy) for _ in "ab")

    def build(self, x_shape):
        self.first.build(x_shape)
        self.second.build(x_shape)

    def call(self, x):
        return self.second(self.first(x))


# What makes a layer, which is called with vectors [batch, length, 16].
NESTED = [sequential, in_a_sequential, functional, with_lora, TwoParts]


@pytest.mark.parametrize("make", NESTED)
def test_a_copy_has_every_weight_in_its_place_and_in_the_precision(make):
    x, vectors = keras.Input((None, 16)), random(2, 3, 16)
    model = keras.Model(x, make()(make()(x)))
    randomize(model)
    expected = to_numpy(model(vectors))
    same = to_numpy(copy_of(model, "float32", merge_lora=False)(vectors))
    np.testing.assert_allclose(same, expected, atol=1e-5)
    narrow = with_precision(model, "bfloat16")
    assert {weight.dtype for weight in narrow.weights} == {precision_of(narrow)} == {"bfloat16"}
    assert not any(getattr(layer, "lora_enabled", False) for layer in flatten_layers(narrow))
    assert np.abs(to_numpy(narrow(vectors)) - expected).std() < 0.05 * expected.std()


@pytest.mark.backends("tensorflow")
def test_a_translator_of_nested_parts_is_finished_and_saved(tmp_path):
    size = tokenizer().vocab_size
    source_ids = keras.Input((None,), dtype="int32", name="source_ids")
    target_ids = keras.Input((None,), dtype="int32", name="target_ids")
    embedding = PositionalEmbedding(size, 16, mask_zero=False)
    context = Encoder(**SIZES)(TwoParts()(in_a_sequential()(embedding(source_ids))))
    x = Decoder(**SIZES)(with_lora()(in_a_sequential()(embedding(target_ids))), context)
    model = TranslationModel([source_ids, target_ids], LMHead(size)(x))
    randomize(model)
    arrays = inputs(model)
    expected = logits_of(model, arrays)
    preset = tiny_translator(model, kind=Plain).save_to_preset(tmp_path / "preset")
    for copy in (Translator.from_preset(preset).model, optimize_for_decoding(model)):
        np.testing.assert_allclose(logits_of(copy, arrays), expected, atol=1e-3, rtol=1e-3)


@pytest.mark.backends("tensorflow")
def test_what_stays_in_float32_is_said(monkeypatch):
    monkeypatch.setattr(int8, "LEAST_WEIGHTS", 0)
    source_ids = keras.Input((None,), dtype="int32", name="source_ids")
    target_ids = keras.Input((None,), dtype="int32", name="target_ids")
    embedding = PositionalEmbedding(20, 16, mask_zero=False)
    context = Encoder(**SIZES)(embedding(source_ids))
    decoder = Decoder(**SIZES, norm=keras.layers.LayerNormalization(), name="writer")
    nested = sequential()
    x = nested(decoder(embedding(target_ids), context))
    model = TranslationModel([source_ids, target_ids], LMHead(20)(x))
    examples = [[random_ids(4, 6, vocab=20), random_ids(4, 5, vocab=20)]]
    said = (
        "in float32: 'writer', because its norm is a LayerNormalization; 'sequential.*', because "
        "it is a Sequential, which has no finished form"
    )
    with pytest.warns(UserWarning, match=said):
        copy = optimize_for_decoding(model, "int8", examples)
    assert copy.precision == "int8"
    stay = sum(copy.get_layer(layer.name).count_params() for layer in (decoder, nested))
    assert 0 < int8.share_of_int8(copy) < 1 - stay / copy.count_params()
    with pytest.raises(ValueError, match="int8 needs `examples`"):
        optimize_for_decoding(model, "int8")
