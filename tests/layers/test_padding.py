"""Appended padding changes no real position; a row that is all padding stays finite."""

import numpy as np
import pytest
from helpers import POLICIES, dtype_policy, gradients, random, random_ids, randomize, to_numpy
from keras import ops

from keras_tfmr import (
    CausalSelfAttention,
    CrossAttention,
    Decoder,
    Encoder,
    GlobalSelfAttention,
    LanguageModel,
    MultiHeadAttention,
    SequenceClassifier,
    TokenClassifier,
    TransformerConfig,
    TranslationModel,
)
from keras_tfmr.layers import CausalDecoder

SIZES = dict(num_layers=2, d_model=8, num_heads=2, dff=16, vocab_size=20)
CONFIG = TransformerConfig.preset("tiny", source_vocab=20, target_vocab=20)
TOLERANCE = 2e-6  # another length may be summed in another order


def padded(ids, more=3):
    return np.pad(ids, [(0, 0), (0, more)])


@pytest.mark.parametrize("kind", [Encoder, CausalDecoder])
@pytest.mark.parametrize("norm_first", [False, True])
def test_stacks(kind, norm_first):
    stack = kind(**SIZES, norm_first=norm_first)
    ids = random_ids(3, 5, vocab=20)
    stack(ids)
    randomize(stack)
    np.testing.assert_allclose(stack(padded(ids))[:, :5], stack(ids), atol=10 * TOLERANCE)


def test_decoder_on_both_sides():
    decoder = Decoder(**SIZES)
    ids, context = random_ids(3, 5, vocab=20), random(3, 4, 8)
    expected = decoder(ids, context)
    longer = np.concatenate([context, random(3, 2, 8, seed=7)], axis=1)
    mask = np.arange(6) < np.full((3, 1), 4)
    output = decoder(padded(ids), longer, context_mask=mask)
    np.testing.assert_allclose(output[:, :5], expected, atol=TOLERANCE)


def test_models():
    source, target = random_ids(3, 5, vocab=20), random_ids(3, 4, vocab=20, seed=1)
    translation = TranslationModel(CONFIG)
    expected = translation([source, target])
    output = translation([padded(source), padded(target, 2)])
    np.testing.assert_allclose(output[:, :4], expected, atol=TOLERANCE)

    language = LanguageModel(CONFIG)
    np.testing.assert_allclose(language(padded(source))[:, :5], language(source), atol=TOLERANCE)
    tokens = TokenClassifier(CONFIG, 3)
    np.testing.assert_allclose(tokens(padded(source))[:, :5], tokens(source), atol=TOLERANCE)
    sequence = SequenceClassifier(CONFIG, 3)
    np.testing.assert_allclose(sequence(padded(source)), sequence(source), atol=TOLERANCE)


def test_neighbours_in_the_batch_do_not_matter():
    model = TranslationModel(CONFIG)
    source, target = random_ids(3, 6, vocab=20), random_ids(3, 5, vocab=20, seed=1)
    source[1, 2:], target[1, 3:] = 0, 0
    together = to_numpy(model([source, target]))[1, :3]
    alone = to_numpy(model([source[1:2, :2], target[1:2, :3]]))[0]
    np.testing.assert_allclose(together, alone, atol=TOLERANCE)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", [GlobalSelfAttention, CausalSelfAttention, CrossAttention])
def test_row_that_is_all_padding(kind, policy):
    """Finite, attends to nothing, and gives no gradient to what is only padding."""
    with dtype_policy(policy):
        layer = kind(2, 4)
    cross = kind is CrossAttention
    x, context = random(3, 5, 8), random(3, 5, 8, seed=1)
    mask = np.ones((3, 5), bool)
    mask[1] = False
    call = {"context_mask": mask} if cross else {"mask": mask}
    inputs = [x, context] if cross else [x]
    output, scores = layer(*inputs, **call, return_attention_scores=True)
    assert np.isfinite(to_numpy(output)).all() and np.isfinite(to_numpy(scores)).all()
    assert (to_numpy(scores)[1] == 0).all()

    def loss(*inputs):
        return ops.sum(ops.cast(layer.attention(*inputs, **attention_call), "float32") ** 2)

    attention_call = {"key_mask": mask} if cross else {"query_mask": mask}
    _, by_input, by_weight = gradients(loss, inputs, layer.attention.trainable_variables)
    for gradient in by_input:
        assert np.isfinite(gradient).all()
        assert (gradient[1] == 0).all() and (gradient[0] != 0).any()
    assert all(np.isfinite(gradient).all() for gradient in by_weight)


def test_empty_sentence_in_a_training_batch():
    """The whole model: an empty source and an empty target, no label; everything stays finite."""
    model = TranslationModel(CONFIG)
    source, target = random_ids(3, 6, vocab=20), random_ids(3, 5, vocab=20, seed=1)
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
    layer = MultiHeadAttention(2, 4)
    x = random(2, 3, 8)
    layer(x)
    randomize(layer)
    mask = np.ones((2, 3, 3), bool)
    mask[0, 1] = False
    output = to_numpy(layer(x, attention_mask=mask))
    np.testing.assert_allclose(output[0, 1], layer.output_dense.bias, atol=1e-6)
