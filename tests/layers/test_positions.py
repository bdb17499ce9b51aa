"""Sinusoidal and learned positions, and the embedding they are added to."""

import math

import formulas
import keras
import numpy as np
import pytest
from helpers import POLICIES, random_ids, to_numpy

from keras_tfmr import Encoder, PositionalEmbedding
from keras_tfmr.layers.positions import LearnedPositions, SinusoidalPositions, positional_encoding


@pytest.mark.parametrize("depth", [1, 7, 16])
def test_table_of_the_paper(depth):
    np.testing.assert_allclose(
        positional_encoding(40, depth), formulas.positions(40, depth), atol=1e-7
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_sinusoids_are_exact_far_out_under_every_policy(policy):
    """Rounding positions to bfloat16 makes neighbours from 257 on equal; float32 angles drift."""
    positions = np.array([0, 1, 255, 256, 257, 258, 4095, 100_000])
    layer = SinusoidalPositions(32, dtype=policy)
    angles = positions[:, None] * 10000.0 ** (-np.arange(0, 32, 2) / 32)
    expected = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(8, 32)
    np.testing.assert_allclose(layer(positions), expected, atol=2e-5)


def test_embedding_is_scaled_tokens_plus_positions():
    layer = PositionalEmbedding(vocab_size=50, d_model=16)
    ids = random_ids(3, 300, vocab=50)
    ids[1, 200:] = 0
    output = layer(ids)
    expected = to_numpy(layer.tokens.embeddings)[ids] * math.sqrt(16) + formulas.positions(300, 16)
    np.testing.assert_allclose(output, expected, atol=1e-5)
    np.testing.assert_array_equal(output._keras_mask, ids != 0)


def test_too_long_for_learned_positions():
    layer = PositionalEmbedding(20, 8, positions=LearnedPositions(9, 8))
    layer(random_ids(1, 9, vocab=20))
    for ids in (random_ids(1, 10, vocab=20), keras.Input((10,), dtype="int32")):
        with pytest.raises(ValueError, match=r"max_length=9.*Received.*10"):
            layer(ids)


def test_learned_positions_of_an_open_length():
    """While Keras traces it, torch sees a length beyond these nine positions."""
    ids = keras.Input((None,), dtype="int32")
    embedding = PositionalEmbedding(20, 8, positions=LearnedPositions(9, 8))
    stack = Encoder(num_layers=1, d_model=8, num_heads=2, dff=16, embedding=embedding)
    model = keras.Model(ids, [embedding(ids), stack(ids)])
    assert [output.shape for output in model.outputs] == [(None, None, 8)] * 2
    with pytest.raises(ValueError, match=r"max_length=9.*Received.*10"):
        model(random_ids(1, 10, vocab=20))


def test_positions_of_ones_own():
    """They need no more than a call, as Keras's layers do."""

    class Ones(keras.layers.Layer):
        def call(self, positions):
            return keras.ops.ones((keras.ops.shape(positions)[0], 8))

    layer = PositionalEmbedding(20, 8, positions=Ones())
    assert layer(keras.Input((None,), dtype="int32")).shape == (None, None, 8)
    embedded = PositionalEmbedding(20, 8, positions=Ones(), scaled=False)
    ids = random_ids(2, 5, vocab=20)
    ones = to_numpy(embedded(ids)) - to_numpy(embedded.tokens.embeddings)[ids]
    np.testing.assert_allclose(ones, 1, atol=1e-5)


def test_bad_ids():
    layer = PositionalEmbedding(20, 8)
    for bad in (random_ids(3, vocab=20), random_ids(3, 4, 5, vocab=20)):
        with pytest.raises(ValueError, match=r"batch, length.*Received.*\(3,"):
            layer(bad)
    with pytest.raises(TypeError, match=r"integers.*Received.*bool"):
        layer(np.ones((3, 4), bool))
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        with pytest.raises(ValueError, match=r"`token_ids` must be dense.*ragged"):
            layer(tf.ragged.constant([[1, 2], [3]]))


def test_bad_sizes():
    for kind, sizes, received in (
        (PositionalEmbedding, (0, 8), "vocab_size=0"),
        (PositionalEmbedding, (9, 2.5), "d_model=2.5"),
        (LearnedPositions, (0, 8), "max_length=0"),
        (SinusoidalPositions, (0,), "d_model=0"),
        (positional_encoding, (0, 4), "length=0"),
        (positional_encoding, (4, 0), "depth=0"),
    ):
        with pytest.raises(ValueError, match=received):
            kind(*sizes)
