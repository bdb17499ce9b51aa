"""Callbacks of `fit`: budget, history, validation, checkpoints.

An epoch of `fit` is a row of history.csv, `log_steps` updates; everything here happens at its end,
so that a resumed run does the same things at the same updates as one that was never interrupted.
Only a signal ends a row before its last update; a resumed run begins with the rest of it.
"""

import dataclasses
import math
import statistics
import sys
import time

import keras
from keras import ops

from training.command.disk import RunError, save_weights, write_table
from training.command.process import peak_memory_mib
from training.run.checkpoints import read_meta, uncounted
from training.run.optimizer import assign_average
from training.run.run_folder import record_steps
from training.scores import scores_in_words

SAID = 60.0  # seconds between two lines off a terminal
MEASURED = 20  # updates that are timed at least before the rest is estimated


@dataclasses.dataclass
class RunState:
    """The position of a run and its results so far, which JSON can hold.

    Fields:
        step: Number of updates made.
        steps: Number of updates of the whole run; 0 until `--minutes` has become one.
        seconds: Wall-clock time used by all processes of this run.
        best: The best score so far; -1 before the first validation.
        worse: Number of validations since the best one.
        peak_memory_mib: Peak memory of one of its processes.
        pauses: Seconds of each update, until the rest is estimated.
        rows: The rows of history.csv, dictionaries.
        row_so_far: The sums of `fit`, if a signal ended a row before its last update.
        unscored: Whether a signal ended the validation of the last row.
    """

    step: int = 0
    steps: int = 0
    seconds: float = 0.0
    best: float = -1.0
    worse: int = 0
    peak_memory_mib: int = 0
    pauses: list = dataclasses.field(default_factory=list)
    rows: list = dataclasses.field(default_factory=list)
    row_so_far: list = dataclasses.field(default_factory=list)
    unscored: bool = False

    @classmethod
    def of(cls, checkpoint, steps):
        """The state in a checkpoint's file, or at the beginning if that is None.

        Args:
            checkpoint: Its path.
            steps: Number of updates of the run by its config.json, which knows it first.
        """
        meta = read_meta(checkpoint) if checkpoint else {}
        names = {field.name for field in dataclasses.fields(cls)}
        return cls(**{n: value for n, value in meta.items() if n in names} | {"steps": steps})


class Budget(keras.callbacks.Callback):
    """Counts the updates, says how long the rest takes, and ends the run.

    `--minutes` becomes a number of updates when the warm-up ends or a quarter of the minutes is
    over, whichever is first, by the median of the times of the updates, so that a busy start does
    not decide. It is at least four times the updates made: up to there no rate depends on it.

    Args:
        state: The `RunState`, of a checkpoint if the run is resumed.
        settings: The settings of the run.
        folder: Its `RunFolder`.
        started: `time.monotonic()` at the start of the process.
        stop: The `Stop`.
        say: Prints lines for people.
        alone: Whether no other process has to stop after the same update.
        sums: The variables in which `fit` sums what it measures over a row.

    Attributes:
        row_left: Number of updates that the row under way lacks.
    """

    def __init__(self, state, settings, folder, started, stop, say=print, alone=True, sums=()):
        super().__init__()
        self.state, self.settings, self.folder = state, settings, folder
        self.stop, self.say, self.alone, self.sums = stop, say, alone, sums
        self.started = started - state.seconds
        self.batches = settings.gradient_accumulation_steps
        self.validation_seconds, self._told = 0.0, False

    def seconds(self):
        """Seconds used in total."""
        return time.monotonic() - self.started

    def exclude(self, seconds):
        """Does not count what was compiled before the first update, which a later start has."""
        if seconds:
            self.started += seconds
            self.say(f"Compiled for all shapes in {seconds:.0f} s, which --minutes leaves out.")

    @property
    def ended(self):
        """Whether the training is over, by the settings of now: by its length or by its scores."""
        state, settings = self.state, self.settings
        return bool(
            0 < state.steps <= state.step
            or (settings.patience and state.worse >= settings.patience)
            or (settings.target_score and state.best >= settings.target_score)
        )

    @property
    def row_left(self):
        done = self.state.step % self.settings.log_steps
        return 0 if self.ended else (self.settings.log_steps - done) * bool(done)

    def on_train_begin(self, logs=None):
        self._batch, self._last = self.state.step * self.batches, time.monotonic()
        self._set_total()

    def on_epoch_begin(self, epoch, logs=None):
        if self.state.row_so_far:
            for variable, value in zip(self.sums, self.state.row_so_far, strict=True):
                variable.assign(value)
        self.state.row_so_far = []

    def on_train_batch_end(self, batch, logs=None):
        self._batch += 1
        if self._batch % self.batches:
            return
        self.state.step = self._batch // self.batches
        if not self._told:
            self._measure()
        if self.ended or (self.stop.received and self.alone):
            self.model.stop_training = True

    def on_epoch_end(self, epoch, logs=None):
        self.state.seconds = self.seconds()
        self.state.peak_memory_mib = max(self.state.peak_memory_mib, peak_memory_mib())
        if self.row_left:
            self.state.row_so_far = [float(ops.convert_to_numpy(value)) for value in self.sums]
        if self.stop.received:
            self.model.stop_training = True

    def _measure(self):
        state, settings, now = self.state, self.settings, time.monotonic()
        state.pauses.append(round(now - self._last, 4))
        self._last = now
        enough = len(state.pauses) >= MEASURED
        if not state.steps:
            enough = enough and self.seconds() >= 15 * settings.minutes
            enough = enough or state.step >= settings.warmup_steps
        if enough:
            pace = statistics.median(state.pauses)
            pace += self.validation_seconds / settings.validate_steps
            state.pauses, self._told = [], True
            if not state.steps:
                self._fix(pace)
            left = (state.steps - state.step) * pace / 60
            self.say(f"{state.steps:,} updates: about {left:.1f} minutes at the present pace.")

    def _fix(self, pace):
        """Converts the minutes to a number of updates of so many seconds each."""
        state, minutes = self.state, self.settings.minutes
        left = 60 * minutes - self.seconds()
        state.steps = max(4 * state.step, state.step + int(left / pace))
        self._set_total()
        record_steps(self.folder, state.steps)
        self.say(
            f"An update takes {pace:.3g} s, so {minutes:g} minutes are {state.steps:,} updates; "
            f"--steps {state.steps} repeats this run."
        )

    def _set_total(self):
        if hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()
        self.model.optimizer.total_batches.assign(self.state.steps * self.batches)


class Validation(keras.callbacks.Callback):
    """Scores the averaged weights every `validate_steps` updates, and keeps the best ones.

    In place of Keras's `ModelCheckpoint` and `EarlyStopping`, which cannot score translations and
    whose state is in no checkpoint. The first validation is after the first row, so that a mistake
    shows early.

    The evaluator has a model of its own; the first of its scores chooses the weights.
    """

    def __init__(self, evaluator, budget):
        super().__init__()
        self.evaluator, self.scores = evaluator, evaluator.task.scores
        self.budget, self.state, self.is_best = budget, budget.state, False
        self.every, self.log_steps = budget.settings.validate_steps, budget.settings.log_steps

    @property
    def due(self):
        """Whether the weights are to be scored at the end of this row."""
        step, first = self.state.step, self.state.step <= self.log_steps
        passed = step // self.every > (step - self.log_steps) // self.every
        return not self.budget.row_left and (passed or first or self.budget.ended)

    def on_epoch_end(self, epoch, logs=None):
        self.is_best = False
        if not (self.due or self.state.unscored):
            return
        began = time.monotonic()
        self.state.unscored = True
        try:
            with self.budget.stop.postponed(False):
                assign_average(self.model, self.evaluator.model)
                scores, texts = self.evaluator.measure()
        except KeyboardInterrupt:  # a resumed run begins with this validation
            self.model.stop_training = True
            return
        self.state.unscored = False
        logs.update({f"val_{name}": round(value, 3) for name, value in scores.items()})
        self.is_best = scores[self.scores[0]] > self.state.best
        if self.is_best:
            self.state.best, self.state.worse = scores[self.scores[0]], 0
        else:
            self.state.worse += 1
        self._tell(scores, texts)
        if self.budget.ended:
            self.model.stop_training = True
        self.budget.validation_seconds = time.monotonic() - began

    def save_best(self):
        """Writes the weights that were scored last, which are the best."""
        save_weights(self.evaluator.model, self.budget.folder.best)

    def _tell(self, scores, texts):
        say, state = self.budget.say, self.state
        begun = f"{self.budget.seconds() / 60:.1f} min, update {state.step:,}"
        say(f"{begun}: {scores_in_words(scores)} on {len(texts)} validation texts")
        for i in sorted({0, len(texts) // 3, 2 * len(texts) // 3}):
            say(f"    {self.evaluator.sample(i, texts[i])}")
        if self.budget.ended and state.step != state.steps:
            why = f"No better score in {state.worse} validations" if state.worse else "Good enough"
            say(f"{why}: the training ends.")


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
        self.scores = [f"val_{name}" for name in scores]
        self.columns = ("step", "minutes", *measured, *self.scores)
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
        left = (state.steps - state.step) * pace
        if not state.steps:
            left = 60 * self.budget.settings.minutes - seconds
        return f"{line}, {max(left, 0) / 60:.1f} minutes left  "

    def on_epoch_end(self, epoch, logs=None):
        if self.budget.row_left:
            return
        rate = ops.convert_to_numpy(self.model.optimizer.learning_rate)
        row = {
            "step": self.state.step,
            "minutes": round(self.budget.seconds() / 60, 3),
            "loss": round(float(logs["loss"]), 5),
            "accuracy": round(100 * float(logs["accuracy"]), 3),
            "learning_rate": float(f"{rate:.6g}"),
            "tokens_per_second": round(self._speed()),
        }
        self.state.rows.append(row)
        self.add_scores(logs)

    def add_scores(self, logs):
        """Adds those of a validation to the last row, and writes history.csv."""
        self.state.rows[-1] |= {name: logs[name] for name in self.scores if name in logs}
        write_table(self.budget.folder.history, self.columns, self.state.rows)


class Checkpoint(keras.callbacks.Callback):
    """Writes the best weights, then a checkpoint that knows their score.

    A run that is killed in between goes on from the checkpoint before, and makes them again.
    """

    def __init__(self, validation, checkpoints, settings):
        super().__init__()
        self.validation, self.checkpoints = validation, checkpoints
        self.every, self.saved = 60 * settings.checkpoint_minutes, time.monotonic()

    def on_epoch_end(self, epoch, logs=None):
        state, is_best = self.validation.state, self.validation.is_best
        if is_best:
            self.validation.save_best()
        if is_best or self.model.stop_training or time.monotonic() - self.saved >= self.every:
            self.checkpoints.save(state.step, state_of(self.model), dataclasses.asdict(state))
            self.saved = time.monotonic()


def score_last_row(model, callbacks):
    """Makes up for the validation that a signal ended, which the last row of history.csv lacks."""
    logs = {}
    for callback in callbacks:
        callback.set_model(model)
        if isinstance(callback, History):
            callback.add_scores(logs)
        elif isinstance(callback, Validation | Budget | Checkpoint):
            callback.on_epoch_end(None, logs)


def state_of(model):
    """{name: variable} of all variables that a training changes, also of the seed generators."""
    metrics = {id(variable) for variable in model.metrics_variables}
    groups = {"model": model.variables, "optimizer": model.optimizer.variables}
    return {
        f"{name}/{i:04d}/{uncounted(variable.path)}": variable
        for name, variables in groups.items()
        for i, variable in enumerate(v for v in variables if id(v) not in metrics)
    }
