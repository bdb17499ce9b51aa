"""Appended padding changes no real position; a row that is all padding stays finite."""

import numpy as np
import pytest
from helpers import gradients, random, random_ids, randomize, to_numpy
from keras import ops

import keras_tfmr

CONFIG = keras_tfmr.TransformerConfig.preset("tiny", source_vocab=20, target_vocab=20)
TOLERANCE = 2e-6  # another length may be summed in another order


def source_and_target():
    return random_ids(3, 6, vocab=20), random_ids(3, 5, vocab=20, seed=1)


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
@pytest.mark.parametrize(
    "kind",
    [keras_tfmr.GlobalSelfAttention, keras_tfmr.CausalSelfAttention, keras_tfmr.CrossAttention],
)
def test_row_that_is_all_padding(kind, policy):
    """Finite, attends to nothing, and gives no gradient to what is only padding."""
    layer = kind(2, 4, dtype=policy)
    mask = np.array([[True] * 5, [False] * 5, [True] * 5])
    inputs, names = [random(3, 5, 8)], ("mask", "query_mask")
    if kind is keras_tfmr.CrossAttention:
        inputs, names = [*inputs, random(3, 5, 8, seed=1)], ("context_mask", "key_mask")
    output, scores = layer(*inputs, **{names[0]: mask}, return_attention_scores=True)
    assert np.isfinite(to_numpy(output)).all() and np.isfinite(to_numpy(scores)).all()
    assert (to_numpy(scores)[1] == 0).all()

    def loss(*inputs):
        return ops.sum(ops.cast(layer.attention(*inputs, **{names[1]: mask}), "float32") ** 2)

    _, by_input, by_weight = gradients(loss, inputs, layer.attention.trainable_variables)
    for gradient in by_input:
        assert np.isfinite(gradient).all()
        assert (gradient[1] == 0).all() and (gradient[0] != 0).any()
    assert all(np.isfinite(gradient).all() for gradient in by_weight)


def test_empty_sentence_in_a_training_batch():
    """The whole model: an empty source and an empty target, no label; everything stays finite."""
    model = keras_tfmr.TranslationModel(CONFIG)
    source, target = source_and_target()
    source[1], target[1] = 0, 0
    weights = (target != 0).astype("float32")

    def loss():
        log_probs = ops.log_softmax(model([source, target], training=True))
        return ops.sum(log_probs[:, :, 3] * weights)

    value, _, found = gradients(loss, variables=model.trainable_variables)
    assert np.isfinite(value) and all(np.isfinite(gradient).all() for gradient in found)

    without = [np.delete(ids, 1, axis=0) for ids in (source, target)]
    together = np.delete(to_numpy(model([source, target])), 1, axis=0)
    np.testing.assert_allclose(together, model(without), atol=TOLERANCE)


def test_multi_head_attention_where_a_query_may_attend_to_nothing():
    """Documented: the output projection of zero, hence the bias alone."""
    layer, x = keras_tfmr.MultiHeadAttention(2, 4), random(2, 3, 8)
    layer(x)
    randomize(layer)
    mask = np.ones((2, 3, 3), bool)
    mask[0, 1] = False
    output = to_numpy(layer(x, attention_mask=mask))
    np.testing.assert_allclose(output[0, 1], layer.output_dense.bias, atol=1e-6)
