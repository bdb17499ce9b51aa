"""Other kinds of Transformer: by fields, by parts, and by subclasses of the attention."""

import keras
import numpy as np
import pytest
from helpers import (
    check_layer,
    random,
    random_ids,
    randomize,
    to_numpy,
)
from keras import ops

from keras_tfmr import LanguageModel, TransformerConfig, TranslationModel
from keras_tfmr.layers import (
    AddPositions,
    ALiBi,
    CausalDecoder,
    Encoder,
    GatedFeedForward,
    MultiHeadAttention,
    RelativePositionBias,
    RMSNormalization,
    scaled_dot_product_attention,
)

VOCAB, LENGTH = 40, 5
MODERN = dict(
    norm_first=True, norm="rms", gated=True, activation="silu", use_bias=False, num_kv_heads=1,
    positions="rotary", joint_vocab=False, tied_logits=False, logits_bias=False,
)  # fmt: skip
FIELDS = {
    "modern": MODERN,
    "modern, normalised": {**MODERN, "qk_norm": True, "num_kv_heads": 2, "value_dim": 5},
    "relative": dict(positions="relative", use_bias=False, logits_bias=True, activation="gelu"),
    "alibi": dict(positions="alibi", embedding_norm=True, num_kv_heads=1, num_heads=4),
    "learned": dict(positions="learned", activation="gelu_tanh", embedding_scale=False),
}


def with_weights(model, seed=1):
    """Weights large enough for clear choices, in biases and tables too."""
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        noise = rng.normal(size=weight.shape) * 0.3
        weight.assign(weight + (noise if len(weight.shape) > 1 else noise * 0.3))
    return model


def config_of(**fields):
    sizes = dict(source_vocab=VOCAB, target_vocab=VOCAB, encoder_layers=1)
    return TransformerConfig.preset("tiny", **{**sizes, **fields})


def inputs_of(seed=0):
    """Sources of several lengths and targets of one."""
    rng = np.random.default_rng(seed)
    source = rng.integers(4, VOCAB, size=(3, 6)) * (np.arange(6) < np.array([[6], [4], [1]]))
    return source.astype("int32"), rng.integers(4, VOCAB, size=(3, LENGTH)).astype("int32")


def in_a_graph(function, jit_compile):
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function)
    import tensorflow as tf

    return tf.function(function, jit_compile=jit_compile)


def as_it_is(function, jit_compile):
    return function


EVERYWHERE = ((as_it_is, 1, False), (in_a_graph, 3, False), (in_a_graph, 3, True))
EAGERLY = ((as_it_is, 1, False), (as_it_is, 3, True))


def check_steps(model, source, target, ways):
    """Cached steps, one sentence and beams, those for XLA too, give the numbers of the full pass.

    Each of the `ways` to run them: a wrapper, the number of beams, whether they are for XLA.
    """
    full = ops.log_softmax(model(target if source is None else [source, target]), axis=-1)
    full = to_numpy(full)[:, None]  # [batch, 1, length, vocab]
    begin = len(target) if source is None else source
    for way, beams, compiled in ways:
        step, state = model.start(begin, beams, max_length=LENGTH)
        step.shrinks = step.shrinks and not compiled
        run = way(step.next, compiled)
        for position in range(LENGTH):
            tokens = ops.repeat(ops.convert_to_tensor(target)[:, position], beams, axis=0)
            log_probs, state = run(tokens, state)
            found = to_numpy(log_probs).reshape(-1, beams, VOCAB)
            expected = np.broadcast_to(full[:, :, position], found.shape)
            np.testing.assert_allclose(found, expected, atol=1e-4)
            if beams > 1:  # each row goes on from its neighbour, which has the same past
                rows = np.arange(len(target) * beams).reshape(-1, beams)[:, ::-1]
                state = step.reorder(state, ops.convert_to_tensor(rows.ravel().astype("int32")))


@pytest.mark.parametrize("name", FIELDS)
def test_fields_decode_as_they_train(name):
    source, target = inputs_of()
    model = with_weights(TranslationModel(config_of(**FIELDS[name])))
    check_steps(model, source, target, EVERYWHERE)


def test_a_language_model_decodes_as_it_trains():
    _, target = inputs_of()
    check_steps(with_weights(LanguageModel(config_of(**MODERN))), None, target, EVERYWHERE)


class OwnScore(MultiHeadAttention):
    def attend(self, queries, keys, values, mask=None, **options):
        return super().attend(3.0 * queries, keys, values, mask, **options)


class OwnQuery(MultiHeadAttention):
    def project_query(self, x, rotation=None):
        return ops.tanh(super().project_query(x, rotation))


class OwnKey(MultiHeadAttention):
    def project(self, key, value=None, rotation=None):
        keys, values = super().project(key, value, rotation)
        return ops.sin(3.0 * keys), ops.maximum(values, 0.0)


class OwnSelf(MultiHeadAttention):
    def project_self(self, x, rotation=None):
        queries, keys, values = super().project_self(x, rotation)
        return queries, 2.0 * keys, -values


class OwnOutput(MultiHeadAttention):
    def project_output(self, heads, length):
        return 2.0 * super().project_output(ops.tanh(heads), length)


OWN = [OwnScore, OwnQuery, OwnKey, OwnSelf, OwnOutput]


@pytest.mark.parametrize("kind", OWN)
def test_an_override_trains_and_decodes_the_same_function(kind, monkeypatch):
    source, target = inputs_of()
    plain = with_weights(TranslationModel(config_of()))
    before = to_numpy(plain([source, target]))
    monkeypatch.setattr("keras_tfmr.layers.CausalSelfAttention.attention_class", kind)
    monkeypatch.setattr("keras_tfmr.layers.CrossAttention.attention_class", kind)
    model = with_weights(TranslationModel(config_of()))
    assert np.abs(to_numpy(model([source, target])) - before).max() > 0.05, "it overrides nothing"
    check_steps(model, source, target, EAGERLY)


SIZES = dict(num_layers=1, d_model=8, num_heads=2, dff=20)
BLOCKS = {  # a block, its input, and what else `check_layer` has to know
    "grouped, normalised attention": (
        lambda **kw: MultiHeadAttention(4, 4, num_kv_heads=2, qk_norm=RMSNormalization(), **kw),
        random(3, 5, 8),
        {},
    ),
    "gated": (
        lambda **kw: GatedFeedForward(8, 20, activation="silu", use_bias=False, **kw),
        random(3, 5, 8),
        {},
    ),
    "rms": (RMSNormalization, random(3, 5, 8), dict(quantized=False)),
    "vectors, alibi": (
        lambda **kw: Encoder(
            **SIZES, **kw, embedding=AddPositions(8, **kw), relative_positions=ALiBi(2, **kw)
        ),
        random(3, 5, 8),
        {},
    ),
    "relative, rms": (
        lambda **kw: CausalDecoder(
            **SIZES,
            **kw,
            vocab_size=20,
            norm_first=True,
            norm=RMSNormalization(0.1),  # lost, it would show
            relative_positions=RelativePositionBias(2, bidirectional=False, **kw),
        ),
        random_ids(3, 5, vocab=20),
        {},
    ),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_block_contract(name, fresh, tmp_path):
    make, array, options = BLOCKS[name]
    check_layer(make, [array], fresh, tmp_path, **options)


def test_one_head_in_public_is_the_formula():
    query, key, value = random(2, 3, 4), random(2, 5, 4, seed=1), random(2, 5, 6, seed=2)
    may_attend = np.array([True, True, False, True, False])
    scores = np.where(may_attend, query @ key.transpose(0, 2, 1) / 2, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    found, found_weights = scaled_dot_product_attention(query, key, value, mask=may_attend)
    np.testing.assert_allclose(found_weights, weights, atol=1e-6)
    np.testing.assert_allclose(found, weights @ value, atol=1e-5)


def test_numbers_of_the_gated_layer():
    layer = GatedFeedForward(12, 20, 0.0, True, activation="silu", norm=RMSNormalization())
    x = random(3, 4, 12)
    layer(x)
    randomize(layer)
    h = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + layer.residual.norm.epsilon)
    h = h * to_numpy(layer.residual.norm.scale)
    gate, hidden, output = (
        [to_numpy(v) for v in dense.weights]
        for dense in (layer.gate_dense, layer.hidden_dense, layer.output_dense)
    )
    gated = h @ gate[0] + gate[1]
    gated = gated / (1 + np.exp(-gated)) * (h @ hidden[0] + hidden[1])
    np.testing.assert_allclose(layer(x), x + gated @ output[0] + output[1], atol=1e-5)
