"""Padding changes no real position; a row that is all padding stays finite."""

import keras
import numpy as np
import pytest
from helpers import compiled, gradients, learning, random, random_ids, randomize, to_numpy
from keras import ops

import keras_tfmr
from keras_tfmr import layers, models, recurrent

CONFIG = keras_tfmr.TransformerConfig.preset(
    "tiny", source_vocab=20, target_vocab=20, encoder_layers=1, decoder_layers=1
)
TOLERANCE = 2e-6  # another length may be summed in another order

# Each layer that uses a mask, but for the recurrent ones, which Keras gives theirs. Self-attention
# reads ids with padding before them, which a causal one would attend to.
SIZES = dict(d_model=8, num_heads=2, dff=16, dropout_rate=0.0)
BEFORE = {
    "MultiHeadAttention": layers.MultiHeadAttention(2, 4, dropout_rate=0.0),
    "GlobalSelfAttention": layers.GlobalSelfAttention(2, 4, dropout_rate=0.0),
    "CausalSelfAttention": layers.CausalSelfAttention(2, 4, dropout_rate=0.0),
    "EncoderLayer": layers.EncoderLayer(**SIZES),
    "CausalDecoderLayer": layers.CausalDecoderLayer(**SIZES),
    "Encoder": layers.Encoder(1, **SIZES),
    "CausalDecoder": layers.CausalDecoder(1, **SIZES),
    "MeanOverTokens": models.MeanOverTokens(),
}
BEHIND = {"ConvolutionalEncoder": recurrent.ConvolutionalEncoder(4, 1, 1)}
OF_CONTEXT = {
    "MultiHeadAttention_of_a_context": layers.MultiHeadAttention(2, 4, dropout_rate=0.0),
    "CrossAttention": layers.CrossAttention(2, 4, dropout_rate=0.0),
    "DecoderLayer": layers.DecoderLayer(**SIZES),
    "Decoder": layers.Decoder(1, **SIZES),
}


@pytest.fixture(scope="module")
def padded():
    """{name of a layer: its outputs of padded ids, in each way to call it, and without padding}."""
    before, behind, alone = (keras.Input((None,), dtype="int32") for _ in range(3))
    embedding = keras.layers.Embedding(20, 8, mask_zero=True)
    x = embedding(behind)
    outputs = {name: layer(embedding(before)) for name, layer in BEFORE.items()}
    outputs |= {name: layer(x) for name, layer in BEHIND.items()}
    outputs |= {name: layer(embedding(alone), x) for name, layer in OF_CONTEXT.items()}
    model = keras.Model([before, behind, alone], outputs)
    randomize(model)
    ids, nothing = random_ids(2, 4, vocab=20), np.zeros((2, 3), "int32")
    inputs = [np.hstack([nothing, ids]), np.hstack([ids, nothing]), ids]
    exact = {name: to_numpy(output) for name, output in model([ids] * 3).items()}
    called = {name: to_numpy(output) for name, output in model(inputs).items()}
    loss = keras.losses.MeanSquaredError(reduction="sum")
    how = {} if keras.backend.backend() == "jax" else {"jit_compile": False}
    model.compile(keras.optimizers.SGD(0.0), {name: loss for name in outputs}, **how)
    predicted = model.predict(inputs, verbose=0)
    targets = {name: np.zeros_like(output) for name, output in called.items()}
    with learning():
        trained = model.train_on_batch(inputs, targets, return_dict=True)
    return {name: [exact[name], called[name], predicted[name], trained] for name in outputs}


@pytest.mark.parametrize("name", [*BEFORE, *BEHIND, *OF_CONTEXT])
def test_a_keras_mask_is_heeded_however_a_layer_is_called(name, padded):
    """Called, in `predict` and in `fit`, which JAX and TensorFlow trace."""
    exact, called, predicted, trained = padded[name]
    for output in (called, predicted):
        if exact.ndim == 3:  # padding gives nothing to the vectors of real positions
            output = output[:, 3:] if name in BEFORE else output[:, :4]
        np.testing.assert_allclose(output, exact, atol=1e-5)
    loss = (exact**2).mean(axis=-1).sum()  # of real positions, since Keras masks the loss too
    np.testing.assert_allclose(trained[f"{name}_loss"], loss, rtol=1e-5)


@pytest.mark.backends("tensorflow", "jax")
def test_the_padding_of_a_source_is_heeded_while_it_is_decoded():
    """In a trace, too."""
    model = keras_tfmr.Transformer(CONFIG)
    randomize(model)
    ids = random_ids(2, 4, vocab=20)

    def first(source):
        step, state = model.start(source, max_length=2)
        return step.next(ops.convert_to_tensor(np.array([3, 3])), state)[0]

    exact = to_numpy(first(ops.convert_to_tensor(ids)))
    padded = ops.convert_to_tensor(np.pad(ids, [(0, 0), (0, 3)]))
    for call in (first, compiled(first, xla=False)):
        np.testing.assert_allclose(to_numpy(call(padded)), exact, atol=1e-5)


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
    weights = ops.convert_to_tensor((target != 0).astype("float32"))

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


@pytest.mark.parametrize("positions", ["rotary", "relative"])
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
