"""The update: Adam's numbers, weights by real tokens, clipping, averages, devices."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import helpers
import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfmr import LabelSmoothedCrossEntropy, TransformerConfig
from keras_tfmr.layers import Dropout
from training.run.models import make_model
from training.run.on_tensorflow import TensorFlowTrainer, Workers
from training.run.schedule import BudgetSchedule, CosineBudgetSchedule, make_schedule
from training.run.settings import TrainingConfig
from training.run.task import Translation

ROOT = Path(__file__).resolve().parents[2]
VOCAB = 40


class Plain(TensorFlowTrainer):
    """Gradient descent in the place of Adam, to see a gradient in what it did."""

    def _adam_of_one(self, variable, gradient, momentum, velocity, average, rate, made, step):
        variable.assign_sub(rate * gradient)


def make_trainer(kind=TensorFlowTrainer, rate=0.01, dropout_rate=0.0, smoothing=0.0, **options):
    config = TransformerConfig.preset(
        "tiny", source_vocab=VOCAB, target_vocab=VOCAB, dropout_rate=dropout_rate,
        encoder_layers=1, decoder_layers=1, d_model=16,
    )  # fmt: skip
    keras.utils.set_random_seed(3)
    options.setdefault("workers", Workers())
    task = Translation(TrainingConfig(preset="tiny", label_smoothing=smoothing).resolved())
    with options["workers"].scope():
        model = make_model("transformer", config)
    averaged = make_model("transformer", config)
    return kind(task, model, averaged, lambda step, share: rate, **options)


def batch(rows, lengths, seed):
    """`((source_ids, target_ids), labels)` with so many real tokens in each row."""
    ids = helpers.random_ids(rows, max(lengths) + 1, vocab=VOCAB, seed=seed)
    for row, length in zip(ids, lengths, strict=True):
        row[length + 1 :] = 0
    return (ids[:, 1:], ids[:, :-1] * (ids[:, 1:] != 0)), ids[:, 1:]


# As unequal as batches of a token budget get: 12 real tokens, and 3.
BATCHES = [batch(3, (4, 5, 3), seed=1), batch(2, (2, 1), seed=2)]


def fit(trainer, *updates):
    """What each update gave; an update is a list of batches."""
    return [trainer.update(batches, 10 * n) for n, batches in enumerate(updates)]


def descended(weights, gradients, rate, norm=None):
    """NumPy's gradient descent, the global norm cut to `norm`."""
    size = np.sqrt(sum(np.sum(gradient.astype("float64") ** 2) for gradient in gradients))
    scale = min(1.0, norm / size) if norm else 1.0
    return [w - rate * scale * g for w, g in zip(weights, gradients, strict=True)]


def mean_gradients(trainer, batches, smoothing):
    """Of the mean token loss of all batches together, by Keras's loss over one padded batch."""
    width = max(labels.shape[1] for _, labels in batches)

    def joined(pick):
        arrays = [pick(one) for one in batches]
        return np.concatenate([np.pad(a, ((0, 0), (0, width - a.shape[1]))) for a in arrays])

    inputs = [joined(lambda one, i=i: one[0][i]) for i in (0, 1)]
    labels = joined(lambda one: one[1])
    loss = LabelSmoothedCrossEntropy(smoothing)
    variables = trainer.model.trainable_variables
    value, _, gradients = helpers.gradients(
        lambda: loss(labels, trainer.model(inputs)), (), variables
    )
    return value, gradients


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("norm", [0.0, 0.05])
def test_every_real_token_of_an_update_weighs_the_same(count, norm):
    trainer = make_trainer(Plain, 0.5, smoothing=0.1, clip_norm=norm)
    batches = BATCHES[:count]
    weights = [w.numpy() for w in trainer.weights]
    loss, gradients = mean_gradients(trainer, batches, 0.1)
    (values,) = fit(trainer, batches)
    assert values["loss"] / values["weight"] == pytest.approx(float(loss), rel=1e-5)
    assert values["weight"] == sum(np.count_nonzero(labels) for _, labels in batches)
    for weight, expected in zip(
        trainer.weights, descended(weights, gradients, 0.5, norm), strict=True
    ):
        np.testing.assert_allclose(weight.numpy(), expected, atol=2e-6)


def test_a_batch_of_padding_changes_nothing():
    trainer = make_trainer(Plain, 0.5, clip_norm=1.0)
    before = [w.numpy() for w in trainer.weights]
    empty = np.zeros((2, 3), "int32")
    fit(trainer, [((empty, empty), empty)])
    for weight, old in zip(trainer.weights, before, strict=True):
        np.testing.assert_array_equal(weight.numpy(), old)


class Gradients(TensorFlowTrainer):
    """Remembers what the optimizer was given."""

    def _adam(self, strategy, gradients, rate, made):
        for kept, gradient in zip(self.seen, gradients, strict=True):
            kept.assign(gradient)
        super()._adam(strategy, gradients, rate, made)


def test_the_update_is_that_of_keras_adam():
    trainer = make_trainer(Gradients, average=0.9)
    trainer.seen = [tf.Variable(tf.zeros(weight.shape)) for weight in trainer.weights]
    theirs = keras.optimizers.Adam(0.01, beta_2=0.98, epsilon=1e-9)
    copies = [keras.Variable(weight.numpy()) for weight in trainer.weights]
    average = [copy.numpy() for copy in copies]
    for n in range(6):
        fit(trainer, BATCHES[n % 2 : n % 2 + 1])
        theirs.apply([seen.value() for seen in trainer.seen], copies)
        decay = min(0.9, n / (n + 9))
        average = [
            decay * a + (1 - decay) * v.numpy() for a, v in zip(average, copies, strict=True)
        ]
    for mine, expected in zip(trainer.weights, copies, strict=True):
        np.testing.assert_allclose(mine.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)
    for mine, expected in zip(trainer.averages, average, strict=True):
        np.testing.assert_allclose(mine.numpy(), expected, rtol=1e-5, atol=1e-6)


class Broken(Translation):
    """A loss that is not finite where the first target id is 7."""

    def sums(self, model, batch):
        loss, weight, right = super().sums(model, batch)
        return loss / tf.cast(batch[1][0, 0] != 7, "float32"), weight, right


def test_an_update_that_is_not_finite_changes_nothing():
    trainer = make_trainer(average=0.9, clip_norm=1.0)
    trainer.task = Broken(trainer.task.settings)
    fit(trainer, BATCHES[:1])
    before = {name: variable.numpy() for name, variable in trainer.variables().items()}
    (inputs, labels) = BATCHES[0]
    labels = labels.copy()
    labels[0, 0] = 7
    (values,) = fit(trainer, [(inputs, labels)])
    assert not values["made"] and not np.isfinite(values["norm"])
    for name, variable in trainer.variables().items():
        np.testing.assert_array_equal(variable.numpy(), before[name], err_msg=name)
    (values,) = fit(trainer, BATCHES[:1])
    assert values["made"] and int(trainer.updates.numpy()) == 2


def test_averages_go_into_the_second_model_and_nothing_into_the_first():
    trainer = make_trainer(dropout_rate=0.1, average=0.5)
    fit(trainer, BATCHES, BATCHES)
    before = [v.numpy() for v in trainer.model.variables]
    averaged = trainer.take_averages()
    for weight, average, raw in zip(
        averaged.weights, trainer.averages, trainer.model.weights, strict=True
    ):
        np.testing.assert_array_equal(weight.numpy(), average.numpy())
        assert np.any(weight.numpy() != raw.numpy())
    for variable, old in zip(trainer.model.variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), old)


def test_without_an_average_the_second_model_takes_the_weights():
    trainer = make_trainer()
    fit(trainer, BATCHES)
    for weight, raw in zip(trainer.take_averages().weights, trainer.model.weights, strict=True):
        np.testing.assert_array_equal(weight.numpy(), raw.numpy())


def test_few_traces_for_every_shape_of_batch():
    trainer = make_trainer()
    traces, sums = [], trainer.task.sums
    trainer.task.sums = lambda *args: traces.append(1) or sums(*args)
    for width in range(2, 8):
        fit(trainer, [batch(width, [width] * width, seed=width)])
    assert len(traces) <= 2


def test_noise_is_a_function_of_the_batch_and_the_row_of_all_rows():
    """Half of the rows lose what they lose in the whole; another batch loses something else."""
    trainer = make_trainer(dropout_rate=0.3)
    layer = next(one for one in trainer.model._flatten_layers() if type(one) is Dropout)
    x = tf.ones([4, 5, 7])  # 35 numbers a row: no multiple of what the generator gives at once

    def drawn(number, replica, rows):
        trainer.noise.begin(number, replica)
        return layer(rows, training=True).numpy() == 0

    whole = drawn(3, 0, x)
    np.testing.assert_array_equal(drawn(3, 0, x[:2]), whole[:2])
    np.testing.assert_array_equal(drawn(3, 1, x[2:]), whole[2:])
    assert (drawn(4, 0, x) != whole).any() and (whole[0] != whole[1]).any()
    many = drawn(3, 0, tf.ones([64, 31, 33]))
    assert abs(many.mean() - round(0.3 * 256) / 256) < 0.01
    trainer.noise.begin(3, 0)
    first, second = (layer(x, training=True).numpy() == 0 for _ in range(2))
    assert (first != second).any()


def test_schedules_reach_the_peak_and_end_with_the_budget():
    for name, kind, late in (
        ("linear", BudgetSchedule, 0.25),
        ("cosine", CosineBudgetSchedule, 0.14645),
    ):
        settings = TrainingConfig(schedule=name, learning_rate=0.01, warmup_steps=10)
        schedule = make_schedule(settings, 64)
        assert type(schedule) is kind
        assert float(schedule(0, 0.0)) == pytest.approx(0.001)
        assert float(schedule(9, 0.0)) == pytest.approx(0.01)
        assert float(schedule(500, 0.5)) == pytest.approx(0.005)
        assert float(schedule(750, 0.75)) == pytest.approx(0.01 * late, rel=1e-4)
        assert float(schedule(1000, 1.0)) == pytest.approx(0.0, abs=1e-9)
    noam = make_schedule(TrainingConfig(schedule="noam", learning_rate=0.01, warmup_steps=10), 64)
    assert float(noam(9, 0.9)) == pytest.approx(0.01)
    assert float(noam(39, 0.9)) == pytest.approx(0.005)


DEVICES = """
    import json, sys
    sys.path.insert(0, "tests")
    import test_training_trainer as t
    devices = int(sys.argv[1])
    workers = t.Workers(devices=devices)
    # As many rows as the devices need: one of them has no real token at all, now and then.
    batches = [t.batch(4, (4, 5, 0, 1), seed=s) for s in range(4)] + [t.batch(2, (6, 0), seed=9)]
    trainer = t.make_trainer(average=0.9, clip_norm=0.5, dropout_rate=0.1, workers=workers)
    values = t.fit(trainer, *[[one] for one in batches], batches)
    averages = trainer.take_averages().weights
    # The gradient of a key bias is nothing but rounding, which Adam enlarges to a step.
    averages = [v.numpy().ravel().tolist() for v in averages if not v.path.endswith("key/bias")]
    print(json.dumps([[v["loss"] / v["weight"] for v in values], sum(averages, [])]))
"""


def test_two_devices_learn_what_one_does():
    """The same global batches, dropout and all; the last update is of all batches together."""
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(DEVICES), count],
            cwd=ROOT, stdout=subprocess.PIPE, text=True,
        )
        for count in ("1", "2")
    ]  # fmt: skip
    (losses, averages), (losses_2, averages_2) = (
        json.loads(run.communicate(timeout=240)[0].splitlines()[-1]) for run in runs
    )
    assert losses[-1] < losses[0]
    np.testing.assert_allclose(losses_2, losses, rtol=1e-5)
    np.testing.assert_allclose(averages_2, averages, atol=1e-5)
