"""The real model under the decoders: the cache, the batch and the compiler change nothing."""

import functools

import numpy as np
import pytest
from decoding_toys import assert_same, hypotheses
from helpers import ON_JAX, random_ids, randomize
from keras import ops

import keras_tfmr.decoding.search as loop
from keras_tfmr import TransformerConfig, TranslationModel
from keras_tfmr.decoding import DecodingConfig, beam_search, sample, score
from keras_tfmr.models.cached_step import CachedStep

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
def make_model(**fields):
    """A tiny model that the tests share."""
    config = TransformerConfig.preset("tiny", source_vocab=VOCAB, target_vocab=VOCAB, **fields)
    model = TranslationModel(config)
    randomize(model)
    return model


def make_sources(batch, length):
    """Sentences of all lengths up to the given one, padded."""
    lengths = np.arange(batch) % length + 1
    return random_ids(batch, length, vocab=VOCAB) * (np.arange(length) < lengths[:, None])


def search(model, source, beams, limits, fixed=False):
    config = DecodingConfig(beams, beams, max_length=10, length_penalty=0.6)
    step, state = model.start(source, beams, max_length=10)
    step.shrinks = step.shrinks and not fixed
    bos_ids = ops.zeros_like(limits) + START
    banned_ids = (0, 1, START)
    return config.decode(
        step, state, bos_ids=bos_ids, eos_id=END, banned_ids=banned_ids, max_lengths=limits
    )


@functools.cache
def traced(model, beams):
    """The search as one function of source and limits, traced once for all shapes."""

    def run(source, limits):
        return search(model, source, beams, limits)

    if ON_JAX:
        return run
    import tensorflow as tf

    spec = [tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32)]
    return tf.function(run, spec)


def decode(model, source, beams):
    limits = np.full(len(source), 10, "int32")
    return traced(model, beams)(ops.convert_to_tensor(source), ops.convert_to_tensor(limits))


def teacher_forced(model, source, found):
    """Log-probabilities of hypotheses of one source, by one full forward pass."""
    longest = max(len(tokens) for tokens, _, _ in found)
    target = np.zeros((len(found), longest), "int32")
    for row, (tokens, _, _) in zip(target, found, strict=True):
        row[: len(tokens)] = tokens
    fed = np.concatenate([np.full((len(found), 1), START, "int32"), target[:, :-1]], axis=1)
    logits = model([np.repeat(source[None], len(found), axis=0), fed])
    return np.array(score(logits, target)[0])


@pytest.mark.parametrize("variant, beams", [("post-norm", 1), ("post-norm", 3), ("ssru", 3)])
def test_scores_are_those_of_the_full_forward_pass(variant, beams):
    model = make_model(**VARIANTS[variant])
    source = make_sources(4, 6)
    result = decode(model, source, beams)
    for example in range(4):
        found = hypotheses(result, example)
        assert len({tokens for tokens, _, _ in found}) == beams
        expected = teacher_forced(model, source[example], found)
        np.testing.assert_allclose([h[1] for h in found], expected, atol=1e-4)


@pytest.mark.parametrize("variant, beams", [*zip(VARIANTS, (1, 4, 1, 3), strict=True)])
def test_neighbours_and_padding_change_nothing(variant, beams):
    model = make_model(**VARIANTS[variant])
    source = make_sources(5, 6)
    together = decode(model, source, beams)
    for example in (0, 4):
        alone = source[example : example + 1, : example + 1]  # without any padding
        for one in (alone, np.pad(alone, [[0, 0], [0, 9]])):
            assert_same(decode(model, one, beams), together, [0], [example])


def test_sources_without_a_token_and_batches_without_a_row():
    model, beams = make_model(), 3
    mixed = np.concatenate([np.zeros((1, 4), "int32"), make_sources(2, 4)])
    together = decode(model, mixed, beams)
    assert np.isfinite(np.array(together.scores)[:, 0]).all()
    for source in (mixed[:1, :1], np.zeros((1, 0), "int32")):
        assert_same(decode(model, source, beams), together, [0])
    assert decode(model, np.zeros((0, 4), "int32"), beams).ids.shape == (0, beams, 10)


@pytest.mark.backends("tensorflow", "torch")  # JAX fixes every shape
@pytest.mark.parametrize(
    "variant, beams, leaving",
    [("post-norm", 1, 16), ("post-norm", 3, 1), ("post-norm", 3, 16), ("ssru", 3, 1)],
)
def test_a_batch_that_shrinks_and_a_cache_that_grows_change_nothing(
    variant, beams, leaving, monkeypatch
):
    """Sentences that have ended are not decoded: from the next stretch on, or at once."""
    monkeypatch.setattr(loop, "STRETCH", 2)
    monkeypatch.setattr(loop, "LEAVING", leaving)
    model, source = make_model(**VARIANTS[variant]), make_sources(6, 5)
    decode = functools.partial(beam_search, num_beams=3, num_return_sequences=2)
    decode = functools.partial(sample, seed=3) if beams == 1 else decode
    limits = np.array([1, 2, 3, 5, 8, 10], "int32")
    prefix = [[7, 9, 8, 4], [5, 0, 0, 0], [0] * 4, [6] * 4, [9, 4, 0, 0], [8] * 4]
    results, sizes, plain = [], [], CachedStep.next

    def counting(self, tokens, state):
        sizes.append(tokens.shape[0] // beams)
        return plain(self, tokens, state)

    monkeypatch.setattr(CachedStep, "next", counting)
    for shrinks in (False, True):
        sizes.clear()
        step, state = model.start(source, beams, max_length=10)
        step.shrinks = shrinks
        results.append(
            decode(
                step, state, bos_ids=np.full(6, START, "int32"), eos_id=END, max_length=10,
                max_lengths=limits, prefix=np.array(prefix),
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
        assert decode(model, make_sources(rows, length), beams).ids.shape == (rows, beams, 10)
    assert traced(model, beams).experimental_get_tracing_count() == 1
