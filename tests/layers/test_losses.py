"""Label-smoothed cross-entropy, against NumPy with the one-hot targets that it never builds."""

import formulas
import keras
import numpy as np
import pytest
from helpers import gradients, random, random_ids, to_numpy
from keras import ops
from traced import operations

from keras_tfmr import LabelSmoothedCrossEntropy, smoothed_cross_entropy

BATCH, LENGTH, VOCAB = 3, 5, 11


def logits_and_labels():
    labels = random_ids(BATCH, LENGTH, vocab=VOCAB)
    labels[1, 3:], labels[2, 1:] = 0, 0
    return random(BATCH, LENGTH, VOCAB, scale=3.0), labels


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("nominal", [None, 7])
def test_value_and_gradient(smoothing, nominal):
    """The gradient is (softmax - target) / tokens at real tokens, and nothing at padding."""
    logits, labels = logits_and_labels()
    real = (labels != 0)[:, :, None]
    target = (1 - smoothing) * np.eye(VOCAB)[labels] + smoothing / VOCAB
    each = -(target * formulas.log_softmax(logits)).sum(-1)
    found = smoothed_cross_entropy(labels, logits, smoothing)
    np.testing.assert_allclose(to_numpy(found), each, rtol=1e-5)
    loss = LabelSmoothedCrossEntropy(smoothing, nominal)
    value, (gradient,), _ = gradients(lambda logits: loss(labels, logits), [logits])
    tokens = nominal or real.sum()
    np.testing.assert_allclose(value, each[labels != 0].sum() / tokens, rtol=1e-5)
    expected = (formulas.softmax(logits) - target) * real / tokens
    np.testing.assert_allclose(gradient, expected, atol=1e-6)
    assert (gradient[labels == 0] == 0).all()


def test_same_as_keras():
    logits, labels = logits_and_labels()
    theirs = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
    ours = LabelSmoothedCrossEntropy()
    np.testing.assert_allclose(ours(labels, logits), theirs(labels, logits), rtol=1e-5)
    labels[labels == 0] = 1
    theirs = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.2)
    expected = theirs(np.eye(VOCAB)[labels], logits)
    np.testing.assert_allclose(LabelSmoothedCrossEntropy(0.2)(labels, logits), expected, rtol=1e-5)


def test_tokens_count_not_rows_and_not_padding():
    logits, labels = logits_and_labels()
    loss = LabelSmoothedCrossEntropy(0.1)
    rows = [float(loss(labels[i : i + 1], logits[i : i + 1])) for i in range(BATCH)]
    tokens = (labels != 0).sum(axis=1)
    np.testing.assert_allclose(loss(labels, logits), np.average(rows, weights=tokens), rtol=1e-5)
    longer_logits = np.concatenate([logits, random(BATCH, 4, VOCAB, seed=7)], axis=1)
    longer_labels = np.pad(labels, [(0, 0), (0, 4)])
    np.testing.assert_allclose(loss(longer_labels, longer_logits), loss(labels, logits), rtol=1e-6)
    # A sample weight counts as so many tokens.
    weight = np.array([2.0, 1.0, 0.0], "float32")
    doubled = np.concatenate([labels[:1], labels[:2]]), np.concatenate([logits[:1], logits[:2]])
    for sample_weight in (weight, weight[:, None], np.tile(weight[:, None], (1, LENGTH))):
        np.testing.assert_allclose(loss(labels, logits, sample_weight), loss(*doubled), rtol=1e-5)


def test_accumulated_gradients_are_those_of_all_tokens_together():
    """Keras averages the gradients of accumulated batches: with a constant, tokens stay equal."""
    logits, labels = logits_and_labels()
    inputs = keras.Input((LENGTH, VOCAB))
    start = np.eye(VOCAB, dtype="float32")

    def trained(batches, nominal, steps):
        dense = keras.layers.Dense(VOCAB, use_bias=False)
        model = keras.Model(inputs, dense(inputs))
        dense.set_weights([start])
        optimizer = keras.optimizers.SGD(1.0, gradient_accumulation_steps=steps)
        loss = LabelSmoothedCrossEntropy(0.1, nominal_tokens=nominal)
        model.compile(optimizer, loss, jit_compile=False)
        for batch in batches:
            model.train_on_batch(logits[batch], labels[batch])
        return dense.get_weights()[0] - start

    together = trained([slice(0, 3)], 12, None)
    np.testing.assert_allclose(trained([[0], [1], [2]], 4, 3), together, rtol=1e-4, atol=1e-7)


def test_no_real_token():
    loss = LabelSmoothedCrossEntropy(0.1)
    labels = np.zeros((2, 3), "int32")
    value, (gradient,), _ = gradients(lambda x: loss(labels, x), [random(2, 3, VOCAB)])
    assert value == 0 and (gradient == 0).all()


def test_huge_and_low_precision_logits():
    logits = np.array([[[1e4, -1e4, 0.0]]], "float32")
    loss = LabelSmoothedCrossEntropy()
    assert float(loss(np.array([[2]]), logits)) == 1e4
    logits, labels = logits_and_labels()
    for dtype in ("bfloat16", "float16"):
        rounded = ops.cast(logits, dtype)
        value = loss(labels, rounded)
        assert keras.backend.standardize_dtype(value.dtype) == "float32"
        expected = formulas.smoothed_cross_entropy(to_numpy(rounded), labels, 0.0)
        np.testing.assert_allclose(value, expected, rtol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("backward", [False, True])
def test_no_one_hot(smoothing, backward):
    """Nothing as large as the logits is made of the labels alone, neither forward nor backward."""
    logits, labels = logits_and_labels()
    loss = LabelSmoothedCrossEntropy(smoothing)
    found = operations(gradient_of(loss) if backward else lambda *xs: loss(*xs), labels, logits)
    large = [o for o in found if o.shape and int(np.prod(o.shape)) >= logits.size]
    assert large, "the trace shows nothing"
    assert not [o for o in large if o.sources == {0}]
    assert not [o for o in found if o.kind.lower() in ("onehot", "one_hot")]


def gradient_of(loss):
    if keras.backend.backend() == "jax":
        import jax

        return lambda labels, logits: jax.grad(lambda x: loss(labels, x))(logits)
    import tensorflow as tf

    return lambda labels, logits: tf.gradients(loss(labels, logits), logits)[0]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_the_dtype_of_the_result_leaves_the_labels_alone(dtype):
    """Labels above 256 are no bfloat16 numbers: 999 of 1,000 would become 1000."""
    logits, labels = random(2, 3, 1000), np.array([[999, 257, 301], [511, 0, 0]])
    expected = formulas.smoothed_cross_entropy(logits, labels, 0.1)
    loss = LabelSmoothedCrossEntropy(0.1, nominal_tokens=4, dtype=dtype)
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    assert again.get_config() == loss.get_config()
    # Under that floatx, Keras makes floats of integer arrays on JAX.
    tensor = ops.convert_to_tensor(labels)
    for one in (loss, again, LabelSmoothedCrossEntropy(0.1, dtype=dtype)):
        value = one(labels, logits)
        assert keras.backend.standardize_dtype(value.dtype) == dtype
        tolerance = 1e-5 if dtype == "float32" else 4e-3
        np.testing.assert_allclose(float(value), expected, rtol=tolerance)
    keras.config.set_floatx(dtype)
    try:
        value = LabelSmoothedCrossEntropy(0.1)(tensor, logits)
    finally:
        keras.config.set_floatx("float32")
    np.testing.assert_allclose(float(value), expected, rtol=tolerance)


def test_bad_arguments():
    for bad in (-0.1, 1.0, "a"):
        with pytest.raises(ValueError, match=rf"label_smoothing.*Received.*{bad}"):
            LabelSmoothedCrossEntropy(bad)
    with pytest.raises(ValueError, match=r"nominal_tokens.*Received: 0"):
        LabelSmoothedCrossEntropy(nominal_tokens=0)
    loss = LabelSmoothedCrossEntropy()
    with pytest.raises(ValueError, match=r"one axis more.*\(2, 3\).*\(2, 3\)"):
        loss(np.ones((2, 3), "int32"), random(2, 3))
    with pytest.raises(ValueError, match=r"Received.*\(2, 4\).*\(2, 3, 5\)"):
        loss(np.ones((2, 4), "int32"), random(2, 3, 5))
    with pytest.raises(TypeError, match=r"integer.*Received.*float32"):
        loss(np.ones((2, 3), "float32"), random(2, 3, 5))
