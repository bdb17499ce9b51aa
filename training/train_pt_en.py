"""Trains a translator from plain text to a SavedModel that can be served.

Without arguments it trains on a built-in Portuguese-English phrasebook for a few minutes, a
demonstration that needs no network. With --data it trains on your own corpus, in any two languages.
After an interruption, run the same command again to resume.
"""

import contextlib
import sys
import time

STARTED = time.monotonic()  # the budget includes the imports


def train(settings, signals):
    """Trains, evaluates and exports as the settings say; returns whether the run is finished."""
    import keras

    from training import callbacks as own
    from training.checkpoints import Checkpoints
    from training.corpus.sources import check_apart
    from training.distributed import connect
    from training.evaluate import Evaluator
    from training.init_from import Start
    from training.optimizer import make_optimizer
    from training.prepare import prepare
    from training.report import finish, finish_on_tensorflow
    from training.run import RunFolder, begin, describe, run_lock

    keras.utils.set_random_seed(settings.seed)
    folder, workers = RunFolder(settings.output), connect(settings)
    with run_lock(folder) if workers.chief else contextlib.nullcontext():
        # The data
        check_apart(settings, folder)
        about = (settings.to_dict(), settings.free(), settings.overwrite)
        before = begin(folder, *about) if workers.chief else workers.read_config(folder)
        start = Start(settings.init_from) if settings.init_from else None
        data = prepare(settings, folder, before, start and start.tokenizers(), workers.replicas)
        task, batches = data.task, data.batches

        # The model
        config = start.config_for(task) if start else task.config()
        if workers.chief and not before:
            folder.save_tokenizers(task.tokenizers)
            folder.write_config(describe(settings, task, config, data.record, start))
        if workers.chief:
            workers.barrier()  # for which the others wait in `read_config`
        with workers.scope():
            model = task.model(config, settings.precision)
            optimizer = make_optimizer(settings, model)
            model.compile(optimizer, loss=task.loss(batches.nominal_tokens), metrics=task.metrics())
            optimizer.build(model.trainable_variables)
        workers.prepare(model, task)
        if start:
            start.assign(model, task)
        say = print if workers.chief else lambda line: None
        say(f"Run folder: {folder.path}\n{data.summary}")
        say(f"{task.kind}: {settings.preset}, {model.count_params():,} weights")

        # What happens beside the updates
        state = own.RunState(steps=data.steps)
        checkpoints = Checkpoints(folder.checkpoints, settings.max_checkpoints)
        scored = (data.validation, settings.validation_pairs)
        evaluator = Evaluator(task, task.model(config), *scored)
        budget = own.Budget(state, settings, folder, STARTED, signals)
        validation = own.Validation(evaluator, budget, settings, workers.chief)
        callbacks = [own.NotFinite(state, checkpoints), validation, budget]
        if workers.chief:
            callbacks += [
                own.History(budget, task.scores, batches.nominal_tokens),
                own.Checkpoint(validation, checkpoints, settings),
                keras.callbacks.TensorBoard(folder.tensorboard, write_graph=False),
            ]
        own.resume(model, checkpoints, validation)

        # The training: an epoch of `fit` is a row of history.csv
        accumulated = settings.gradient_accumulation_steps
        if not state.trained:
            model.fit(
                workers.dataset(batches.dataset(skip=state.step * accumulated)),
                steps_per_epoch=settings.log_steps * accumulated,
                initial_epoch=state.step // settings.log_steps,
                epochs=sys.maxsize,  # `Budget` ends it
                callbacks=callbacks,
                verbose=0,
                shuffle=False,
            )
        if not state.trained:
            say(f"Stopped at update {state.step:,}. Run the same command to resume.")

        # The evaluation, the report and the export
        elif workers.chief and keras.backend.backend() == "tensorflow":
            finish(settings, task, folder, data, state)
    if state.trained and workers.chief and keras.backend.backend() != "tensorflow":
        finish_on_tensorflow(settings)
    return state.trained


def main(arguments=None):
    """Runs the command line; returns the exit status."""
    from training.command_line import parse_arguments

    settings = parse_arguments(__doc__, arguments)
    from training.process import command, until_stopped

    return command("train_pt_en.py", until_stopped, train, settings)


if __name__ == "__main__":
    sys.exit(main())
