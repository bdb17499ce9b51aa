"""No output up to t depends on what comes after t: by changing it, and by the gradient."""

import itertools

import keras
import numpy as np
import pytest
from helpers import gradients, random, random_ids, randomize, to_numpy
from keras import ops

from keras_tfmr import (
    Decoder,
    DecoderLayer,
    LanguageModel,
    TransformerConfig,
    TranslationModel,
)
from keras_tfmr.layers import CausalDecoder

BATCH, LENGTH = 3, 7
SIZES = dict(d_model=8, num_heads=2, dff=16)
# {dropout 0, dropout in training} x {no scores, scores} x {no padding, padding}
CASES = list(itertools.product([0.0, 0.4], [False, True], [False, True]))


def run(layer, *inputs, training, **call):
    """The first output; dropout draws the same numbers at every call."""
    keras.utils.set_random_seed(11)
    for part in layer._flatten_layers():
        if isinstance(part, keras.layers.Dropout) and part.rate > 0:
            part.seed_generator.state.assign([1, 2])
    output = layer(*inputs, training=training, **call)
    return to_numpy(output[0] if isinstance(output, (tuple, list)) else output)


def check(run_on, vary, length=LENGTH):
    """`run_on(x)` up to t is bit for bit the same, whatever `vary(t)` puts after t."""
    reference = run_on(vary(length - 1, 0))
    for t in range(length - 1):
        changed = run_on(vary(t, seed=t + 1))
        np.testing.assert_array_equal(changed[:, : t + 1], reference[:, : t + 1])
        assert np.abs(changed[:, t + 1 :] - reference[:, t + 1 :]).max() > 0, "nothing changed"


def vary_ids(t, seed):
    ids = random_ids(BATCH, LENGTH, vocab=20)
    if t + 1 < LENGTH:
        ids[:, t + 1 :] = random_ids(BATCH, LENGTH - t - 1, vocab=20, seed=seed + 50)
    return ids


def padding_mask():
    """[batch, length]: two real positions at least, so that every row sees something change."""
    return np.arange(LENGTH) < np.array([[LENGTH], [5], [2]])


@pytest.mark.parametrize("kind", [Decoder, CausalDecoder])
@pytest.mark.parametrize("dropout, scores, padding", CASES)
def test_stacks(dropout, scores, padding, kind):
    stack = kind(num_layers=2, vocab_size=20, **SIZES, dropout_rate=dropout)
    context = [random(BATCH, 4, 8, seed=3)] if kind is Decoder else []

    def vary(t, seed):
        ids = vary_ids(t, seed)
        return np.where(padding_mask(), ids, 0) if padding else ids

    def run_on(ids):
        return run(stack, ids, *context, training=dropout > 0, return_attention_scores=scores)

    check(run_on, vary)


def test_models():
    config = TransformerConfig.preset("tiny", source_vocab=20, target_vocab=20)
    source = random_ids(BATCH, 4, vocab=20)
    translation, language = TranslationModel(config), LanguageModel(config)
    check(lambda ids: to_numpy(translation([source, ids])), vary_ids)
    check(lambda ids: to_numpy(language(ids)), vary_ids)


def test_no_gradient_from_before_to_after():
    layer = DecoderLayer(**SIZES)
    x, context = random(BATCH, LENGTH, 8), random(BATCH, 4, 8, seed=3)
    layer(x, context)
    randomize(layer)
    for t in range(LENGTH):
        _, (gradient,), _ = gradients(lambda x, t=t: ops.sum(layer(x, context)[:, t] ** 3), [x])
        assert (gradient[:, t + 1 :] == 0).all() and (gradient[:, : t + 1] != 0).any(axis=-1).all()
