"""Decoder layer and stack: the paper's formulas, and one token at a time equal to all at once."""

import functools

import formulas
import keras
import numpy as np
import pytest
from helpers import (
    ON_JAX,
    attention_weights,
    check_layer,
    layer_weights,
    random,
    random_ids,
    randomize,
    to_numpy,
)
from keras import ops

from keras_tfmr import Decoder, DecoderLayer
from keras_tfmr.layers import CausalDecoder, CausalDecoderLayer

SIZES = dict(d_model=8, num_heads=2, dff=20)
STACK = dict(num_layers=2, vocab_size=20, **SIZES)
ONE = {**STACK, "num_layers": 1}
BATCH, TARGET, SOURCE = 3, 5, 6


def padded_ids(length=TARGET, seed=0):
    """[batch, length]: a full row, a padded one, and one with a single token."""
    ids = random_ids(BATCH, length, vocab=20, seed=seed)
    ids[1, 3:], ids[2, 1:] = 0, 0
    return ids


def context_and_mask():
    mask = np.arange(SOURCE) < np.array([[SOURCE], [4], [1]])
    return random(BATCH, SOURCE, 8, seed=4), mask


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("value_dim", [None, 3])
def test_layer_of_the_paper(norm_first, value_dim):
    layer = DecoderLayer(**SIZES, value_dim=value_dim, norm_first=norm_first)
    x = random(BATCH, TARGET, 8)
    context, mask = context_and_mask()
    layer(x, context)
    randomize(layer)
    for given in (None, mask):
        expected = formulas.decoder_layer(x, context, layer_weights(layer), given, norm_first)
        np.testing.assert_allclose(layer(x, context, context_mask=given), expected, atol=5e-5)


def test_scores_of_both_attentions():
    layer = DecoderLayer(**SIZES)
    x = random(BATCH, TARGET, 8)
    context, mask = context_and_mask()
    layer(x, context)
    randomize(layer)
    output, own, cross = layer(x, context, context_mask=mask, return_attention_scores=True)
    causal = np.tril(np.ones((1, TARGET, TARGET), bool))
    weights = attention_weights(layer.self_attention.attention)
    np.testing.assert_allclose(own, formulas.attention(x, x, x, weights, causal)[1], atol=1e-5)
    assert tuple(cross.shape) == (BATCH, 2, TARGET, SOURCE)
    np.testing.assert_allclose(to_numpy(cross).sum(-1), 1, atol=1e-5)
    assert (to_numpy(cross)[1, :, :, 4:] == 0).all()
    np.testing.assert_allclose(layer(x, context, context_mask=mask), output, atol=1e-6)


@pytest.mark.parametrize("norm_first", [False, True])
def test_stack_is_embedding_layers_and_last_norm(norm_first):
    decoder = Decoder(**STACK, norm_first=norm_first)
    ids, (context, mask) = random_ids(BATCH, TARGET, vocab=20), context_and_mask()
    decoder(ids, context)
    randomize(decoder)
    x = to_numpy(decoder.embedding(ids))
    for layer in decoder.layers:
        x = formulas.decoder_layer(x, context, layer_weights(layer), mask, norm_first)
    if norm_first:
        norm = decoder.norm
        x = formulas.layer_norm(x, to_numpy(norm.gamma), to_numpy(norm.beta), norm.epsilon)
    np.testing.assert_allclose(decoder(ids, context, context_mask=mask), x, atol=1e-4)


def compiled(function, jit_compile):
    """`function` as it runs in a service: traced once, with XLA or without."""
    if ON_JAX:
        import jax

        return jax.jit(function)
    import tensorflow as tf

    return tf.function(function, jit_compile=jit_compile)


@pytest.mark.parametrize("value_dim", [None, 3])
@pytest.mark.parametrize("norm_first", [False, True])
def test_one_token_at_a_time_equals_all_at_once(norm_first, value_dim):
    decoder = Decoder(**STACK, norm_first=norm_first, value_dim=value_dim)
    ids, (context, mask) = padded_ids(), context_and_mask()
    decoder(ids, context)
    randomize(decoder)
    expected = to_numpy(decoder(ids, context, context_mask=mask))
    context_cache, cache = decoder.context_cache(context, mask), decoder.cache(BATCH, 8)
    for index in range(TARGET):
        tokens = ids[:, index : index + 1]
        output, cache = decoder(tokens, cache=cache, cache_index=index, context_cache=context_cache)
        real = ids[:, index] != 0
        np.testing.assert_allclose(to_numpy(output)[real, 0], expected[real, index], atol=1e-5)


def test_several_new_tokens_at_once():
    """A prefix of three, then two: the same as one by one."""
    decoder = Decoder(**STACK)
    ids, (context, mask) = random_ids(BATCH, TARGET, vocab=20), context_and_mask()
    expected = decoder(ids, context, context_mask=mask)
    context_cache, cache = decoder.context_cache(context, mask), decoder.cache(BATCH, TARGET)
    parts = []
    for begin, end in ((0, 3), (3, TARGET)):
        output, cache = decoder(
            ids[:, begin:end], cache=cache, cache_index=begin, context_cache=context_cache
        )
        parts.append(to_numpy(output))
    np.testing.assert_allclose(np.concatenate(parts, axis=1), expected, atol=1e-5)


def test_scores_together_with_a_cache():
    """They are the rows of those of the whole pass; zero for an example without a context."""
    decoder = Decoder(**STACK)
    ids, (context, mask) = random_ids(BATCH, TARGET, vocab=20), context_and_mask()
    mask = mask & np.array([[True], [True], [False]])
    _, own, cross = decoder(ids, context, context_mask=mask, return_attention_scores=True)
    context_cache, cache = decoder.context_cache(context, mask), decoder.cache(BATCH, TARGET)
    for index in range(TARGET):
        _, new_own, new_cross, cache = decoder(
            ids[:, index : index + 1],
            cache=cache,
            cache_index=index,
            context_cache=context_cache,
            return_attention_scores=True,
        )
        for whole, new in ((own, new_own), (cross, new_cross)):
            for one, other in zip(whole, new, strict=True):
                np.testing.assert_allclose(one[:, :, index], other[:, :, 0], atol=1e-6)
    assert not to_numpy(new_cross[0])[2].any()


@pytest.mark.parametrize("jit_compile", [False, True])
def test_compiled_step_keeps_its_shapes(jit_compile):
    decoder = Decoder(**STACK, value_dim=3)
    ids, (context, mask) = random_ids(BATCH, TARGET, vocab=20), context_and_mask()
    expected = to_numpy(decoder(ids, context, context_mask=mask))
    context_cache = decoder.context_cache(context, mask)

    def step(tokens, cache, index):
        return decoder(tokens, cache=cache, cache_index=index, context_cache=context_cache)

    run = compiled(step, jit_compile)
    cache = decoder.cache(BATCH, 8)
    shapes = [tuple(part.shape) for part in keras.tree.flatten(cache)]
    assert shapes == [(BATCH, 2, 8, 4), (BATCH, 2, 8, 3)] * 2
    for index in range(TARGET):
        tokens = ops.convert_to_tensor(ids[:, index : index + 1])
        output, cache = run(tokens, cache, ops.convert_to_tensor(index, dtype="int32"))
        np.testing.assert_allclose(to_numpy(output)[:, 0], expected[:, index], atol=1e-5)
        assert [tuple(part.shape) for part in keras.tree.flatten(cache)] == shapes


CHECKED = {
    "layer": functools.partial(DecoderLayer, **SIZES, value_dim=3),
    "stack": functools.partial(Decoder, **ONE),
    "only_layer": functools.partial(CausalDecoderLayer, **SIZES),
    "only_stack": functools.partial(CausalDecoder, **ONE, norm_first=True),
}


def arrays_of(name):
    x = padded_ids() if "stack" in name else random(BATCH, TARGET, 8)
    return [x] if "only" in name else [x, random(BATCH, SOURCE, 8, seed=4)]


@pytest.mark.parametrize("name", CHECKED)
def test_layer_contract(name, fresh, tmp_path):
    scores = {} if "only" in name else {"return_attention_scores": True}
    check_layer(CHECKED[name], arrays_of(name), fresh, tmp_path, **scores)


def test_bad_input():
    layer, decoder = DecoderLayer(**SIZES), Decoder(**ONE)
    x, context, ids = random(3, 5, 8), random(3, 6, 8), padded_ids()
    with pytest.raises(ValueError, match=r"Received.*\(3, 8\)"):
        layer(random(3, 8), context)
    with pytest.raises(ValueError, match=r"Received.*\(3, 8\)"):
        DecoderLayer(**SIZES)(x, random(3, 8))
    with pytest.raises(ValueError, match=r"8.*Received.*\(3, 5, 6\)"):
        DecoderLayer(**SIZES)(random(3, 5, 6), context)
    with pytest.raises(ValueError, match=r"6.*Received.*\(3, 5\)"):
        layer(x, context, context_mask=np.ones((3, 5), bool))
    with pytest.raises(ValueError, match=r"`cache` and `cache_index`.*Received: cache_index=None"):
        decoder(ids[:, :1], context, cache=decoder.cache(3, 5))
    with pytest.raises(ValueError, match=r"batch, length.*Received.*\(3,\)"):
        decoder(ids[:, 0], context)
