"""LSTMN against its equations, one position at a time in NumPy; the past, masks, decoding."""

import functools

import formulas
import keras
import numpy as np
import pytest
from helpers import POLICIES, check_layer, gradients, random, random_ids, to_numpy
from keras import ops

from keras_tfmr.recurrent import LSTMN, LSTMNConfig, LSTMNLanguageModel

VOCAB, WIDTH, UNITS, LENGTH = 12, 6, 5, 7
CONFIG = LSTMNConfig(vocab=VOCAB, embedding_dim=WIDTH, units=UNITS)
REAL = np.array([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 0, 1, 1]], bool)


@pytest.fixture(scope="module")
def layer():
    layer = LSTMN(UNITS, return_sequences=True)
    layer.build((None, None, WIDTH))
    for i, variable in enumerate(layer.trainable_variables):
        variable.assign(random(*variable.shape, seed=i, scale=0.5))
    return layer


@pytest.fixture(scope="module")
def model():
    model = LSTMNLanguageModel(CONFIG)
    for i, variable in enumerate(model.trainable_variables):
        variable.assign(random(*variable.shape, seed=i, scale=0.5))
    return model


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


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
        c = sigmoid(f) * c_tilde + sigmoid(i) * np.tanh(c_hat)
        hs.append(sigmoid(o) * np.tanh(c))
        cs.append(c)
    return np.array(hs), rows


def test_every_equation_whatever_the_padding(layer):
    """Wherever it stands: a padded sequence reads like its real positions alone."""
    x = random(3, LENGTH, WIDTH)
    h, scores = map(to_numpy, layer(x, mask=REAL, return_attention_scores=True))
    for row, real in enumerate(REAL):
        expected_h, expected_scores = read(layer, x[row][real])
        np.testing.assert_allclose(h[row][real], expected_h, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(
            scores[row][np.ix_(real, real)], expected_scores, rtol=1e-4, atol=1e-6
        )
        assert not scores[row][:, ~real].any(), "padding was attended to"


def test_last_output_is_that_of_the_last_real_position(layer):
    last = LSTMN(UNITS)
    last.build((None, None, WIDTH))
    last.set_weights(layer.get_weights())
    x = random(3, LENGTH, WIDTH)
    expected = [read(layer, x[row][real])[0][-1] for row, real in enumerate(REAL)]
    np.testing.assert_allclose(to_numpy(last(x, mask=REAL)), expected, rtol=1e-4, atol=1e-6)


def test_attends_only_to_the_past(layer):
    """Gradients: position t depends on 0 … t and on nothing behind t."""
    x = random(1, LENGTH, WIDTH)
    for t in range(LENGTH):
        _, (by_x,), _ = gradients(lambda x, t=t: ops.sum(layer(x)[:, t] ** 2), [x])
        assert not by_x[0, t + 1 :].any()
        assert (np.abs(by_x[0, : t + 1]).sum(axis=-1) > 0).all()
    _, scores = layer(x, return_attention_scores=True)
    scores = to_numpy(scores)[0]
    assert not np.triu(scores).any(), "a position attended to itself or to a later one"
    np.testing.assert_allclose(scores[1:].sum(axis=-1), 1, rtol=1e-5)


@pytest.mark.parametrize("return_sequences", [True, False])
def test_layer(return_sequences, fresh, tmp_path):
    make = functools.partial(LSTMN, 8, return_sequences)
    names = ("float32", "mixed_bfloat16") if return_sequences else ("mixed_float16",)
    check_layer(
        make,
        [random(2, 3, 6)],
        fresh,
        tmp_path,
        policies={name: POLICIES[name] for name in names},
        return_attention_scores=return_sequences,
    )


def test_steps_are_the_whole_sequence(model):
    ids = random_ids(3, LENGTH, vocab=VOCAB)
    expected = formulas.log_softmax(to_numpy(model(ids)))
    step, state = model.start(rows=3, max_length=LENGTH + 2)
    for t in range(LENGTH):
        log_probs, state = step.next(ops.convert_to_tensor(ids[:, t]), state)
        np.testing.assert_allclose(to_numpy(log_probs), expected[:, t], rtol=1e-4, atol=1e-5)


def test_explains_itself(model):
    ids = random_ids(2, LENGTH, vocab=VOCAB)
    logits, (scores,) = model.explain(ids)
    np.testing.assert_allclose(to_numpy(logits), to_numpy(model(ids)), rtol=1e-4, atol=1e-5)
    assert scores.shape == (2, 1, LENGTH, LENGTH)


def test_saved_model_in_another_process(model, fresh, tmp_path):
    ids = random_ids(2, LENGTH, vocab=VOCAB)
    model.save(tmp_path / "model.keras")
    (loaded,) = fresh.outputs(tmp_path / "model.keras", [ids])
    np.testing.assert_allclose(loaded, to_numpy(model(ids)), rtol=1e-4, atol=1e-5)


def test_learns_to_look_back():
    """Each token repeats the one three before it, which the next-token model has to look up."""
    rng = np.random.default_rng(0)
    ids = np.tile(rng.integers(1, VOCAB, size=(256, 3)), (1, 3)).astype("int32")
    config = CONFIG.replace(embedding_dim=16, units=32, dropout_rate=0.0)
    model = LSTMNLanguageModel(config)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-2), loss)
    model.fit(ids[:, :-1], ids[:, 1:], batch_size=64, epochs=40, verbose=0)
    chosen = to_numpy(model(ids[:, :-1])).argmax(axis=-1)
    assert (chosen == ids[:, 1:])[:, 2:].mean() > 0.95


def test_wrong_inputs_are_named():
    with pytest.raises(ValueError, match=r"`units` must be a positive integer.*units=-1"):
        LSTMN(-1)
    with pytest.raises(ValueError, match=r"`x` must have shape.*\(2, 3\)"):
        LSTMN(4)(random(2, 3))
    with pytest.raises(ValueError, match="Unknown fields of a LSTMNConfig"):
        LSTMNConfig.from_dict({"layers": 3})
