"""The recurrent translators against their papers' equations in NumPy; padding, steps, contracts."""

import formulas
import keras
import numpy as np
import pytest
from helpers import gradients, random, to_numpy
from keras import ops
from own_models import check_same

from keras_tfmr import recurrent

VOCAB = 20
SIZES = {"source_vocab": VOCAB, "target_vocab": VOCAB, "embedding_dim": 6, "maxout_units": 4}
ALIGNED = {**SIZES, "units": 5, "alignment_units": 7}
SOURCE = np.array([[4, 9, 3, 7, 2], [5, 3, 0, 0, 0], [8, 1, 6, 0, 0]], "int32")
TARGET = np.array([[2, 5, 9, 1], [2, 8, 3, 0], [2, 4, 0, 0]], "int32")


def arrays(layer):
    return [to_numpy(weight) for weight in layer.weights]


def dense(layer, x):
    kernel, bias = arrays(layer)
    return x @ kernel + bias


def gated_unit(cell, x, s):
    """r, z and the candidate of Bahdanau et al., appendix A.1.1, from x = (x_r, x_z, x_s)."""
    (gates,), (candidate,) = arrays(cell.gates), arrays(cell.candidate)
    n = len(s)
    r = formulas.sigmoid(x[:n] + s @ gates[:, :n])
    z = formulas.sigmoid(x[n : 2 * n] + s @ gates[:, n:])
    candidate = np.tanh(x[2 * n :] + (r * s) @ candidate)
    return (1 - z) * s + z * candidate


def read(gru, words):
    """The states of a gated unit that starts at zero and reads the words in their order."""
    s, states = np.zeros(gru.units), []
    for x in words:
        s = gated_unit(gru.cell, dense(gru.input_dense, x), s)
        states.append(s)
    return np.array(states)


def align(alignment, s, keys, values):
    """c_i and α_i by v_aᵀ tanh(W_a s + U_a h_j), one j after the other."""
    (w_a,), (v_a,) = arrays(alignment.state_dense), arrays(alignment.score_dense)
    annotation = alignment.annotation_dense
    e = np.array([v_a[:, 0] @ np.tanh(s @ w_a + dense(annotation, h_j)) for h_j in keys])
    alpha = formulas.softmax(e)
    return sum(a * c_j for a, c_j in zip(alpha, values, strict=True)), alpha


def write(model, s, y, c):
    """The logits of one target word, by a maxout layer."""
    t = dense(model.maxout.dense, np.concatenate([s, y, c]))
    return dense(model.logits.dense, t.reshape(-1, 2).max(axis=-1))


def align_and_write(model, embedded, keys, values, s):
    """The decoder that aligns, from its first state."""
    decoder = model.decoder
    (context,) = arrays(decoder.context_dense)
    logits, alphas = [], []
    for y in embedded:
        c, alpha = align(decoder.attention, s, keys, values)
        logits.append(write(model, s, y, c))
        alphas.append(alpha)
        s = gated_unit(decoder.cell, dense(decoder.word_dense, y) + c @ context, s)
    return np.array(logits), np.array(alphas)


def seq2seq(model, source, target):
    (embedding,), decoder = arrays(model.source_embedding), model.decoder
    (context,) = arrays(decoder.summary_dense)
    c = np.tanh(
        dense(model.encoder.summary_dense, read(model.encoder.gru, embedding[source[::-1]])[-1])
    )
    s, logits = np.tanh(dense(decoder.start_dense, c)), []
    for y in embedding[target]:
        s = gated_unit(decoder.gru.cell, dense(decoder.gru.input_dense, y) + c @ context, s)
        logits.append(write(model, s, y, c))
    return np.array(logits), np.zeros((len(target), len(source)))


def rnnsearch(model, source, target):
    (embedding,) = arrays(model.source_embedding)
    forward = read(model.encoder.forward_gru, embedding[source])
    backward = read(model.encoder.backward_gru, embedding[source[::-1]])[::-1]
    s = np.tanh(dense(model.decoder.start_dense, backward[0]))
    h = np.concatenate([forward, backward], axis=1)
    return align_and_write(model, embedding[target], h, h, s)


def convolve(stack, x):
    """z ← z + tanh(Σ_k z_{j+k} W_k + b), zero past the ends."""
    z, reach = dense(stack.input_dense, x), stack.kernel_size // 2
    for convolution in stack.convolutions:
        (kernel, bias), length = arrays(convolution), len(z)
        sums = np.tile(bias, (length, 1))
        for j in range(length):
            for k in range(-reach, reach + 1):
                if 0 <= j + k < length:
                    sums[j] += z[j + k] @ kernel[k + reach]
        z = z + np.tanh(sums)
    return z


def convolutional(model, source, target):
    (embedding,), (positions,) = arrays(model.source_embedding), arrays(model.encoder.positions)
    x = embedding[source] + positions[: len(source)]
    a, c = convolve(model.encoder.alignment_stack, x), convolve(model.encoder.context_stack, x)
    s = np.tanh(dense(model.decoder.start_dense, c.mean(axis=0)))
    return align_and_write(model, embedding[target], a, c, s)


MODELS = {
    "seq2seq": (recurrent.Seq2SeqModel, recurrent.Seq2SeqConfig(units=5, **SIZES), seq2seq),
    "rnnsearch": (recurrent.RNNSearchModel, recurrent.RNNSearchConfig(**ALIGNED), rnnsearch),
    "convolutional": (
        recurrent.ConvolutionalModel,
        recurrent.ConvolutionalConfig(alignment_layers=3, context_layers=2, **ALIGNED),
        convolutional,
    ),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    keras.utils.set_random_seed(3)
    model_class, config, _ = MODELS[request.param]
    model = model_class(config, name=request.param)
    for i, variable in enumerate(model.trainable_variables):  # biases are not zero either
        variable.assign(random(*variable.shape, seed=i, scale=0.5))
    return model


def test_every_equation(model):
    """Of each sentence alone, and so padding changes nothing."""
    logits, ((scores,), *_) = model.explain(SOURCE, TARGET)
    logits, scores = to_numpy(logits), to_numpy(scores)
    assert scores.shape == (3, 1, 4, 5)
    for row in range(3):
        source, target = SOURCE[row][SOURCE[row] > 0], TARGET[row][TARGET[row] > 0]
        expected, alphas = MODELS[model.name][2](model, source, target)
        n, m = len(target), len(source)
        np.testing.assert_allclose(logits[row, :n], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(scores[row, 0, :n, :m], alphas, rtol=1e-4, atol=1e-6)
        assert not scores[row, 0, :, m:].any(), "padding was aligned to"
    np.testing.assert_allclose(to_numpy(model([SOURCE, TARGET])), logits, rtol=1e-5, atol=1e-6)


# The third counts its positions from the first column.
@pytest.mark.parametrize("model", ["seq2seq", "rnnsearch"], indirect=True)
def test_padding_before_a_sentence_changes_nothing(model):
    longer = np.pad(SOURCE, [(0, 0), (4, 0)])
    expected = to_numpy(model([SOURCE, TARGET]))
    np.testing.assert_allclose(to_numpy(model([longer, TARGET])), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("beams", [1, 3])
def test_steps_are_the_teacher_forced_model(model, beams):
    check_same(model, model, beams=beams)


def test_an_empty_source_is_one_of_padding(model):
    """In the whole pass and in steps, of no rows too; a target may be empty beside either."""
    for rows in (0, 2):
        outputs, target = [], TARGET[:rows]
        for source in (np.zeros((rows, width), "int32") for width in (0, 3)):
            step, state = model.start(source, max_length=1)
            outputs.append((to_numpy(step.next(target[:, 0], state)[0]), model([source, target])))
            assert tuple(model([source, target[:, :0]]).shape) == (rows, 0, VOCAB)
        for empty, padding in zip(*outputs, strict=True):
            np.testing.assert_allclose(empty, padding, atol=1e-6)


def test_receptive_field():
    """The gradient of one position reaches so many positions around it, and no further."""
    stack = recurrent.ConvolutionStack(4, num_layers=2, kernel_size=5)
    _, (by_x,), _ = gradients(lambda x: ops.sum(stack(x)[:, 10] ** 2), [random(1, 21, 3)])
    reached = np.flatnonzero(np.abs(by_x[0]).sum(axis=-1))
    np.testing.assert_array_equal(reached, np.arange(6, 15))
    assert stack.receptive_field == len(reached)


def test_configs():
    for kind, units, embedding in (
        (recurrent.Seq2SeqConfig, 1000, 100),
        (recurrent.RNNSearchConfig, 1000, 620),
    ):
        paper = kind.preset("paper", source_vocab=30, target_vocab=40)
        assert (paper.units, paper.embedding_dim, paper.maxout_units) == (units, embedding, 500)
    with pytest.raises(ValueError, match=r"`kernel_size` must be odd.*kernel_size=4"):
        recurrent.ConvolutionalConfig(kernel_size=4)
    with pytest.raises(ValueError, match=r"`kernel_size` must be odd.*kernel_size=2"):
        recurrent.ConvolutionStack(4, 2, kernel_size=2)
