"""The real model under the decoders: the cache, the batch and the compiler change nothing."""

import functools
import itertools

import keras
import numpy as np
import pytest
from decoding_toys import assert_same, decode, hypotheses
from helpers import random_ids, randomize, to_numpy
from keras import ops
from keras_tfmr.decoding.transformer_step import TransformerStep

from keras_tfmr import TransformerConfig, TranslationModel
from keras_tfmr.decoding import Sampling, loop, score

START, END, VOCAB = 2, 3, 40
VARIANTS = {
    "post-norm": {},
    "pre-norm, separate, value_dim": dict(
        norm_first=True, joint_vocab=False, tied_logits=False, value_dim=7, key_dim=5
    ),
    "learned positions, uneven depth": dict(positions="learned", decoder_layers=1),
    "ssru": dict(decoder_self="ssru"),
}


@functools.cache  # and with it what `traced` has made of it
def make_model(vocab=VOCAB, **fields):
    """A tiny model that the tests share."""
    config = TransformerConfig.preset("tiny", source_vocab=vocab, target_vocab=vocab, **fields)
    model = TranslationModel(config)
    randomize(model)
    return model


def make_sources(batch, length):
    """Sentences of all lengths up to the given one, padded."""
    lengths = np.arange(batch) % length + 1
    return random_ids(batch, length, vocab=VOCAB) * (np.arange(length) < lengths[:, None])


def search(model, source, beams, limits):
    return decode(
        *model.start(source, beams, max_length=10), num_beams=beams, num_return_sequences=beams,
        max_length=10, length_penalty=0.6, bos_ids=ops.zeros_like(limits) + START, eos_id=END,
        banned_ids=(0, 1, START), max_lengths=limits,
    )  # fmt: skip


@functools.cache
def traced(model, beams):
    """The search as one function of source and limits, traced once for all shapes."""

    def run(source, limits):
        return search(model, source, beams, limits)

    if keras.backend.backend() != "tensorflow":
        return run
    import tensorflow as tf

    spec = [tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32)]
    return tf.function(run, spec)


def decoded(model, source, beams):
    limits = np.full(len(source), 10, "int32")
    return traced(model, beams)(ops.convert_to_tensor(source), ops.convert_to_tensor(limits))


@pytest.mark.parametrize(
    "fields",
    [
        dict(positions="rotary", num_kv_heads=1),
        dict(positions="alibi", decoder_layers=1),
        dict(positions="relative", norm_first=True),
        dict(positions="learned", max_length=6),
        dict(decoder_self="ssru"),
    ],
)
def test_a_wide_beam_is_exhaustive_search_by_full_passes(fields, monkeypatch):
    monkeypatch.setattr(loop, "RESIZE_INTERVAL", 2)
    model, source, beams = make_model(vocab=7, **fields), random_ids(2, 6, vocab=7), 40
    step, state = model.start(source, beams, max_length=3)
    result = decode(
        step, state, num_beams=beams, num_return_sequences=beams, max_length=3, length_penalty=0.6,
        bos_ids=np.full(2, START), eos_id=END, banned_ids=(1, START),
    )  # fmt: skip
    ways = [(*body, END) for n in range(3) for body in itertools.product((4, 5, 6), repeat=n)]
    ways += itertools.product((4, 5, 6), repeat=3)
    target = np.array([[*way, 0, 0][:3] for way in ways])
    fed = np.insert(target, 0, START, axis=1)[:, :-1]
    for example in range(2):
        logits = to_numpy(model([np.repeat(source[example : example + 1], len(ways), 0), fed]))
        log_prob, length = map(np.array, score(logits, target))
        scores = log_prob / ((5 + length) / 6) ** 0.6
        expected = [(ways[i], log_prob[i], scores[i]) for i in np.argsort(-scores)]
        found = hypotheses(result, example)[: len(ways)]
        assert [h[0] for h in found] == [h[0] for h in expected]
        np.testing.assert_allclose([h[1:] for h in found], [h[1:] for h in expected], atol=1e-4)


@pytest.mark.parametrize("variant, beams", [*zip(VARIANTS, (1, 4, 1, 3), strict=True)])
def test_neighbours_and_padding_change_nothing(variant, beams):
    model = make_model(**VARIANTS[variant])
    source = make_sources(5, 6)
    together = decoded(model, source, beams)
    for example in (0, 4):
        alone = source[example : example + 1, : example + 1]  # without any padding
        for one in (alone, np.pad(alone, [[0, 0], [0, 9]])):
            assert_same(decoded(model, one, beams), together, [0], [example])


@pytest.mark.backends("tensorflow", "torch")  # JAX fixes every shape
@pytest.mark.parametrize(
    "variant, beams, leaving",
    [("post-norm", 1, 16), ("post-norm", 3, 1), ("post-norm", 3, 16), ("ssru", 3, 1)],
)
def test_a_batch_that_shrinks_and_a_cache_that_grows_change_nothing(
    variant, beams, leaving, monkeypatch
):
    """Sentences that have ended are not decoded: from the next stretch on, or at once."""
    monkeypatch.setattr(loop, "RESIZE_INTERVAL", 2)
    monkeypatch.setattr(loop, "SHRINK_THRESHOLD", leaving)
    model, source = make_model(**VARIANTS[variant]), make_sources(6, 5)
    way = {"num_beams": 3, "num_return_sequences": 2}
    way = {"choose": Sampling(seed=3)} if beams == 1 else way
    limits = np.array([1, 2, 3, 5, 8, 10], "int32")
    prefix = [[7, 9, 8, 4], [5, 0, 0, 0], [0] * 4, [6] * 4, [9, 4, 0, 0], [8] * 4]
    results, sizes, plain = [], [], TransformerStep.next

    def counting(self, tokens, state):
        sizes.append(tokens.shape[0] // beams)
        return plain(self, tokens, state)

    monkeypatch.setattr(TransformerStep, "next", counting)
    for shrinks in (False, True):
        sizes.clear()
        step, state = model.start(source, beams, max_length=10)
        step.shrinks = shrinks
        results.append(
            decode(
                step, state, bos_ids=np.full(6, START, "int32"), eos_id=END, max_length=10,
                max_lengths=limits, prefix=np.array(prefix), **way,
            )
        )  # fmt: skip
    assert_same(*results, range(6))
    assert sizes[0] == 6 and len(sizes) > 3
    for t, size in enumerate(sizes):
        assert 0 < size <= (limits > (t if leaving == 1 else t // 2 * 2)).sum()


@pytest.mark.backends("tensorflow")  # tf.function
@pytest.mark.parametrize("beams", [1, 3])
def test_one_trace_for_all_lengths_and_batch_sizes(beams):
    model = make_model()
    for rows, length in ((1, 1), (5, 5), (0, 6), (2, 20)):
        assert decoded(model, make_sources(rows, length), beams).ids.shape == (rows, beams, 10)
    assert traced(model, beams).experimental_get_tracing_count() == 1
