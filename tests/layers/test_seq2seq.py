"""The encoder–decoder without attention against its equations, one word at a time in NumPy."""

import functools

import keras
import numpy as np
import pytest
from helpers import POLICIES, check_layer, gradients, random, to_numpy
from keras import ops
from recurrent_formulas import arrays, gated_unit, maxout, read

from keras_tfmr.recurrent import GRUEncoder, Seq2SeqConfig, Seq2SeqModel, SummaryDecoder

VOCAB = 11
CONFIG = Seq2SeqConfig(
    source_vocab=VOCAB, target_vocab=VOCAB, embedding_dim=6, units=5, maxout_units=4
)
SOURCE = np.array([[4, 9, 3, 7, 2], [5, 3, 0, 0, 0]], "int32")
TARGET = np.array([[2, 5, 9, 1], [2, 8, 3, 0]], "int32")


@pytest.fixture(scope="module")
def model():
    model = Seq2SeqModel(CONFIG)
    for i, variable in enumerate(model.trainable_variables):
        variable.assign(random(*variable.shape, seed=i, scale=0.5))
    return model


def translate(model, source, target):
    """Logits [target, vocab] of one pair without padding."""
    (embedding,) = arrays(model.source_embedding)
    v, b_v = arrays(model.encoder.summary_dense)
    decoder = model.decoder
    v_start, b_start = arrays(decoder.start_dense)
    (word, bias), (context,) = arrays(decoder.gru.input_dense), arrays(decoder.summary_dense)
    w_o, b_o = arrays(model.logits.dense)
    states = read(model.encoder.gru, embedding[source[::-1]])
    c = np.tanh(states[-1] @ v + b_v)
    s, logits = np.tanh(c @ v_start + b_start), []
    for y in embedding[target]:
        s = gated_unit(decoder.gru.cell, y @ word + bias + c @ context, s)
        logits.append(maxout(model.maxout, np.concatenate([s, y, c])) @ w_o + b_o)
    return np.array(logits)


def test_every_equation(model):
    logits = to_numpy(model([SOURCE, TARGET]))
    for row in range(2):
        source, target = SOURCE[row][SOURCE[row] > 0], TARGET[row][TARGET[row] > 0]
        expected = translate(model, source, target)
        np.testing.assert_allclose(logits[row, : len(target)], expected, rtol=1e-4, atol=1e-5)


def test_the_source_passes_through_one_vector(model):
    """Every word reaches the summary, padding does not, and the decoder gets nothing else."""
    x, real = random(2, 6, 6), np.array([[1] * 6, [1, 1, 0, 0, 0, 0]], bool)
    _, (by_x,), _ = gradients(lambda x: ops.sum(model.encoder(x, mask=real) ** 2), [x])
    assert not by_x[~real].any()
    assert (np.abs(by_x[real]).sum(axis=-1) > 0).all()
    assert model.encoder(x, mask=real).shape == (2, 5)


LAYERS = {
    "encoder": (
        functools.partial(GRUEncoder, 8),
        [random(2, 3, 6)],
        {"policies": {name: POLICIES[name] for name in ("float32", "mixed_float16")}},
    ),
    "decoder": (
        functools.partial(SummaryDecoder, 8),
        [random(2, 3, 6), random(2, 10, seed=1)],
        {"policies": {name: POLICIES[name] for name in ("float32", "mixed_bfloat16")}},
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name, fresh, tmp_path):
    make, inputs, arguments = LAYERS[name]
    check_layer(make, inputs, fresh, tmp_path, **arguments)


def test_learns_to_reverse():
    rng = np.random.default_rng(0)
    source = rng.integers(3, VOCAB, size=(512, 3)).astype("int32")
    target = np.concatenate([np.full((512, 1), 2), source[:, ::-1]], axis=1).astype("int32")
    small = {"embedding_dim": 16, "units": 48, "maxout_units": 32}
    model = Seq2SeqModel(CONFIG.replace(dropout_rate=0.0, **small))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-2), loss)
    inputs = [source, target[:, :-1]]
    model.fit(inputs, target[:, 1:], batch_size=64, epochs=20, verbose=0)
    chosen = to_numpy(model(inputs)).argmax(axis=-1)
    assert (chosen == target[:, 1:]).mean() > 0.95


def test_config():
    paper = Seq2SeqConfig.preset("paper", source_vocab=30, target_vocab=40)
    assert (paper.units, paper.embedding_dim, paper.maxout_units) == (1000, 100, 500)
    assert Seq2SeqConfig.from_json(paper.to_json()) == paper
    with pytest.raises(ValueError, match=r"`units`.*Received: units=0"):
        Seq2SeqConfig(units=0)


def test_wrong_inputs_are_named():
    with pytest.raises(ValueError, match=r"`x` must have shape.*Received: shape \(2, 3\)"):
        GRUEncoder(4)(random(2, 3))
    with pytest.raises(ValueError, match=r"`summary` must have shape.*\(2, 3, 5\)"):
        SummaryDecoder(4)(random(2, 3, 4), random(2, 3, 5))
