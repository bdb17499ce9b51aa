"""The callback of `fit`: validations, history.csv, checkpoints.

An epoch of `fit` is a row of history.csv, `log_steps` updates. All that is written is written at
its end, so that a resumed run does the same things at the same updates as one that was never
interrupted: it repeats the row that was cut.
"""

import dataclasses
import math
import time

import keras
from keras import ops

from training.command.disk import RunError, save_weights, write_table
from training.command.scripts import peak_memory_mib
from training.run.checkpoints import state_of
from training.run.optimizer import assign_average
from training.scores import scores_in_words

SAID = 60.0  # seconds between two lines about the progress


class RunCallback(keras.callbacks.Callback):
    """At the end of each row: validates, logs and saves, the first and the last if they are due.

    In place of four callbacks of Keras. `ModelCheckpoint` and `EarlyStopping` cannot score
    translations, and their state is in no checkpoint; `CSVLogger` cannot leave a cell empty or go
    back to a checkpoint; the progress bar does not know the time left of the whole run.

    Args:
        budget: The `Budget` of the run.
        evaluator: Has a model of its own, which gets the averaged weights; the first of its scores
            chooses the weights.
        checkpoints: The `Checkpoints`; None for workers that write no files.
        tokens: Number of real tokens in a usual batch.
    """

    def __init__(self, budget, evaluator, checkpoints, tokens):
        super().__init__()
        self.budget, self.state, self.settings = budget, budget.state, budget.settings
        self.evaluator, self.checkpoints, self.tokens = evaluator, checkpoints, tokens
        self.batches = self.settings.gradient_accumulation_steps  # of an update
        self.said = self.saved = time.monotonic()

    def on_train_begin(self, logs=None):
        self.budget.begin()
        self.set_total()

    def set_total(self):
        """Tells the schedule how many batches there are."""
        if hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()
        self.model.optimizer.total_batches.assign(self.state.steps * self.batches)

    def on_epoch_begin(self, epoch, logs=None):
        self.row_time, self.row_step = time.monotonic(), self.state.step

    def on_train_batch_end(self, batch, logs=None):
        if (batch + 1) % self.batches:
            return
        steps = self.state.steps
        self.budget.count()
        if self.state.steps != steps:
            self.set_total()
        if self.budget.ended:
            self.model.stop_training = True

    def on_epoch_end(self, epoch, logs=None):
        update_seconds = (time.monotonic() - self.row_time) / (self.state.step - self.row_step)
        if not math.isfinite(logs["loss"]):
            raise RunError(
                f"The loss was not finite at update {self.state.step}: lower --learning_rate, and "
                "give --overwrite"
            )
        is_best = (self.is_due() or self.budget.ended) and self.validate(logs)
        if self.checkpoints:
            self.log(logs, update_seconds)
            self.save(is_best)

    def is_due(self):
        """Whether to validate: after the first row, so that a mistake shows early, and after each
        row that has a multiple of `validate_steps`.
        """
        step, settings = self.state.step, self.settings
        before = step - settings.log_steps
        return before <= 0 or step // settings.validate_steps > before // settings.validate_steps

    def validate(self, logs):
        """Scores the averaged weights and adds the scores to `logs`; whether they are the best.

        A score of 0 is not worse than another: a run has not begun to learn then.
        """
        state, began = self.state, time.monotonic()
        assign_average(self.model, self.evaluator.model)
        scores, texts = self.evaluator.measure()
        logs.update({f"val_{name}": round(value, 3) for name, value in scores.items()})
        score = scores[self.evaluator.task.scores[0]]
        is_best = score > state.best or score == state.best == 0
        if is_best:
            state.best, state.worse = score, 0
        elif score < state.best:
            state.worse += 1
        self.say_scores(scores, texts)
        if self.budget.ended:
            self.model.stop_training = True
        self.budget.validation_seconds = time.monotonic() - began
        return is_best

    def say_scores(self, scores, texts):
        """Prints the scores, with three of the texts, and why the training ends if it does."""
        say, state = self.budget.say, self.state
        begun = f"{self.budget.seconds() / 60:.1f} min, update {state.step:,}"
        say(f"{begun}: {scores_in_words(scores)} on {len(texts)} validation texts")
        for i in sorted({0, len(texts) // 3, 2 * len(texts) // 3}):
            say(f"    {self.evaluator.sample(i, texts[i])}")
        if self.budget.ended and state.step != state.steps:
            why = f"No better score in {state.worse} validations" if state.worse else "Good enough"
            say(f"{why}: the training ends.")

    def log(self, logs, update_seconds):
        """Writes history.csv, and at most once a minute a line about the progress."""
        rate = ops.convert_to_numpy(self.model.optimizer.learning_rate)
        row = {
            "step": self.state.step,
            "minutes": round(self.budget.seconds() / 60, 3),
            "loss": round(float(logs["loss"]), 5),
            "accuracy": round(100 * float(logs["accuracy"]), 3),
            "learning_rate": float(f"{rate:.6g}"),
            "tokens_per_second": round(self.batches * self.tokens / update_seconds),
        }
        scores = [f"val_{name}" for name in self.evaluator.task.scores]
        self.state.rows.append(row | {name: logs[name] for name in scores if name in logs})
        write_table(self.budget.folder.history, (*row, *scores), self.state.rows)
        if time.monotonic() - self.said >= SAID:
            self.said = time.monotonic()
            self.say_progress(row, update_seconds)

    def say_progress(self, row, update_seconds):
        """Prints the progress of the run."""
        state = self.state
        if state.steps:
            of, left = f" of {state.steps:,}", (state.steps - state.step) * update_seconds
        else:
            of, left = "", max(0, 60 * self.settings.minutes - self.budget.seconds())
        self.budget.say(
            f"update {state.step:,}{of}, loss {row['loss']:.3f}, accuracy {row['accuracy']:.1f} %, "
            f"{row['tokens_per_second']:,} tokens/s, {left / 60:.1f} minutes left"
        )

    def save(self, is_best):
        """Writes the best weights, then a checkpoint that knows their score.

        A run that is killed in between goes on from the checkpoint before, and makes them again.
        """
        state = self.state
        state.seconds = self.budget.seconds()
        state.peak_memory_mib = max(state.peak_memory_mib, peak_memory_mib())
        if is_best:
            save_weights(self.evaluator.model, self.budget.folder.best)
        due = time.monotonic() - self.saved >= 60 * self.settings.checkpoint_minutes
        if is_best or due or self.model.stop_training:
            self.checkpoints.save(state.step, state_of(self.model), dataclasses.asdict(state))
            self.saved = time.monotonic()
