"""The training of any task on one page, from its settings to the export."""

import contextlib
import sys
import time
from typing import Any, NamedTuple

STARTED = time.monotonic()  # the budget includes the imports


class Run(NamedTuple):
    """What is known before the first update.

    Fields:
        settings: The settings, with what they leave open as in the run that is resumed.
        folder: The `RunFolder`.
        workers: The `Distribution`.
        data: The `Data`, with the task.
        config: Of the model.
        start: The `Start`, or None.
    """

    settings: Any
    folder: Any
    workers: Any
    data: Any
    config: Any
    start: Any

    def say(self, line):
        """Prints a line for people, once for all workers."""
        if self.workers.chief:
            print(line)


def command(program, settings):
    """Runs a training script; returns its exit status."""
    from training.command import process

    process.keep_freed_memory()
    stop = process.Stop()
    return process.command(program, train, settings, stop, stop=stop)


def train(settings, stop):
    """Trains, evaluates and exports as the settings say; raises KeyboardInterrupt after a signal.

    Args:
        stop: The `Stop`.
    """
    import keras

    from training.run.device import prepare_backend
    from training.run.distributed import connect
    from training.run.run_folder import RunFolder, run_lock

    prepare_backend()
    keras.utils.set_random_seed(settings.seed)
    folder, workers = RunFolder(settings.output), connect(settings)
    try:
        with run_lock(folder) if workers.chief else contextlib.nullcontext():
            run = begin(settings, folder, workers)
            model, sums = make_model(run)
            state = fit(run, model, sums, stop)
            if workers.chief:
                finish(run, state)
    except KeyboardInterrupt:
        print("\nStopped. Run the same command to resume.", file=sys.stderr)
        raise


def begin(asked, folder, workers):
    """The `Run`, after the folder holds its config.json and its encoded corpus."""
    from training.corpus.sources import check_apart
    from training.data import prepare
    from training.run import run_folder, transfer
    from training.settings.init_from import Start
    from training.settings.training_config import FREE

    check_apart(asked, folder)
    about = (asked.to_dict(), FREE, asked.overwrite)
    before = run_folder.begin(folder, *about) if workers.chief else workers.read_config(folder)
    settings = run_folder.settle(asked, before)
    start = Start(settings.init_from) if settings.init_from else None
    data = prepare(settings, folder, before, start and start.tokenizers(), workers.replicas)
    config = transfer.config_for(start, data.task) if start else data.task.config()
    if workers.chief:
        described = before or run_folder.describe(data.task, config, data.record, start)
        # `arguments` repeat the run; `asked` tells whether a command is that of the run.
        known = {"arguments": settings.to_dict(), "asked": asked.to_dict()}
        folder.begin({**described, **known}, data.task.tokenizers, new=not before)
        workers.barrier()  # for which the others wait in `read_config`
    return Run(settings, folder, workers, data, config, start)


def make_model(run):
    """The compiled model with the weights of the start, and what its metrics sum up over a row."""
    from training.run import transfer
    from training.run.optimizer import make_optimizer

    task = run.data.task
    with run.workers.scope():
        model = task.model(run.config, run.settings.precision)
        width = getattr(run.config, "d_model", None) or run.config.units
        optimizer = make_optimizer(run.settings, width)
        loss = task.loss(run.data.batches.nominal_tokens)
        metrics = task.metrics()
        model.compile(optimizer, loss=loss, metrics=metrics)
        optimizer.build(model.trainable_variables)
    run.workers.prepare(model, task)
    if run.start:
        transfer.assign(run.start, model)
    run.say(f"Run folder: {run.folder.path}\n{run.data.summary}")
    run.say(f"{task.kind}: {run.settings.preset}, {model.count_params():,} weights")
    # Keras knows those of `metrics` from the first update on only.
    return model, [sum for metric in (model.metrics[0], *metrics) for sum in metric.variables]


def fit(run, model, sums, stop):
    """Makes the updates that are left; returns the `RunState`."""
    from training.run import callbacks as own
    from training.run.checkpoints import Checkpoints, restore
    from training.run.device import compile_ahead, memory_explained
    from training.run.evaluate import Evaluator

    settings, folder, workers, data, config, _ = run
    checkpoints = Checkpoints(folder.checkpoints, settings.max_checkpoints)
    newest = checkpoints.newest(run.say)
    state = own.RunState.of(newest, data.steps)
    alone = workers.workers == 1
    budget = own.Budget(state, settings, folder, STARTED, stop, run.say, alone, sums)
    scored = (data.validation, settings.validation_pairs)
    evaluator = Evaluator(data.task, data.task.model(config), *scored)
    callbacks = callbacks_of(run, evaluator, budget, checkpoints)
    if newest and (state.unscored or not budget.ended):  # else only the end is missing
        restore(newest, own.state_of(model))
        run.say(f"Resuming from update {state.step:,}, {state.seconds / 60:.1f} minutes used.")
    accumulated = settings.gradient_accumulation_steps
    if not budget.ended:
        with memory_explained(settings):
            shapes, count = workers.dataset(data.batches.empty()), len(data.batches.buckets)
            seconds = compile_ahead(model, own.state_of(model), shapes, count, evaluator)
        budget.exclude(seconds)
    with memory_explained(settings), stop.postponed():
        if state.unscored:
            own.score_last_row(model, callbacks)
        # An epoch of `fit` is a row of history.csv. The first one may have begun before a signal.
        while not (budget.ended or stop.received):
            row, left = state.step // settings.log_steps, budget.row_left
            model.fit(
                workers.dataset(data.batches.dataset(skip=state.step * accumulated)),
                steps_per_epoch=(left or settings.log_steps) * accumulated,
                initial_epoch=row,
                epochs=row + 1 if left else sys.maxsize,  # `Budget` ends it
                callbacks=callbacks,
                verbose=0,
                shuffle=False,
            )
    return state


def callbacks_of(run, evaluator, budget, checkpoints):
    """What happens beside the updates: a list of callbacks, in their order."""
    import keras

    from training.run import callbacks as own

    settings, folder, workers, data, *_ = run
    validation = own.Validation(evaluator, budget)
    callbacks = [own.NotFinite(budget.state, checkpoints), validation, budget]
    if workers.chief:
        callbacks += [
            own.History(budget, data.task.scores, data.batches.nominal_tokens),
            own.Checkpoint(validation, checkpoints, settings),
            keras.callbacks.TensorBoard(folder.tensorboard, write_graph=False),
        ]
    return callbacks


def finish(run, state):
    """The evaluation, the report and the export, by TensorFlow."""
    import keras

    from training.run import report

    if keras.backend.backend() == "tensorflow":
        report.finish(run.settings, run.data.task, run.folder, run.data, state)
    else:
        report.finish_on_tensorflow(run.folder)
