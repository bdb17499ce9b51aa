"""The recurrent translators in NumPy from the formulas: one sentence, one word at a time.

Models are looked at for their weights alone. The three at the end give logits `[target, vocab]` of
a pair without padding, and α `[target, source]`, zero where there is no attention.
"""

import formulas
import numpy as np
from helpers import to_numpy


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def arrays(layer):
    return [to_numpy(weight) for weight in layer.weights]


def dense(layer, x):
    kernel, bias = arrays(layer)
    return x @ kernel + bias


def gated_unit(cell, x, s):
    """r, z and the candidate of Bahdanau et al., appendix A.1.1, from x = (x_r, x_z, x_s)."""
    (gates,), (candidate,) = arrays(cell.gates), arrays(cell.candidate)
    n = len(s)
    r = sigmoid(x[:n] + s @ gates[:, :n])
    z = sigmoid(x[n : 2 * n] + s @ gates[:, n:])
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
    forward = read(model.encoder.forward, embedding[source])
    backward = read(model.encoder.backward, embedding[source[::-1]])[::-1]
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
