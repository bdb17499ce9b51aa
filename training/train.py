"""The training of any task on one page, from its settings to the export."""

import contextlib
import sys
import time
from dataclasses import dataclass

import keras
from keras import ops

from keras_tfmr.config import Config
from keras_tfmr.models import TransformerConfig
from training.command import scripts
from training.corpus.sources import check_apart
from training.data import Data, prepare
from training.run import report, run_folder
from training.run.budget import Budget, RunState
from training.run.callback import RunCallback
from training.run.checkpoints import Checkpoints, restore, state_of
from training.run.device import compile_ahead, memory_explained, prepare_backend
from training.run.distributed import Distribution, connect
from training.run.evaluate import Evaluator
from training.run.optimizer import make_optimizer
from training.run.run_folder import RunFolder, run_lock
from training.settings.init_from import Start
from training.settings.training_config import TrainingConfig

# A published model bans subwords by biases of -1e9, which label smoothing would add to the loss.
# A bias of -50 bans them as well.
LEAST_BIAS = -50.0


@dataclass
class Run:
    """Everything that is made before the first update; `start` is None for new weights."""

    settings: TrainingConfig  # what they leave open comes from the run that is resumed
    folder: RunFolder
    workers: Distribution
    data: Data
    config: Config  # of the model
    start: Start | None

    def say(self, line):
        """Prints a line for people, once for all workers."""
        if self.workers.chief:
            print(line)


def command(program, settings):
    """Runs a training script; returns its exit status."""
    scripts.keep_freed_memory()
    return scripts.command(program, train, settings)


def train(settings):
    """Trains, evaluates and exports as the settings say."""
    started = time.monotonic()
    prepare_backend()
    keras.utils.set_random_seed(settings.seed)
    folder, workers = RunFolder(settings.output), connect(settings)
    with run_lock(folder) if workers.chief else contextlib.nullcontext():
        run = begin(settings, folder, workers)
        state = fit(run, make_model(run), started)
        if workers.chief:
            finish(run, state)


def begin(asked, folder, workers):
    """The `Run`, after the folder holds its config.json and its encoded corpus."""
    check_apart(asked, folder)
    if workers.chief:
        before = run_folder.begin(folder, asked)
    else:
        workers.barrier()  # the chief has written config.json then
        before = folder.read_config()
    settings = run_folder.settle(asked, before)
    start = Start(settings.init_from) if settings.init_from else None
    tokenizers = start.tokenizers() if start else None
    data = prepare(settings, folder, before, tokenizers, workers.replicas)
    config = data.task.config(start and start.config)
    if workers.chief:
        content = before or run_folder.new_config(data.task, config, data.encoded.record, start)
        content |= data.task.entries(config)  # a setting of the search may have changed
        content["arguments"] = settings.to_dict()  # which repeat the run
        content["minutes"] = asked.minutes  # of which the arguments have the updates later
        folder.begin(content, data.task.tokenizers, new=not before)
        workers.barrier()  # for which the others wait above
    return Run(settings, folder, workers, data, config, start)


def make_model(run):
    """The compiled model, with the weights of the start if there is one."""
    task, batches = run.data.task, run.data.batches
    with run.workers.scope():
        model = task.model(run.config, run.settings.precision)
        optimizer = make_optimizer(run.settings, width_of(run.config))
        model.compile(optimizer, loss=task.loss(batches.nominal_tokens), metrics=task.metrics())
        optimizer.build(model.trainable_variables)
        run.workers.build(model, batches.empty())
    if run.start:
        assign(run.start, task, model)
    run.say(f"Run folder: {run.folder.path}\n{run.data.summary}")
    run.say(f"{model.name}: {run.settings.preset}, {model.count_params():,} weights")
    return model


def assign(start, task, model):
    """Gives the weights of the run that a training starts from to its model."""
    trained = task.transferred(start.folder.model(start.weights))
    for weight, value in zip(task.transferred(model), trained, strict=True):
        is_bias = weight.path.endswith("bias")
        weight.assign(ops.maximum(value, LEAST_BIAS) if is_bias else value)


def width_of(config):
    """The width of a model's layers, which the schedule `noam` needs."""
    return config.d_model if isinstance(config, TransformerConfig) else config.units


def fit(run, model, started):
    """Makes the updates that are left; returns the `RunState`."""
    settings, batches = run.settings, run.data.batches
    checkpoints = Checkpoints(run.folder.checkpoints, settings.max_checkpoints)
    newest = checkpoints.newest()
    state = RunState.of(newest, run.data.steps)
    budget = Budget(state, settings, run.folder, started, run.say)
    if budget.ended:  # only the end is missing
        return state
    task, chief = run.data.task, run.workers.chief
    averaged = task.model(run.config)
    evaluator = Evaluator(
        task, averaged, run.data.encoded.held_out["validation"], most=settings.validation_pairs
    )
    if newest:
        restore(newest, state_of(model))
        run.say(f"Resuming from update {state.step:,}, {state.seconds / 60:.1f} minutes used.")
    with memory_explained(settings):
        shapes = run.workers.dataset(batches.empty())
        budget.exclude(compile_ahead(model, shapes, len(batches.buckets), evaluator))
        callbacks = [
            RunCallback(budget, evaluator, checkpoints if chief else None, batches.nominal_tokens)
        ]
        if chief:
            callbacks.append(keras.callbacks.TensorBoard(run.folder.tensorboard, write_graph=False))
        # An epoch of `fit` is a row of history.csv; the callback ends the last one.
        accumulated = settings.gradient_accumulation_steps
        model.fit(
            run.workers.dataset(batches.dataset(skip=state.step * accumulated)),
            steps_per_epoch=settings.log_steps * accumulated,
            initial_epoch=len(state.rows),
            epochs=sys.maxsize,
            callbacks=callbacks,
            verbose=0,
            shuffle=False,
        )
    return state


def finish(run, state):
    """The evaluation, the report and the export, by TensorFlow."""
    if keras.backend.backend() == "tensorflow":
        report.finish(run.settings, run.data.task, run.folder, run.data, state)
    else:
        report.finish_on_tensorflow(run.folder)
