"""MultiHeadAttention against Keras's own layer and the paper; its masks and its errors."""

import contextlib
import itertools

import formulas
import keras
import numpy as np
import pytest
from helpers import gradients, operations, random, randomize, to_numpy
from keras import ops

from keras_tfmr import MultiHeadAttention
from keras_tfmr.layers import scaled_dot_product_attention

BATCH, QUERY, KEY, WIDTH, HEADS = 3, 4, 6, 10, 2


def twins(key_dim, **options):
    """Our layer, Keras's with the same random weights, and the weights of each in one order."""
    ours = MultiHeadAttention(HEADS, key_dim, **options)
    theirs = keras.layers.MultiHeadAttention(HEADS, key_dim, **options)
    query, key = random(BATCH, QUERY, WIDTH), random(BATCH, KEY, WIDTH + 1)
    ours(query, key)
    # With scores, for without them Keras's layer needs value_dim == key_dim on JAX.
    theirs(query, key, return_attention_scores=True)
    randomize(theirs)
    our, their = [], []
    for name in ("query_dense", "key_dense", "value_dense", "output_dense"):
        our += getattr(ours, name).weights
        their += getattr(theirs, f"_{name}").weights
    for weight, keras_weight in zip(our, their, strict=True):
        weight.assign(ops.reshape(keras_weight, weight.shape))
    return ours, theirs, our, their


def random_mask(*shape):
    mask = np.random.default_rng(3).random(shape) < 0.6
    mask[..., 0] = True  # no empty row: there Keras and we differ on purpose
    return mask


def test_numbers_and_gradients_of_keras():
    ours, theirs, our, their = twins(5, value_dim=3, output_shape=7)
    inputs = [random(BATCH, n, w, seed=n) for n, w in ((QUERY, 10), (KEY, 11), (KEY, 11))]
    mask = random_mask(BATCH, HEADS, QUERY, KEY)
    weight = random(BATCH, QUERY, 7, seed=8)
    weight = ops.convert_to_tensor(weight)

    def call(layer, *inputs):
        return layer(*inputs, attention_mask=mask, return_attention_scores=True)

    def loss(layer):
        return lambda *inputs: ops.sum(call(layer, *inputs)[0] * weight)

    _, by_input, by_weight = gradients(loss(ours), inputs, our)
    _, *expected = gradients(loss(theirs), inputs, their)
    for gradient, wanted in zip(by_input + by_weight, expected[0] + expected[1], strict=True):
        np.testing.assert_allclose(gradient, wanted.reshape(gradient.shape), atol=2e-5, rtol=1e-4)
    (output, scores), (expected, expected_scores) = call(ours, *inputs), call(theirs, *inputs)
    np.testing.assert_allclose(output, expected, atol=1e-5)
    np.testing.assert_allclose(scores, expected_scores, atol=1e-6)
    np.testing.assert_allclose(ours(*inputs, attention_mask=mask), expected, atol=1e-5)


def test_normalised_queries_and_shared_keys_by_the_formula():
    norm = keras.layers.LayerNormalization(epsilon=1e-6)
    layer = MultiHeadAttention(4, 5, num_kv_heads=2, qk_norm=norm)
    x = random(BATCH, QUERY, WIDTH)
    layer(x)
    randomize(layer)
    scores = layer(x, return_attention_scores=True)[1]

    def heads(dense, norm):
        y = x @ to_numpy(dense.kernel) + to_numpy(dense.bias)
        y = y.reshape(BATCH, QUERY, -1, 5).transpose(0, 2, 1, 3)
        return formulas.layer_norm(y, *map(to_numpy, norm.weights), 1e-6)

    queries = heads(layer.query_dense, layer.query_norm)
    keys = heads(layer.key_dense, layer.key_norm).repeat(2, axis=1)
    expected = formulas.softmax(queries @ keys.transpose(0, 1, 3, 2) / np.sqrt(5))
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    with pytest.raises(ValueError, match="num_kv_heads=3"):
        MultiHeadAttention(4, 5, num_kv_heads=3)


def test_masks_of_every_rank():
    """[query, key], [batch, query, key], [batch, heads, query, key] agree; value_mask adds."""
    layer = MultiHeadAttention(HEADS, 5)
    x, y = random(BATCH, QUERY, WIDTH), random(BATCH, KEY, WIDTH, seed=1)
    keys = random_mask(BATCH, KEY)
    full = np.broadcast_to(keys[:, None, None], (BATCH, HEADS, QUERY, KEY))
    expected = layer(x, y, attention_mask=full)
    for other in (full[:, 0], full[:, :1], full[:, 0, :1], full[:, 0].astype("float32")):
        np.testing.assert_allclose(layer(x, y, attention_mask=other), expected, atol=1e-6)
    np.testing.assert_allclose(layer(x, y, value_mask=keys.astype("int32")), expected, atol=1e-6)
    np.testing.assert_allclose(layer(x, y, y, key_mask=keys), expected, atol=1e-6)

    other = random_mask(BATCH, QUERY, KEY)
    both = layer(x, y, attention_mask=other, value_mask=keys)
    np.testing.assert_allclose(both, layer(x, y, attention_mask=other & keys[:, None]), atol=1e-6)


@pytest.mark.backends("tensorflow")  # reads its graph
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_softmax_is_float32_under_every_policy(policy):
    layer = MultiHeadAttention(HEADS, 5, dtype=policy)
    x = random(BATCH, QUERY, WIDTH)
    layer(x)
    softmax = [o for o in operations(layer, x) if o.type in ("Softmax", "Exp")]
    assert {operation.outputs[0].dtype.name for operation in softmax} == {"float32"}


def test_products_do_not_overflow_in_float16():
    """Of vectors whose product is beyond its numbers, and the score, 1/8 of it, is not."""
    x = np.full((1, 2, 64), 36, "float16")  # 64 * 36² = 82,944; float16 ends at 65,504
    output, scores = scaled_dot_product_attention(x, x, x)
    np.testing.assert_array_equal(scores, np.full((1, 2, 2), 0.5, "float16"))
    np.testing.assert_array_equal(output, x)


def test_dropout_drops_attention_weights_in_training_only():
    layer = MultiHeadAttention(HEADS, 5, dropout_rate=0.5)
    x = np.tile(random(1, 16, WIDTH), (300, 1, 1))
    still = to_numpy(layer(x))
    np.testing.assert_array_equal(still, layer(x, training=False))
    outputs = to_numpy(layer(x, training=True))
    assert np.abs(outputs[0] - outputs[1]).max() > 1e-3
    difference = (outputs - still).mean(axis=0)
    assert np.abs(difference).max() < 0.4 and np.abs(difference.mean()) < 0.02  # unbiased


@pytest.mark.backends("jax")
def test_a_kernel_is_asked_for_only_where_it_can_train_with_a_mask(monkeypatch):
    """JAX's own check of cuDNN's kernel is the judge; Keras's of a TPU's drops the bias. On a CPU
    there is no kernel; the outputs are the same with JAX's function, as on a GPU.
    """
    import jax.numpy as jnp
    from jax._src.cudnn import fused_attention_stablehlo as cudnn

    asked, devices = [], []
    attention = ops.dot_product_attention

    def kernel(*args, flash_attention, **more):
        asked.append(flash_attention)
        return attention(*args, **more)

    monkeypatch.setattr(ops, "dot_product_attention", kernel)
    monkeypatch.setattr(keras.distribution, "list_devices", lambda: devices)
    monkeypatch.setattr(cudnn, "check_compute_capability", lambda capability: True)
    monkeypatch.setattr(cudnn, "is_cuda_compute_capability_equal", lambda capability: False)
    layer = MultiHeadAttention(HEADS, 8)

    def call(*inputs, on="gpu:0", **options):
        devices[:] = [on]
        return to_numpy(layer(*inputs, **options))

    for query, key in itertools.product((4, 5), (6, 7)):
        x, y = random(BATCH, query, WIDTH), random(BATCH, key, WIDTH)
        mask = random_mask(BATCH, query, key)
        for inputs, options in (
            ((x,), {"use_causal_mask": True}),
            ((x, y), {"attention_mask": mask}),
        ):
            asked.clear()
            expected = call(*inputs, on="cpu:0", **options)
            assert not asked
            np.testing.assert_allclose(call(*inputs, **options), expected, rtol=1e-4, atol=1e-5)
        heads = [jnp.zeros((BATCH, length, HEADS, 8), "bfloat16") for length in (query, key, key)]
        with (
            contextlib.nullcontext() if asked.pop() is None else pytest.raises(NotImplementedError)
        ):
            cudnn.check_is_flash_attention(
                *heads, cudnn.AttentionLayout.BTNH.value, 91000, has_bias=True, is_training=True
            )
    call(x[:, :4], y[:, :6], on="tpu:0", attention_mask=random_mask(BATCH, 4, 6))
    assert asked == [False]
