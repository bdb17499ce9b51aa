"""Encoder layer and stack, against the paper's formulas in NumPy."""

import functools

import formulas
import numpy as np
import pytest
from helpers import (
    check_layer,
    gradients,
    layer_weights,
    random,
    random_ids,
    randomize,
    to_numpy,
)
from keras import ops

from keras_tfmr import Encoder, EncoderLayer, PositionalEmbedding

SIZES = dict(d_model=8, num_heads=2, dff=20)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("value_dim", [None, 3])
def test_layer_of_the_paper(norm_first, value_dim):
    layer = EncoderLayer(**SIZES, value_dim=value_dim, norm_first=norm_first)
    x = random(3, 5, 8)
    layer(x)
    randomize(layer)
    mask = np.arange(5) < np.array([[5], [3], [1]])  # [batch, length]
    expected = formulas.encoder_layer(x, layer_weights(layer), mask[:, None], norm_first)
    np.testing.assert_allclose(layer(x, mask=mask), expected, atol=2e-5)
    unmasked = formulas.encoder_layer(x, layer_weights(layer), None, norm_first)
    np.testing.assert_allclose(layer(x), unmasked, atol=2e-5)


def test_gradient_by_finite_differences():
    layer = EncoderLayer(**SIZES)
    x, weight = random(1, 3, 8), random(1, 3, 8, seed=1)
    layer(x)
    randomize(layer)
    weights = layer_weights(layer)
    _, (gradient,), _ = gradients(lambda x: ops.sum(weight * layer(x)), [x])
    for index in [(0, 0, 0), (0, 1, 5), (0, 2, 7)]:
        step = np.zeros(x.shape)  # float64: the formulas are exact enough for a small step
        step[index] = 1e-5
        slope = (weight * formulas.encoder_layer(x + step, weights)).sum()
        slope -= (weight * formulas.encoder_layer(x - step, weights)).sum()
        np.testing.assert_allclose(gradient[index], slope / 2e-5, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("norm_first", [False, True])
def test_stack_is_embedding_layers_and_last_norm(norm_first):
    encoder = Encoder(num_layers=2, **SIZES, vocab_size=20, norm_first=norm_first)
    ids = random_ids(3, 5, vocab=20)
    ids[1, 3:] = 0
    encoder(ids)
    randomize(encoder)
    x = to_numpy(encoder.embedding(ids))
    for layer in encoder.layers:
        x = formulas.encoder_layer(x, layer_weights(layer), (ids != 0)[:, None], norm_first)
    if norm_first:
        norm = encoder.norm
        x = formulas.layer_norm(x, to_numpy(norm.gamma), to_numpy(norm.beta), norm.epsilon)
    np.testing.assert_allclose(encoder(ids), x, atol=5e-5)
    np.testing.assert_array_equal(encoder(ids)._keras_mask, ids != 0)


def test_embedding_dropout_in_training():
    encoder = Encoder(num_layers=1, **SIZES, vocab_size=20, dropout_rate=0.5)
    ids = random_ids(2, 5, vocab=20)
    encoder(ids)
    encoder.layers = []  # what is left is the embedding with its dropout
    dropped = to_numpy(encoder(ids, training=True)) == 0
    assert 0.3 < dropped.mean() < 0.7
    assert (to_numpy(encoder(ids)) == to_numpy(encoder.embedding(ids))).all()


CHECKED = {
    "layer": functools.partial(EncoderLayer, **SIZES, value_dim=3),
    "stack": functools.partial(Encoder, num_layers=1, **SIZES, vocab_size=20),
}


@pytest.mark.parametrize("name", CHECKED)
def test_layer_contract(name, fresh, tmp_path):
    x = random_ids(3, 5, vocab=20) if "stack" in name else random(3, 5, 8)
    check_layer(CHECKED[name], [x], fresh, tmp_path, return_attention_scores=name == "stack")


def test_key_dim_defaults_to_the_width_shared_by_the_heads():
    config = EncoderLayer(d_model=12, num_heads=3, dff=8).get_config()
    for width, expected in ((12, 4), (24, 8)):  # not frozen in the config
        layer = EncoderLayer.from_config({**config, "d_model": width})
        assert layer.self_attention.attention.key_dim == expected
    with pytest.raises(ValueError, match=r"divisible.*Received: d_model=10, num_heads=4"):
        EncoderLayer(d_model=10, num_heads=4, dff=8)
    EncoderLayer(d_model=10, num_heads=4, dff=8, key_dim=3)(random(2, 5, 10))


@pytest.mark.parametrize(
    "kind", [EncoderLayer, functools.partial(Encoder, num_layers=1, vocab_size=9)]
)
@pytest.mark.parametrize(
    "bad, received",
    [
        (dict(num_heads=0), "num_heads=0"),
        (dict(d_model=-8), "d_model=-8"),
        (dict(dff=0), "dff=0"),
        (dict(key_dim=0), "key_dim=0"),
        (dict(dropout_rate=1.0), "dropout.*1.0"),
    ],
)
def test_bad_sizes(kind, bad, received):
    with pytest.raises(ValueError, match=received):
        kind(**{**SIZES, **bad})


def test_bad_stack():
    with pytest.raises(ValueError, match="num_layers=0"):
        Encoder(num_layers=0, **SIZES, vocab_size=9)
    with pytest.raises(ValueError, match="vocab_size=0"):
        Encoder(num_layers=1, **SIZES, vocab_size=0)
    with pytest.raises(ValueError, match=r"either `vocab_size` or `embedding`.*None"):
        Encoder(num_layers=1, **SIZES)
    with pytest.raises(ValueError, match=r"either `vocab_size` or `embedding`.*9"):
        Encoder(num_layers=1, **SIZES, vocab_size=9, embedding=PositionalEmbedding(9, 8))
    with pytest.raises(ValueError, match=r"d_model=8.*Received.*6"):
        Encoder(num_layers=1, **SIZES, embedding=PositionalEmbedding(9, 6))


def test_bad_input():
    with pytest.raises(ValueError, match=r"Received.*\(3, 8\)"):
        EncoderLayer(**SIZES)(random(3, 8))
    with pytest.raises(ValueError, match=r"8.*Received.*\(3, 5, 6\)"):
        EncoderLayer(**SIZES)(random(3, 5, 6))
    encoder = Encoder(num_layers=1, **SIZES, vocab_size=9)
    with pytest.raises(ValueError, match=r"batch, length.*Received.*\(3,"):
        encoder(random_ids(3, vocab=9))
    with pytest.raises(TypeError, match=r"integers.*Received.*bool"):
        encoder(np.ones((3, 5), bool))


def test_a_config_serves_twice():
    config = Encoder(num_layers=1, **SIZES, vocab_size=9).get_config()
    first, second = Encoder.from_config(config), Encoder.from_config(config)
    assert first.embedding.vocab_size == second.embedding.vocab_size == 9
