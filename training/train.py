"""The training of any task on one page, from its settings to the export."""

import contextlib
import sys
import time

STARTED = time.monotonic()  # the budget includes the imports


def train(settings, signals):
    """Trains, evaluates and exports as the settings say; returns whether the run is finished."""
    import keras

    from training.corpus.prepare import prepare
    from training.corpus.sources import check_apart
    from training.optimizer import make_optimizer
    from training.run import callbacks as own
    from training.run.checkpoints import Checkpoints, restore
    from training.run.distributed import connect
    from training.run.evaluate import Evaluator
    from training.run.report import finish, finish_on_tensorflow
    from training.run.run_folder import RunFolder, begin, describe, run_lock, settle
    from training.settings.init_from import Start

    keras.utils.set_random_seed(settings.seed)
    folder, workers, asked = RunFolder(settings.output), connect(settings), settings
    with run_lock(folder) if workers.chief else contextlib.nullcontext():
        # The data
        check_apart(settings, folder)
        about = (asked.to_dict(), asked.free(), asked.overwrite)
        before = begin(folder, *about) if workers.chief else workers.read_config(folder)
        settings = settle(asked, before)
        start = Start(settings.init_from) if settings.init_from else None
        data = prepare(settings, folder, before, start and start.tokenizers(), workers.replicas)
        task, batches = data.task, data.batches

        # The model
        config = start.config_for(task) if start else task.config()
        if workers.chief:
            if not before:
                folder.clear()
                before = describe(task, config, data.record, start)
            # `arguments` repeat the run; `asked` tells whether a command is that of the run.
            known = {"arguments": settings.to_dict(), "asked": asked.to_dict()}
            folder.write_config({**before, **known})
            folder.save_tokenizers(task.tokenizers)
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
        checkpoints = Checkpoints(folder.checkpoints, settings.max_checkpoints)
        newest = checkpoints.newest(say)
        state = own.RunState.of(newest, data.steps)
        scored = (data.validation, settings.validation_pairs)
        evaluator = Evaluator(task, task.model(config), *scored)
        budget = own.Budget(state, settings, folder, STARTED, signals, say)
        validation = own.Validation(evaluator, budget)
        callbacks = [own.NotFinite(state, checkpoints), validation, budget]
        if workers.chief:
            callbacks += [
                own.History(budget, task.scores, batches.nominal_tokens),
                own.Checkpoint(validation, checkpoints, settings),
                keras.callbacks.TensorBoard(folder.tensorboard, write_graph=False),
            ]
        if newest and not budget.ended:  # else only the end is missing, on whatever backend
            restore(newest, own.state_of(model))
            say(f"Resuming from update {state.step:,}, {state.seconds / 60:.1f} minutes used.")

        # The training: an epoch of `fit` is a row of history.csv
        accumulated = settings.gradient_accumulation_steps
        if not budget.ended:
            model.fit(
                workers.dataset(batches.dataset(skip=state.step * accumulated)),
                steps_per_epoch=settings.log_steps * accumulated,
                initial_epoch=state.step // settings.log_steps,
                epochs=sys.maxsize,  # `Budget` ends it
                callbacks=callbacks,
                verbose=0,
                shuffle=False,
            )
        if not budget.ended:
            say(f"Stopped at update {state.step:,}. Run the same command to resume.")

        # The evaluation, the report and the export
        elif workers.chief and keras.backend.backend() == "tensorflow":
            finish(settings, task, folder, data, state)
        elif workers.chief:
            finish_on_tensorflow(folder)
    return budget.ended
