"""The SSRU by a loop in NumPy, and its errors; `test_stacks`, `test_variants` take its steps."""

import keras
import numpy as np
import pytest
from helpers import random, random_ids, randomize, to_numpy

from keras_tfmr import TransformerConfig, TranslationModel
from keras_tfmr.layers import SSRU, SSRUDecoder, SSRUDecoderLayer
from keras_tfmr.models import LanguageModel

SIZES = dict(d_model=8, num_heads=2, dff=20)
STACK = dict(num_layers=2, vocab_size=20, **SIZES)
TINY = TransformerConfig.preset("tiny", source_vocab=20, target_vocab=20, decoder_self="ssru")


def loop(x, layer, valid=None):
    """Section 3.1 of the paper, one position after the other."""
    forget, bias = (to_numpy(weight) for weight in layer.forget_dense.weights)
    (kernel,) = map(to_numpy, layer.candidate_dense.weights)
    c, outputs = np.zeros(x[:, 0].shape), []
    for t in range(x.shape[1]):
        f = 1 / (1 + np.exp(-(x[:, t] @ forget + bias)))
        new = f * c + (1 - f) * (x[:, t] @ kernel)
        c = new if valid is None else np.where(valid[:, t, None], new, c)
        outputs.append(np.maximum(c, 0))
    return np.stack(outputs, axis=1)


@pytest.mark.parametrize("norm_first, masked", [(False, True), (True, False)])
def test_it_is_the_loop_of_the_paper(norm_first, masked):
    layer, x = SSRU(norm_first=norm_first), random(3, 6, 8)
    layer(x)
    randomize(layer)
    valid = np.array([[1, 1, 1, 1, 1, 1], [0, 1, 1, 0, 1, 0], [0] * 6], bool) if masked else None

    def norm(y):
        return to_numpy(layer.residual.norm(y))  # of a test of its own

    expected = x + loop(norm(x), layer, valid) if norm_first else norm(x + loop(x, layer, valid))
    np.testing.assert_allclose(layer(x, mask=valid), expected, atol=1e-5)


def test_scores_are_those_of_the_cross_attention():
    model = TranslationModel(TINY)
    source, target = random_ids(3, 6, vocab=20), random_ids(3, 5, vocab=20)
    logits, scores = model.explain(source, target)
    np.testing.assert_allclose(logits, model([source, target]), atol=1e-5)
    assert not len(scores.decoder) and scores.cross[1].shape == (3, 2, 5, 6)


def test_the_state_is_float32_under_every_policy():
    layer = SSRU(dtype="bfloat16")
    layer.build((None, None, 8))
    y, (state,) = layer(random(3, 1, 8), cache=layer.cache(3), cache_index=0)
    assert keras.backend.standardize_dtype(y.dtype) == "bfloat16"
    assert keras.backend.standardize_dtype(state.dtype) == "float32"


def test_what_does_not_fit_is_an_error():
    with pytest.raises(ValueError, match=r"decoder_self.*'gru'"):
        TINY.replace(decoder_self="gru")
    with pytest.raises(ValueError, match=r"TranslationModel.*decoder_self='ssru'"):
        LanguageModel(TINY)
    with pytest.raises(ValueError, match="no `relative_positions`"):
        SSRUDecoder(**STACK, relative_positions=keras.layers.Identity())
    layer, x = SSRUDecoderLayer(**SIZES), random(3, 5, 8)
    with pytest.raises(ValueError, match="Received: `attention_mask`"):
        layer(x, x, attention_mask=np.ones((5, 5), bool))
