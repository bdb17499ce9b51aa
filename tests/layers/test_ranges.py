"""An argument one step out of its range is an error that says what was received: no number comes.

Each public callable has a right call here, and wrong values of its arguments. A layer refuses them
before its first call, takes the right one then, and refuses them afterwards.
"""

import functools
import math
import re
from functools import partial

import keras
import numpy as np
import pytest
from helpers import random, random_ids

import keras_tfmr
from keras_tfmr import layers, losses, metrics, models, recurrent, schedules

BATCH, LENGTH, SOURCE, WIDTH, VOCAB = 2, 3, 4, 4, 9
X, CONTEXT = random(BATCH, LENGTH, WIDTH), random(BATCH, SOURCE, WIDTH + 2, seed=1)
IDS, LABELS = random_ids(BATCH, LENGTH, vocab=VOCAB), random_ids(BATCH, LENGTH, vocab=VOCAB, seed=1)
LOGITS = random(BATCH, LENGTH, VOCAB)
POSITIONS = np.arange(LENGTH, dtype="int32")
SIZES = dict(d_model=WIDTH, num_heads=2, dff=6)
STACK = dict(num_layers=1, **SIZES, vocab_size=VOCAB)
NARROW, ONE_VECTOR, ONE_EXAMPLE = X[..., :-1], X[:, 0], X[:1]


def with_number(array, number):
    """The array with another number at its end: the others are right."""
    array = array.copy()
    array.flat[-1] = number
    return array


def ids_beside(ids=IDS, vocab=VOCAB):
    """No ids, too many axes, and ids that are none."""
    return [ids[0], ids[..., None], with_number(ids, -1), with_number(ids, vocab), ids + 0.5]


def masks_beside(*sizes):
    """Masks that no axis fits, or that have an axis too many."""
    sizes = [[size + (i == axis) for i, size in enumerate(sizes)] for axis in range(len(sizes))]
    return [np.ones(shape, bool) for shape in (*sizes, (1, 1, 1, 1, 1))]


MASK = dict(mask=masks_beside(BATCH, LENGTH))
CONTEXT_MASK = dict(context_mask=masks_beside(BATCH, SOURCE))
CONTEXTS = [None, CONTEXT[0], CONTEXT[:1]]
ATTENTION_MASK = dict(attention_mask=masks_beside(BATCH, 2, LENGTH, LENGTH))
BIAS = dict(position_bias=[random(*shape) for shape in (
    (BATCH + 1, 1, 1, 1), (1, 3, 1, 1), (1, 1, 2, 1), (1, 1, 1, LENGTH + 1), (1, 1, 1, 1, 1)
)])  # fmt: skip
ROTATION = dict(rotation=[(random(LENGTH, 2), random(LENGTH, 2)), (random(2, 1), random(2, 1))])
SELF = {**ATTENTION_MASK, **BIAS, **ROTATION}
ROOM = LENGTH + 2
CACHE = tuple(np.zeros((BATCH, 2, ROOM, 2), "float32") for _ in range(2))
CACHES = [CACHE[:1], (CACHE[0], CACHE[1][:1]), (CACHE[0][:, :1], CACHE[1]),
          (CACHE[0], CACHE[1][..., :1]), tuple(part[0] for part in CACHE)]  # fmt: skip
BEYOND = [-1, ROOM - LENGTH + 1, 1.0, np.zeros(1, "int32")]
STATE = (np.zeros((BATCH, 1, 1, WIDTH), "float32"),)
STATES = [(STATE[0][:1],), (STATE[0][..., :1],), STATE * 2]
VECTORS = dict(x=[ONE_VECTOR, NARROW])
LABELLED = dict(
    y_true=[LABELS[:, :-1], LABELS[0], LABELS + 0.5, LABELS[..., None],
            *(with_number(LABELS, bad) for bad in (-1, -100, VOCAB))],
    sample_weight=[np.ones(shape) for shape in ((BATCH + 1,), (BATCH, LENGTH, 1), (BATCH, 2))]
    + [np.array([1.0, -0.1]), np.array([1.0, math.nan])],
)  # fmt: skip
TINY = models.TransformerConfig(
    VOCAB, VOCAB, 1, 1, **SIZES, key_dim=2, value_dim=2, num_kv_heads=1, attention_dropout_rate=0.1
)
TEXT = random_ids(BATCH, SOURCE, vocab=VOCAB)


def built(layer, *inputs, **call):
    layer(*inputs, **call)
    return layer


def cross():
    return built(layers.CrossAttention(2, 2), X, CONTEXT)


@functools.cache
def translation():
    return models.TranslationModel(TINY)


@functools.cache
def language():
    return models.LanguageModel(TINY)


# name: what makes the callable, the arguments of a right call, wrong values of arguments, and
# values that are wrong for a built layer only, whose first call sets its widths.
CASES = {
    "MultiHeadAttention": (
        partial(layers.MultiHeadAttention, 2, 2, num_kv_heads=2, value_dim=2, output_shape=3),
        dict(query=X, value=CONTEXT, key=CONTEXT),
        dict(
            query=[X[0], ONE_EXAMPLE], value=[CONTEXT[0], CONTEXT[:1], CONTEXT[:, 1:]],
            key=[CONTEXT[:1]], attention_mask=masks_beside(BATCH, 2, LENGTH, SOURCE),
            value_mask=masks_beside(BATCH, SOURCE), key_mask=masks_beside(BATCH, SOURCE),
            position_bias=masks_beside(BATCH, 2, LENGTH, SOURCE), cache=[CACHE], cache_index=[0],
        ),
        dict(query=[NARROW], value=[CONTEXT[..., 1:]]),
    ),
    "MultiHeadAttention with a cache": (
        partial(layers.MultiHeadAttention, 2, 2), dict(query=X, cache=CACHE, cache_index=0),
        dict(cache=[None, *CACHES], cache_index=BEYOND, **SELF), {},
    ),
    "GlobalSelfAttention": (
        partial(layers.GlobalSelfAttention, 2, 2, attention_dropout_rate=0.2), dict(x=X),
        dict(x=[ONE_VECTOR], cache=[CACHE], cache_index=[0], **MASK, **SELF), VECTORS,
    ),
    "CausalSelfAttention": (
        partial(layers.CausalSelfAttention, 2, 2), dict(x=X, cache=CACHE, cache_index=0),
        dict(x=[ONE_VECTOR], cache=[None, *CACHES], cache_index=[None, *BEYOND], **SELF), VECTORS,
    ),
    "CrossAttention": (
        partial(layers.CrossAttention, 2, 2), dict(x=X, context=CONTEXT),
        dict(x=[ONE_VECTOR, ONE_EXAMPLE], context=CONTEXTS, **CONTEXT_MASK),
        dict(context=[CONTEXT[..., 1:]]),
    ),
    "CrossAttention.cache": (
        lambda: cross().cache, dict(context=CONTEXT),
        dict(context=[CONTEXT[0], CONTEXT[..., 1:]], **CONTEXT_MASK), {},
    ),
    "CrossAttention with a cache": (
        cross, dict(x=X, cache=cross().cache(CONTEXT)),
        dict(x=[ONE_VECTOR, ONE_EXAMPLE]), {},
    ),
    "FeedForward": (partial(layers.FeedForward, WIDTH, 6), dict(x=X), VECTORS, {}),
    "GatedFeedForward": (partial(layers.GatedFeedForward, WIDTH, 6), dict(x=X), VECTORS, {}),
    "PostNormResidual": (
        layers.PostNormResidual, dict(x=X, y=X), dict(y=[X[:, :1], ONE_EXAMPLE, X[..., :1]]), {},
    ),
    "PreNormResidual": (
        layers.PreNormResidual, dict(x=X, y=X), dict(y=[X[:, :1], ONE_EXAMPLE, X[..., :1]]), {},
    ),
    "Dropout": (partial(layers.Dropout, 0.1), dict(inputs=X), {}, {}),
    "LayerNormalization": (layers.LayerNormalization, dict(x=X), {}, dict(x=[X[..., :1]])),
    "RMSNormalization": (layers.RMSNormalization, dict(x=X), {}, dict(x=[X[..., :1]])),
    "PositionalEmbedding": (
        partial(layers.PositionalEmbedding, VOCAB, WIDTH), dict(token_ids=IDS, positions=POSITIONS),
        dict(token_ids=ids_beside(), positions=[POSITIONS[:2], POSITIONS - 1, POSITIONS[None]]), {},
    ),
    "AddPositions": (
        partial(layers.AddPositions, WIDTH), dict(x=X, positions=POSITIONS),
        dict(positions=[POSITIONS[:2], POSITIONS - 1, POSITIONS[None]], **VECTORS), {},
    ),
    "SinusoidalPositions": (
        partial(layers.SinusoidalPositions, WIDTH), dict(positions=POSITIONS),
        dict(positions=[POSITIONS - 1, POSITIONS[None], POSITIONS + 0.5]), {},
    ),
    "LearnedPositions": (
        partial(layers.LearnedPositions, 5, WIDTH), dict(positions=POSITIONS),
        dict(positions=[POSITIONS - 1, POSITIONS + 3, POSITIONS[None], np.arange(6)]), {},
    ),
    "NoPositions": (
        layers.NoPositions, dict(positions=POSITIONS),
        dict(positions=[POSITIONS - 1, POSITIONS[None]]), {},
    ),
    "RotaryPositions": (
        partial(layers.RotaryPositions, 2), dict(positions=POSITIONS),
        dict(positions=[POSITIONS - 1, POSITIONS[None]]), {},
    ),
    "RelativePositionBias": (
        partial(layers.RelativePositionBias, 2, bidirectional=True),
        dict(query_positions=POSITIONS, key_positions=POSITIONS),
        dict(query_positions=[POSITIONS - 1], key_positions=[POSITIONS - 1, POSITIONS[None]]), {},
    ),
    "ALiBi": (
        partial(layers.ALiBi, 2), dict(query_positions=POSITIONS),
        dict(query_positions=[POSITIONS - 1, POSITIONS[None]]), {},
    ),
    "positional_encoding": (
        lambda: layers.positional_encoding, dict(length=3, depth=4, max_wavelength=9.0),
        dict(length=[0, 1.5], depth=[0, -1], max_wavelength=[0, -1, math.nan, math.inf]), {},
    ),
    "scaled_dot_product_attention": (
        lambda: layers.scaled_dot_product_attention,
        dict(query=X, key=X[:, :2], value=X[:, :2]),
        dict(
            query=[ONE_EXAMPLE, NARROW, X[0]], key=[X[:1, :2], X],
            value=[X[:1, :2], X], mask=masks_beside(BATCH, LENGTH, 2),
        ), {},
    ),
    "EncoderLayer": (
        partial(layers.EncoderLayer, **SIZES, key_dim=2, value_dim=2, num_kv_heads=2,
                attention_dropout_rate=0.1),
        dict(x=X), {**VECTORS, **MASK, **SELF}, {},
    ),
    "CausalDecoderLayer": (
        partial(layers.CausalDecoderLayer, **SIZES), dict(x=X, cache=CACHE, cache_index=0),
        dict(VECTORS, cache=[None, *CACHES], cache_index=[None, *BEYOND]), {},
    ),
    "DecoderLayer": (
        partial(layers.DecoderLayer, **SIZES), dict(x=X, context=CONTEXT),
        dict(VECTORS, context=CONTEXTS, **MASK, **CONTEXT_MASK), dict(context=[CONTEXT[..., 1:]]),
    ),
    "SSRUDecoderLayer": (
        partial(layers.SSRUDecoderLayer, **SIZES), dict(x=X, context=CONTEXT),
        dict(VECTORS, context=CONTEXTS, rotation=[(X, X)], attention_mask=[np.ones((3, 3))],
             position_bias=[np.zeros((1, 1, 3, 3))]), {},
    ),
    "SSRU": (
        layers.SSRU, dict(x=X, cache=STATE), dict(x=[ONE_VECTOR], cache=STATES, **MASK),
        VECTORS,
    ),
    "Encoder": (
        partial(layers.Encoder, **STACK), dict(inputs=IDS),
        dict(inputs=ids_beside(), **MASK, **ATTENTION_MASK), {},
    ),
    "CausalDecoder": (
        partial(layers.CausalDecoder, **STACK), dict(inputs=IDS, cache=[CACHE], cache_index=0),
        dict(inputs=ids_beside(), cache=[None, [], [CACHE] * 2, *([bad] for bad in CACHES)],
             cache_index=[None, *BEYOND]), {},
    ),
    "Decoder": (
        partial(layers.Decoder, **STACK), dict(inputs=IDS, context=CONTEXT),
        dict(inputs=[*ids_beside(), IDS[:1]], context=CONTEXTS, cache=[[CACHE]], **CONTEXT_MASK),
        {},
    ),
    "SSRUDecoder": (
        partial(layers.SSRUDecoder, **STACK), dict(inputs=IDS, context=CONTEXT),
        dict(inputs=[IDS[0], with_number(IDS, VOCAB)], context=CONTEXTS, cache_index=[0]), {},
    ),
    "LMHead": (partial(layers.LMHead, VOCAB), dict(x=X), {}, dict(x=[NARROW])),
    "TiedLogits": (
        lambda: layers.TiedLogits(layers.PositionalEmbedding(VOCAB, WIDTH)), dict(x=X),
        dict(x=[NARROW]), {},
    ),
    "smoothed_cross_entropy": (
        lambda: losses.smoothed_cross_entropy, dict(labels=LABELS, logits=LOGITS),
        dict(labels=LABELLED["y_true"], label_smoothing=[-0.1, 1.0, math.nan]), {},
    ),
    "LabelSmoothedCrossEntropy": (
        partial(losses.LabelSmoothedCrossEntropy, 0.1, 7.0), dict(y_true=LABELS, y_pred=LOGITS),
        LABELLED, {},
    ),
    "TokenAccuracy": (
        lambda: metrics.TokenAccuracy().update_state, dict(y_true=LABELS, y_pred=LOGITS),
        LABELLED, {},
    ),
    "Perplexity": (
        lambda: metrics.Perplexity().update_state, dict(y_true=LABELS, y_pred=LOGITS),
        LABELLED, {},
    ),
    "NoamSchedule": (partial(schedules.NoamSchedule, 8), dict(step=0), dict(step=[-1]), {}),
    "GRU": (
        partial(recurrent.GRU, 5), dict(x=X), dict(x=[ONE_VECTOR], **MASK), dict(x=[NARROW]),
    ),
    "BidirectionalEncoder": (
        partial(recurrent.BidirectionalEncoder, 5), dict(x=X), dict(x=[ONE_VECTOR], **MASK),
        dict(x=[NARROW]),
    ),
    "GRUEncoder": (
        partial(recurrent.GRUEncoder, 5), dict(x=X), dict(x=[ONE_VECTOR], **MASK), dict(x=[NARROW]),
    ),
    "LSTMN": (partial(recurrent.LSTMN, 5), dict(x=X), dict(x=[ONE_VECTOR], **MASK), {}),
    "SummaryDecoder": (
        partial(recurrent.SummaryDecoder, 5), dict(y=X, summary=random(BATCH, 3)),
        dict(y=[ONE_VECTOR, ONE_EXAMPLE], summary=[random(3), random(1, 3), CONTEXT]), {},
    ),
    "AlignedDecoder": (
        partial(recurrent.AlignedDecoder, 5, 3), dict(y=X, annotations=CONTEXT),
        dict(y=[ONE_VECTOR, ONE_EXAMPLE], annotations=[*CONTEXTS[1:], CONTEXT[..., 1:]],
             annotations_mask=masks_beside(BATCH, SOURCE)), {},
    ),
    "ConvolutionStack": (
        partial(recurrent.ConvolutionStack, 5, 1), dict(x=X), dict(x=[ONE_VECTOR], **MASK), {},
    ),
    "ConvolutionalEncoder": (
        partial(recurrent.ConvolutionalEncoder, 5, 1, 1, max_length=LENGTH), dict(x=X),
        dict(x=[ONE_VECTOR, random(BATCH, LENGTH + 1, WIDTH)], **MASK), {},
    ),
    "Maxout": (partial(recurrent.Maxout, 5), dict(x=X), {}, dict(x=[NARROW])),
    "MemoryNetwork": (
        partial(recurrent.AdjacentMemories, VOCAB, 5, 2, 4),
        dict(facts=random_ids(BATCH, 3, 4, vocab=VOCAB), question=IDS),
        dict(facts=ids_beside(random_ids(BATCH, 3, 4, vocab=VOCAB)),
             question=[*ids_beside(), IDS[:1]]), {},
    ),
    "MeanOverTokens": (models.MeanOverTokens, dict(x=X), dict(x=[ONE_VECTOR], **MASK), {}),
    "SequenceClassifier": (
        partial(models.SequenceClassifier, TINY, 3), dict(inputs=IDS),
        dict(inputs=[*ids_beside(), [IDS, IDS]]), {},
    ),
    "TokenClassifier": (
        partial(models.TokenClassifier, TINY, 3), dict(inputs=IDS),
        dict(inputs=[*ids_beside(), [IDS, IDS]]), {},
    ),
    "LanguageModel": (
        language, dict(inputs=IDS),
        dict(inputs=[*ids_beside(), [IDS, IDS]]), {},
    ),
    "LanguageModel.log_prob": (
        lambda: language().log_prob, dict(token_ids=IDS),
        dict(token_ids=ids_beside()), {},
    ),
    "TranslationModel": (
        translation, dict(inputs=[TEXT, IDS]),
        dict(inputs=[TEXT, [TEXT], [TEXT[:1], IDS], *([bad, IDS] for bad in ids_beside(TEXT)),
                     *([TEXT, bad] for bad in ids_beside())]), {},
    ),
    "TranslationModel.explain": (
        lambda: translation().explain, dict(source_ids=TEXT, target_ids=IDS),
        dict(source_ids=[TEXT[:1], *ids_beside(TEXT)], target_ids=ids_beside()), {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_no_number_comes_of_an_argument_out_of_its_range(name):
    make, right, wrong, wrong_once_built = CASES[name]
    call = make()

    def refuses(arguments):
        for argument, values in arguments.items():
            for i, value in enumerate(values):
                with pytest.raises((ValueError, TypeError), match=r"(?i)received"):
                    call(**{**right, argument: value})
                    pytest.fail(f"{name}: value {i} of `{argument}` was taken")

    refuses(wrong)
    call(**right)
    refuses(wrong)
    refuses(wrong_once_built)


def sizes_beside(name, value):
    """What a number of this name, of a constructor, must not be."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or name == "axis":
        return ()
    if name.endswith(("rate", "label_smoothing")):
        return -0.1, 1.0, math.nan, "0.1"
    return (0, -1, 2.5, True) if isinstance(value, int) else (0.0, -1.0, math.nan, math.inf, "1")


@pytest.mark.parametrize("name", [name for name in CASES if "." not in name and " " not in name])
def test_no_size_and_no_rate_out_of_its_range(name):
    part = CASES[name][0]()
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
    named = {name for name in public for module in own if name in vars(module)}
    values = {"AttentionScores", "TransformerConfig"}
    assert named - values <= {name.split(".")[0] for name in CASES}
