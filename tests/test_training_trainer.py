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
from training.run.models import make_model
from training.run.optimizer import AveragedAdam
from training.run.schedule import BudgetSchedule, CosineBudgetSchedule, make_schedule
from training.run.settings import TrainingConfig
from training.run.trainer import Trainer

ROOT = Path(__file__).resolve().parents[1]
VOCAB = 40


class Plain(AveragedAdam):
    """Gradient descent in the place of Adam, to see a gradient in what it did."""

    def update_step(self, gradient, variable, learning_rate):
        variable.assign_sub(learning_rate * tf.convert_to_tensor(gradient))


def make_trainer(optimizer=None, dropout_rate=0.0, **options):
    config = TransformerConfig.preset(
        "tiny", source_vocab=VOCAB, target_vocab=VOCAB, dropout_rate=dropout_rate,
        encoder_layers=1, decoder_layers=1, d_model=16,
    )  # fmt: skip
    keras.utils.set_random_seed(3)
    models = [make_model("transformer", config) for _ in range(2)]
    trainer = Trainer(*models, **options)
    trainer.prepare(optimizer or Plain(0.5))
    return trainer


def batch(rows, lengths, seed):
    """`((source_ids, target_ids), labels)` with so many real tokens in each row."""
    ids = helpers.random_ids(rows, max(lengths) + 1, vocab=VOCAB, seed=seed)
    for row, length in zip(ids, lengths, strict=True):
        row[length + 1 :] = 0
    return (ids[:, 1:], ids[:, :-1] * (ids[:, 1:] != 0)), ids[:, 1:]


# As unequal as batches of a token budget get: 12 real tokens, and 3.
BATCHES = [batch(3, (4, 5, 3), seed=1), batch(2, (2, 1), seed=2)]


def fit(trainer, batches, epochs=1):
    spec = tf.TensorSpec([None, None], tf.int32)
    dataset = tf.data.Dataset.from_generator(
        lambda: iter(batches), output_signature=((spec, spec), spec)
    ).apply(tf.data.experimental.assert_cardinality(len(batches)))
    return trainer.fit(dataset, epochs=epochs, verbose=0, shuffle=False).history


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


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("norm", [0.0, 0.05])
def test_every_real_token_of_an_update_weighs_the_same(accumulate, norm):
    trainer = make_trainer(label_smoothing=0.1, clip_norm=norm, accumulate=accumulate)
    batches = BATCHES[:accumulate]
    weights = [w.numpy() for w in trainer.model.trainable_variables]
    loss, gradients = mean_gradients(trainer, batches, 0.1)
    history = fit(trainer, batches)
    assert history["loss"][0] == pytest.approx(float(loss), rel=1e-5)
    for weight, expected in zip(
        trainer.model.trainable_variables, descended(weights, gradients, 0.5, norm), strict=True
    ):
        np.testing.assert_allclose(weight.numpy(), expected, atol=2e-6)


def test_accumulated_batches_leave_nothing_behind():
    """Two updates by two batches each; the second does not know the first."""
    together, apart = (make_trainer(accumulate=2, clip_norm=0.0) for _ in range(2))
    fit(together, BATCHES + BATCHES)
    for _ in range(2):
        fit(apart, BATCHES)
    assert int(together.optimizer.iterations) == 2
    for one, other in zip(together.model.weights, apart.model.weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_a_batch_of_padding_changes_nothing():
    trainer = make_trainer(clip_norm=1.0)
    before = [w.numpy() for w in trainer.model.trainable_variables]
    empty = np.zeros((2, 3), "int32")
    fit(trainer, [((empty, empty), empty)])
    for weight, old in zip(trainer.model.trainable_variables, before, strict=True):
        np.testing.assert_array_equal(weight.numpy(), old)


def test_the_update_is_that_of_keras_adam():
    ours = AveragedAdam(0.01, average=0.9, beta_2=0.98, epsilon=1e-9)
    theirs = keras.optimizers.Adam(0.01, beta_2=0.98, epsilon=1e-9)
    starts = [helpers.random(5, 3, seed=1), helpers.random(4, seed=2)]
    pairs = [[keras.Variable(start) for start in starts] for _ in (ours, theirs)]
    average = starts
    for n in range(6):
        gradients = [helpers.random(*s.shape, seed=10 + n + i) for i, s in enumerate(starts)]
        for optimizer, variables in zip((ours, theirs), pairs, strict=True):
            optimizer.apply([tf.constant(g) for g in gradients], variables)
        decay = min(0.9, n / (n + 9))
        average = [
            decay * a + (1 - decay) * v.numpy() for a, v in zip(average, pairs[1], strict=True)
        ]
    for mine, expected in zip(*pairs, strict=True):
        np.testing.assert_allclose(mine.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)
    for mine, expected in zip(ours.averages, average, strict=True):
        np.testing.assert_allclose(mine.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_an_embedding_s_gradient_of_slices_is_taken():
    optimizer = AveragedAdam(0.1, beta_2=0.98)
    table = keras.Variable(helpers.random(6, 2))
    before = table.numpy()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(table.value, [1, 1, 4]))
    gradient = tape.gradient(loss, table.value)
    assert isinstance(gradient, tf.IndexedSlices)
    optimizer.apply([gradient], [table])
    moved = np.any(table.numpy() != before, axis=1)
    assert moved.tolist() == [False, True, False, False, True, False]


def test_averages_go_into_the_second_model_and_nothing_into_the_first():
    trainer = make_trainer(AveragedAdam(0.01, average=0.5), dropout_rate=0.1)
    fit(trainer, BATCHES)
    before = [v.numpy() for v in trainer.model.variables]
    averaged = trainer.take_averages()
    for weight, average, raw in zip(
        averaged.weights, trainer.optimizer.averages, trainer.model.weights, strict=True
    ):
        np.testing.assert_array_equal(weight.numpy(), average.numpy())
        assert np.any(weight.numpy() != raw.numpy())
    for variable, old in zip(trainer.model.variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), old)


def test_without_an_average_the_second_model_takes_the_weights():
    trainer = make_trainer(AveragedAdam(0.01))
    fit(trainer, BATCHES)
    for weight, raw in zip(trainer.take_averages().weights, trainer.model.weights, strict=True):
        np.testing.assert_array_equal(weight.numpy(), raw.numpy())


def test_one_trace_for_every_shape_of_batch():
    trainer = make_trainer(AveragedAdam(0.01))
    traces = []
    step = trainer.train_step
    trainer.train_step = lambda data: traces.append(1) or step(data)
    for width in range(2, 8):
        fit(trainer, [batch(width, [width] * width, seed=width)])
    assert len(traces) == 1


def test_schedules_reach_the_peak_and_end_with_the_budget():
    share = keras.Variable(0.0)
    for name, kind, late in (
        ("linear", BudgetSchedule, 0.25),
        ("cosine", CosineBudgetSchedule, 0.14645),
    ):
        settings = TrainingConfig(schedule=name, learning_rate=0.01, warmup_steps=10)
        schedule = make_schedule(settings, 64, share)
        assert type(schedule) is kind
        share.assign(0.0)
        assert float(schedule(0)) == pytest.approx(0.001)
        assert float(schedule(9)) == pytest.approx(0.01)
        share.assign(0.5)
        assert float(schedule(500)) == pytest.approx(0.005)
        share.assign(0.75)
        assert float(schedule(750)) == pytest.approx(0.01 * late, rel=1e-4)
        share.assign(1.0)
        assert float(schedule(1000)) == pytest.approx(0.0, abs=1e-9)
    noam = make_schedule(
        TrainingConfig(schedule="noam", learning_rate=0.01, warmup_steps=10), 64, share
    )
    assert float(noam(9)) == pytest.approx(0.01)
    assert float(noam(39)) == pytest.approx(0.005)


DEVICES = """
    import json, sys
    sys.path.insert(0, "tests")
    import test_training_trainer as t
    from training.run.session import devices
    strategy = devices(int(sys.argv[1]))
    batches = [t.batch(4, (4, 5, 0, 1), seed=s) for s in range(4)] + [t.batch(2, (6, 0), seed=9)]
    import contextlib
    with strategy.scope() if strategy else contextlib.nullcontext():
        trainer = t.make_trainer(t.AveragedAdam(0.01, average=0.9), clip_norm=0.5)
    losses = [t.fit(trainer, [one])["loss"][0] for one in batches * 2]
    averages = [float(abs(v.numpy()).sum()) for v in trainer.take_averages().weights]
    print(json.dumps([losses, averages]))
"""


def test_two_devices_learn_what_one_does():
    """The same global batches; in one of them the second device has no real token at all."""
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
    np.testing.assert_allclose(losses_2, losses, rtol=1e-4)
    # The gradient of a key bias is nothing but rounding, which Adam enlarges.
    np.testing.assert_allclose(averages_2, averages, rtol=1e-4, atol=1e-3)
