"""What `fit` does beside the updates: budget, history, validation, checkpoints.

An epoch of `fit` is a row of history.csv, `log_steps` updates; everything here happens at its end,
so that a resumed run does the same things at the same updates as one that was never interrupted.
"""

import dataclasses
import math
import statistics
import sys
import time

import keras
from keras import ops

from training.checkpoints import read_meta, restore, uncounted
from training.evaluate import in_words
from training.files import RunError, save_weights, write_table
from training.optimizer import assign_average
from training.run import record_steps

SAID = 60.0  # seconds between two lines off a terminal
MEASURED = 20  # updates that are not timed, because the first ones compile


@dataclasses.dataclass
class RunState:
    """The position of a run and its results so far, which JSON can hold.

    Fields:
        step: Number of updates made.
        steps: Number of updates of the whole run; 0 until `--minutes` has been measured.
        seconds: Wall-clock time used by all processes of this run.
        best: The best score so far; -1 before the first validation.
        worse: Number of validations since the best one.
        trained: Whether the training is over.
        rows: The rows of history.csv, dictionaries.
    """

    step: int = 0
    steps: int = 0
    seconds: float = 0.0
    best: float = -1.0
    worse: int = 0
    trained: bool = False
    rows: list = dataclasses.field(default_factory=list)


class Budget(keras.callbacks.Callback):
    """Counts updates, ends the run after the last one, and turns minutes into updates.

    `started` is `time.monotonic()` at the start of the process.
    """

    def __init__(self, state, settings, folder, started, signals):
        super().__init__()
        self.state, self.minutes, self.folder = state, settings.minutes, folder
        self.batches = settings.gradient_accumulation_steps
        self.validate_steps = settings.validate_steps
        self.started, self.signals = started, signals
        self.before, self.times, self.validation = 0.0, [], 0.0

    def seconds(self):
        """Seconds used in total."""
        return self.before + time.monotonic() - self.started

    def on_train_begin(self, logs=None):
        self.before, self._batch = self.state.seconds, self.state.step * self.batches
        if self.state.steps:
            self.model.optimizer.total_batches.assign(self.state.steps * self.batches)
        self.signals.waits = True

    def on_train_end(self, logs=None):
        self.signals.waits = False

    def on_train_batch_end(self, batch, logs=None):
        self._batch += 1
        if self._batch % self.batches:
            return
        self.state.step = self._batch // self.batches
        self.times.append(time.monotonic())
        measured = len(self.times) > 2 * MEASURED and self.seconds() > 6 * (self.minutes or 0)
        if not self.state.steps and measured:
            self.fix()
        if self.state.steps and self.state.step >= self.state.steps:
            self.state.trained = self.model.stop_training = True

    def on_epoch_end(self, epoch, logs=None):
        if not self.state.steps:
            self.fix()
        self.state.seconds = self.seconds()
        if self.signals.received is not None:
            self.model.stop_training = True

    def fix(self):
        """Fixes the number of updates from the time of the first ones."""
        pauses = [b - a for a, b in zip(self.times, self.times[1:], strict=False)]
        update = statistics.median(pauses[MEASURED:] or pauses or [1.0])
        update += self.validation / self.validate_steps
        left = 60 * self.minutes - self.seconds()
        self.state.steps = self.state.step + max(1, int(left / update))
        if hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()
        self.model.optimizer.total_batches.assign(self.state.steps * self.batches)
        print(
            f"An update takes {update:.3g} s, so {self.minutes:g} minutes are "
            f"{self.state.steps:,} updates; --steps {self.state.steps} repeats this run."
        )
        record_steps(self.folder, self.state.steps)


class Validation(keras.callbacks.Callback):
    """Scores the averaged weights every `validate_steps` updates, and keeps the best ones.

    In place of Keras's `ModelCheckpoint` and `EarlyStopping`, which cannot score translations and
    whose state is in no checkpoint. The first validation is after the first row, so that a mistake
    shows early.

    The evaluator has a model of its own; the first of its scores chooses the weights. Only the
    chief prints.
    """

    def __init__(self, evaluator, budget, settings, chief=True):
        super().__init__()
        self.evaluator, self.scores = evaluator, evaluator.task.scores
        self.budget, self.state, self.chief = budget, budget.state, chief
        self.every, self.patience = settings.validate_steps, settings.patience
        self.log_steps, self.is_best = settings.log_steps, False

    def on_epoch_end(self, epoch, logs=None):
        self.is_best = False
        due = self.state.step // self.every > (self.state.step - self.log_steps) // self.every
        if not (due or epoch == 0 or self.state.trained):
            return
        began = time.monotonic()
        assign_average(self.model, self.evaluator.model)
        scores, texts = self.evaluator.measure()
        logs.update({f"val_{name}": round(value, 3) for name, value in scores.items()})
        self.is_best = scores[self.scores[0]] > self.state.best
        if self.is_best:
            self.state.best, self.state.worse = scores[self.scores[0]], 0
        else:
            self.state.worse += 1
        if self.chief:
            self._tell(scores, texts)
        if self.patience and self.state.worse >= self.patience:
            self.state.trained = self.model.stop_training = True
            if self.chief:
                print(f"No better score in {self.patience} validations: the training ends.")
        self.budget.validation = time.monotonic() - began

    def save_best(self):
        """Writes the weights that were scored last, which are the best."""
        save_weights(self.evaluator.model, self.budget.folder.best)

    def _tell(self, scores, texts):
        begun = f"{self.budget.seconds() / 60:.1f} min, update {self.state.step:,}"
        print(f"{begun}: {in_words(scores)} on {len(texts)} validation texts")
        for i in sorted({0, len(texts) // 3, 2 * len(texts) // 3}):
            print(f"    {self.evaluator.sample(i, texts[i])}")


class NotFinite(keras.callbacks.TerminateOnNaN):
    """Ends the run with an error when the loss is not finite, before anything is written."""

    def __init__(self, state, checkpoints):
        super().__init__()
        self.state, self.checkpoints = state, checkpoints

    def on_epoch_end(self, epoch, logs=None):
        if not math.isfinite(logs["loss"]):
            raise RunError(
                f"The loss was not finite at update {self.state.step}: lower --learning_rate, and "
                f"give --overwrite; {self.checkpoints.last_good()}"
            )


class History(keras.callbacks.Callback):
    """history.csv, and a line about the progress: every minute, on a terminal twice a second.

    In place of Keras's `CSVLogger`, which cannot leave a cell empty or go back to a checkpoint, and
    of its progress bar, which does not know the time left of the whole run and fills the logs of
    a cluster. `tokens` is the number of real tokens in a usual batch.
    """

    def __init__(self, budget, scores, tokens):
        super().__init__()
        self.budget, self.state, self.tokens = budget, budget.state, tokens
        measured = ("loss", "accuracy", "learning_rate", "tokens_per_second")
        self.columns = ("step", "minutes", *measured, *(f"val_{name}" for name in scores))
        self.terminal = sys.stdout.isatty()
        self._said = time.monotonic()

    def on_epoch_begin(self, epoch, logs=None):
        self._began, self._ended, self._batches = time.monotonic(), time.monotonic(), 0

    def on_train_batch_end(self, batch, logs=None):
        self._ended, self._batches = time.monotonic(), self._batches + 1
        if self._ended - self._said >= (0.5 if self.terminal else SAID):
            self._said = self._ended
            print(self._line(logs), end="\r" if self.terminal else "\n", flush=True)

    def _speed(self):
        return self._batches * self.tokens / max(self._ended - self._began, 1e-9)

    def _line(self, logs):
        state, seconds = self.state, self.budget.seconds()
        line = (
            f"update {state.step:,}{f' of {state.steps:,}' if state.steps else ''}, "
            f"loss {logs['loss']:.3f}, accuracy {100 * logs['accuracy']:.1f} %, "
            f"{self._speed():,.0f} tokens/s"
        )
        pace = (self._ended - self._began) / max(self._batches, 1) * self.budget.batches
        left = (
            (state.steps - state.step) * pace if state.steps else 60 * self.budget.minutes - seconds
        )
        return f"{line}, {max(left, 0) / 60:.1f} minutes left  "

    def on_epoch_end(self, epoch, logs=None):
        rate = ops.convert_to_numpy(self.model.optimizer.learning_rate)
        row = {
            "step": self.state.step,
            "minutes": round(self.budget.seconds() / 60, 3),
            "loss": round(float(logs["loss"]), 5),
            "accuracy": round(100 * float(logs["accuracy"]), 3),
            "learning_rate": float(f"{rate:.6g}"),
            "tokens_per_second": round(self._speed()),
        }
        row |= {name: logs[name] for name in self.columns if name in logs and name not in row}
        self.state.rows.append(row)
        write_table(self.budget.folder.history, self.columns, self.state.rows)


class Checkpoint(keras.callbacks.Callback):
    """Writes checkpoints, and the best weights after the checkpoint that knows their score.

    If the weights were written first and the process were killed before the checkpoint, the resumed
    run would not know their score, and could replace them with worse ones. At the end it is the
    other way round: the checkpoint says that nothing but the evaluation is missing.
    """

    def __init__(self, validation, checkpoints, settings):
        super().__init__()
        self.validation, self.checkpoints = validation, checkpoints
        self.every, self.saved = 60 * settings.checkpoint_minutes, time.monotonic()

    def on_epoch_end(self, epoch, logs=None):
        state, is_best = self.validation.state, self.validation.is_best
        if is_best and state.trained:
            self.validation.save_best()
        stops = self.model.stop_training
        if stops or is_best or time.monotonic() - self.saved >= self.every:
            self.checkpoints.save(state.step, state_of(self.model), dataclasses.asdict(state))
            self.saved = time.monotonic()
        if is_best and not state.trained:
            self.validation.save_best()


def state_of(model):
    """{name: variable} of all variables that a training changes, also of the seed generators."""
    metrics = {id(variable) for variable in model.metrics_variables}
    groups = {"model": model.variables, "optimizer": model.optimizer.variables}
    return {
        f"{name}/{i:04d}/{uncounted(variable.path)}": variable
        for name, variables in groups.items()
        for i, variable in enumerate(v for v in variables if id(v) not in metrics)
    }


def resume(model, checkpoints, validation):
    """Restores the newest checkpoint, if there is one, and the state of the run with it.

    A number of updates that the state already has replaces that of the checkpoint.
    """
    state, chief = validation.state, validation.chief
    path = checkpoints.newest(print if chief else lambda line: None)
    if path is None:
        return
    steps = state.steps
    for name, value in read_meta(path).items():
        setattr(state, name, value)
    state.steps = steps or state.steps
    if state.trained and validation.budget.folder.best.exists() and state.step >= state.steps:
        return  # perhaps of another backend: only the end is missing
    state.trained = False
    restore(path, state_of(model))
    scored = state.rows and f"val_{validation.scores[0]}" in state.rows[-1]
    if scored and not state.worse and chief:  # a kill may have come before these weights
        assign_average(model, validation.evaluator.model)
        validation.save_best()
    if chief:
        print(f"Resuming from update {state.step:,}, {state.seconds / 60:.1f} minutes used.")
