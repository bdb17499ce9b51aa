"""LSTMN against its equations, one position at a time in NumPy; padding, decoding."""

import formulas
import numpy as np
from helpers import random, random_ids, to_numpy
from keras import ops

from keras_tfmr.recurrent import LSTMN, LSTMNConfig, LSTMNLanguageModel

VOCAB, WIDTH, UNITS, LENGTH = 12, 6, 5, 7
REAL = np.array([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 0, 1, 1]], bool)


def with_weights(layer):
    for i, variable in enumerate(layer.trainable_variables):
        variable.assign(random(*variable.shape, seed=i, scale=0.5))
    return layer


def read(layer, xs):
    """h_t [length, units] and s [length, length] of one sequence without padding."""
    weights = {part.name: [to_numpy(w) for w in part.weights] for part in layer._flatten_layers()}
    kernel, bias = weights["input"]
    w_x, b_x, w_in, b = kernel[:, :UNITS], bias[:UNITS], kernel[:, UNITS:], bias[UNITS:]
    (w_h,), (w_summary,), (v,) = weights["key"], weights["summary"], weights["score"]
    (w_gate,) = weights["gate"]
    hs, cs, rows = [], [], np.zeros((len(xs), len(xs)))
    h_tilde = np.zeros(UNITS)
    for t, x in enumerate(xs):
        a = [v[:, 0] @ np.tanh(h @ w_h + x @ w_x + b_x + h_tilde @ w_summary) for h in hs]
        s = formulas.softmax(np.array(a)) if a else []
        rows[t, :t] = s
        h_tilde = sum((p * h for p, h in zip(s, hs, strict=True)), np.zeros(UNITS))
        c_tilde = sum((p * c for p, c in zip(s, cs, strict=True)), np.zeros(UNITS))
        i, f, o, c_hat = np.split(x @ w_in + h_tilde @ w_gate + b, 4)
        c = formulas.sigmoid(f) * c_tilde + formulas.sigmoid(i) * np.tanh(c_hat)
        hs.append(formulas.sigmoid(o) * np.tanh(c))
        cs.append(c)
    return np.array(hs), rows


def test_every_equation_whatever_the_padding():
    """Wherever it stands: a padded sequence reads like its real positions alone."""
    layer, last = LSTMN(UNITS, return_sequences=True), LSTMN(UNITS)
    for lstmn in (layer, last):
        lstmn.build((None, None, WIDTH))
        with_weights(lstmn)
    x = random(3, LENGTH, WIDTH)
    h, scores = map(to_numpy, layer(x, mask=REAL, return_attention_scores=True))
    h_last = to_numpy(last(x, mask=REAL))
    for row, real in enumerate(REAL):
        expected_h, expected = read(layer, x[row][real])
        np.testing.assert_allclose(h[row][real], expected_h, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(h_last[row], expected_h[-1], rtol=1e-4, atol=1e-6)
        of_words = scores[row][np.ix_(real, real)]
        np.testing.assert_allclose(of_words, expected, rtol=1e-4, atol=1e-6)
        assert not scores[row][:, ~real].any(), "padding was attended to"


def test_steps_and_explanation_are_the_whole_sequence():
    model = with_weights(
        LSTMNLanguageModel(LSTMNConfig(vocab=VOCAB, embedding_dim=WIDTH, units=UNITS))
    )
    ids = random_ids(3, LENGTH, vocab=VOCAB)
    logits = to_numpy(model(ids))
    expected = formulas.log_softmax(logits)
    step, state = model.start(rows=3, max_length=LENGTH + 2)
    for t in range(LENGTH):
        log_probs, state = step.next(ops.convert_to_tensor(ids[:, t]), state)
        np.testing.assert_allclose(to_numpy(log_probs), expected[:, t], rtol=1e-4, atol=1e-5)
    explained, (scores,) = model.explain(ids)
    np.testing.assert_allclose(to_numpy(explained), logits, rtol=1e-4, atol=1e-5)
    assert scores.shape == (3, 1, LENGTH, LENGTH)
