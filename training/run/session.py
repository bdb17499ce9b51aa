"""A training run, from its settings to the finished folder."""

import contextlib
import dataclasses
import os
import shlex
import subprocess
import sys

import keras

from keras_tfmr._packages import versions
from training.corpus import store
from training.run.claim import Claim, FollowersClaim
from training.run.clock import Budget, Clock
from training.run.cluster import ONE_TASK_OF_SLURM, cluster_of
from training.run.files import RunError
from training.run.folder import RunFolder
from training.run.loop import Run
from training.run.schedule import make_schedule
from training.run.state import RunState
from training.run.task import Translation

PACKAGES = ("tensorflow", "tensorflow-text", "keras", "numpy", "sentencepiece", "sacrebleu")


def train(settings, started, interrupts, make_task=Translation):
    """Trains, evaluates, draws and exports.

    Args:
        settings: A resolved `TrainingConfig`.
        started: `time.monotonic()` when the process began.
        interrupts: The entered `Interrupts`.
        make_task: A function from the settings to the task.

    Returns:
        Whether the run is finished; False if a signal stopped it.

    Raises:
        RunError: If the run folder or the data cannot be used.
    """
    workers_class = workers_of(keras.backend.backend())
    task = make_task(settings)
    checked_config(task)  # before a corpus is read
    cluster = cluster_of(kind=settings.cluster)
    workers = workers_class(cluster, settings.devices, settings.worker_timeout)
    folder = RunFolder(settings.run)
    if workers.chief:
        with Claim(folder) as claim:
            trained = train_in(claim, settings, task, workers, started, interrupts)
        if trained and not workers.finishes:
            finish_by_tensorflow(settings)
        return trained
    workers.gather("begun")  # waits until the chief has written config.json
    return train_in(FollowersClaim(folder), settings, task, workers, started, interrupts)


def workers_of(backend):
    """The class of the processes that train together, by the name of Keras's backend."""
    if backend == "tensorflow":
        from training.run.on_tensorflow import Workers
    elif backend == "jax":
        from training.run.on_jax import Workers
    else:
        raise RunError(f"KERAS_BACKEND must be tensorflow or jax. Received: {backend}")
    return Workers


def finish_by_tensorflow(settings):
    """Runs the same command with TensorFlow, which evaluates and exports the trained model."""
    environment = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    command = [sys.executable, *sys.argv, "--precision", settings.precision]
    ended = subprocess.run(
        command, env={**environment, **ONE_TASK_OF_SLURM, "KERAS_BACKEND": "tensorflow"}
    )
    if ended.returncode:
        raise RunError(
            "The training is complete, but TensorFlow failed to evaluate or export the model: to "
            "try again, repeat the command with KERAS_BACKEND=tensorflow"
        )


def train_in(claim, settings, task, workers, started, interrupts):
    """As `train`, in a folder that this process has claimed."""
    folder, arguments = claim.folder, dataclasses.asdict(settings)
    claim.begin(settings.identity(), arguments, overwrite=settings.overwrite)
    keras.utils.set_random_seed(settings.seed)
    data = task.prepare(claim)
    config = checked_config(task, data)
    if workers.chief:
        with discarding_encoded_pairs(claim):
            folder.write_config(described(settings, task, config, data))
            folder.save_tokenizers(data.tokenizers)
        print(f"Run folder: {folder.path}\n{data.summary}\n{settings.model}: {config}")
        workers.gather("begun")
    trainer = make_trainer(settings, task, config, workers)
    run = make_run(settings, task, claim, trainer, data, Clock(started), interrupts, workers)
    if claim.resumes and run.restore() and workers.chief:
        print(f"Resuming from step {run.state.step}, {run.clock.before / 60:.1f} minutes used.")
    with interrupts.waiting():
        run.fit()
    if run.state.trained:
        if workers.finishes:
            task.finish(run, data)
    elif workers.chief:
        print(f"Stopped at step {run.state.step}. To resume: {command_to_resume(sys.argv)}")
    workers.gather("ended")  # waits until the chief has written all files
    return run.state.trained


@contextlib.contextmanager
def discarding_encoded_pairs(claim):
    """Deletes the encoded pairs if a start fails: they are useless without the tokenizers."""
    try:
        yield
    except BaseException:
        if not claim.resumes:
            store.delete(claim.folder.encoded)
        raise


def command_to_resume(words):
    """The command line without `--overwrite`, which would delete the run instead of resuming it.

    >>> command_to_resume(["train_pt_en.py", "--run", "my run", "--overwrite"])
    "python train_pt_en.py --run 'my run'"
    """
    # argparse accepts prefixes of options too.
    asks = [word.startswith("--o") and "--overwrite".startswith(word) for word in words]
    return shlex.join(["python", *(word for word, ask in zip(words, asks, strict=True) if not ask)])


def checked_config(task, data=None):
    """The model's config; raises a RunError if the settings contradict each other."""
    try:
        return task.config(data)
    except ValueError as error:
        raise RunError(str(error)) from error


def make_trainer(settings, task, config, workers):
    """A `Trainer` of a new model."""
    with workers.scope():
        model = task.model(config, settings.precision)
    width = getattr(config, "d_model", None) or config.units
    return workers.trainer(
        task,
        model,
        # Evaluated and exported in float32, whatever the precision of the training.
        task.model(config),
        make_schedule(settings, width),
        average=settings.average,
        clip_norm=settings.clip_norm,
        seed=settings.seed,
        reduce_dtype=settings.reduce_dtype or "float32",
    )


def make_run(settings, task, claim, trainer, data, clock, interrupts, workers):
    """The `Run` of these parts."""
    budget = Budget(clock, minutes=settings.minutes, epochs=settings.epochs, steps=settings.steps)
    evaluator = task.evaluator(trainer.averaged, data, workers)
    return Run(
        settings, task, claim, trainer, data.batches, RunState(), budget, evaluator, interrupts,
        workers,
    )  # fmt: skip


def described(settings, task, config, data):
    """The content of a run's config.json."""
    return {
        "model": {"kind": task.kind, "config": config.to_dict()},
        "training": settings.identity(),
        "arguments": dataclasses.asdict(settings),
        "command": shlex.join(["python", *sys.argv]),
        "corpus": data.description,
        "versions": versions(*PACKAGES),
        **({"start": task.start.record()} if task.start else {}),
    }
