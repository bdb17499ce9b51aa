"""What the recurrent translators share, in NumPy from the formulas: one sentence, one word a time.

Layers are looked at for their weights alone.
"""

import formulas
import numpy as np
from helpers import to_numpy


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def arrays(layer):
    return [to_numpy(weight) for weight in layer.weights]


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
    kernel, bias = arrays(gru.input_dense)
    s, states = np.zeros(gru.units), []
    for x in words:
        s = gated_unit(gru.cell, x @ kernel + bias, s)
        states.append(s)
    return np.array(states)


def align(alignment, s, keys, values):
    """c_i and α_i by v_aᵀ tanh(W_a s + U_a h_j), one j after the other."""
    (w_a,), (u_a, bias), (v_a,) = (
        arrays(alignment.state_dense),
        arrays(alignment.annotation_dense),
        arrays(alignment.score_dense),
    )
    e = np.array([v_a[:, 0] @ np.tanh(s @ w_a + h_j @ u_a + bias) for h_j in keys])
    alpha = formulas.softmax(e)
    return sum(a * c_j for a, c_j in zip(alpha, values, strict=True)), alpha


def maxout(layer, x):
    kernel, bias = arrays(layer.dense)
    t = x @ kernel + bias
    return np.array([max(t[2 * j], t[2 * j + 1]) for j in range(layer.units)])


def align_and_write(model, embedded, keys, values, s):
    """Logits [target, vocab] and α [target, source] of the decoder that aligns."""
    decoder = model.decoder
    (word, bias), (context,) = arrays(decoder.word_dense), arrays(decoder.context_dense)
    w_o, b_o = arrays(model.logits.dense)
    logits, alphas = [], []
    for y in embedded:
        c, alpha = align(decoder.attention, s, keys, values)
        logits.append(maxout(model.maxout, np.concatenate([s, y, c])) @ w_o + b_o)
        alphas.append(alpha)
        s = gated_unit(decoder.cell, y @ word + bias + c @ context, s)
    return np.array(logits), np.array(alphas)
