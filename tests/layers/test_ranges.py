"""An argument one step out of its range is an error that says what was received: no number comes.

A layer refuses it before its first call, takes the right one then, and refuses it afterwards. The
layers and their right calls are those of test_contracts.py; each check has one wrong value here.
"""

import contextlib
import math
import re
from functools import partial

import keras
import numpy as np
import pytest
from helpers import random, random_ids
from test_contracts import ANNOTATIONS, CONTEXT, CONTRACTS, FACTS, IDS, QUESTION, WORDS, X

import keras_tfmr
from keras_tfmr import _checks, layers, losses, metrics, models, schedules

POSITIONS, LABELS, LOGITS = np.arange(3, dtype="int32"), random_ids(3, 5, vocab=9), random(3, 5, 9)
TINY = models.TransformerConfig(20, 20, 1, 1, 8, 2, 20)
LANGUAGE, TRANSLATION = models.TransformerLanguageModel(TINY), models.Transformer(TINY)

# What makes a callable, and the arguments of a right call.
RIGHT = {getattr(make, "func", make).__name__: (make, arrays) for make, arrays, _ in CONTRACTS} | {
    "RMSNormalization": (layers.RMSNormalization, [X]),
    "PositionalEmbedding in reverse": (
        lambda: partial(layers.PositionalEmbedding(20, 8), reverse=True), [X]
    ),
    "SinusoidalPositions": (partial(layers.SinusoidalPositions, 8), [POSITIONS]),
    "LearnedPositions": (partial(layers.LearnedPositions, 5, 8), [POSITIONS]),
    "NoPositions": (layers.NoPositions, [POSITIONS]),
    "RotaryPositions": (partial(layers.RotaryPositions, 2), [POSITIONS]),
    "RelativePositionBias": (
        partial(layers.RelativePositionBias, 2, bidirectional=True), [POSITIONS, POSITIONS]
    ),
    "ALiBi": (partial(layers.ALiBi, 2), [POSITIONS]),
    "positional_encoding": (lambda: layers.positional_encoding, [3, 4, 9.0]),
    "scaled_dot_product_attention": (
        lambda: layers.scaled_dot_product_attention, [X, X[:, :2], X[:, :2]]
    ),
    "smoothed_cross_entropy": (lambda: losses.smoothed_cross_entropy, [LABELS, LOGITS, 0.1]),
    "LabelSmoothedCrossEntropy": (
        partial(losses.LabelSmoothedCrossEntropy, 0.1, 7.0), [LABELS, LOGITS]
    ),
    "TokenAccuracy": (lambda: metrics.TokenAccuracy().update_state, [LABELS, LOGITS]),
    "Perplexity": (lambda: metrics.Perplexity().update_state, [LABELS, LOGITS]),
    "NoamSchedule": (partial(schedules.NoamSchedule, 8), [0]),
    "LanguageModel": (lambda: LANGUAGE.log_prob, [IDS]),
    "TranslationModel": (lambda: TRANSLATION, [[IDS, IDS]]),
    "TranslationModel.explain": (lambda: TRANSLATION.explain, [IDS, IDS]),
    "Transformer": (lambda: models.Transformer, [TINY]),
    "TransformerLanguageModel": (lambda: models.TransformerLanguageModel, [TINY]),
    "TransformerClassifier": (lambda: models.TransformerClassifier, [TINY, 2]),
}  # fmt: skip


def changed(array, number):
    """The array with another number at its end: the others are right."""
    array = array.copy()
    array.flat[-1] = number
    return array


def at(place, *values):
    """Wrong values of an argument, by its place in the right call or by its name."""
    return [(place, value) for value in values]


def ids(place, right, vocab):
    """No ids, one axis too many, and ids that are none."""
    numbers = changed(right, -1), changed(right, vocab), right + 0.5
    return at(place, right[0], right[..., None], *numbers)


MASK = np.ones((3, 6), bool)  # of no sequence here
FLAT, NARROW = at(0, X[:, 0]), at(0, X[..., 1:])
VECTORS, MASKED = FLAT + NARROW, FLAT + at("mask", MASK, np.ones((3, 5, 1), bool))
ADDED = np.where(np.eye(5), 0, -np.inf)  # what other libraries add to the scores
WHERE = at("attention_mask", np.ones((3, 5, 6), bool), np.ones((1,) * 5, bool))
WHERE += at("attention_mask", ADDED, np.full((5, 5), math.nan), np.full((5, 5), 0.5))
SELF = [*WHERE, *at("position_bias", random(5, 6)), *at("rotation", [random(5, 3)] * 2)]
CONTEXTS, WIDTH = at(1, CONTEXT[0], CONTEXT[:1]) + at("context_mask", MASK), at(1, CONTEXT[..., 1:])
SAME = at(1, X[:, 1:], X[:1], X[..., 1:])
DECODED = at(0, WORDS[:, 0], WORDS[:1]) + at(1, ANNOTATIONS[0], ANNOTATIONS[:1])
PLACES = at(0, POSITIONS - 1, POSITIONS[None], POSITIONS + 0.5)
LABELLED = ids(0, LABELS, 9) + at(0, LABELS[:, 1:])
WEIGHTED = LABELLED + at(
    "sample_weight", np.ones(4), np.ones((3, 5, 1)), np.ones((3, 2)), np.array([1, 1, -0.1]),
    np.array([1, 1, math.nan]),
)  # fmt: skip

MEMORY = ids(0, FACTS, 13) + ids(1, QUESTION, 13) + at(1, QUESTION[:1])

WRONG = {
    "MultiHeadAttention": [
        *at(0, X[0], X[:1]), *at(1, CONTEXT[0]), *at("key", CONTEXT[:, 1:], CONTEXT[:1]), *WHERE,
        *at("value_mask", MASK), *at("key_mask", MASK), *at("position_bias", random(5, 6)),
    ],
    **dict.fromkeys(["GlobalSelfAttention", "CausalSelfAttention"], MASKED + SELF),
    "CrossAttention": FLAT + CONTEXTS,
    **dict.fromkeys(["FeedForward", "GatedFeedForward", "AddPositions"], VECTORS),
    **dict.fromkeys(["PostNormResidual", "PreNormResidual"], SAME),
    **dict.fromkeys(["EncoderLayer", "CausalDecoderLayer"], VECTORS + MASKED + SELF),
    **dict.fromkeys(["encoder_with_alibi", "decoder_with_bias"], VECTORS + MASKED + WHERE),
    **dict.fromkeys(["DecoderLayer", "Decoder"], VECTORS + MASKED + CONTEXTS),
    "learned_positions": ids(0, IDS, 20) + at(0, [IDS], random_ids(3, 10, vocab=20)),
    "PositionalEmbedding in reverse": VECTORS,
    **dict.fromkeys(["SinusoidalPositions", "NoPositions", "RotaryPositions", "ALiBi"], PLACES),
    "LearnedPositions": PLACES + at(0, POSITIONS + 3, np.arange(6)),
    "RelativePositionBias": PLACES + at(1, POSITIONS - 1, POSITIONS[None]),
    "positional_encoding": at(0, 0, 1.5) + at(1, 0) + at(2, 0, -1, math.nan, math.inf),
    "scaled_dot_product_attention":
        at(0, X[:1], X[..., 1:], X[0]) + at(1, X) + at(2, X)
        + at("mask", np.ones((5, 3), bool), ADDED[:, :2]),
    "smoothed_cross_entropy": LABELLED + at(2, -0.1, 1.0, math.nan),
    **dict.fromkeys(["LabelSmoothedCrossEntropy", "TokenAccuracy", "Perplexity"], WEIGHTED),
    **dict.fromkeys(["GRU", "BidirectionalEncoder", "GRUEncoder", "LSTMN"], MASKED),
    **dict.fromkeys(["ConvolutionStack", "MeanOverTokens"], MASKED),
    "ConvolutionalEncoder": MASKED + at(0, random(1, 513, 8)),
    "SummaryDecoder":
        at(0, WORDS[:, 0], WORDS[:1]) + at(1, random(10), random(1, 10), ANNOTATIONS),
    "AlignedDecoder": DECODED + at("annotations_mask", MASK),
    "AdjacentMemories": MEMORY,
    "LanguageModel": ids(0, IDS, 20),
    # Of functional models, Keras casts inputs and drops a last axis of 1.
    "TranslationModel":
        at(0, IDS, [IDS], [IDS[:1], IDS], [changed(IDS, 20), IDS], [IDS, changed(IDS, -1)]),
    "TranslationModel.explain": ids(0, IDS, 20) + at(0, IDS[:1]) + ids(1, IDS, 20),
    **dict.fromkeys(["Transformer", "TransformerLanguageModel"], at(0, IDS, None)),
    "TransformerClassifier": at(0, IDS) + at(1, 0, 2.5),
}  # fmt: skip
# What is wrong for a built layer only, whose first call sets its widths.
WRONG_ONCE_BUILT = {
    "MultiHeadAttention": NARROW + WIDTH,
    **dict.fromkeys(["CrossAttention", "DecoderLayer", "Decoder"], WIDTH),
    **dict.fromkeys(["GlobalSelfAttention", "CausalSelfAttention", "LMHead", "Maxout"], NARROW),
    **dict.fromkeys(["LayerNormalization", "RMSNormalization"], NARROW),
    **dict.fromkeys(["GRU", "BidirectionalEncoder", "GRUEncoder"], NARROW),
    "AlignedDecoder": at(1, ANNOTATIONS[..., 1:]),
}


@pytest.mark.parametrize("name", {**WRONG, **WRONG_ONCE_BUILT})
def test_no_number_comes_of_an_argument_out_of_its_range(name):
    make, right = RIGHT[name]
    call, wrong = make(), WRONG.get(name, [])

    def refuses(arguments):
        for place, value in arguments:
            given = [value if i == place else argument for i, argument in enumerate(right)]
            named = {place: value} if isinstance(place, str) else {}
            with pytest.raises((ValueError, TypeError), match=r"(?i)received"):
                call(*given, **named)
                pytest.fail(f"{name} took {value!r} for {place}")

    refuses(wrong)
    call(*right)
    refuses(wrong + WRONG_ONCE_BUILT.get(name, []))


@pytest.mark.parametrize("device, copied", [("cpu", True), ("cuda:0", False), ("GPU_0", False)])
def test_numbers_on_an_accelerator_are_not_copied_to_be_checked(device, copied):
    class Ids(np.ndarray):
        """Numbers that a check reads by NumPy only."""

    ids = np.array([3, 9]).view(Ids)
    Ids.device = device
    with pytest.raises(ValueError, match="9") if copied else contextlib.nullcontext():
        _checks.in_range("ids", ids, 0, 8)


STACK = dict(num_layers=1, d_model=8, num_heads=2, dff=20)


def shared_bias():
    bias = layers.RelativePositionBias(2, bidirectional=True)
    return [layers.Encoder(**STACK, relative_positions=bias)(X) for _ in range(2)]


# What cannot be made, and what the error says.
WRONG_KINDS = [
    (
        partial(layers.Encoder, **STACK, relative_positions="rotary"),
        r"`relative_positions` must be a layer such as Rotary.*Received: 'rotary'",
    ),
    (partial(layers.Encoder, **STACK, norm="rms"), "`norm` must be a layer.*Received: 'rms'"),
    (partial(layers.EncoderLayer, 8, 2, 20, qk_norm=True), "`qk_norm`.*Received: True"),
    (
        partial(layers.EncoderLayer, 8, 2, 20, use_bias=False, bias_regularizer="l2"),
        "no effect.*Received: use_bias=False and bias_regularizer",
    ),
    (shared_bias, "belongs to a stack alone.*Received: 'relative_position_bias.*built already"),
]


@pytest.mark.parametrize("make, message", WRONG_KINDS)
def test_an_argument_of_another_kind_is_named(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def sizes_beside(name, value):
    """What a number of this name, of a constructor, must not be."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or name == "axis":
        return ()
    if name.endswith(("rate", "label_smoothing")):
        return -0.1, 1.0, math.nan, "0.1"
    return (0, -1, 2.5, True) if isinstance(value, int) else (0.0, -1.0, math.nan, math.inf, "1")


@pytest.mark.parametrize("name", RIGHT)
def test_no_size_and_no_rate_out_of_its_range(name):
    part = RIGHT[name][0]()
    if not hasattr(part, "get_config") or isinstance(part, keras.Model):
        return
    config = part.get_config()
    for argument, value in config.items():
        for bad in sizes_beside(argument, value):
            said = re.escape(f"{argument.split('_')[-1]}={bad!r}")  # of the part that checks it
            with pytest.raises((ValueError, TypeError), match=rf"Received.*{said}"):
                type(part).from_config({**config, argument: bad})


def test_every_public_callable_is_tested():
    public = {*layers.__all__, *models.__all__, *keras_tfmr.__all__}
    own = [layers, losses, metrics, models, schedules]
    named = {name for name in public for module in own if callable(vars(module).get(name))}
    tested = {type(make()).__name__ for make, *_ in CONTRACTS} | RIGHT.keys()
    assert named - {"AttentionScores", "TransformerConfig"} <= tested
