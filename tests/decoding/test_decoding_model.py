"""Real models under the decoders: neither caches, batch nor compiler change what they say."""

import functools

import keras
import numpy as np
import pytest
from decoding_toys import assert_same, decode
from helpers import OPTIONS, random_ids, randomize, to_numpy
from keras import ops
from own_models import COMPOSED, OWN, check_same, source_of

from keras_tfmr import Transformer, TransformerConfig, TransformerLanguageModel
from keras_tfmr.decoding import Sampling, loop
from keras_tfmr.models.model_step import CachedStep, WholeSequenceStep

START, END, VOCAB = 2, 3, 20
TENSORFLOW = pytest.mark.backends("tensorflow")
# Of the ready models, JAX and torch decode three.
TENSORFLOW_ALONE = {*OPTIONS, "pictures"} - {"paper", "modern", "relative"}
KINDS = [
    pytest.param(name, marks=TENSORFLOW if name in TENSORFLOW_ALONE else ())
    for name in (*OPTIONS, *COMPOSED)
]


@functools.cache  # and with it what `traced` has made of it
def make_model(name, kind=Transformer):
    """A tiny model that the tests share."""
    if name in COMPOSED:
        return COMPOSED[name]()
    layers = 2 if name == "paper" else 1
    config = TransformerConfig.preset(
        "tiny", source_vocab=VOCAB, target_vocab=VOCAB, encoder_layers=1, decoder_layers=layers
    )
    model = kind(config.replace(**OPTIONS[name]))
    randomize(model)
    return model


def search(step, state, bos_ids, beams, **options):
    options = {"max_length": 5, "length_penalty": 0.6, **options}
    return decode(
        step, state, bos_ids=bos_ids, num_beams=beams, num_return_sequences=beams, eos_id=END,
        banned_ids=(1, START), **options,
    )  # fmt: skip


def whole_step(model, beams, max_length=5):
    """The step that calls the model on all tokens so far."""
    return WholeSequenceStep(model, beams, max_length)


def start_whole(model, source, beams, max_length=5):
    """As `start`, by that step."""
    step, sources = whole_step(model, beams, max_length), model.source_list(source)
    return step, step.start(sources, ops.shape(sources[0])[0])


def bos(rows):
    return np.full(rows, START, "int32")


@pytest.mark.parametrize("name", KINDS)
def test_steps_with_caches_are_the_model_called_on_all_tokens(name):
    model = make_model(name)
    assert model.why_not_cached() is None
    check_same(model, model)


@pytest.mark.parametrize("name, beams", [("paper", 1), ("modern", 3)])
def test_searches_with_caches_are_those_of_the_model_called_on_all_tokens(name, beams):
    """Of sources of different lengths, and of none; token by token and score by score."""
    model = make_model(name)
    source = source_of(model)
    step, state = model.start(source, beams, max_length=5)
    assert isinstance(step, CachedStep)
    found = search(step, state, bos(3), beams)
    assert_same(found, search(*start_whole(model, source, beams), bos(3), beams), range(3))


@pytest.mark.parametrize("name", ["boxes", "two contexts"])
def test_explained_logits_are_those_of_the_model(name):
    model = make_model(name)
    source, target = source_of(model), random_ids(3, 5, vocab=VOCAB)
    inputs = model.source_list(source)
    inputs.insert(model.target_place, ops.convert_to_tensor(target))
    outputs = keras.tree.flatten(model(inputs))
    logits, scores = model.explain(source, target)
    expected = to_numpy(outputs[model.logits_place])
    np.testing.assert_allclose(to_numpy(logits), expected, atol=1e-5)
    for of_layer in scores.cross:  # of texts, the last example has none
        np.testing.assert_allclose(to_numpy(of_layer)[:2].sum(-1), 1, atol=1e-5)
    assert len(scores.cross) == (1 if name == "boxes" else 2)


@pytest.mark.parametrize("name, beams", [("own layers", 2), ("two contexts", 1)])
def test_generate_is_the_search_of_the_whole_model(name, beams):
    """By beams, and by draws with the same numbers, after a prefix."""
    model = make_model(name)
    source, prefix = source_of(model), np.array([[4, 5], [6, 0], [0, 0]], "int32")
    sampling = Sampling(noise=random_ids(3, 5, vocab=90) / 100) if beams == 1 else None
    options = dict(num_beams=beams, num_return_sequences=beams, max_length=5, prefix=prefix)
    options |= {"length_penalty": 0.6}
    found = model.generate(source, bos_id=START, eos_id=END, sampling=sampling, **options)
    expected = decode(
        *start_whole(model, source, beams), bos_ids=bos(3), eos_id=END, choose=sampling, **options
    )
    assert_same(found, expected, range(3))


def test_prompts_of_different_lengths_are_gone_on_with():
    model, beams = make_model("paper", TransformerLanguageModel), 3
    prompts = np.array([[2, 4, 1, 4, 1], [2, 1, 1, 0, 0], [2, 2, 4, 4, 0]], "int32")
    step, state, bos_ids, rest = model.start_after(prompts, beams, max_length=4)
    assert int(to_numpy(state["length"])) == 2
    options = {"max_length": 4, "length_penalty": 0.6}
    found = search(step, state, bos_ids, beams, prompt=rest, **options)
    whole = whole_step(model, beams, 8)  # from the start token on
    start = whole.start([], 3)
    assert_same(
        found, search(whole, start, bos(3), beams, prompt=prompts[:, 1:], **options), range(3)
    )


@TENSORFLOW
def test_neighbours_and_padding_change_nothing():
    model, beams = make_model("relative"), 3
    lengths = np.arange(1, 6)
    source = random_ids(5, 6, vocab=VOCAB) * (np.arange(6) < lengths[:, None])
    together = search(*model.start(source, beams, max_length=5), bos(5), beams)
    for example in (0, 4):
        alone = source[example : example + 1, : example + 1]  # without any padding
        for one in (alone, np.pad(alone, [[0, 0], [0, 9]])):
            found = search(*model.start(one, beams, max_length=5), bos(1), beams)
            assert_same(found, together, [0], [example])


@pytest.mark.backends("tensorflow", "torch")  # JAX fixes every shape
@pytest.mark.parametrize("name, beams, leaving", [("paper", 1, 16), ("own layers", 3, 1)])
def test_a_batch_that_shrinks_changes_nothing(name, beams, leaving, monkeypatch):
    """Sentences that have ended are not decoded."""
    monkeypatch.setattr(loop, "LEAST_LEAVING", leaving)
    model, sizes, plain = make_model(name), [], CachedStep.unnormalised
    way = {"choose": Sampling(seed=3)} if beams == 1 else {}
    limits = np.array([1, 2, 3, 4, 5, 5], "int32")
    prefix = [[7, 9, 8, 4], [5, 0, 0, 0], [0] * 4, [6] * 4, [9, 4, 0, 0], [8] * 4]
    options = {"max_lengths": limits, "prefix": np.array(prefix), **way}

    def counting(self, tokens, state):
        sizes.append(tokens.shape[0] // beams)
        return plain(self, tokens, state)

    monkeypatch.setattr(CachedStep, "unnormalised", counting)
    results = []
    for shrinks in (False, True):
        sizes.clear()
        step, state = model.start(source_of(model, 6), beams, max_length=5)
        step.shrinks = shrinks
        results.append(search(step, state, bos(6), beams, **options))
    assert_same(*results, range(6))
    assert sizes[0] == 6 and (sizes[-1] < 6) == (leaving == 1)
    assert all(0 < size <= (limits > t).sum() or leaving > 1 for t, size in enumerate(sizes))


@pytest.mark.backends("tensorflow", "jax")
def test_a_search_of_fixed_shapes_compiles():
    """With sources of different lengths, and one that is empty."""
    model, beams = make_model("own layers"), 3
    source = ops.convert_to_tensor(source_of(model))

    def decoded(source):
        start = model.start(source, beams, max_length=5, fixed_shapes=True)
        return search(*start, bos(3), beams)

    if keras.backend.backend() == "jax":
        import jax

        found = jax.jit(decoded)(source)
    else:
        import tensorflow as tf

        found = tf.function(decoded, jit_compile=True, autograph=False)(source)
    assert_same(found, search(*start_whole(model, source, beams), bos(3), beams), range(3))


@TENSORFLOW
def test_one_trace_serves_all_sizes_and_follows_a_model_that_learns():
    import tensorflow as tf

    model = OWN["own layers"]()

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)], autograph=False)
    def traced(source):
        start = model.start(source, 3, max_length=5)
        return search(*start, tf.fill(tf.shape(source)[:1], START), 3)

    source, before = source_of(model), None
    for _ in range(2):
        found = traced(source)
        assert_same(found, search(*start_whole(model, source, 3), bos(3), 3), range(3))
        assert before is None or np.abs(to_numpy(found.scores) - before).min() > 1e-2
        before = to_numpy(found.scores)
        model.set_weights([0.8 * weight for weight in model.get_weights()])
    for rows, length in ((1, 1), (0, 6), (5, 20)):
        assert traced(random_ids(rows, length, vocab=VOCAB)).ids.shape == (rows, 3, 5)
    assert traced.experimental_get_tracing_count() == 1
