"""A model's file keeps everything: shared weights, dtype policies, what is frozen or quantised.

For models of one's own, and files on other backends, see test_functional.py.
"""

import keras
import numpy as np
import pytest
from helpers import POLICIES, randomize, to_numpy

from keras_tfmr import models, recurrent
from keras_tfmr.models import TransformerConfig
from keras_tfmr.recurrent import LSTMNConfig, LSTMNLanguageModel, MemoryNetwork, MemoryNetworkConfig

SIZES = dict(source_vocab=20, target_vocab=20)
TINY = TransformerConfig.preset("tiny", **SIZES, encoder_layers=1, decoder_layers=1)
SEPARATE = TINY.replace(source_vocab=30, joint_vocab=False)
UNTIED = SEPARATE.replace(tied_logits=False)
SOURCE = np.array([[5, 7, 3, 0], [4, 9, 11, 3]])
TARGET = np.array([[2, 9, 4], [2, 6, 3]])
PAIR, FACTS = [SOURCE, TARGET], [SOURCE[:, None], TARGET]


def memory(**fields):
    return MemoryNetwork(MemoryNetworkConfig(20, 8, **fields))


def small(kind, **fields):
    return kind(kind.config_class.preset("tiny", **SIZES, **fields))


MODELS = {  # inputs, a dtype policy, and what makes a model
    "translation": (PAIR, "float32", lambda: models.Transformer(TINY)),
    "tied": (PAIR, "float32", lambda: models.Transformer(SEPARATE.replace(logits_bias=True))),
    "untied": (PAIR, "mixed_bfloat16", lambda: models.Transformer(UNTIED)),
    "language": (SOURCE, "float32", lambda: models.TransformerLanguageModel(UNTIED)),
    "classifier": (SOURCE, "float32", lambda: models.TransformerClassifier(TINY, 3)),
    "rnnsearch": (PAIR, "mixed_bfloat16", lambda: small(recurrent.RNNSearchModel)),
    "seq2seq": (PAIR, "mixed_float16", lambda: small(recurrent.Seq2SeqModel, joint_vocab=False)),
    "convolutional": (PAIR, "mixed_float16", lambda: small(recurrent.ConvolutionalModel)),
    "lstmn": (SOURCE, "float32", lambda: LSTMNLanguageModel(LSTMNConfig(20, 8, 8))),
    "memory": (FACTS, "mixed_float16", memory),
    "layerwise": (FACTS, "mixed_bfloat16", lambda: memory(layerwise=True)),
}


SCALED = {
    "translation": lambda: models.Transformer(TINY, dtype="mixed_float16"),
    "language": lambda: models.TransformerLanguageModel(TINY, dtype="mixed_float16"),
    "classifier": lambda: models.TransformerClassifier(TINY, 3, dtype="mixed_float16"),
}


@pytest.mark.parametrize("name", SCALED)
def test_the_loss_is_scaled_in_float16(name, tmp_path):
    """As Keras does it for models made under this policy; of clones and loaded models too."""
    model = SCALED[name]()
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for each in (model, keras.models.clone_model(model), loaded):
        each.compile("adam")
        assert isinstance(each.optimizer, keras.optimizers.LossScaleOptimizer)
    exact = models.Transformer(TINY)
    exact.compile("adam")
    assert not isinstance(exact.optimizer, keras.optimizers.LossScaleOptimizer)


@pytest.mark.parametrize("name", MODELS)
def test_loaded_in_a_fresh_process(name, fresh, tmp_path):
    """Under every policy the logits are float32, and the same over there."""
    inputs, policy, make = MODELS[name]
    with recurrent.dtype_policy(policy):
        model = make()
    randomize(model)
    logits = model(inputs)
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    model.save(tmp_path / "model.keras")
    (loaded,) = fresh(tmp_path / "model.keras", keras.tree.flatten(inputs))
    tolerance = POLICIES[policy]
    np.testing.assert_allclose(loaded, to_numpy(logits), atol=tolerance, rtol=tolerance)
