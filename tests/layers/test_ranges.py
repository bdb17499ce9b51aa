"""An argument one step out of its range is an error that says what was received: no number comes.

Each public callable has a right call here, and wrong values of its arguments. A layer refuses them
before its first call, takes the right one then, and refuses them afterwards.
"""

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
IDS, LABELS = (random_ids(BATCH, LENGTH, vocab=VOCAB, seed=seed) for seed in (0, 1))
FACTS, TEXT = random_ids(BATCH, 3, 4, vocab=VOCAB), random_ids(BATCH, SOURCE, vocab=VOCAB)
POSITIONS = np.arange(LENGTH, dtype="int32")
SIZES, STACK = ((*depth, WIDTH, 2, 6) for depth in ((), (1,)))
ONE_EXAMPLE = X[:1]


def with_number(array, number):
    """The array with another number at its end: the others are right."""
    array = array.copy()
    array.flat[-1] = number
    return array


def ids_beside(ids):
    """No ids, too many axes, and ids that are none."""
    return [ids[0], ids[..., None], with_number(ids, -1), with_number(ids, VOCAB), ids + 0.5]


def masks_beside(*sizes):
    """Masks that no axis fits, or that have an axis too many."""
    sizes = [[size + (i == axis) for i, size in enumerate(sizes)] for axis in range(len(sizes))]
    return [np.ones(shape, bool) for shape in (*sizes, (1, 1, 1, 1, 1))]


MASK, CONTEXT_MASK = dict(mask=masks_beside(BATCH, LENGTH)), masks_beside(BATCH, SOURCE)
VECTORS, FLAT = dict(x=[X[:, 0], X[..., :-1]]), dict(x=[X[:, 0]])
CONTEXTS = dict(context=[CONTEXT[0], CONTEXT[:1]], context_mask=CONTEXT_MASK)
WIDER = dict(context=[CONTEXT[..., 1:]])
SCORES = masks_beside(BATCH, 2, LENGTH, LENGTH)
ATTENTION_MASK = dict(attention_mask=SCORES)
ROTATION = [(random(LENGTH, 2), random(LENGTH, 2)), (random(2, 1), random(2, 1))]
SELF = dict(**ATTENTION_MASK, position_bias=SCORES, rotation=ROTATION)
PLACES = dict(positions=[POSITIONS - 1, POSITIONS[None], POSITIONS + 0.5])
DISTANCES = dict(query_positions=[POSITIONS - 1, POSITIONS[None]])
BESIDE = dict(y=[X[:, :1], ONE_EXAMPLE, X[..., :1]])
LABELLED = dict(
    y_true=[LABELS[:, :-1], *ids_beside(LABELS), with_number(LABELS, -100)],
    sample_weight=[*(np.ones(s) for s in ((BATCH + 1,), (BATCH, LENGTH, 1), (BATCH, 2))),
                   np.array([1.0, -0.1]), np.array([1.0, math.nan])],
)  # fmt: skip
TINY = models.TransformerConfig(VOCAB, VOCAB, 1, 1, *SIZES)
LANGUAGE, TRANSLATION = models.TransformerLanguageModel(TINY), models.Transformer(TINY)
ON = {  # the arguments of a right call
    "x": dict(x=X), "xc": dict(x=X, context=CONTEXT), "xy": dict(x=X, y=X),
    "ids": dict(inputs=IDS), "positions": dict(positions=POSITIONS),
    "query": dict(query_positions=POSITIONS), "ya": dict(y=X, annotations=CONTEXT),
    "labels": dict(y_true=LABELS, y_pred=random(BATCH, LENGTH, VOCAB)),
}  # fmt: skip

# What makes the callable, the arguments of a right call, wrong values of arguments, and values that
# are wrong for a built layer only, whose first call sets its widths.
CASES = {
    "MultiHeadAttention": (
        partial(layers.MultiHeadAttention, 2, 2, num_kv_heads=2, value_dim=2, output_shape=3),
        dict(query=X, value=CONTEXT, key=CONTEXT),
        dict(query=[X[0], ONE_EXAMPLE], value=[CONTEXT[0], CONTEXT[:1], CONTEXT[:, 1:]],
             key=[CONTEXT[:1]], value_mask=CONTEXT_MASK, key_mask=CONTEXT_MASK,
             attention_mask=masks_beside(BATCH, 2, LENGTH, SOURCE),
             position_bias=masks_beside(BATCH, 2, LENGTH, SOURCE)),
        dict(query=[X[..., :-1]], value=[CONTEXT[..., 1:]]),
    ),
    "GlobalSelfAttention": (
        partial(layers.GlobalSelfAttention, 2, 2, attention_dropout_rate=0.2), ON["x"],
        {**FLAT, **MASK, **SELF}, VECTORS,
    ),
    "CausalSelfAttention": (
        partial(layers.CausalSelfAttention, 2, 2), ON["x"], {**FLAT, **MASK, **SELF}, VECTORS
    ),
    "CrossAttention": (
        partial(layers.CrossAttention, 2, 2), ON["xc"], {**FLAT, **CONTEXTS}, WIDER
    ),
    "FeedForward": (partial(layers.FeedForward, WIDTH, 6), ON["x"], VECTORS, {}),
    "GatedFeedForward": (partial(layers.GatedFeedForward, WIDTH, 6), ON["x"], VECTORS, {}),
    "PostNormResidual": (layers.PostNormResidual, ON["xy"], BESIDE, {}),
    "PreNormResidual": (layers.PreNormResidual, ON["xy"], BESIDE, {}),
    "Dropout": (partial(layers.Dropout, 0.1), dict(inputs=X), {}, {}),
    "LayerNormalization": (layers.LayerNormalization, ON["x"], {}, dict(x=[X[..., :1]])),
    "RMSNormalization": (layers.RMSNormalization, ON["x"], {}, dict(x=[X[..., :1]])),
    "PositionalEmbedding": (
        partial(layers.PositionalEmbedding, VOCAB, WIDTH), ON["ids"],
        dict(inputs=[*ids_beside(IDS), [IDS]]), {},
    ),
    "PositionalEmbedding in reverse": (
        partial(layers.PositionalEmbedding, VOCAB, WIDTH), dict(inputs=X, reverse=True),
        dict(inputs=[X[:, 0], X[..., :-1]]), {},
    ),
    "AddPositions": (partial(layers.AddPositions, WIDTH), ON["x"], VECTORS, {}),
    "SinusoidalPositions": (
        partial(layers.SinusoidalPositions, WIDTH), ON["positions"], PLACES, {}
    ),
    "LearnedPositions": (
        partial(layers.LearnedPositions, 5, WIDTH), ON["positions"],
        dict(positions=[*PLACES["positions"], POSITIONS + 3, np.arange(6)]), {},
    ),
    "NoPositions": (layers.NoPositions, ON["positions"], PLACES, {}),
    "RotaryPositions": (partial(layers.RotaryPositions, 2), ON["positions"], PLACES, {}),
    "RelativePositionBias": (
        partial(layers.RelativePositionBias, 2, bidirectional=True), ON["query"],
        dict(**DISTANCES, key_positions=[POSITIONS - 1, POSITIONS[None]]), {},
    ),
    "ALiBi": (partial(layers.ALiBi, 2), ON["query"], DISTANCES, {}),
    "positional_encoding": (
        lambda: layers.positional_encoding, dict(length=3, depth=4, max_wavelength=9.0),
        dict(length=[0, 1.5], depth=[0, -1], max_wavelength=[0, -1, math.nan, math.inf]), {},
    ),
    "scaled_dot_product_attention": (
        lambda: layers.scaled_dot_product_attention, dict(query=X, key=X[:, :2], value=X[:, :2]),
        dict(query=[ONE_EXAMPLE, X[..., :-1], X[0]], key=[X[:1, :2], X], value=[X[:1, :2], X],
             mask=masks_beside(BATCH, LENGTH, 2)), {},
    ),
    "EncoderLayer": (
        partial(layers.EncoderLayer, *SIZES, key_dim=2, num_kv_heads=2, attention_dropout_rate=0.1),
        ON["x"], {**VECTORS, **MASK, **SELF}, {},
    ),
    "CausalDecoderLayer": (
        partial(layers.CausalDecoderLayer, *SIZES), ON["x"], {**VECTORS, **MASK, **SELF}, {}
    ),
    "DecoderLayer": (
        partial(layers.DecoderLayer, *SIZES), ON["xc"], {**VECTORS, **MASK, **CONTEXTS}, WIDER
    ),
    "Encoder": (
        partial(layers.Encoder, *STACK), ON["x"], {**VECTORS, **MASK, **ATTENTION_MASK}, {}
    ),
    "CausalDecoder": (
        partial(layers.CausalDecoder, *STACK), ON["x"], {**VECTORS, **MASK, **ATTENTION_MASK}, {}
    ),
    "Decoder": (
        partial(layers.Decoder, *STACK), ON["xc"], {**VECTORS, **MASK, **CONTEXTS}, WIDER
    ),
    "LMHead": (partial(layers.LMHead, VOCAB), ON["x"], {}, dict(x=[X[..., :-1]])),
    "smoothed_cross_entropy": (
        lambda: losses.smoothed_cross_entropy,
        dict(labels=LABELS, logits=ON["labels"]["y_pred"]),
        dict(labels=LABELLED["y_true"], label_smoothing=[-0.1, 1.0, math.nan]), {},
    ),
    "LabelSmoothedCrossEntropy": (
        partial(losses.LabelSmoothedCrossEntropy, 0.1, 7.0), ON["labels"], LABELLED, {}
    ),
    "TokenAccuracy": (lambda: metrics.TokenAccuracy().update_state, ON["labels"], LABELLED, {}),
    "Perplexity": (lambda: metrics.Perplexity().update_state, ON["labels"], LABELLED, {}),
    "NoamSchedule": (partial(schedules.NoamSchedule, 8), dict(step=0), dict(step=[-1]), {}),
    "GRU": (partial(recurrent.GRU, 5), ON["x"], {**FLAT, **MASK}, VECTORS),
    "BidirectionalEncoder": (
        partial(recurrent.BidirectionalEncoder, 5), ON["x"], {**FLAT, **MASK}, VECTORS
    ),
    "GRUEncoder": (partial(recurrent.GRUEncoder, 5), ON["x"], {**FLAT, **MASK}, VECTORS),
    "LSTMN": (partial(recurrent.LSTMN, 5), ON["x"], {**FLAT, **MASK}, {}),
    "SummaryDecoder": (
        partial(recurrent.SummaryDecoder, 5), dict(y=X, summary=random(BATCH, 3)),
        dict(y=[X[:, 0], ONE_EXAMPLE], summary=[random(3), random(1, 3), CONTEXT]), {},
    ),
    "AlignedDecoder": (
        partial(recurrent.AlignedDecoder, 5, 3), ON["ya"],
        dict(y=[X[:, 0], ONE_EXAMPLE], annotations=[CONTEXT[0], CONTEXT[:1], CONTEXT[..., 1:]],
             annotations_mask=CONTEXT_MASK), {},
    ),
    "ConvolutionStack": (
        partial(recurrent.ConvolutionStack, 5, 1), ON["x"], {**FLAT, **MASK}, {}
    ),
    "ConvolutionalEncoder": (
        partial(recurrent.ConvolutionalEncoder, 5, 1, 1, max_length=LENGTH), ON["x"],
        dict(x=[X[:, 0], random(BATCH, LENGTH + 1, WIDTH)], **MASK), {},
    ),
    "Maxout": (partial(recurrent.Maxout, 5), ON["x"], {}, dict(x=[X[..., :-1]])),
    "MemoryNetwork": (
        partial(recurrent.AdjacentMemories, VOCAB, 5, 2, 4), dict(facts=FACTS, question=IDS),
        dict(facts=ids_beside(FACTS), question=[*ids_beside(IDS), IDS[:1]]), {},
    ),
    "MeanOverTokens": (models.MeanOverTokens, ON["x"], {**FLAT, **MASK}, {}),
    "LanguageModel": (
        lambda: LANGUAGE.log_prob, dict(token_ids=IDS), dict(token_ids=ids_beside(IDS)), {}
    ),
    "TranslationModel": (
        lambda: TRANSLATION, dict(inputs=[TEXT, IDS]),
        # Of functional models, Keras casts inputs and drops a last axis of 1.
        dict(inputs=[TEXT, [TEXT], [TEXT[:1], IDS], *([bad, IDS] for bad in ids_beside(TEXT)[2:4]),
                     *([TEXT, bad] for bad in ids_beside(IDS)[2:4])]), {},
    ),
    "TranslationModel.explain": (
        lambda: TRANSLATION.explain, dict(source=TEXT, target_ids=IDS),
        dict(source=[TEXT[:1], *ids_beside(TEXT)], target_ids=ids_beside(IDS)), {},
    ),
    "Transformer": (lambda: models.Transformer, dict(config=TINY), dict(config=[TEXT, None]), {}),
    "TransformerLanguageModel": (
        lambda: models.TransformerLanguageModel, dict(config=TINY), dict(config=[TEXT, None]), {}
    ),
    "TransformerClassifier": (
        lambda: models.TransformerClassifier, dict(config=TINY, num_classes=2),
        dict(config=[TEXT], num_classes=[0, -3, 2.5]), {},
    ),
    "config_of": (
        lambda: models.config_of, dict(model=TRANSLATION), dict(model=[keras.Sequential()]), {}
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
