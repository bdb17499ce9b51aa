"""What every recurrent translator owes: padding, causality, steps, decoding, files."""

import itertools

import formulas
import keras
import numpy as np
import pytest
from helpers import POLICIES, dtype_policy, random, random_ids, to_numpy
from keras import ops

from keras_tfmr import recurrent
from keras_tfmr.decoding import beam_search
from keras_tfmr.recurrent import (
    ConvolutionalConfig,
    ConvolutionalModel,
    RNNSearchConfig,
    RNNSearchModel,
    Seq2SeqConfig,
    Seq2SeqModel,
)

VOCAB = 11
SIZES = {"source_vocab": VOCAB, "target_vocab": VOCAB, "embedding_dim": 6, "maxout_units": 4}
ALIGNED = {**SIZES, "units": 5, "alignment_units": 7}
MODELS = {
    "seq2seq": (Seq2SeqModel, Seq2SeqConfig(units=5, **SIZES)),
    "rnnsearch": (RNNSearchModel, RNNSearchConfig(**ALIGNED)),
    "convolutional": (
        ConvolutionalModel,
        ConvolutionalConfig(alignment_layers=2, context_layers=1, **ALIGNED),
    ),
}
SOURCE = np.array([[4, 9, 3, 7, 2], [5, 3, 0, 0, 0], [8, 1, 6, 0, 0]], "int32")
TARGET = np.array([[2, 5, 9, 1], [2, 8, 3, 0], [2, 4, 0, 0]], "int32")


def make(kind, **fields):
    model_class, config = MODELS[kind]
    return model_class(config.replace(**fields))


def with_weights(model, scale):
    for i, variable in enumerate(model.trainable_variables):  # biases are not zero either
        variable.assign(random(*variable.shape, seed=i, scale=scale))
    return model


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    keras.utils.set_random_seed(3)
    return with_weights(make(request.param), 0.5)


@pytest.mark.parametrize("where", ["behind", "before"])
def test_padding_changes_nothing(model, where):
    if where == "before" and isinstance(model, ConvolutionalModel):
        pytest.skip("its positions are counted from the first column")
    pad = np.zeros((3, 4), "int32")
    pair = [pad, SOURCE][:: 1 if where == "before" else -1]
    longer = np.concatenate(pair, axis=1)
    expected = to_numpy(model([SOURCE, TARGET]))
    np.testing.assert_allclose(to_numpy(model([longer, TARGET])), expected, rtol=1e-5, atol=1e-6)


def test_explains_itself(model):
    logits, ((scores,), *_) = model.explain(SOURCE, TARGET)
    np.testing.assert_allclose(to_numpy(logits), to_numpy(model([SOURCE, TARGET])), atol=1e-5)
    sums = 0.0 if isinstance(model, Seq2SeqModel) else 1.0  # which has no attention
    scores = to_numpy(scores)
    assert scores.shape == (3, 1, 4, 5)
    np.testing.assert_allclose(scores.sum(axis=-1), np.full((3, 1, 4), sums), rtol=1e-5)


def test_sentence_of_padding_alone_is_finite(model):
    source = np.concatenate([SOURCE, np.zeros((1, 5), "int32")])
    target = np.concatenate([TARGET, TARGET[:1]])
    logits, ((scores,), *_) = model.explain(source, target)
    assert np.isfinite(to_numpy(logits)).all()
    assert not to_numpy(scores)[3].any()


def test_later_targets_change_nothing(model):
    changed = TARGET.copy()
    changed[:, 2:] = 10
    before, after = (to_numpy(model([SOURCE, t])) for t in (TARGET, changed))
    np.testing.assert_allclose(before[:, :2], after[:, :2], rtol=1e-6)
    assert np.abs(before[:, 2] - after[:, 2]).max() > 1e-3


@pytest.mark.parametrize("beams", [1, 3])
def test_steps_are_the_teacher_forced_model(model, beams):
    rows = np.repeat(np.arange(3), beams)
    targets = random_ids(3 * beams, 4, vocab=VOCAB)
    expected = formulas.log_softmax(to_numpy(model([SOURCE[rows], targets])))
    step, state = model.start(SOURCE, num_beams=beams, max_length=4)
    for t in range(4):
        log_probs, state = step.next(ops.convert_to_tensor(targets[:, t]), state)
        np.testing.assert_allclose(to_numpy(log_probs), expected[:, t], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [0, 2])
def test_an_empty_source_is_one_of_padding(model, rows):
    tokens = np.full(rows, 2, "int32")
    found = []
    for width in (0, 3):
        step, state = model.start(np.zeros((rows, width), "int32"), max_length=1)
        found.append(to_numpy(step.next(tokens, state)[0]))
    assert found[0].shape == (rows, VOCAB) and np.isfinite(found[0]).all()
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)


def test_beams_can_be_reordered(model):
    """After a gather of its state a hypothesis goes on as the one it was copied from."""
    step, state = model.start(SOURCE, num_beams=2, max_length=4)
    _, state = step.next(np.array([2, 4, 2, 4, 2, 4], "int32"), state)
    order = np.array([1, 1, 3, 2, 4, 4], "int32")
    state = keras.tree.map_structure(lambda leaf: ops.take(leaf, order, axis=0), state)
    log_probs, _ = step.next(np.full(6, 7, "int32"), state)
    first = np.array([2, 4, 2, 4, 2, 4])[order]
    pairs = np.stack([first, np.full(6, 7)], axis=1).astype("int32")
    expected = formulas.log_softmax(to_numpy(model([np.repeat(SOURCE, 2, axis=0), pairs])))[:, 1]
    np.testing.assert_allclose(to_numpy(log_probs), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "policy"),
    [
        *(("rnnsearch", policy) for policy in POLICIES),
        ("seq2seq", "mixed_bfloat16"),
        ("convolutional", "mixed_float16"),
    ],
)
def test_saved_model_in_another_process(kind, policy, fresh, tmp_path):
    with dtype_policy(policy):
        model = make(kind, joint_vocab=False, source_vocab=VOCAB + 1)
    logits = model([SOURCE, TARGET])
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    step, state = model.start(SOURCE, max_length=1)
    log_probs, _ = step.next(TARGET[:, 0], state)
    np.testing.assert_allclose(np.exp(to_numpy(log_probs)).sum(axis=-1), 1, rtol=1e-5)
    model.save(tmp_path / "model.keras")
    (loaded,) = fresh.outputs(tmp_path / "model.keras", [SOURCE, TARGET])
    np.testing.assert_allclose(loaded, to_numpy(logits), atol=POLICIES[policy])


@pytest.mark.parametrize(("kind", "alpha"), [("rnnsearch", 0.0), ("seq2seq", 0.6)])
def test_beam_search_finds_what_exhaustive_search_finds(kind, alpha):
    """Start id 1, end id 2, words from 3 on, at most three tokens: every sequence is looked at."""
    keras.utils.set_random_seed(5)
    model = with_weights(make(kind, source_vocab=10, target_vocab=10), 0.7)
    words, ends = range(3, 10), [2]
    sequences = [[*body, *last] for n in range(4) for body in itertools.product(words, repeat=n)
                 for last in ([ends] if n < 3 else [[]])]  # fmt: skip
    lengths = np.array(list(map(len, sequences)))
    padded = np.array([[*s, *[0] * (3 - len(s))] for s in sequences], "int32")
    for row in SOURCE:
        fed = np.concatenate([np.ones((len(padded), 1), "int32"), padded[:, :-1]], axis=1)
        logits = to_numpy(model([np.tile(row, (len(padded), 1)), fed])).astype("float64")
        log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        chosen = np.take_along_axis(log_probs, padded[:, :, None], axis=-1)[:, :, 0]
        totals = np.where(padded != 0, chosen, 0).sum(-1)
        scores = totals / ((5 + lengths) / 6) ** alpha
        best = np.argsort(-scores)[:4]
        step, state = model.start(row[None], num_beams=60, max_length=3)
        found = beam_search(
            step, state, bos_ids=[1], eos_id=2, num_beams=60, num_return_sequences=4, max_length=3,
            length_penalty=alpha, banned_ids=(0, 1),
        )  # fmt: skip
        np.testing.assert_array_equal(to_numpy(found.ids)[0], padded[best])
        np.testing.assert_allclose(to_numpy(found.scores)[0], scores[best], atol=1e-5)


def test_layers_know_their_output_shape():
    """Without inputs, as `TimeDistributed` and `Sequential` ask."""
    x, y = (2, 4, 6), (2, 3, 5)
    layers = [
        (recurrent.GRU(4), [x]),
        (recurrent.BidirectionalEncoder(4), [x]),
        (recurrent.GRUEncoder(4), [x]),
        (recurrent.SummaryDecoder(4), [y, (2, 6)]),
        (recurrent.AlignedDecoder(4, 3), [y, x]),
        (recurrent.Maxout(4), [x]),
        (recurrent.LSTMN(4), [x]),
        (recurrent.LSTMN(4, return_sequences=True), [x]),
        (recurrent.ConvolutionStack(4, 2), [x]),
        (recurrent.ConvolutionalEncoder(4, 2, 1), [x]),
        (recurrent.ConvolutionalDecoder(4, 3), [y, x]),
    ]
    for layer, shapes in layers:
        expected = layer(*(random(*shape) for shape in shapes)).shape
        assert layer.compute_output_shape(*shapes) == tuple(expected), layer.name
    facts, question = random_ids(2, 4, 3, vocab=9), random_ids(2, 3, vocab=9)
    memories = recurrent.AdjacentMemories(9, 4, hops=2, max_facts=5)
    expected = tuple(memories(facts, question).shape)
    assert memories.compute_output_shape(facts.shape, question.shape) == expected
    outer = keras.layers.TimeDistributed(recurrent.GRUEncoder(4))
    assert outer(keras.Input((3, 5, 6))).shape == (None, 3, 4)
