"""Callbacks of `fit`: budget, validation, history, checkpoints.

An epoch of `fit` is a row of history.csv, `log_steps` updates. All that is written is written at
its end, so that a resumed run does the same things at the same updates as one that was never
interrupted: it repeats the row that was cut.
"""

import dataclasses
import math
import statistics
import time

import keras
from keras import ops

from training.command.disk import RunError, save_weights, write_table
from training.command.process import peak_memory_mib
from training.run.checkpoints import read_meta, state_of
from training.run.optimizer import assign_average
from training.run.run_folder import record_steps
from training.scores import scores_in_words

SAID = 60.0  # seconds between two lines about the progress
MEASURED = 20  # updates that are timed at least before the rest is estimated


@dataclasses.dataclass
class RunState:
    """The position of a run and its results so far, which JSON can hold."""

    step: int = 0  # updates made
    steps: int = 0  # updates of the whole run; 0 until `--minutes` has become a number of them
    seconds: float = 0.0  # wall-clock time used by all processes of this run
    best: float = -1.0  # the best score; -1 before the first validation
    worse: int = 0  # worse validations since the best one
    peak_memory_mib: int = 0  # of one of its processes
    rows: list = dataclasses.field(default_factory=list)  # of history.csv: dictionaries

    @classmethod
    def of(cls, checkpoint, steps):
        """The state in a checkpoint's file, or at the beginning if that is None.

        Args:
            checkpoint: Its path.
            steps: Number of updates of the run by its config.json, which knows it first.
        """
        state = cls(**read_meta(checkpoint)) if checkpoint else cls()
        state.steps = steps
        return state


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
        say: Prints lines for people.
    """

    def __init__(self, state, settings, folder, started, say=print):
        super().__init__()
        self.state, self.settings, self.folder, self.say = state, settings, folder, say
        self.started = started - state.seconds
        self.batches = settings.gradient_accumulation_steps
        self.validation_seconds = 0.0
        self.pauses = []  # seconds of each update, until the rest is estimated
        self.estimated = False

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

    def on_train_begin(self, logs=None):
        self.last = time.monotonic()
        self.set_total()

    def on_epoch_begin(self, epoch, logs=None):
        self.row_time, self.row_step = time.monotonic(), self.state.step

    def on_train_batch_end(self, batch, logs=None):
        if (batch + 1) % self.batches:
            return
        self.state.step += 1
        if not self.estimated:
            self.measure()
        if self.ended:
            self.model.stop_training = True

    def on_epoch_end(self, epoch, logs=None):
        self.row_seconds = time.monotonic() - self.row_time  # without validation
        if not math.isfinite(logs["loss"]):
            raise RunError(
                f"The loss was not finite at update {self.state.step}: lower --learning_rate, and "
                "give --overwrite"
            )

    def measure(self):
        """Times an update, and estimates the rest when enough of them were timed."""
        state, settings, now = self.state, self.settings, time.monotonic()
        self.pauses.append(now - self.last)
        self.last = now
        enough = len(self.pauses) >= MEASURED
        if not state.steps:
            enough = enough and self.seconds() >= 15 * settings.minutes
            enough = enough or state.step >= settings.warmup_steps
        if enough:
            pace = statistics.median(self.pauses)
            pace += self.validation_seconds / settings.validate_steps
            self.estimated = True
            if not state.steps:
                self.fix(pace)
            left = (state.steps - state.step) * pace / 60
            self.say(f"{state.steps:,} updates: about {left:.1f} minutes at the present pace.")

    def fix(self, pace):
        """Converts the minutes to a number of updates of so many seconds each."""
        state, minutes = self.state, self.settings.minutes
        left = 60 * minutes - self.seconds()
        state.steps = max(4 * state.step, state.step + int(left / pace))
        self.set_total()
        record_steps(self.folder, state.steps)
        self.say(
            f"An update takes {pace:.3g} s, so {minutes:g} minutes are {state.steps:,} updates; "
            f"--steps {state.steps} repeats this run."
        )

    def set_total(self):
        """Tells the schedule how many batches there are."""
        if hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()
        self.model.optimizer.total_batches.assign(self.state.steps * self.batches)


class Validation(keras.callbacks.Callback):
    """Scores the averaged weights every `validate_steps` updates, and says which are the best.

    In place of Keras's `ModelCheckpoint` and `EarlyStopping`, which cannot score translations and
    whose state is in no checkpoint. The first validation is after the first row, so that a mistake
    shows early. A score of 0 is none: a run has not begun to learn then, and is not worse.

    The evaluator has a model of its own; the first of its scores chooses the weights.
    """

    def __init__(self, evaluator, budget):
        super().__init__()
        self.evaluator, self.budget, self.state = evaluator, budget, budget.state
        self.is_best = False

    def on_epoch_end(self, epoch, logs=None):
        self.is_best = False
        if not (self.is_due() or self.budget.ended):
            return
        began = time.monotonic()
        assign_average(self.model, self.evaluator.model)
        scores, texts = self.evaluator.measure()
        logs.update({f"val_{name}": round(value, 3) for name, value in scores.items()})
        score = scores[self.evaluator.task.scores[0]]
        self.is_best = score > self.state.best or score == self.state.best == 0
        if self.is_best:
            self.state.best, self.state.worse = score, 0
        elif score < self.state.best:
            self.state.worse += 1
        self.tell(scores, texts)
        if self.budget.ended:
            self.model.stop_training = True
        self.budget.validation_seconds = time.monotonic() - began

    def is_due(self):
        """Whether this row is the first one, or has a multiple of `validate_steps`."""
        step, settings = self.state.step, self.budget.settings
        before = step - settings.log_steps
        return before <= 0 or step // settings.validate_steps > before // settings.validate_steps

    def tell(self, scores, texts):
        """Says the scores, with three of the texts, and why the training ends if it does."""
        say, state = self.budget.say, self.state
        begun = f"{self.budget.seconds() / 60:.1f} min, update {state.step:,}"
        say(f"{begun}: {scores_in_words(scores)} on {len(texts)} validation texts")
        for i in sorted({0, len(texts) // 3, 2 * len(texts) // 3}):
            say(f"    {self.evaluator.sample(i, texts[i])}")
        if self.budget.ended and state.step != state.steps:
            why = f"No better score in {state.worse} validations" if state.worse else "Good enough"
            say(f"{why}: the training ends.")


class History(keras.callbacks.Callback):
    """history.csv, and at most once a minute a line about the progress.

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
        self.said = time.monotonic()

    def on_epoch_end(self, epoch, logs=None):
        update_seconds = self.budget.row_seconds / (self.state.step - self.budget.row_step)
        rate = ops.convert_to_numpy(self.model.optimizer.learning_rate)
        row = {
            "step": self.state.step,
            "minutes": round(self.budget.seconds() / 60, 3),
            "loss": round(float(logs["loss"]), 5),
            "accuracy": round(100 * float(logs["accuracy"]), 3),
            "learning_rate": float(f"{rate:.6g}"),
            "tokens_per_second": round(self.budget.batches * self.tokens / update_seconds),
        }
        self.state.rows.append(row | {name: logs[name] for name in self.scores if name in logs})
        write_table(self.budget.folder.history, self.columns, self.state.rows)
        if time.monotonic() - self.said >= SAID:
            self.said = time.monotonic()
            self.tell(row, update_seconds)

    def tell(self, row, update_seconds):
        """Says how far the run is."""
        state = self.state
        if state.steps:
            of, left = f" of {state.steps:,}", (state.steps - state.step) * update_seconds
        else:
            of, left = "", max(0, 60 * self.budget.settings.minutes - self.budget.seconds())
        self.budget.say(
            f"update {state.step:,}{of}, loss {row['loss']:.3f}, accuracy {row['accuracy']:.1f} %, "
            f"{row['tokens_per_second']:,} tokens/s, {left / 60:.1f} minutes left"
        )


class Checkpoint(keras.callbacks.Callback):
    """Writes the best weights, then a checkpoint that knows their score.

    A run that is killed in between goes on from the checkpoint before, and makes them again.
    """

    def __init__(self, validation, checkpoints, minutes):
        super().__init__()
        self.validation, self.checkpoints = validation, checkpoints
        self.seconds, self.saved = 60 * minutes, time.monotonic()

    def on_epoch_end(self, epoch, logs=None):
        budget, is_best = self.validation.budget, self.validation.is_best
        state = budget.state
        state.seconds = budget.seconds()
        state.peak_memory_mib = max(state.peak_memory_mib, peak_memory_mib())
        if is_best:
            save_weights(self.validation.evaluator.model, budget.folder.best)
        if is_best or self.model.stop_training or time.monotonic() - self.saved >= self.seconds:
            self.checkpoints.save(state.step, state_of(self.model), dataclasses.asdict(state))
            self.saved = time.monotonic()
