"""MultiHeadAttention and the three attention sublayers, against Keras's own layer and the paper."""

import functools

import formulas
import keras
import numpy as np
import pytest
from helpers import (
    attention_weights,
    check_layer,
    gradients,
    norm_weights,
    random,
    randomize,
    to_numpy,
)
from keras import ops
from traced import operations

from keras_tfmr import CausalSelfAttention, CrossAttention, GlobalSelfAttention, MultiHeadAttention

BATCH, QUERY, KEY, WIDTH, HEADS = 3, 4, 6, 10, 2
SUBLAYERS = [GlobalSelfAttention, CausalSelfAttention, CrossAttention]


def twins(key_dim, value_dim, use_bias=True, output_shape=None):
    """Our layer and Keras's, with the same random weights."""
    ours = MultiHeadAttention(
        HEADS, key_dim, value_dim=value_dim, use_bias=use_bias, output_shape=output_shape
    )
    theirs = keras.layers.MultiHeadAttention(
        HEADS, key_dim, value_dim=value_dim, use_bias=use_bias, output_shape=output_shape
    )
    query, key = random(BATCH, QUERY, WIDTH), random(BATCH, KEY, WIDTH + 1)
    ours(query, key)
    # With scores, for without them Keras's layer needs value_dim == key_dim on JAX.
    theirs(query, key, return_attention_scores=True)
    randomize(theirs)
    for our, their in pairs(ours, theirs):
        our.assign(ops.reshape(their, our.shape))
    return ours, theirs


def pairs(ours, theirs):
    """The weights of both layers, side by side."""
    parts = [
        (ours.query_dense, theirs._query_dense),
        (ours.key_dense, theirs._key_dense),
        (ours.value_dense, theirs._value_dense),
        (ours.output_dense, theirs._output_dense),
    ]
    return [pair for our, their in parts for pair in zip(our.weights, their.weights, strict=True)]


def random_mask(*shape):
    mask = np.random.default_rng(3).random(shape) < 0.6
    mask[..., 0] = True  # no empty row: there Keras and we differ on purpose
    return mask


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("value_dim, use_bias, output_shape", [(5, True, None), (3, False, 7)])
def test_numbers_and_gradients_of_keras(value_dim, use_bias, output_shape, masked):
    ours, theirs = twins(5, value_dim, use_bias, output_shape)
    query, key, value = (
        random(BATCH, n, w, seed=n) for n, w in ((QUERY, 10), (KEY, 11), (KEY, 11))
    )
    mask = random_mask(BATCH, QUERY, KEY) if masked else None
    weight = random(BATCH, QUERY, output_shape or WIDTH, seed=8)

    def loss(layer, **call):
        def of(query, key, value):
            call["return_attention_scores"] = True
            output, _ = layer(query=query, value=value, key=key, **call)
            return ops.sum(output * weight)

        return of

    our, their = zip(*pairs(ours, theirs), strict=True)
    result = gradients(loss(ours, attention_mask=mask), [query, key, value], our)
    expected = gradients(loss(theirs, attention_mask=mask), [query, key, value], their)
    np.testing.assert_allclose(result[0], expected[0], rtol=1e-5)
    for by_ours, by_theirs in zip(result[1] + result[2], expected[1] + expected[2], strict=True):
        np.testing.assert_allclose(by_ours, by_theirs.reshape(by_ours.shape), atol=2e-5, rtol=1e-4)

    output, scores = ours(query, value, key, attention_mask=mask, return_attention_scores=True)
    expected, expected_scores = theirs(
        query, value, key, attention_mask=mask, return_attention_scores=True
    )
    np.testing.assert_allclose(output, expected, atol=1e-5)
    np.testing.assert_allclose(scores, expected_scores, atol=1e-6)


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_normalised_queries_and_shared_keys_by_the_formula(kv_heads):
    norm = keras.layers.LayerNormalization(epsilon=1e-6)
    layer = MultiHeadAttention(4, 5, num_kv_heads=kv_heads, qk_norm=norm)
    x = random(BATCH, QUERY, WIDTH)
    layer(x)
    randomize(layer)
    scores = layer(x, return_attention_scores=True)[1]

    def heads(dense, norm):
        y = x @ to_numpy(dense.kernel) + to_numpy(dense.bias)
        y = y.reshape(BATCH, QUERY, -1, 5).transpose(0, 2, 1, 3)
        return formulas.layer_norm(y, *map(to_numpy, norm.weights), 1e-6)

    queries = heads(layer.query_dense, layer.query_norm)
    keys = heads(layer.key_dense, layer.key_norm).repeat(4 // kv_heads, axis=1)
    expected = formulas.softmax(queries @ keys.transpose(0, 1, 3, 2) / np.sqrt(5))
    np.testing.assert_allclose(scores, expected, atol=1e-6)


def test_value_and_key_default_to_what_stands_before_them():
    layer = MultiHeadAttention(HEADS, 5)
    x, y = random(BATCH, QUERY, WIDTH), random(BATCH, KEY, WIDTH, seed=1)
    np.testing.assert_array_equal(layer(x), layer(x, x, x))
    np.testing.assert_array_equal(layer(x, y), layer(x, y, y))


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


def test_a_head_has_its_own_mask():
    layer = MultiHeadAttention(HEADS, 5)
    x = random(BATCH, QUERY, WIDTH)
    mask = np.ones((BATCH, HEADS, QUERY, QUERY), bool)
    mask[:, 1, :, 2] = False
    scores = to_numpy(layer(x, attention_mask=mask, return_attention_scores=True)[1])
    assert (scores[:, 1, :, 2] == 0).all() and (scores[:, 0, :, 2] > 0).all()


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_softmax_is_float32_under_every_policy(policy):
    layer = MultiHeadAttention(HEADS, 5, dtype=policy)
    x = random(BATCH, QUERY, WIDTH)
    layer(x)
    exponentials = [o for o in operations(layer, x) if o.kind in ("Softmax", "Exp", "exp")]
    assert exponentials and all(o.dtype == "float32" for o in exponentials)


def test_dropout_drops_attention_weights_in_training_only():
    layer = MultiHeadAttention(HEADS, 5, dropout_rate=0.5)
    x = random(BATCH, 16, WIDTH)
    still = layer(x)
    np.testing.assert_array_equal(still, layer(x, training=False))
    outputs = np.stack([to_numpy(layer(x, training=True)) for _ in range(200)])
    assert np.abs(outputs[0] - outputs[1]).max() > 1e-3
    difference = outputs.mean(axis=0) - to_numpy(still)
    assert np.abs(difference).max() < 0.4 and np.abs(difference.mean()) < 0.02  # unbiased


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="cuDNN's kernel is called from JAX")
def test_the_fused_kernel_of_jax_gets_a_mask_for_every_query(monkeypatch):
    """Given one row for all queries, JAX falls back to an attention that creates the scores."""
    shapes, kernel = [], keras.ops.dot_product_attention

    def spy(*args, bias, **options):
        shapes.append(tuple(bias.shape))
        return kernel(*args, bias=bias, **options)

    monkeypatch.setattr(keras.ops, "dot_product_attention", spy)
    layer, x = MultiHeadAttention(HEADS, 5), random(BATCH, QUERY, WIDTH)
    layer(x, query_mask=random_mask(BATCH, QUERY))
    assert shapes == [(BATCH, 1, QUERY, QUERY)]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("kind", SUBLAYERS)
def test_sublayers_by_the_formula(kind, norm_first, masked):
    layer = kind(HEADS, 5, value_dim=3, norm_first=norm_first)
    assert layer.attention.value_dim == 3 and layer.attention.use_bias
    x, context = random(BATCH, QUERY, WIDTH), random(BATCH, KEY, WIDTH, seed=1)
    inputs = (x, context) if kind is CrossAttention else (x,)
    layer(*inputs)
    randomize(layer)
    may_attend = np.tril(np.ones((1, QUERY, QUERY), bool)) if kind is CausalSelfAttention else None
    if masked:
        mask = random_mask(BATCH, KEY if kind is CrossAttention else QUERY)
        inputs = (*inputs, mask)
        may_attend = mask[:, None] & (True if may_attend is None else may_attend)
    seen = []

    def attend(y):
        key = context if kind is CrossAttention else y
        weights = attention_weights(layer.attention)
        output, scores = formulas.attention(y, key, key, weights, may_attend)
        seen.append(scores)
        return output

    expected = formulas.residual(x, attend, norm_weights(layer), norm_first)
    output, scores = layer(*inputs, return_attention_scores=True)
    np.testing.assert_allclose(output, expected, atol=1e-5)
    np.testing.assert_allclose(scores, seen[0], atol=1e-6)
    np.testing.assert_array_equal(layer(*inputs), output)


@pytest.mark.parametrize("kind", SUBLAYERS)
def test_sublayers_hand_their_arguments_on(kind):
    options = {"num_kv_heads": 2, "dropout_rate": 0.3, "use_bias": False}
    for more, rate in (({}, 0.3), ({"attention_dropout_rate": 0.0}, 0.0)):
        made = kind(4, 5, **options, **more)
        for layer in (made, kind.from_config(made.get_config())):
            attention = layer.attention
            found = attention.num_kv_heads, attention.dropout_rate, attention.use_bias
            assert (*found, layer.residual.dropout_rate) == (2, rate, False, 0.3)


@pytest.mark.parametrize("kind", [GlobalSelfAttention, CausalSelfAttention])
def test_a_bias_by_position_reaches_the_scores(kind):
    layer = kind(HEADS, 5)
    x = random(BATCH, QUERY, WIDTH)
    mask = np.arange(QUERY) != 1
    bias = np.where(mask, 0, -1e9).astype("float32")[None, None, None]  # [1, 1, 1, key]
    expected = layer(x, mask=np.tile(mask, (BATCH, 1)))
    np.testing.assert_allclose(layer(x, position_bias=bias), expected, atol=1e-6)


def test_sublayer_drops_its_output_too():
    """Section 5.4 of the paper: dropout on the output of each sublayer, before the sum."""
    layer = GlobalSelfAttention(HEADS, 5, dropout_rate=0.5, norm_first=True)
    x = random(BATCH, 16, WIDTH)
    layer(x)
    randomize(layer)
    added = to_numpy(layer(x, training=True)) - x
    assert 0.4 < (added == 0).mean() < 0.6


def test_context_mask_arrives_as_a_keras_mask():
    embed = keras.layers.Embedding(9, WIDTH, mask_zero=True)
    ids = np.array([[3, 4, 5, 0], [3, 4, 0, 0]])
    layer = CrossAttention(HEADS, 5)
    x = random(2, QUERY, WIDTH)
    output, scores = layer(x, embed(ids), return_attention_scores=True)
    assert (to_numpy(scores)[:, :, :, 3] == 0).all()
    assert (to_numpy(scores)[1, :, :, 2] == 0).all()
    given = layer(x, ops.convert_to_tensor(to_numpy(embed(ids))), context_mask=ids != 0)
    np.testing.assert_allclose(output, given, atol=1e-6)


@pytest.mark.parametrize("kind", [GlobalSelfAttention, CausalSelfAttention])
def test_self_attention_reads_and_passes_on_the_keras_mask(kind):
    embed = keras.layers.Embedding(9, WIDTH, mask_zero=True)
    ids = np.array([[3, 4, 5, 0], [3, 4, 0, 0]])
    layer = kind(HEADS, 5)
    x = embed(ids)
    _, scores = layer(x, return_attention_scores=True)
    assert (to_numpy(scores)[:, :, :, 3] == 0).all()
    np.testing.assert_array_equal(layer(x)._keras_mask, ids != 0)
    second = layer(layer(x), return_attention_scores=True)[1]
    assert (to_numpy(second)[1, :, :, 2:] == 0).all()


def test_multi_head_attention_reads_the_keras_mask():
    embed = keras.layers.Embedding(9, WIDTH, mask_zero=True)
    ids = np.array([[3, 4, 5, 0], [3, 4, 0, 0]])
    layer = MultiHeadAttention(HEADS, 5)
    for inputs in ((embed(ids),), (random(2, QUERY, WIDTH), embed(ids))):
        _, scores = layer(*inputs, return_attention_scores=True)
        assert (to_numpy(scores)[:, :, :, 3] == 0).all()
        assert (to_numpy(scores)[1, :, :, 2] == 0).all()


def test_symbolic_scores_of_cross_attention():
    """Keras's own layer promises the query's length twice."""
    query, key = keras.Input((5, WIDTH)), keras.Input((9, WIDTH))
    for layer in (MultiHeadAttention(HEADS, 5), CrossAttention(HEADS, 5)):
        output, scores = layer(query, key, return_attention_scores=True)
        assert output.shape == (None, 5, WIDTH)
        assert scores.shape == (None, HEADS, 5, 9)


CHECKED = {
    "attention": (functools.partial(MultiHeadAttention, 2, 4, value_dim=3), 1),
    "attention_key": (
        functools.partial(MultiHeadAttention, 2, 4, output_shape=6, dropout_rate=0.1),
        2,
    ),
    "global": (functools.partial(GlobalSelfAttention, 2, 4, dropout_rate=0.1), 1),
    "causal": (functools.partial(CausalSelfAttention, 2, 4, norm_first=True), 1),
    "cross": (functools.partial(CrossAttention, 2, 4, value_dim=6), 2),
}


@pytest.mark.parametrize("name", CHECKED)
def test_layer_contract(name, fresh, tmp_path):
    make, inputs = CHECKED[name]
    arrays = [random(3, 5, 8), random(3, 7, 8, seed=1)][:inputs]
    scores = {"return_attention_scores": True} if name in ("attention", "cross") else {}
    check_layer(make, arrays, fresh, tmp_path, **scores)


@pytest.mark.parametrize(
    "arguments, received",
    [
        (dict(num_heads=0, key_dim=4), "num_heads=0"),
        (dict(num_heads=2, key_dim=-1), "key_dim=-1"),
        (dict(num_heads=2.5, key_dim=4), "num_heads=2.5"),
        (dict(num_heads=2, key_dim=4, value_dim=0), "value_dim=0"),
        (dict(num_heads=2, key_dim=4, dropout_rate=1.5), "1.5"),
    ],
)
@pytest.mark.parametrize("kind", [MultiHeadAttention, *SUBLAYERS])
def test_bad_sizes(kind, arguments, received):
    with pytest.raises(ValueError, match=received):
        kind(**arguments)


def test_bad_output_shape():
    for bad in (0, -2, 1.5):
        with pytest.raises(ValueError, match=f"output_shape={bad}"):
            MultiHeadAttention(2, 4, output_shape=bad)


def test_wrong_rank():
    for layer in (MultiHeadAttention(2, 4), GlobalSelfAttention(2, 4), CausalSelfAttention(2, 4)):
        with pytest.raises(ValueError, match=r"batch, length, width.*Received.*\(3, 8\)"):
            layer(random(3, 8))
        layer(random(3, 5, 8))
        with pytest.raises(ValueError, match=r"\(3, 8\)"):
            layer(random(3, 8))
    for layer, name in ((MultiHeadAttention(2, 4), "value"), (CrossAttention(2, 4), "context")):
        with pytest.raises(ValueError, match=r"Received.*\(3, 8\)"):
            layer(random(3, 5, 8), random(3, 8))
        layer(random(3, 5, 8), random(3, 5, 8))
        with pytest.raises(ValueError, match=rf"`{name}`.*Received.*\(3, 8\)"):
            layer(random(3, 5, 8), random(3, 8))


@pytest.mark.parametrize("symbolic", [False, True])
def test_bad_masks(symbolic):
    layer = MultiHeadAttention(2, 4)
    x = random(3, 5, 8)
    layer(x)

    def call(**masks):
        if symbolic:
            masks = {k: keras.KerasTensor(m.shape, str(m.dtype)) for k, m in masks.items()}
            return layer(keras.KerasTensor(x.shape), **masks)
        return layer(x, **masks)

    with pytest.raises(ValueError, match=r"5.*Received.*\(3, 5, 4\)"):
        call(attention_mask=np.ones((3, 5, 4), bool))
    with pytest.raises(ValueError, match=r"5.*Received.*\(3, 4, 5\)"):
        call(attention_mask=np.ones((3, 4, 5), bool))
    with pytest.raises(ValueError, match=r"rank.*Received.*\(5,\)"):
        call(attention_mask=np.ones((5,), bool))
    with pytest.raises(ValueError, match=r"Received.*\(3, 5, 5\)"):
        call(key_mask=np.ones((3, 5, 5), bool))
    with pytest.raises(ValueError, match=r"3.*Received.*\(2, 5\)"):
        call(key_mask=np.ones((2, 5), bool))
    with pytest.raises(ValueError, match=r"heads.*2.*Received.*\(3, 4, 5, 5\)"):
        call(attention_mask=np.ones((3, 4, 5, 5), bool))


@pytest.mark.parametrize("symbolic", [False, True])
def test_values_of_another_length_than_the_keys(symbolic):
    layer, x, y = MultiHeadAttention(2, 4), random(3, 5, 8), random(3, 6, 8)
    layer(x, x, x)
    inputs = [keras.KerasTensor(a.shape) if symbolic else a for a in (x, x, y)]
    with pytest.raises(ValueError, match=r"same length.*Received.*\(3, 5, 8\) and \(3, 6, 8\)"):
        layer(*inputs)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("kind", SUBLAYERS)
def test_bad_mask_of_a_sublayer(kind, symbolic):
    name = "context_mask" if kind is CrossAttention else "mask"
    x = random(3, 5, 8)
    layer, inputs = kind(2, 4), [x, x] if kind is CrossAttention else [x]
    layer(*inputs)

    def call(mask):
        if symbolic:
            tensors = [keras.KerasTensor(x.shape) for _ in inputs]
            return layer(*tensors, **{name: keras.KerasTensor(mask.shape, str(mask.dtype))})
        return layer(*inputs, **{name: mask})

    with pytest.raises(ValueError, match=rf"`{name}`.*5.*Received.*\(3, 4\)"):
        call(np.ones((3, 4), bool))
    with pytest.raises(ValueError, match=rf"`{name}`.*rank 2.*Received.*\(3, 5, 5\)"):
        call(np.ones((3, 5, 5), bool))
