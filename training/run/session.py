"""One training run: from its settings to the finished folder."""

import contextlib
import dataclasses
import platform
import shlex
import sys

import keras
import tensorflow as tf

from keras_tfmr.decoding import DecodingConfig
from training.corpus import store
from training.prepare import prepare, save_tokenizers
from training.report.evaluation import Evaluator, spread
from training.run.callbacks import Run, training_callbacks
from training.run.finish import finish
from training.run.folder import RunError, RunFolder, write_json
from training.run.models import make_config, make_model
from training.run.optimizer import AveragedAdam
from training.run.schedule import make_schedule
from training.run.state import Budget, Clock, RunState
from training.run.trainer import Trainer

# What may differ when a run goes on: how long it lasts and what is told of it, not what it learns.
FREE = {
    "run", "overwrite", "minutes", "epochs", "steps", "patience", "evaluate_minutes",
    "evaluate_steps", "evaluate_pairs", "checkpoint_minutes", "keep", "beams", "length_penalty",
    "export",
}  # fmt: skip


def train(settings, started, interrupts):
    """Trains, evaluates, draws and exports.

    Args:
        settings: A resolved `TrainingConfig`.
        started: `time.time()` when the process began.
        interrupts: The entered `Interrupts`.

    Returns:
        Whether the run is finished; it is not if the user stopped it.

    Raises:
        RunError: If the run folder or the data cannot be used.
    """
    checked_config(settings, settings.vocab_size, settings.vocab_size)  # before a corpus is read
    folder = RunFolder(settings.run)
    try:
        arguments = dataclasses.asdict(settings)
        folder.begin(identity(settings), arguments, overwrite=settings.overwrite)
        strategy = devices(settings.devices)
        keras.utils.set_random_seed(settings.seed)
        data = prepare(settings, folder)
        config = checked_config(settings, *(side.vocab_size for side in data.tokenizers))
        with discarding_encoded_pairs(folder):
            describe(settings, folder, config, data)
            save_tokenizers(data.tokenizers, folder)
        with strategy.scope() if strategy else contextlib.nullcontext():
            trainer = make_trainer(settings, config)
        run = make_run(settings, folder, trainer, data, Clock(started), interrupts)
        if folder.goes_on and run.restore():
            print(f"Going on from step {run.state.step}, {run.clock.before / 60:.1f} minutes used.")
        with interrupts.waiting():
            fit(run, data.batches)
        if not run.state.trained:
            print(f"Stopped at step {run.state.step}. To go on: {command_to_go_on(sys.argv)}")
            return False
        finish(run, data)
        return True
    finally:
        folder.close()


@contextlib.contextmanager
def discarding_encoded_pairs(folder):
    """Deletes the encoded pairs if a start fails inside: without tokenizers they are of no use."""
    try:
        yield
    except BaseException:
        if not folder.goes_on:
            store.delete(folder.encoded)
        raise


def identity(settings):
    """The settings that the weights depend on, for config.json."""
    fields = dataclasses.asdict(settings)
    return {name: value for name, value in fields.items() if name not in FREE}


def command_to_go_on(words):
    """The command line of these words without `--overwrite`, which ends what it should go on with.

    >>> command_to_go_on(["train_pt_en.py", "--run", "my run", "--overwrite"])
    "python train_pt_en.py --run 'my run'"
    """
    # argparse takes its beginnings too.
    asks = [word.startswith("--o") and "--overwrite".startswith(word) for word in words]
    return shlex.join(["python", *(word for word, ask in zip(words, asks, strict=True) if not ask)])


def checked_config(settings, source_vocab, target_vocab):
    """The model's config, or the reason why there is none in one line."""
    try:
        return make_config(settings, source_vocab, target_vocab)
    except ValueError as error:
        raise RunError(str(error)) from error


def devices(count):
    """A mirrored strategy over so many devices, or None for one device.

    Without so many GPUs the CPU is divided into logical devices: slower than one, but a way to
    try.
    """
    if count == 1:
        return None
    kind = "GPU" if len(tf.config.list_physical_devices("GPU")) >= count else "CPU"
    if kind == "CPU":
        parts = [tf.config.LogicalDeviceConfiguration() for _ in range(count)]
        try:
            tf.config.set_logical_device_configuration(
                tf.config.list_physical_devices("CPU")[0], parts
            )
        except RuntimeError as error:
            raise RunError(f"Cannot divide the CPU into {count} devices: {error}") from error
    return tf.distribute.MirroredStrategy([f"/{kind}:{i}" for i in range(count)])


def make_trainer(settings, config):
    """A `Trainer` ready for `fit`."""
    model = make_model(settings.model, config, settings.precision)
    # Evaluated and exported in float32, whatever the training computes in.
    averaged = make_model(settings.model, config)
    trainer = Trainer(
        model,
        averaged,
        label_smoothing=settings.label_smoothing,
        clip_norm=settings.clip_norm,
        accumulate=settings.accumulate,
    )
    width = getattr(config, "d_model", None) or config.units
    schedule = make_schedule(settings, width, trainer.share)
    trainer.prepare(
        AveragedAdam(schedule, average=settings.average, beta_1=0.9, beta_2=0.98, epsilon=1e-9)
    )
    return trainer


def make_run(settings, folder, trainer, data, clock, interrupts):
    """What the callbacks share."""
    budget = Budget(
        clock,
        minutes=settings.minutes,
        epochs=settings.epochs,
        batches=settings.steps and settings.steps * settings.accumulate,
    )
    evaluator = Evaluator(
        trainer.averaged,
        data.tokenizers,
        spread(data.validation, settings.evaluate_pairs),
        DecodingConfig(beams=1),
    )
    return Run(settings, folder, trainer, RunState(), budget, evaluator, interrupts)


def describe(settings, folder, config, data):
    """Prints what will be trained, and writes config.json."""
    described = {
        "model": {"kind": settings.model, "config": config.to_dict()},
        "training": identity(settings),
        "arguments": dataclasses.asdict(settings),
        "command": shlex.join(["python", *sys.argv]),
        "corpus": data.description,
        "versions": versions(),
    }
    write_json(folder.config, described)
    print(f"Run folder: {folder.path}")
    print(data.summary)
    print(f"{settings.model}: {config}")


def versions():
    """The versions that a rebuilt model should have."""
    from importlib import metadata

    names = ("tensorflow", "tensorflow-text", "keras", "numpy", "sentencepiece", "sacrebleu")
    return {"python": platform.python_version()} | {name: metadata.version(name) for name in names}


def fit(run, batches):
    """Calls `fit` once an epoch, each with its own order of batches, until the budget ends."""
    callbacks, evaluation = training_callbacks(run)
    state = run.state
    while not state.trained and run.interrupts.received is None:
        run.epoch_batches = batches.steps_per_epoch(state.epoch)
        run.trainer.fit(
            batches.dataset(state.epoch, skip=state.batch),
            initial_epoch=state.epoch,
            epochs=state.epoch + 1,
            callbacks=callbacks,
            shuffle=False,
        )
    if state.trained:
        evaluation.evaluate()
        run.save()
    elif run.saved_step != state.step:  # the signal came after the callbacks of an epoch's end
        run.save()
