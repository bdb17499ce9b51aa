"""A model's file keeps everything: shared weights, dtype policies, what is frozen or quantised."""

import warnings

import formulas
import keras
import numpy as np
import pytest
from helpers import POLICIES, randomize, to_numpy

from keras_tfmr import Decoder, Encoder, PositionalEmbedding, TiedLogits, models, recurrent
from keras_tfmr.layers.base import dtype_policy
from keras_tfmr.models import LanguageModel, TokenClassifier, TransformerConfig, TranslationModel
from keras_tfmr.recurrent import LSTMNConfig, LSTMNLanguageModel, MemoryNetwork, MemoryNetworkConfig

SIZES = dict(source_vocab=20, target_vocab=20)
TINY = TransformerConfig.preset("tiny", **SIZES, encoder_layers=1, decoder_layers=1)
SEPARATE = TINY.replace(source_vocab=30, joint_vocab=False)
SOURCE = np.array([[5, 7, 3, 0], [4, 9, 11, 3]])
TARGET = np.array([[2, 9, 4], [2, 6, 3]])
PAIR, FACTS = [SOURCE, TARGET], [SOURCE[:, None], TARGET]
MODELS = {  # inputs, a dtype policy, and what makes a model
    "translation": (PAIR, "float32", lambda: TranslationModel(TINY)),
    "tied": (PAIR, "float32", lambda: TranslationModel(SEPARATE.replace(tied_logits=True))),
    "untied": (PAIR, "mixed_bfloat16", lambda: TranslationModel(SEPARATE)),
    "language": (SOURCE, "float32", lambda: LanguageModel(TINY.replace(positions="learned"))),
    "sequences": (SOURCE, "mixed_float16", lambda: models.SequenceClassifier(TINY, 3)),
    "tokens": (SOURCE, "mixed_bfloat16", lambda: TokenClassifier(TINY, 3)),
    "rnnsearch": (PAIR, "mixed_bfloat16", lambda: small(recurrent.RNNSearchModel)),
    "seq2seq": (PAIR, "mixed_float16", lambda: small(recurrent.Seq2SeqModel, joint_vocab=False)),
    "convolutional": (PAIR, "mixed_float16", lambda: small(recurrent.ConvolutionalModel)),
    "lstmn": (SOURCE, "float32", lambda: LSTMNLanguageModel(LSTMNConfig(20, 8, 8))),
    "memory": (FACTS, "mixed_float16", lambda: MemoryNetwork(MemoryNetworkConfig(20, 8))),
    "layerwise": (
        FACTS, "mixed_bfloat16", lambda: MemoryNetwork(MemoryNetworkConfig(20, 8, layerwise=True))
    ),
}  # fmt: skip


def small(kind, **fields):
    return kind(kind.config_class.preset("tiny", **SIZES, **fields))


@pytest.mark.parametrize("name", MODELS)
def test_loaded_in_a_fresh_process(name, fresh, tmp_path):
    """Under every policy the logits are float32, and the same over there."""
    inputs, policy, make = MODELS[name]
    with dtype_policy(policy):
        model = make()
    randomize(model)
    logits = model(inputs)
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    model.save(tmp_path / "model.keras")
    (loaded,) = fresh(tmp_path / "model.keras", keras.tree.flatten(inputs))
    tolerance = POLICIES[policy]
    np.testing.assert_allclose(loaded, to_numpy(logits), atol=tolerance, rtol=tolerance)


def save_and_load(model, tmp_path):
    model.save(tmp_path / "model.keras")
    return keras.models.load_model(tmp_path / "model.keras")


def test_layers_combined_by_hand_keep_what_they_share(fresh, tmp_path):
    """One embedding for both sides and the logits, in a plain functional model."""
    sizes = dict(num_layers=1, d_model=8, num_heads=2, dff=16)
    embedding = PositionalEmbedding(20, 8)
    source, target = (keras.Input((None,), dtype="int32") for _ in range(2))
    context = Encoder(**sizes, embedding=embedding)(source)
    vectors = Decoder(**sizes, embedding=embedding)(target, context)
    model = keras.Model([source, target], TiedLogits(embedding)(vectors))
    randomize(model)
    again = save_and_load(model, tmp_path)
    (loaded,) = fresh(tmp_path / "model.keras", PAIR)
    np.testing.assert_allclose(loaded, model(PAIR), atol=1e-4)
    assert sum(tuple(weight.shape) == (20, 8) for weight in again.weights) == 1
    with pytest.warns(UserWarning, match="TiedLogits"):  # a config alone cannot share
        keras.Model.from_config(model.get_config())


def quantize(model, mode="int8", **options):
    randomize(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras names each layer with nothing to quantise
        model.quantize(mode, **options)
    return model


@pytest.mark.parametrize(
    "name, mode",
    [
        ("translation", "int8"),
        ("translation", "int4"),
        ("sequences", "int8"),
        ("rnnsearch", "int8"),
    ],
)
def test_a_quantised_model_is_loaded_again(name, mode, tmp_path):
    inputs, _, make = MODELS[name]
    model = quantize(make(), mode)
    assert any("int8" in str(weight.dtype) for weight in model.weights)
    loaded = save_and_load(model, tmp_path)
    assert [str(w.dtype) for w in loaded.weights] == [str(w.dtype) for w in model.weights]
    np.testing.assert_allclose(to_numpy(loaded(inputs)), to_numpy(model(inputs)), atol=1e-5)


@pytest.mark.parametrize("fields", [{}, {"tied_logits": False, "value_dim": 5}])
def test_a_quantised_model_decodes_after_loading(fields, tmp_path):
    """Its steps read integer weights, whose scales they must not forget."""
    model = quantize(TranslationModel(TINY.replace(**fields)))
    expected = formulas.log_softmax(to_numpy(model(PAIR)))
    loaded = save_and_load(model, tmp_path)
    for compiled in (False, True):
        step, state = loaded.start(keras.ops.convert_to_tensor(SOURCE), max_length=3)
        step.shrinks = step.shrinks and not compiled
        for index in range(3):
            log_probs, state = step.next(keras.ops.convert_to_tensor(TARGET[:, index]), state)
            # int8 rounds the keys of a whole sentence otherwise than those of one position.
            np.testing.assert_allclose(to_numpy(log_probs), expected[:, index], atol=0.15)


def test_what_is_frozen_stays_frozen(tmp_path):
    model = TranslationModel(TINY)
    model.encoder.trainable = False
    model.encoder.layers[0].feed_forward.trainable = True
    loaded = save_and_load(model, tmp_path)
    assert not loaded.encoder.trainable and loaded.encoder.layers[0].feed_forward.trainable
    names = [weight.path for weight in model.trainable_weights]
    assert [weight.path for weight in loaded.trainable_weights] == names
    assert len(names) < len(model.weights)


def test_a_mixed_policy_outlives_quantisation(tmp_path):
    with dtype_policy("mixed_bfloat16"):
        model = quantize(TranslationModel(TINY.replace(tied_logits=False)))
    loaded = save_and_load(model, tmp_path)
    assert loaded.encoder.dtype_policy.name == "mixed_bfloat16"
    policies = [layer.dtype_policy.name for layer in model._flatten_layers()]
    assert [layer.dtype_policy.name for layer in loaded._flatten_layers()] == policies
