"""RNNsearch against its paper's equations, one word at a time in NumPy; masks, decoding, files."""

import functools
import itertools

import formulas
import keras
import numpy as np
import pytest
from helpers import POLICIES, check_layer, dtype_policy, gradients, random, random_ids, to_numpy
from keras import ops

from keras_tfmr.decoding import beam_search
from keras_tfmr.recurrent import (
    AlignedDecoder,
    BidirectionalEncoder,
    Maxout,
    RNNSearchConfig,
    RNNSearchModel,
)

VOCAB, EMBED, UNITS, ALIGN, MAXOUT = 11, 6, 5, 7, 4
CONFIG = RNNSearchConfig(
    source_vocab=VOCAB,
    target_vocab=VOCAB,
    embedding_dim=EMBED,
    units=UNITS,
    alignment_units=ALIGN,
    maxout_units=MAXOUT,
)
SOURCE = np.array([[4, 9, 3, 7, 2], [5, 3, 0, 0, 0], [8, 1, 6, 0, 0]], "int32")
TARGET = np.array([[2, 5, 9, 1], [2, 8, 3, 0], [2, 4, 0, 0]], "int32")


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(3)
    model = RNNSearchModel(CONFIG)
    for i, variable in enumerate(model.trainable_variables):  # biases are not zero either
        variable.assign(random(*variable.shape, seed=i, scale=0.5))
    return model


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def arrays(layer):
    return [to_numpy(weight) for weight in layer.weights]


def gated_unit(unit, x, s):
    """r, z and the candidate of appendix A.1.1, from x = (x_r, x_z, x_s)."""
    (gates,), (candidate,) = arrays(unit.gates), arrays(unit.candidate)
    n = len(s)
    u_r, u_z = gates[:, :n], gates[:, n:]
    r = sigmoid(x[:n] + s @ u_r)
    z = sigmoid(x[n : 2 * n] + s @ u_z)
    candidate = np.tanh(x[2 * n :] + (r * s) @ candidate)
    return (1 - z) * s + z * candidate


def annotate(encoder, words):
    """h_j of one sentence without padding: [length, 2 * units]."""
    halves = []
    for projection, unit, order in (
        (encoder.forward_input, encoder.forward_unit, 1),
        (encoder.backward_input, encoder.backward_unit, -1),
    ):
        kernel, bias = arrays(projection)
        s, states = np.zeros(encoder.units), []
        for x in words[::order]:
            s = gated_unit(unit, x @ kernel + bias, s)
            states.append(s)
        halves.append(np.array(states[::order]))
    return np.concatenate(halves, axis=1)


def align(alignment, s, h):
    """c_i and α_i by v_aᵀ tanh(W_a s + U_a h_j), one j after the other."""
    (w_a,), (u_a, bias), (v_a,) = (
        arrays(alignment.state_dense),
        arrays(alignment.annotation_dense),
        arrays(alignment.score_dense),
    )
    e = np.array([v_a[:, 0] @ np.tanh(s @ w_a + h_j @ u_a + bias) for h_j in h])
    alpha = formulas.softmax(e)
    return sum(a * h_j for a, h_j in zip(alpha, h, strict=True)), alpha


def maxout(layer, x):
    kernel, bias = arrays(layer.dense)
    t = x @ kernel + bias
    return np.array([max(t[2 * j], t[2 * j + 1]) for j in range(layer.units)])


def translate(model, source, target):
    """Logits [target, vocab] and α [target, source] of one pair without padding."""
    (embedding,) = arrays(model.source_embedding)
    h = annotate(model.encoder, embedding[source])
    decoder = model.decoder
    w_s, b_s = arrays(decoder.start_dense)
    (word, bias), (context,) = arrays(decoder.word_dense), arrays(decoder.context_dense)
    w_o, b_o = arrays(model.logits.dense)
    s = np.tanh(h[0, UNITS:] @ w_s + b_s)  # the backward annotation of the first word
    logits, alphas = [], []
    for y in embedding[target]:
        c, alpha = align(decoder.alignment, s, h)
        logits.append(maxout(model.maxout, np.concatenate([s, y, c])) @ w_o + b_o)
        alphas.append(alpha)
        s = gated_unit(decoder.unit, y @ word + bias + c @ context, s)
    return np.array(logits), np.array(alphas)


def test_every_equation(model):
    logits, (scores,) = model.explain(SOURCE, TARGET)
    logits, scores = to_numpy(logits), to_numpy(scores)
    assert scores.shape == (3, 1, 4, 5)
    for row in range(3):
        source, target = SOURCE[row][SOURCE[row] > 0], TARGET[row][TARGET[row] > 0]
        expected, alphas = translate(model, source, target)
        n, m = len(target), len(source)
        np.testing.assert_allclose(logits[row, :n], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(scores[row, 0, :n, :m], alphas, rtol=1e-4, atol=1e-6)
        assert not scores[row, 0, :, m:].any(), "padding was aligned to"
    np.testing.assert_allclose(to_numpy(model([SOURCE, TARGET])), logits, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("where", ["behind", "before"])
def test_padding_changes_nothing(model, where):
    pad = np.zeros((3, 4), "int32")
    pair = [pad, SOURCE][:: 1 if where == "before" else -1]
    longer = np.concatenate(pair, axis=1)
    expected = to_numpy(model([SOURCE, TARGET]))
    np.testing.assert_allclose(to_numpy(model([longer, TARGET])), expected, rtol=1e-5, atol=1e-6)


def test_padding_gets_no_gradient(model):
    x, real = random(2, 6, EMBED), np.array([[1] * 6, [1, 1, 0, 0, 0, 0]], bool)
    y = random(2, 3, EMBED, seed=1)

    def loss(x):
        return ops.sum(model.decoder(y, model.encoder(x, mask=real), annotations_mask=real) ** 2)

    _, (by_x,), _ = gradients(loss, [x])
    assert not by_x[~real].any()
    assert (np.abs(by_x[real]).sum(axis=-1) > 0).all(), "a real word is not used"


def test_backward_half_starts_at_the_last_real_word(model):
    real = np.array([[1, 1, 1, 0, 0]], bool)
    x = random(1, 5, EMBED)
    padded = to_numpy(model.encoder(x, mask=real))
    alone = annotate(model.encoder, x[0, :3])
    np.testing.assert_allclose(padded[0, :3], alone, rtol=1e-4, atol=1e-6)


def test_sentence_of_padding_alone_is_finite(model):
    source = np.concatenate([SOURCE, np.zeros((1, 5), "int32")])
    target = np.concatenate([TARGET, TARGET[:1]])
    logits, (scores,) = model.explain(source, target)
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
    step, state = model.start(SOURCE, beams=beams, max_length=4)
    for t in range(4):
        log_probs, state = step(ops.convert_to_tensor(targets[:, t]), state)
        np.testing.assert_allclose(to_numpy(log_probs), expected[:, t], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [0, 2])
def test_an_empty_source_is_one_of_padding(model, rows):
    tokens = np.full(rows, 2, "int32")
    found = []
    for width in (0, 3):
        step, state = model.start(np.zeros((rows, width), "int32"), max_length=1)
        found.append(to_numpy(step(tokens, state)[0]))
    assert found[0].shape == (rows, VOCAB) and np.isfinite(found[0]).all()
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)


def test_beams_can_be_reordered(model):
    """After a gather of its state a hypothesis goes on as the one it was copied from."""
    step, state = model.start(SOURCE, beams=2, max_length=4)
    _, state = step(np.array([2, 4, 2, 4, 2, 4], "int32"), state)
    order = np.array([1, 1, 3, 2, 4, 4], "int32")
    state = keras.tree.map_structure(lambda leaf: ops.take(leaf, order, axis=0), state)
    log_probs, _ = step(np.full(6, 7, "int32"), state)
    first = np.array([2, 4, 2, 4, 2, 4])[order]
    pairs = np.stack([first, np.full(6, 7)], axis=1).astype("int32")
    expected = formulas.log_softmax(to_numpy(model([np.repeat(SOURCE, 2, axis=0), pairs])))[:, 1]
    np.testing.assert_allclose(to_numpy(log_probs), expected, rtol=1e-4, atol=1e-4)


LAYERS = {  # a loop takes seconds to compile: two policies each, all three between them
    "encoder": (
        functools.partial(BidirectionalEncoder, 8),
        [random(2, 3, 6)],
        {"policies": {name: POLICIES[name] for name in ("float32", "mixed_float16")}},
    ),
    "decoder": (
        functools.partial(AlignedDecoder, 8, 6),
        [random(2, 3, 6), random(2, 4, 10, seed=1)],
        {
            "policies": {name: POLICIES[name] for name in ("float32", "mixed_bfloat16")},
            "return_attention_scores": True,
        },
    ),
    "maxout": (functools.partial(Maxout, 4), [random(2, 3, 6)], {}),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name, fresh, tmp_path):
    make, inputs, arguments = LAYERS[name]
    check_layer(make, inputs, fresh, tmp_path, **arguments)


@pytest.mark.parametrize("policy", POLICIES)
def test_saved_model_in_another_process(policy, fresh, tmp_path):
    with dtype_policy(policy):
        model = RNNSearchModel(CONFIG.replace(joint_vocab=False, source_vocab=VOCAB + 1))
    logits = model([SOURCE, TARGET])
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    step, state = model.start(SOURCE, max_length=1)
    log_probs, _ = step(TARGET[:, 0], state)
    np.testing.assert_allclose(np.exp(to_numpy(log_probs)).sum(axis=-1), 1, rtol=1e-5)
    model.save(tmp_path / "model.keras")
    (loaded,) = fresh.outputs(tmp_path / "model.keras", [SOURCE, TARGET])
    np.testing.assert_allclose(loaded, to_numpy(logits), atol=POLICIES[policy])


def test_weights_file(model, tmp_path):
    model.save_weights(tmp_path / "model.weights.h5")
    other = RNNSearchModel(CONFIG)
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_allclose(
        to_numpy(other([SOURCE, TARGET])), to_numpy(model([SOURCE, TARGET])), rtol=1e-6
    )


def test_learns_to_reverse():
    """A task that needs the alignment: the source backwards."""
    rng = np.random.default_rng(0)
    source = rng.integers(3, VOCAB, size=(512, 4)).astype("int32")
    target = np.concatenate([np.full((512, 1), 2), source[:, ::-1]], axis=1).astype("int32")
    small = {"embedding_dim": 16, "units": 32, "alignment_units": 16, "maxout_units": 32}
    model = RNNSearchModel(CONFIG.replace(dropout_rate=0.0, **small))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-2), loss)
    inputs = [source, target[:, :-1]]
    model.fit(inputs, target[:, 1:], batch_size=64, epochs=15, verbose=0)
    chosen = to_numpy(model(inputs)).argmax(axis=-1)
    assert (chosen == target[:, 1:]).mean() > 0.95
    alignments = to_numpy(model.explain(*inputs)[1][0])[:, 0].mean(axis=0)  # [target, source]
    assert (alignments.argmax(axis=-1) == [3, 2, 1, 0]).mean() >= 0.75


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_beam_search_finds_what_exhaustive_search_finds(alpha):
    """Start id 1, end id 2, words from 3 on, at most three tokens: every sequence is looked at."""
    keras.utils.set_random_seed(5)
    model = RNNSearchModel(CONFIG.replace(source_vocab=10, target_vocab=10))
    for i, variable in enumerate(model.trainable_variables):
        variable.assign(random(*variable.shape, seed=i, scale=0.7))
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
        step, state = model.start(row[None], beams=60, max_length=3)
        found = beam_search(
            step, state, start_ids=[1], end_id=2, beams=60, n=4, max_length=3,
            length_penalty=alpha, banned_ids=(0, 1),
        )  # fmt: skip
        np.testing.assert_array_equal(to_numpy(found.ids)[0], padded[best])
        np.testing.assert_allclose(to_numpy(found.scores)[0], scores[best], atol=1e-5)


def test_config():
    paper = RNNSearchConfig.preset("paper", source_vocab=30, target_vocab=40)
    assert (paper.units, paper.embedding_dim, paper.maxout_units) == (1000, 620, 500)
    assert RNNSearchConfig.from_json(paper.to_json()) == paper
    with pytest.raises(ValueError, match=r"Unknown fields of a RNNSearchConfig: \['heads'\]"):
        RNNSearchConfig.from_dict({"heads": 3})
    with pytest.raises(ValueError, match="Unknown preset 'huge'"):
        RNNSearchConfig.preset("huge")
    with pytest.raises(ValueError, match=r"`units`.*Received: units=0"):
        RNNSearchConfig(units=0)
    with pytest.raises(ValueError, match="source_vocab=5, target_vocab=6"):
        RNNSearchConfig(source_vocab=5, target_vocab=6)


def test_wrong_inputs_are_named():
    encoder, decoder = BidirectionalEncoder(4), AlignedDecoder(4, 4)
    with pytest.raises(ValueError, match=r"`x` must have shape.*Received: shape \(2, 3\)"):
        encoder(random(2, 3))
    with pytest.raises(TypeError, match=r"`mask` must be bool.*float32"):
        BidirectionalEncoder(4)(random(2, 3, 4), mask=np.ones((2, 3), "float32"))
    with pytest.raises(ValueError, match=r"even width.*\(2, 3, 5\)"):
        decoder(random(2, 3, 4), random(2, 3, 5))
