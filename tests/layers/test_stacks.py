"""Encoder, decoders and the sublayers of Figure 1: dropout, masks, causality."""

from functools import partial

import keras
import numpy as np
import pytest
from helpers import random, randomize, to_numpy

from keras_tfmr import CausalSelfAttention, CrossAttention, FeedForward, GlobalSelfAttention
from keras_tfmr.layers import CausalDecoder, Decoder, Dropout, Encoder, EncoderLayer

STACK = dict(num_layers=2, d_model=8, num_heads=2, dff=20)
X, CONTEXT = random(3, 7, 8), random(3, 6, 8, seed=4)


@pytest.mark.parametrize("rate", [0.0, 0.4])
@pytest.mark.parametrize(
    "make", [partial(GlobalSelfAttention, 2, 5), partial(FeedForward, 64, 8)]
)  # fmt: skip
def test_the_output_is_dropped_at_the_callers_rate(make, rate):
    """Section 5.4 of the paper: on the output of each sublayer, before the sum."""
    layer, x = make(dropout_rate=rate, norm_first=True), random(4, 32, 64)
    layer(x)
    randomize(layer)
    dropped = (to_numpy(layer(x, training=True)) - x == 0).mean()
    assert abs(dropped - rate) < 0.05


def test_a_stack_drops_what_it_reads_in_training():
    stack = Encoder(**STACK, dropout_rate=0.5)
    stack(X)
    stack.layers = []
    assert 0.3 < (to_numpy(stack(X, training=True)) == 0).mean() < 0.7
    np.testing.assert_array_equal(stack(X), X)


@pytest.mark.parametrize("beside", [{}, {"attention_mask": np.ones((4, 4), bool)}])
@pytest.mark.parametrize("norm", [None, keras.layers.RMSNormalization()])  # passes no mask on
@pytest.mark.parametrize("kind", [GlobalSelfAttention, CausalSelfAttention, CrossAttention])
def test_keras_masks_are_used_and_passed_on(kind, norm, beside):
    """That of the context in cross-attention."""
    ids = np.array([[3, 4, 5, 0], [3, 4, 0, 0]])
    x = keras.layers.Embedding(9, 8, mask_zero=True)(ids)
    inputs = (random(2, 5, 8), x) if kind is CrossAttention else (x,)
    beside = {} if kind is CrossAttention else beside
    layer = kind(2, 5, norm=norm, norm_first=norm is not None)
    output, scores = layer(*inputs, **beside, return_attention_scores=True)
    np.testing.assert_array_equal(to_numpy(scores).any(axis=(1, 2)), ids != 0)
    given = layer(*map(to_numpy, inputs), ids != 0)  # the masks as arguments
    np.testing.assert_allclose(output, given, atol=1e-6)
    if kind is not CrossAttention:
        np.testing.assert_array_equal(layer(x, **beside)._keras_mask, ids != 0)


@pytest.mark.parametrize(
    "kind, dropout, scores", [(Decoder, 0.4, True), (CausalDecoder, 0.0, False)]
)
def test_what_comes_later_changes_nothing(kind, dropout, scores):
    """Outputs up to t are bit for bit the same, whatever stands after t."""
    stack = kind(**STACK, dropout_rate=dropout)
    context = [CONTEXT] if kind is Decoder else []
    # Two real positions at least, so that every row sees something change.
    mask = np.arange(7) < np.array([[7], [5], [2]]) if scores else np.ones((3, 7), bool)

    def run(x):
        keras.utils.set_random_seed(11)  # dropout draws the same numbers at every call
        for part in stack._flatten_layers():
            if isinstance(part, keras.layers.Dropout) and part.rate > 0:
                part.seed_generator.state.assign([1, 2])
        options = {"training": dropout > 0, "return_attention_scores": scores}
        output = stack(x, *context, mask=mask, **options)
        return to_numpy(output[0] if scores else output)

    reference = run(X)
    for t in (1, 3, 6):
        changed = run(np.concatenate([X[:, :t], random(3, 7 - t, 8, seed=t)], axis=1))
        np.testing.assert_array_equal(changed[:, :t], reference[:, :t])
        assert np.abs(changed[:, t:] - reference[:, t:]).max() > 0, "nothing changed"


def test_key_dim_defaults_to_the_width_shared_by_the_heads():
    config = EncoderLayer(d_model=12, num_heads=3, dff=8).get_config()
    for width, expected in ((12, 4), (24, 8)):  # not frozen in the config
        layer = EncoderLayer.from_config({**config, "d_model": width})
        assert layer.self_attention.attention.key_dim == expected
    EncoderLayer(d_model=10, num_heads=4, dff=8, key_dim=3)(random(2, 5, 10))


@pytest.mark.backends("torch")  # on TensorFlow, Keras's own layers fail; JAX's keys are pure
def test_dropout_computed_again_in_the_gradient_drops_the_same():
    import torch

    with torch.enable_grad(), keras.RematScope("full"):
        layer, x = Dropout(0.5), torch.ones(1000, requires_grad=True)
        y = layer(x, training=True)
        y.sum().backward()
    np.testing.assert_array_equal(to_numpy(x.grad) == 0, to_numpy(y.detach()) == 0)
