"""Sinusoidal and learned positions, and the embedding they are added to."""

import math

import formulas
import keras
import numpy as np
import pytest
from helpers import POLICIES, compiled, random, random_ids, to_numpy

from keras_tfmr.layers import PositionalEmbedding, RelativePositionBias, RotaryPositions
from keras_tfmr.layers.positions import LearnedPositions, SinusoidalPositions, positional_encoding
from keras_tfmr.models import TransformerConfig, TransformerLanguageModel


@pytest.mark.parametrize("depth", [1, 7, 16])
def test_table_of_the_paper(depth):
    np.testing.assert_allclose(
        positional_encoding(40, depth), formulas.positions(40, depth), atol=1e-7
    )


@pytest.mark.parametrize("wavelength", [0.3, 10_000.0])
@pytest.mark.parametrize("policy", POLICIES)
def test_angles_are_exact_far_out_under_every_policy(policy, wavelength):
    """Rounding positions to bfloat16 makes neighbours from 257 on equal; float32 angles drift."""
    positions = np.array([0, 1, 255, 256, 257, 258, 8191, 100_003, 1_000_003, 2**31 - 1])
    angles = positions[:, None] * wavelength ** (-np.arange(0, 32, 2) / 32)
    sin, cos = np.sin(angles), np.cos(angles)
    table = SinusoidalPositions(32, wavelength, dtype=policy)(positions)
    np.testing.assert_allclose(table, np.stack([sin, cos], -1).reshape(-1, 32), atol=1e-6)
    for came, expected in zip(
        RotaryPositions(32, wavelength, dtype=policy)(positions), (cos, sin), strict=True
    ):
        np.testing.assert_allclose(came, expected, atol=1e-6)


@pytest.mark.parametrize("policy", POLICIES)
def test_learned_biases_are_not_rounded(policy):
    """Of relative positions, and of logits made with the embedding's table."""
    layer = RelativePositionBias(2, bidirectional=True, dtype=policy)
    layer.build()
    layer.table.assign(np.full((32, 2), 1.001))
    np.testing.assert_allclose(layer(np.arange(3)), np.full((1, 2, 3, 3), 1.001), rtol=1e-6)
    embedding = PositionalEmbedding(20, 8, logits_bias=True, dtype=policy)
    embedding.build()
    embedding.bias.assign(np.full(20, 1.001))
    logits = embedding(np.zeros((1, 2, 8), "float32"), reverse=True)
    np.testing.assert_allclose(logits, np.full((1, 2, 20), 1.001), rtol=1e-6)


def test_embedding_is_scaled_tokens_plus_positions():
    layer = PositionalEmbedding(vocab_size=50, d_model=16)
    ids = random_ids(3, 300, vocab=50)
    ids[1, 200:] = 0
    output = layer(ids)
    expected = to_numpy(layer.tokens.embeddings)[ids] * math.sqrt(16) + formulas.positions(300, 16)
    np.testing.assert_allclose(output, expected, atol=1e-5)
    np.testing.assert_array_equal(output._keras_mask, ids != 0)
    x = random(2, 3, 16)
    logits = x @ to_numpy(layer.tokens.embeddings).T
    np.testing.assert_allclose(layer(x, reverse=True), logits, atol=1e-5)


def test_no_decoding_beyond_learned_positions():
    config = TransformerConfig.preset(
        "tiny", source_vocab=20, target_vocab=20, positions="learned", max_length=4
    )
    message = r"max_length=4.*Received.*[89]"  # a prompt takes positions too
    model = TransformerLanguageModel(config)
    for start, first in ((model.start, 2), (model.start_after, np.array([[2, 9]]))):
        with pytest.raises(ValueError, match=message):
            start(first, max_length=8)
    model.start(2, max_length=4)


@pytest.mark.backends("tensorflow", "jax")  # whose XLA cannot raise an error
def test_no_plausible_vector_beyond_learned_positions():
    layer = LearnedPositions(4, 8)
    vectors = to_numpy(layer(np.arange(4)))
    came = compiled(lambda first: layer(first + np.array([-3, 0, 1, 2], "int32")))(np.int32(2))
    nothing = np.full(8, np.nan)
    np.testing.assert_array_equal(came, [nothing, *vectors[2:], nothing])


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
