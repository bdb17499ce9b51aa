"""What a layer owes its user, whatever it computes: promised shapes, training, every dtype.

Configs, files and clones are those of tests/export/test_everywhere.py.
"""

import warnings
from functools import partial

import keras
import numpy as np
import pytest
from helpers import flat_numpy, learning, no_warnings, random, random_ids

from keras_tfmr import layers, models, recurrent
from keras_tfmr.recurrent import dtype_policy

X, CONTEXT, IDS = random(3, 5, 8), random(3, 7, 8, seed=1), random_ids(3, 5, vocab=20)
WORDS, ANNOTATIONS = random(3, 3, 5), random(3, 4, 10, seed=1)
FACTS, QUESTION = random_ids(3, 5, 4, vocab=13), random_ids(3, 3, vocab=13, seed=1)
SIZES = dict(d_model=8, num_heads=2, dff=20)
STACK = dict(num_layers=1, **SIZES)
SCORES = dict(return_attention_scores=True)
PLAIN = dict(quantized=False)  # nothing that int8 changes
NORM = layers.RMSNormalization(0.1)  # lost, its epsilon would show


def learned_positions(**kw):  # while Keras traces them, torch sees a length beyond nine
    positions = layers.LearnedPositions(9, 8, **kw)
    return layers.PositionalEmbedding(20, 8, positions=positions, logits_bias=True, **kw)


def encoder_with_alibi(**kw):
    return layers.Encoder(**STACK, relative_positions=layers.ALiBi(2, **kw), **kw)


def decoder_with_bias(**kw):
    bias = layers.RelativePositionBias(2, bidirectional=False, **kw)
    options = dict(norm_first=True, norm=NORM, relative_positions=bias)
    return layers.CausalDecoder(**STACK, **options, **kw)


# What makes a layer, its inputs, and arguments of its call; `quantized`: it has weights that int8
# changes; `trains`: the call uses all the weights.
CONTRACTS = [
    (
        partial(
            layers.MultiHeadAttention, 4, 4, num_kv_heads=2, qk_norm=NORM, value_dim=3,
            output_shape=6, dropout_rate=0.1,
        ),
        [X, CONTEXT], SCORES,
    ),
    (partial(layers.GlobalSelfAttention, 2, 4, attention_dropout_rate=0.2), [X], {}),
    (partial(layers.CausalSelfAttention, 4, 4, num_kv_heads=2, use_bias=False), [X], {}),
    (partial(layers.CrossAttention, 2, 4, norm_first=True), [X, CONTEXT], SCORES),
    (partial(layers.FeedForward, 8, 16), [X], {}),
    (
        partial(layers.GatedFeedForward, 8, 20, activation="silu", use_bias=False, norm=NORM),
        [X], {},
    ),
    (partial(layers.PostNormResidual, 0.1), [X, CONTEXT[:, :5]], PLAIN),
    # Its norm is in `pre_norm`.
    (partial(layers.PreNormResidual, 0.1), [X, CONTEXT[:, :5]], dict(trains=False, **PLAIN)),
    (partial(layers.Dropout, 0.1), [X], dict(trains=False, **PLAIN)),
    (partial(layers.LayerNormalization, 1e-5), [X], PLAIN),
    (learned_positions, [IDS], dict(trains=False)),  # the bias is of the logits
    (partial(layers.AddPositions, 8), [X], dict(trains=False, **PLAIN)),
    (partial(layers.LMHead, 20), [X], {}),
    (
        partial(
            layers.EncoderLayer, **SIZES, key_dim=4, num_kv_heads=2, attention_dropout_rate=0.2
        ),
        [X], SCORES,
    ),
    (partial(layers.DecoderLayer, **SIZES), [X, CONTEXT], SCORES),
    (partial(layers.CausalDecoderLayer, **SIZES), [X], {}),
    (encoder_with_alibi, [X], SCORES),
    (partial(layers.Decoder, **STACK), [X, CONTEXT], SCORES),
    (decoder_with_bias, [X], {}),
    (models.MeanOverTokens, [X], dict(trains=False, **PLAIN)),
    (partial(recurrent.BidirectionalEncoder, 8), [X], {}),
    (partial(recurrent.AlignedDecoder, 8, 6), [WORDS, ANNOTATIONS], SCORES),
    (partial(recurrent.Maxout, 4), [X], {}),
    (partial(recurrent.GRUEncoder, 8), [X], {}),
    (partial(recurrent.GRU, 4), [X], {}),
    (partial(recurrent.SummaryDecoder, 8), [WORDS, random(3, 10)], {}),
    (partial(recurrent.ConvolutionStack, 4, 2), [X], {}),
    (partial(recurrent.ConvolutionalEncoder, 8, 2, 1), [X], {}),
    (partial(recurrent.ConvolutionalDecoder, 8, 6), [WORDS, ANNOTATIONS], {}),
    (partial(recurrent.LSTMN, 8, True), [X], SCORES),
    # Adjacent tying has nothing but embeddings.
    (partial(recurrent.AdjacentMemories, 13, 16, 2, 4), [FACTS, QUESTION], dict(PLAIN, **SCORES)),
    (partial(recurrent.LayerwiseMemories, 13, 16, 2, 4), [FACTS, QUESTION], SCORES),
]  # fmt: skip

EACH = pytest.mark.parametrize(
    ("make", "arrays", "options"),
    CONTRACTS,
    ids=[getattr(make, "func", make).__name__ for make, *_ in CONTRACTS],
)


@EACH
def test_promised_shapes_and_a_step_of_training(make, arrays, options):
    _, trains, call = split(options)
    with no_warnings():
        layer, model, outputs = built(make, arrays, call)
        check_promises(layer, model, arrays, outputs, call)
        if trains:
            check_training(model, arrays, outputs, run_eagerly=True)


@pytest.mark.ci
def test_a_recurrent_layer_trains_under_xla():
    layer = partial(recurrent.SummaryDecoder, 8)
    _, model, outputs = built(layer, [WORDS, random(3, 10)], {})
    check_training(model, [WORDS, random(3, 10)], outputs, jit_compile=True)


@pytest.mark.ci
@EACH
def test_other_dtypes(make, arrays, options):
    """The policy and `dtype=` reach all parts; int8 changes the weights, and the outputs little."""
    quantized, trains, call = split(options)
    with no_warnings():
        with dtype_policy("mixed_float16"):
            _, model, outputs = built(make, arrays, call)
            if trains:
                check_training(model, arrays, outputs, run_eagerly=True)
        layer, model, outputs = built(partial(make, dtype="mixed_bfloat16"), arrays, call)
        for part in layer._flatten_layers():
            assert part.dtype_policy.name == "mixed_bfloat16", f"{part.name} ignores dtype="
        check_promises(layer, model, arrays, outputs, call)
        _, model, _ = built(make, arrays, call)
    if quantized:
        check_quantized(model, arrays)


def split(options):
    """The options of a contract, with their defaults, and the arguments of the call."""
    call = {"quantized": True, "trains": True, **options}
    return call.pop("quantized"), call.pop("trains"), call


def built(make, arrays, call):
    """A layer, a functional model of it alone with open batch and lengths, and its outputs."""
    keras.utils.set_random_seed(1)
    layer, inputs = make(), []
    outputs = keras.tree.flatten(layer(*arrays, **call))
    for array in arrays:
        open_axes = array.ndim - 1 - (array.dtype.kind == "f")  # of vectors the width is known
        shape = (*[None] * open_axes, *array.shape[1 + open_axes :])
        inputs.append(keras.Input(shape, dtype=array.dtype))
    return layer, keras.Model(inputs, layer(*inputs, **call)), outputs


def check_promises(layer, model, arrays, eager, call):
    """What the functional API promises is what comes: rank, every known dimension, dtype."""
    symbolic = keras.tree.flatten(model.output)
    for promised, came in zip(symbolic, eager, strict=True):
        assert promised.dtype == keras.backend.standardize_dtype(came.dtype)
        assert len(promised.shape) == len(came.shape)
        for expected, size in zip(promised.shape, came.shape, strict=True):
            assert expected in (None, size), f"symbolic {promised.shape}, eager {came.shape}"
    fixed = [keras.KerasTensor(array.shape, dtype=array.dtype) for array in arrays]
    promised = keras.tree.flatten(layer(*fixed, **call))
    assert [p.shape for p in promised] == [tuple(c.shape) for c in eager]
    if type(layer).compute_output_shape is not keras.Layer.compute_output_shape:
        shapes = (array.shape for array in arrays)
        assert layer.compute_output_shape(*shapes) == promised[0].shape


def check_training(model, arrays, outputs, **how):
    """One step lowers the loss."""
    targets = [random(*output.shape, seed=9) for output in outputs]

    def loss(outputs):
        pairs = zip(flat_numpy(outputs), targets, strict=True)
        return sum(np.square(output - target).mean() for output, target in pairs)

    model.compile(keras.optimizers.SGD(0.02), loss=["mse"] * len(targets), **how)
    with learning():
        model.train_on_batch(arrays, targets)
    assert loss(model(arrays)) < loss(outputs)


def check_quantized(model, arrays):
    before = flat_numpy(model(arrays))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras names each layer that has nothing to quantise
        model.quantize("int8")
    assert any("int8" in str(v.dtype) for v in model.variables), "nothing was quantised"
    for exact, rough in zip(before, flat_numpy(model(arrays)), strict=True):
        error = np.linalg.norm(rough - exact) / np.linalg.norm(exact)
        assert error < 0.1, f"int8 is off by {error:.1%}"
