"""A model's file keeps what was done to its layers after they were built: frozen, quantised."""

import warnings

import keras
import numpy as np
import pytest
from helpers import randomize, to_numpy

from keras_tfmr import LanguageModel, SequenceClassifier, TransformerConfig, TranslationModel
from keras_tfmr.decoding import DecodingConfig
from keras_tfmr.recurrent import RNNSearchConfig, RNNSearchModel

TINY = TransformerConfig.preset(
    "tiny", source_vocab=20, target_vocab=20, encoder_layers=1, decoder_layers=1
)
SOURCE = np.array([[5, 7, 3, 0], [4, 9, 11, 3]])
TARGET = np.array([[2, 9, 4], [2, 6, 3]])
MODELS = {  # a function that makes one, and its inputs
    "translation": (lambda: TranslationModel(TINY), [SOURCE, TARGET]),
    "untied": (
        lambda: TranslationModel(TINY.replace(joint_vocab=False, tied_logits=False)),
        [SOURCE, TARGET],
    ),
    "language": (lambda: LanguageModel(TINY), SOURCE),
    "classifier": (lambda: SequenceClassifier(TINY, 3), SOURCE),
    "rnnsearch": (
        lambda: RNNSearchModel(RNNSearchConfig.preset("tiny", source_vocab=20, target_vocab=20)),
        [SOURCE, TARGET],
    ),
}


def quantize(model, mode="int8", **options):
    randomize(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras names each layer with nothing to quantise
        model.quantize(mode, **options)
    return model


@pytest.mark.parametrize(
    ("name", "mode"),
    [("translation", "int8"), ("translation", "int4"), ("rnnsearch", "int8")],
)
def test_a_quantised_model_is_loaded_again(name, mode, tmp_path, fresh):
    make, inputs = MODELS[name]
    model = quantize(make(), mode)
    assert any("int8" in str(weight.dtype) for weight in model.weights)
    expected = to_numpy(model(inputs))
    model.save(tmp_path / "model.keras")
    [found] = fresh.outputs(tmp_path / "model.keras", inputs)
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("name", ["language", "classifier"])
def test_other_models_keep_their_dtypes(name, tmp_path):
    make, inputs = MODELS[name]
    model = quantize(make())
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert [str(w.dtype) for w in loaded.weights] == [str(w.dtype) for w in model.weights]
    np.testing.assert_allclose(to_numpy(loaded(inputs)), to_numpy(model(inputs)), atol=1e-5)


def test_a_quantised_model_decodes_after_loading(tmp_path):
    model = quantize(MODELS["untied"][0]())
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    found = []
    for each in (model, loaded):
        step, state = each.start(keras.ops.convert_to_tensor(SOURCE), num_beams=2, max_length=8)
        config = DecodingConfig(num_beams=2, num_return_sequences=2, max_length=8)
        found.append(config.decode(step, state, bos_ids=[2, 2], eos_id=3))
    np.testing.assert_array_equal(to_numpy(found[0].ids), to_numpy(found[1].ids))
    np.testing.assert_allclose(to_numpy(found[0].scores), to_numpy(found[1].scores), atol=1e-5)


def test_quantisers_of_ones_own_are_kept(tmp_path):
    config = keras.quantizers.Int8QuantizationConfig(
        weight_quantizer=keras.quantizers.AbsMaxQuantizer(axis=0, value_range=(-31, 31)),
        activation_quantizer=keras.quantizers.AbsMaxQuantizer(axis=-1, value_range=(-31, 31)),
    )
    model = quantize(MODELS["translation"][0](), None, config=config, filters="dense")
    expected = to_numpy(model([SOURCE, TARGET]))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(to_numpy(loaded([SOURCE, TARGET])), expected, atol=1e-5)


def test_what_is_frozen_stays_frozen(tmp_path):
    model = TranslationModel(TINY)
    model.encoder.trainable = False
    model.encoder.layers[0].feed_forward.trainable = True
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert not loaded.encoder.trainable and loaded.encoder.layers[0].feed_forward.trainable
    names = [weight.path for weight in model.trainable_weights]
    assert [weight.path for weight in loaded.trainable_weights] == names
    assert len(names) < len(model.weights)


def test_a_mixed_policy_outlives_quantisation(tmp_path):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = quantize(TranslationModel(TINY.replace(tied_logits=False)))
    finally:
        keras.config.set_dtype_policy(before)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.encoder.dtype_policy.name == "mixed_bfloat16"
    policies = [layer.dtype_policy.name for layer in model._flatten_layers()]
    assert [layer.dtype_policy.name for layer in loaded._flatten_layers()] == policies
