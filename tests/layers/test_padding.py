"""Padding changes no real position; a row that is all padding stays finite."""

import numpy as np
import pytest
from helpers import gradients, random, random_ids, randomize, to_numpy
from keras import ops

import keras_tfmr

CONFIG = keras_tfmr.TransformerConfig.preset(
    "tiny", source_vocab=20, target_vocab=20, encoder_layers=1, decoder_layers=1
)
TOLERANCE = 2e-6  # another length may be summed in another order


@pytest.mark.parametrize(
    "kind, policy",
    [
        (keras_tfmr.GlobalSelfAttention, "mixed_float16"),
        (keras_tfmr.CausalSelfAttention, "float32"),
        (keras_tfmr.CrossAttention, "float32"),
    ],
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
    model = keras_tfmr.Transformer(CONFIG)
    source, target = random_ids(3, 6, vocab=20), random_ids(3, 5, vocab=20, seed=1)
    source[1], target[1] = 0, 0
    weights = (target != 0).astype("float32")

    def loss():
        log_probs = ops.log_softmax(model([source, target], training=True))
        return ops.sum(log_probs[:, :, 3] * weights)

    value, _, by_weight = gradients(loss, variables=model.trainable_variables)
    assert np.isfinite(value) and all(np.isfinite(gradient).all() for gradient in by_weight)

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
    output, bias = to_numpy(layer(x, attention_mask=mask)), to_numpy(layer.output_dense.bias)
    np.testing.assert_allclose(output[0, 1], bias, atol=1e-6)
    assert np.abs(output[1] - bias).min(axis=-1).max() > 1e-3


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "relative"])
def test_sequences_of_no_positions(positions):
    """A source of length 0 is a source of padding alone."""
    model = keras_tfmr.Transformer(CONFIG.replace(positions=positions))
    randomize(model)
    empty, padding = np.zeros((2, 0), "int32"), np.zeros((2, 1), "int32")
    target = random_ids(2, 3, vocab=20)
    np.testing.assert_allclose(model([empty, target]), model([padding, target]), atol=TOLERANCE)
    log_probs = []
    for source in (empty, padding):
        assert tuple(model([source, empty]).shape) == (2, 0, 20)
        step, state = model.start(source, 3, max_length=2)
        tokens = ops.convert_to_tensor(np.repeat(target[:, 0], 3))
        log_probs.append(to_numpy(step.next(tokens, state)[0]))
    np.testing.assert_allclose(*log_probs, atol=TOLERANCE)
