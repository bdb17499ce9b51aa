"""RNNsearch against its paper's equations, one word at a time in NumPy; its layers and config."""

import functools

import keras
import numpy as np
import pytest
from helpers import POLICIES, check_layer, gradients, random, to_numpy
from keras import ops
from recurrent_formulas import align_and_write, arrays, read

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


def annotate(encoder, words):
    """h_j of one sentence without padding: [length, 2 * units]."""
    forward = read(encoder.forward, words)
    backward = read(encoder.backward, words[::-1])[::-1]
    return np.concatenate([forward, backward], axis=1)


def translate(model, source, target):
    """Logits [target, vocab] and α [target, source] of one pair without padding."""
    (embedding,) = arrays(model.source_embedding)
    h = annotate(model.encoder, embedding[source])
    w_s, b_s = arrays(model.decoder.start_dense)
    s = np.tanh(h[0, UNITS:] @ w_s + b_s)  # the backward annotation of the first word
    return align_and_write(model, embedding[target], h, h, s)


def test_every_equation(model):
    logits, ((scores,), *_) = model.explain(SOURCE, TARGET)
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


def test_padding_gets_no_gradient(model):
    x, real = random(2, 6, EMBED), np.array([[1] * 6, [1, 1, 0, 0, 0, 0]], bool)
    y = random(2, 3, EMBED, seed=1)

    def loss(x):
        return ops.sum(model.decoder(y, model.encoder(x, mask=real), annotations_mask=real) ** 2)

    _, (by_x,), _ = gradients(loss, [x])
    assert not by_x[~real].any()
    assert (np.abs(by_x[real]).sum(axis=-1) > 0).all(), "a real word is not used"


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
    alignments = to_numpy(model.explain(*inputs)[1].cross[0])[:, 0].mean(axis=0)  # [target, source]
    assert (alignments.argmax(axis=-1) == [3, 2, 1, 0]).mean() >= 0.75


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
    y, annotations = random(2, 3, 4), random(2, 3, 6)
    with pytest.raises(ValueError, match=r"even width.*\(2, 3, 5\)"):
        AlignedDecoder(4, 4)(y, annotations[:, :, :5])
    with pytest.raises(ValueError, match=r"`y` must have shape.*Received: shape \(2, 3\)"):
        AlignedDecoder(4, 4)(y[:, :, 0], annotations)
