"""Loss, metrics and learning rate by their formulas in NumPy.

There the loss has the one-hot targets that it never builds; the metrics are those of every real
token of an epoch once, not means of the means of batches.
"""

import math

import formulas
import keras
import numpy as np
import pytest
from helpers import (
    compiled,
    gradients,
    learning,
    random,
    random_ids,
    second_gradient,
    to_numpy,
)
from keras import ops

from keras_tfmr import LabelSmoothedCrossEntropy, NoamSchedule, Perplexity, TokenAccuracy
from keras_tfmr.compat import keras_mask
from keras_tfmr.losses import smoothed_cross_entropy

BATCH, LENGTH, VOCAB = 3, 5, 11


def logits_and_labels():
    labels = random_ids(BATCH, LENGTH, vocab=VOCAB)
    labels[1, 3:], labels[2, 1:] = 0, 0
    return random(BATCH, LENGTH, VOCAB, scale=3.0), labels


def cross_entropies(logits, labels, smoothing):
    """The cross-entropy of every label with the mixture (1 - e) one_hot + e / vocab, and that."""
    vocab = logits.shape[-1]
    target = (1 - smoothing) * np.eye(vocab)[labels] + smoothing / vocab
    return -(target * formulas.log_softmax(logits)).sum(-1), target


@pytest.mark.parametrize("smoothing, nominal", [(0.0, None), (0.1, 7), (0.5, None)])
def test_value_and_gradient(smoothing, nominal):
    """The gradient is (softmax - target) / tokens at real tokens, and nothing at padding."""
    logits, labels = logits_and_labels()
    logits[0] *= 100  # the probability of most of these labels is 0 in float32
    real = labels != 0
    expected, target = cross_entropies(logits, labels, smoothing)
    losses = smoothed_cross_entropy(labels, logits, smoothing)
    np.testing.assert_allclose(to_numpy(losses), expected, rtol=1e-5)
    loss = LabelSmoothedCrossEntropy(smoothing, nominal)
    value, (gradient,), _ = gradients(lambda logits: loss(labels, logits), [logits])
    tokens = nominal or real.sum()
    np.testing.assert_allclose(value, expected[real].sum() / tokens, rtol=1e-5)
    expected = (formulas.softmax(logits) - target) * real[:, :, None] / tokens
    np.testing.assert_allclose(gradient, expected, atol=1e-6)
    assert (gradient[labels == 0] == 0).all()


def test_second_derivative():
    logits, labels = logits_and_labels()
    _, target = cross_entropies(logits, labels, 0.1)

    def by_one_hot(logits):
        weights = (target * (labels != 0)[:, :, None] / (labels != 0).sum()).astype("float32")
        return -ops.sum(ops.log_softmax(logits, axis=-1) * ops.convert_to_tensor(weights))

    loss = LabelSmoothedCrossEntropy(0.1)
    ours = second_gradient(lambda logits: loss(labels, logits), logits)
    np.testing.assert_allclose(ours, second_gradient(by_one_hot, logits), rtol=1e-4, atol=1e-7)


def test_a_sample_weight_counts_as_so_many_tokens():
    logits, labels = logits_and_labels()
    loss = LabelSmoothedCrossEntropy(0.1)
    weight = np.array([2.0, 1.0, 0.0], "float32")
    doubled = np.concatenate([labels[:1], labels[:2]]), np.concatenate([logits[:1], logits[:2]])
    for sample_weight in (weight, weight[:, None], np.tile(weight[:, None], (1, LENGTH))):
        np.testing.assert_allclose(loss(labels, logits, sample_weight), loss(*doubled), rtol=1e-5)


@pytest.mark.backends("tensorflow", "jax")
def test_a_label_out_of_its_range_trains_nothing_in_a_graph():
    """The loss and the metrics are NaN; that token has no gradient, others have theirs."""
    logits, labels = logits_and_labels()
    loss, right = LabelSmoothedCrossEntropy(0.1, nominal_tokens=7), labels.copy()
    labels[0, :2], right[0, :2] = (-1, VOCAB), 0
    if keras.backend.backend() == "jax":
        import jax

        value, gradient = jax.jit(jax.value_and_grad(loss, argnums=1))(labels, logits)
    else:
        import tensorflow as tf

        def both(labels, logits):
            value = loss(labels, logits)
            return value, tf.gradients(value, logits)[0]

        value, gradient = compiled(both, xla=False)(labels, logits)
    assert np.isnan(value)
    _, (expected,), _ = gradients(lambda logits: loss(right, logits), [logits])
    np.testing.assert_allclose(gradient, expected, atol=1e-6)
    for values in (TokenAccuracy().values, Perplexity().values):
        assert np.isnan(to_numpy(compiled(values, xla=False)(labels, logits))[0, :2]).all()


def test_whole_floats_are_labels_and_fractions_are_not():
    """Keras hands float64 to build on under a `tf.distribute` strategy, whatever the labels are."""
    logits, labels = logits_and_labels()
    loss, floats = LabelSmoothedCrossEntropy(0.1), labels.astype("float64")
    in_graph = loss if keras.backend.backend() == "torch" else compiled(loss, xla=False)
    for function in (loss, in_graph):
        np.testing.assert_allclose(function(floats, logits), loss(labels, logits), rtol=1e-6)
    floats[0, 0] += 0.5
    with pytest.raises(ValueError, match=r"`labels` must hold integers.*Received: fractions"):
        loss(floats, logits)
    with pytest.raises(ValueError, match="Received: dtype bfloat16"):  # which holds no id of 257
        loss(ops.cast(labels, "bfloat16"), logits)
    if in_graph is not loss:
        assert np.isnan(to_numpy(in_graph(floats, logits)))


def test_a_mask_of_the_logits_leaves_out_nothing():
    """Loss and metrics are over the positions whose label is not 0, whatever the inputs are."""
    ids, labels = np.array([[3, 0, 4], [0, 5, 0]]), np.array([[1, 2, 0], [3, 4, 5]])
    inputs = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(6, 8, mask_zero=True)(inputs)
    model = keras.Model(inputs, keras.layers.Dense(VOCAB)(x))
    loss, measured = LabelSmoothedCrossEntropy(0.1), [TokenAccuracy(), Perplexity()]
    model.compile(keras.optimizers.SGD(0.0), loss, metrics=measured, jit_compile=False)
    logits = model(ids)
    np.testing.assert_array_equal(to_numpy(keras_mask(logits)), ids != 0)
    logits, real = to_numpy(logits), labels != 0
    expected = {
        "loss": cross_entropies(logits, labels, 0.1)[0][real].mean(),
        "accuracy": (logits.argmax(-1) == labels)[real].mean(),
        "perplexity": np.exp(cross_entropies(logits, labels, 0.0)[0][real].mean()),
    }
    with learning():
        trained = model.train_on_batch(ids, labels, return_dict=True)
    evaluated = model.evaluate(ids, labels, verbose=0, return_dict=True)
    for found in (trained, evaluated):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-5)


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
        expected = cross_entropies(to_numpy(rounded), labels, 0.0)[0][labels != 0].mean()
        np.testing.assert_allclose(value, expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_dtype_of_the_result_leaves_the_labels_alone(dtype):
    """Labels above 256 are no bfloat16 numbers: 999 of 1,000 would become 1000."""
    logits, labels = random(2, 3, 1000), np.array([[999, 257, 301], [511, 0, 0]])
    expected = cross_entropies(logits, labels, 0.1)[0][labels != 0].mean()
    loss = LabelSmoothedCrossEntropy(0.1, nominal_tokens=4, dtype=dtype)
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    assert again.get_config() == loss.get_config()
    both = again, LabelSmoothedCrossEntropy(0.1, dtype=dtype)
    values = [loss(labels, logits) for loss in both]
    assert keras.backend.standardize_dtype(values[0].dtype) == dtype
    tolerance = 1e-5 if dtype == "float32" else 4e-3
    np.testing.assert_allclose(list(map(float, values)), expected, rtol=tolerance)


def batches():
    """Two batches of quite different lengths and numbers of real tokens."""
    for rows, length, real, seed in ((4, 6, 6, 0), (2, 5, 1, 1)):
        labels = random_ids(rows, length, vocab=VOCAB, seed=seed)
        labels[:, real:] = 0
        logits = random(rows, length, VOCAB, seed=seed, scale=2.0)
        logits[:1, :, :] += 4 * np.eye(VOCAB)[labels[:1]]  # some are right
        yield labels, logits.astype("float32")


def expected(kind, batches):
    """Of all the real tokens together, as one list."""
    real = [(labels[labels != 0], logits[labels != 0]) for labels, logits in batches]
    labels, logits = (np.concatenate(parts) for parts in zip(*real, strict=True))
    if kind is TokenAccuracy:
        return (logits.argmax(-1) == labels).mean()
    return np.exp(-formulas.log_softmax(logits)[np.arange(len(labels)), labels].mean())


@pytest.mark.parametrize("kind", [TokenAccuracy, Perplexity])
def test_over_an_epoch_and_with_sample_weights(kind):
    metric = kind(name="mine")
    metric = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(metric))
    assert isinstance(metric, kind) and metric.name == "mine"
    metric.update_state(np.zeros((1, 2), "int32"), random(1, 2, VOCAB))
    assert np.isfinite(float(metric.result()))  # nothing seen
    for labels, logits in batches():
        metric.update_state(labels, logits)
    np.testing.assert_allclose(metric.result(), expected(kind, batches()), rtol=1e-5)
    metric.reset_state()
    labels, logits = next(batches())
    metric.update_state(labels, logits, sample_weight=np.array([2.0, 1.0, 0.0, 0.0]))
    repeated = [(labels[rows], logits[rows]) for rows in ([0, 0], [1])]
    np.testing.assert_allclose(metric.result(), expected(kind, repeated), rtol=1e-5)


def test_noam_formula():
    """Section 5.3, with steps counted from 1: the first update moves the weights."""
    schedule = NoamSchedule(512, warmup_steps=4000, scale=2.0)
    for step in (0, 1, 10, 3998, 3999, np.int64(4000), keras.ops.convert_to_tensor(100_000)):
        n = int(step) + 1
        expected = 2.0 / math.sqrt(512) * min(n**-0.5, n * 4000**-1.5)
        np.testing.assert_allclose(schedule(step), expected, rtol=1e-5)


def test_saved_with_a_model(tmp_path):
    schedule = NoamSchedule(64, warmup_steps=50, scale=0.5)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(schedule), "mse")
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras").optimizer
    assert type(again._learning_rate) is NoamSchedule
    assert again._learning_rate.get_config() == schedule.get_config()
    np.testing.assert_allclose(again.learning_rate, schedule(0), rtol=1e-6)
