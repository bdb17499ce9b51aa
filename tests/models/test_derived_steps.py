"""What is decoded is what the model says, or a sentence names the layer that prevents it.

The reference is a greedy search that calls the whole model on exactly the tokens so far.
"""

import re
import warnings

import formulas
import keras
import numpy as np
import pytest
from helpers import compiled, random, randomize, to_numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import layers, ops

import keras_tfmr as k
from keras_tfmr.layers import positional_encoding

WIDTH, VOCAB, BOS, EOS, LENGTH = 8, 11, 1, 2, 4
SOURCE = random(3, 3, WIDTH)
# How a model decodes, and why: with caches; by the whole model; not at all.
CACHES, WHOLE, NOT = "caches", "the whole model", "not at all"
EVERYWHERE = pytest.mark.backends("tensorflow", "jax", "torch")
TENSORFLOW = pytest.mark.backends("tensorflow")


def masking(layer):
    layer.supports_masking = True  # else Keras warns of a mask that ends there
    return layer


def decoder(**options):
    return k.Decoder(1, WIDTH, 2, 16, **options)


@keras.saving.register_keras_serializable()
def summed(x):
    return ops.cumsum(x, axis=1)


class Doubled(layers.Layer):
    """A layer that says by its attributes, and not by its class, how it decodes."""

    def __init__(self, **attributes):
        super().__init__()
        self.supports_masking = True
        for name, value in attributes.items():
            setattr(self, name, value)

    def call(self, x):
        return 2 * x


class WithoutCache(Doubled):
    def step(self, x, cache, index):
        return 2 * x, cache


class OtherStep(WithoutCache):
    def empty_cache(self, rows, room=None):
        return ()

    def step(self, x, cache, index):
        return 3 * x, cache


class FailingStep(OtherStep):
    def step(self, x):
        return 2 * x


class Attending(OtherStep):
    """A layer with a context, and without `read_context`."""

    def call(self, x, context):
        return x + ops.mean(context, axis=1, keepdims=True)

    def step(self, x, cache, index, context, num_beams):
        return x, cache


class Masking(Doubled):
    """A layer of each position that makes a mask of its own."""

    position_wise = True

    def compute_mask(self, x, previous_mask=None):
        return ops.greater(x[..., 0], 0)


class Mine(k.Decoder):
    """A decoder that does something else, for which its base class cannot speak."""

    def call(self, x, context, **options):
        return -super().call(x, context, **options)


def nested(*inside):
    return masking(keras.Sequential([masking(layer) for layer in inside]))


def functional(middle):
    """A functional model inside the model."""
    x = keras.Input((None, WIDTH))
    return masking(keras.Model(x, middle(x)))


def in_parts(x):
    return layers.Embedding(2, WIDTH, mask_zero=True)(ops.cast(ops.greater(x, 5), "int32"))


# From the target's embedding `e`, the target ids `t` and the context `c` to vectors of the target;
# how the model decodes, and what the sentence about it says.
GRAPHS = {
    "mask of padding": (lambda e, t, c: decoder()(e(t), c, mask=ops.not_equal(t, 0)), CACHES, ""),
    "mask of padding, turned": (
        lambda e, t, c: decoder()(e(t), c, mask=ops.not_equal(0, t)), CACHES, "",
    ),
    "mask of another id": (
        lambda e, t, c: decoder()(e(t), c, mask=ops.not_equal(t, 7)), WHOLE, "decoder.* has a mask",
    ),
    "implicit mask of an embedding": (
        lambda e, t, c: decoder()(in_parts(t), c), WHOLE, "decoder.* has a mask",
    ),
    "implicit mask of a layer": (
        lambda e, t, c: decoder()(Masking()(e(t)), c), WHOLE, "decoder.* has a mask",
    ),
    "causal sum as activation": (
        lambda e, t, c: decoder()(masking(layers.Activation(summed))(e(t)), c),
        WHOLE, "activation.* has an activation",
    ),
    "causal sum inside": (
        lambda e, t, c: decoder(activation=summed)(e(t), c),
        WHOLE, "inside decoder.*, feed_forward has an activation",
    ),
    "mean as activation": (
        lambda e, t, c: masking(
            layers.Dense(WIDTH, activation=lambda x: x - ops.mean(x, axis=1, keepdims=True))
        )(e(t)),
        NOT, "dense.* looks at later tokens",
    ),
    "convolution both ways": (
        lambda e, t, c: decoder()(masking(layers.Conv1D(WIDTH, 3, padding="same"))(e(t)), c),
        NOT, "conv1d.* looks at later tokens",
    ),
    "causal convolution": (
        lambda e, t, c: decoder()(masking(layers.Conv1D(WIDTH, 3, padding="causal"))(e(t)), c),
        WHOLE, "conv1d.* may look at other positions",
    ),
    "attention both ways": (
        lambda e, t, c: decoder()(k.MultiHeadAttention(2, 4)(e(t)), c),
        NOT, "multi_head_attention.* looks at later tokens",
    ),
    "encoder on the target": (
        lambda e, t, c: k.Encoder(1, WIDTH, 2, 16)(e(t)), NOT, "encoder.* looks at later tokens",
    ),
    "attention": (
        lambda e, t, c: k.MultiHeadAttention(2, 4)(e(t), use_causal_mask=True), CACHES, "",
    ),
    "attention with its input twice": (
        lambda e, t, c: k.MultiHeadAttention(2, 4, num_kv_heads=1)(
            (x := e(t)), x, use_causal_mask=True, query_mask=ops.not_equal(t, 0)
        ),
        CACHES, "",
    ),
    "attention to a context": (
        lambda e, t, c: (x := e(t)) + k.MultiHeadAttention(2, 4, value_dim=3)(query=x, value=c),
        CACHES, "",
    ),
    "attention with a mask of its own": (
        lambda e, t, c: k.MultiHeadAttention(2, 4)(
            e(t), use_causal_mask=True, value_mask=ops.not_equal(t, 7)
        ),
        WHOLE, "multi_head_attention.* has a mask",
    ),
    "arguments by name": (lambda e, t, c: decoder()(context=c, x=e(inputs=t)), CACHES, ""),
    "constant of one position": (
        lambda e, t, c: decoder()(e(t) * np.full(WIDTH, 2.0, "float32") + 1, c), CACHES, "",
    ),
    "constant of all positions": (
        lambda e, t, c: decoder()(e(t) + positional_encoding(LENGTH, WIDTH)[None], c),
        WHOLE, "add.* a constant of shape",
    ),
    "ids beside vectors": (
        lambda e, t, c: e(t) * ops.cast(ops.not_equal(t, 7), "float32")[..., None], WHOLE,
        "get_item.* may look at other positions",
    ),
    "attribute step": (
        lambda e, t, c: Doubled(step=3)(e(t)), WHOLE, "doubled.* neither a method `step`",
    ),
    "attribute position_wise": (
        lambda e, t, c: Doubled(position_wise=True)(e(t)), WHOLE, "doubled.* nor `position_wise",
    ),
    "step without a cache": (
        lambda e, t, c: WithoutCache()(e(t)), WHOLE, "without_cache.* lacks a method `empty_cache`",
    ),
    "context that is not read": (
        lambda e, t, c: Attending()(e(t), c), WHOLE, "attending.* lacks a method `read_context`",
    ),
    "step that gives something else": (
        lambda e, t, c: OtherStep()(e(t)), WHOLE, "the step of other_step.* gives other vectors",
    ),
    "step that fails": (
        lambda e, t, c: FailingStep()(e(t)), WHOLE, "the step of failing_step.* fails: TypeError",
    ),
    "subclass": (
        lambda e, t, c: Mine(1, WIDTH, 2, 16)(e(t), c),
        WHOLE, r"mine.* \(Mine\) may look at other positions",
    ),
    "operations": (
        lambda e, t, c: ops.where((x := e(t)) > 0, 2 * x, ops.tanh(x)) + 0.5, CACHES, "",
    ),
    "operation that sums": (
        lambda e, t, c: 0.1 * ops.cumsum(e(t), axis=1), WHOLE, "cumsum.* may look at other",
    ),
    "batch norm": (lambda e, t, c: layers.BatchNormalization()(decoder()(e(t), c)), CACHES, ""),
    "output beside the logits": (
        lambda e, t, c: {"logits": decoder()(e(t), c), "aux": masking(layers.LSTM(3))(e(t))},
        CACHES, "",
    ),
    "nested layers": (
        lambda e, t, c: nested(layers.Dense(WIDTH), layers.LayerNormalization())(e(t)), CACHES, "",
    ),
    "nested recurrence": (
        lambda e, t, c: nested(layers.LSTM(WIDTH, return_sequences=True))(e(t)),
        WHOLE, "inside sequential.*, lstm",
    ),
    "nested operation": (
        lambda e, t, c: functional(summed)(e(t)), WHOLE, "cumsum.* may look at other",
    ),
    "nested constant": (
        lambda e, t, c: functional(lambda x: x + positional_encoding(LENGTH, WIDTH)[None])(e(t)),
        WHOLE, "a constant of shape",
    ),
}  # fmt: skip
# On JAX and torch too: masks, attention, and what the comparison finds.
ON_ALL = {
    "mask of padding", "mask of another id", "implicit mask of a layer", "convolution both ways",
    "attention", "attention to a context", "attention both ways", "step that gives something else",
    "subclass",
}  # fmt: skip


def make(middle):
    """A model of vectors and target ids; the logits are `LMHead`'s of what `middle` gives."""
    context = keras.Input((None, WIDTH), name="vectors")
    target = keras.Input((None,), dtype="int32", name="target_ids")
    outputs = middle(k.PositionalEmbedding(VOCAB, WIDTH), target, context)
    if isinstance(outputs, dict):
        outputs["logits"] = k.LMHead(VOCAB)(outputs["logits"])
    else:
        outputs = k.LMHead(VOCAB)(outputs)
    model = k.TranslationModel([context, target], outputs)
    randomize(model)
    return model


def greedy(model):
    """The most probable ids, token by token, and the sums of their log-probabilities."""
    ids, total = np.full((len(SOURCE), 1), BOS, "int32"), np.zeros(len(SOURCE))
    ended = np.zeros(len(SOURCE), "bool")
    for _ in range(LENGTH):
        logits = keras.tree.flatten(model([SOURCE, ids]))[model.logits_place]
        log_probs = formulas.log_softmax(to_numpy(logits))[:, -1]
        best = 1 + log_probs[:, 1:].argmax(-1)  # never padding
        total += np.where(ended, 0, log_probs[np.arange(len(SOURCE)), best])
        ids = np.concatenate([ids, np.where(ended, 0, best)[:, None]], axis=1).astype("int32")
        ended |= best == EOS
    return ids[:, 1:], total


def check_decoded(model):
    """`generate` gives what the model says of exactly the tokens so far."""
    result = model.generate(SOURCE, bos_id=BOS, eos_id=EOS, max_length=LENGTH, run_eagerly=True)
    ids, log_probs = greedy(model)
    assert to_numpy(result.ids)[:, 0].tolist() == ids.tolist()
    np.testing.assert_allclose(to_numpy(result.log_probs)[:, 0], log_probs, atol=1e-4)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in ON_ALL else TENSORFLOW) for n in GRAPHS]
)
def test_a_graph_decodes_as_the_model_says_or_names_a_layer(name):
    middle, way, why = GRAPHS[name]
    model = make(middle)
    if way is NOT:
        with pytest.raises(ValueError, match=why):
            model.start(SOURCE, max_length=LENGTH)
        return
    assert (model.why_not_cached() is None) == (way is CACHES)
    if way is WHOLE:
        assert re.search(why, model.why_not_cached())
        with pytest.warns(UserWarning, match=f"calling the whole model.*{why}"):
            model.start(SOURCE, max_length=LENGTH)
    if "constant" in name and way is WHOLE:
        return  # it has one length alone
    check_decoded(model)  # a second warning would fail


@TENSORFLOW
def test_training_is_not_decoded_in_silence():
    model = make(lambda e, t, c: decoder(dropout_rate=0.5)(e(t), c, training=True))
    assert re.search("decoder.* is called with training=True", model.why_not_cached())


@pytest.mark.backends("tensorflow", "jax")
def test_a_model_is_compared_while_a_search_is_traced():
    """Outside of the trace."""
    model = make(lambda e, t, c: decoder()(layers.Dense(WIDTH)(e.tokens(t)), c))
    first = np.full(len(SOURCE), BOS, "int32")

    def log_probs(source):
        step, state = model.start(source, max_length=LENGTH)
        return step.next(ops.convert_to_tensor(first), state)[0]

    found = compiled(log_probs, xla=False)(ops.convert_to_tensor(SOURCE))
    assert model.why_not_cached() is None
    expected = formulas.log_softmax(to_numpy(model([SOURCE, first[:, None]])))[:, 0]
    np.testing.assert_allclose(to_numpy(found), expected, atol=1e-4)


# Parts of random graphs: from vectors `x` of the target, the target ids and the context.
PARTS = {
    "dense": lambda x, t, c: layers.Dense(WIDTH, activation="gelu")(x),
    "norm": lambda x, t, c: layers.LayerNormalization()(x),
    "own activation": lambda x, t, c: layers.Dense(WIDTH, activation=summed)(x),
    "add": lambda x, t, c: layers.Add()([x, layers.Dense(WIDTH)(x)]),
    "ops": lambda x, t, c: ops.where(x > 0, 2 * x, ops.tanh(x)) + 0.5,
    "sum": lambda x, t, c: 0.1 * ops.cumsum(x, axis=1),
    "mean": lambda x, t, c: x - ops.mean(x, axis=1, keepdims=True),
    "convolution": lambda x, t, c: layers.Conv1D(WIDTH, 2, padding="causal")(x),
    "both ways": lambda x, t, c: layers.Conv1D(WIDTH, 3, padding="same")(x),
    "recurrence": lambda x, t, c: masking(layers.GRU(WIDTH, return_sequences=True))(x),
    "decoder": lambda x, t, c: decoder()(x, c),
    "masked decoder": lambda x, t, c: decoder()(x, c, mask=ops.not_equal(t, 0)),
    "decoder that masks an id": lambda x, t, c: decoder()(x, c, mask=ops.not_equal(t, 5)),
    "causal": lambda x, t, c: k.CausalSelfAttention(2, 4)(x),
    "cross": lambda x, t, c: k.CrossAttention(2, 4)(x, c),
    "feed forward": lambda x, t, c: k.FeedForward(WIDTH, 16)(x),
    "attention": lambda x, t, c: k.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True),
    "attention to all": lambda x, t, c: x + k.MultiHeadAttention(2, 4)(x),
    "attention to the context": lambda x, t, c: x + k.MultiHeadAttention(2, 4)(x, c),
    "mask": lambda x, t, c: Masking()(x),
    "nested": lambda x, t, c: nested(layers.Dense(WIDTH), layers.Dropout(0.1))(x),
    "nested sum": lambda x, t, c: functional(summed)(x),
}  # fmt: skip
LOOKS_AHEAD = {"mean", "both ways", "attention to all"}


@pytest.mark.ci
@TENSORFLOW
@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(sorted(PARTS)), min_size=1, max_size=3))
def test_random_graphs_decode_as_the_model_says_or_name_a_layer(names):
    def middle(e, t, c):
        x = e(t)
        for name in names:
            x = PARTS[name](x, t, c)
        return x

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of masks that end
        model = make(middle)
        named = "|".join(operation.name for operation in model.operations)
        if LOOKS_AHEAD & {*names}:
            with pytest.raises(ValueError, match=f"({named}) looks at later tokens"):
                model.start(SOURCE, max_length=LENGTH)
            return
        why = model.why_not_cached()
        assert why is None or re.search(named, why)
        check_decoded(model)
