"""What happens around the batches of `fit`: position, history, evaluation, checkpoints.

They work on one shared `Run` and stand in the order of `training_callbacks`: the position first,
so that the others see it; the checkpoint late, so that it knows what the evaluation found.
"""

import sys
import time

import keras
import tensorflow as tf

from training.run import checkpoints
from training.run.folder import save_weights, write_table

COLUMNS = (
    "step", "epoch", "minutes", "loss", "accuracy", "learning_rate", "tokens_per_second",
    "bleu", "chrf",
)  # fmt: skip
ROW_STEPS = 100  # a row of history.csv each so many batches


class Run:
    """What the callbacks of one run share.

    Args:
        settings: The `TrainingConfig`.
        folder: The `RunFolder`.
        trainer: The prepared `Trainer`.
        state: The `RunState`.
        budget: The `Budget`, with the `Clock`.
        evaluator: The `Evaluator` of the averaged model.
        interrupts: The entered `Interrupts`.
    """

    def __init__(self, settings, folder, trainer, state, budget, evaluator, interrupts):
        self.settings = settings
        self.folder = folder
        self.trainer = trainer
        self.state = state
        self.budget = budget
        self.clock = budget.clock
        self.evaluator = evaluator
        self.interrupts = interrupts
        self.checkpoints = checkpoints.Checkpoints(folder.checkpoints, settings.keep)
        self.epoch_batches = 1  # of the epoch under way
        self.saved_step = 0  # of the newest checkpoint, 0 if there is none

    @property
    def variables(self):
        """Everything that changes in training, by kind."""
        trainer = self.trainer
        sums = [*(trainer.sums or ()), trainer.token_sum, trainer.batches_in_sum]
        return {
            "model": trainer.model.variables,  # with the states of all random generators
            "optimizer": trainer.optimizer.variables,
            "sums": [variable for variable in sums if variable is not None],
            "metrics": trainer.metrics_variables,
        }

    def share(self):
        """How much of the budget is used up."""
        return self.budget.share(self.state, self.epoch_batches)

    def save(self):
        """Writes a checkpoint."""
        self.state.seconds = self.clock.seconds()
        self.checkpoints.save(
            self.state.step, checkpoints.take(self.variables), self.state.to_dict()
        )
        self.saved_step = self.state.step

    def save_best(self):
        """Keeps the averaged weights, which were just found to be the best ones.

        The checkpoint first: were it the other way round, and the process killed between the two,
        then the run would go on without knowing how good the kept weights are, and worse ones
        could replace them. As it is, `restore` makes up for what is missing.
        """
        self.save()
        self._write_best()

    def _write_best(self):
        save_weights(self.trainer.take_averages(), self.folder.best)

    def restore(self):
        """Takes over the newest checkpoint, if there is one; says whether there was."""
        found = self.checkpoints.newest()
        if found is None:
            return False
        arrays, meta = found
        checkpoints.put(self.variables, arrays)
        self.metrics = [checkpoints.value_of(v) for v in self.trainer.metrics_variables]
        for name, value in meta.items():
            setattr(self.state, name, value)
        self.clock.before = self.state.seconds
        self.saved_step = self.state.step
        if self.saved_step and self.state.evaluated == self.saved_step and not self.state.worse:
            self._write_best()
        return True

    metrics = None  # restored values, which fit's reset at the epoch's begin must not lose


class Position(keras.callbacks.Callback):
    """Counts batches, and ends the training with its budget."""

    def __init__(self, run):
        super().__init__()
        self.run = run

    def on_epoch_begin(self, epoch, logs=None):
        metrics, self.run.metrics = self.run.metrics, None
        if metrics is not None and self.run.state.batch:  # else they are of the epoch before
            for variable, value in zip(self.model.metrics_variables, metrics, strict=True):
                variable.assign(value)

    def on_train_batch_begin(self, batch, logs=None):
        self.model.share.assign(self.run.share())

    def on_train_batch_end(self, batch, logs=None):
        state = self.run.state
        state.step += 1
        state.batch += 1
        if self.run.share() >= 1:
            state.trained = True
        if state.trained or self.run.interrupts.received is not None:
            self.model.stop_training = True

    def on_epoch_end(self, epoch, logs=None):
        if self.run.state.batch >= self.run.epoch_batches:
            self.run.state.epoch += 1
            self.run.state.batch = 0


class Speed(keras.callbacks.Callback):
    """Adds the real target tokens a second, in this epoch, to what the progress bar shows."""

    def __init__(self, run):
        super().__init__()
        self.run = run

    def on_epoch_begin(self, epoch, logs=None):
        self.tokens = float(checkpoints.value_of(self.model.accuracy.tokens))
        self.began = time.time() - self.run.clock.paused

    def on_train_batch_end(self, batch, logs=None):
        seconds = time.time() - self.run.clock.paused - self.began
        tokens = float(checkpoints.value_of(self.model.accuracy.tokens)) - self.tokens
        self.speed = logs["tokens/s"] = round(tokens / max(seconds, 1e-9))

    def on_epoch_end(self, epoch, logs=None):
        logs["tokens/s"] = self.speed


class History(keras.callbacks.Callback):
    """Writes history.csv and the TensorBoard log: means over the batches since the last row."""

    def __init__(self, run):
        super().__init__()
        self.run = run
        self.writer = tf.summary.create_file_writer(str(run.folder.tensorboard))

    def on_epoch_begin(self, epoch, logs=None):
        seen = self.run.state.seen
        self._mark(self._sums())
        if self.run.state.batch:  # an epoch that goes on
            self.run.state.seen = seen

    def on_train_batch_end(self, batch, logs=None):
        state = self.run.state
        if state.step % ROW_STEPS == 0 or state.batch == self.run.epoch_batches:
            self.add_row()

    def _sums(self):
        model = self.model
        variables = (*model.mean_loss.variables, *model.accuracy.variables)
        return [float(checkpoints.value_of(variable)) for variable in variables]

    def _mark(self, sums):
        """Remembers what was seen; the time and tokens of this process apart, for its speed."""
        self.run.state.seen = sums
        self.tokens, self.time = sums[3], time.time() - self.run.clock.paused

    def add_row(self):
        """Adds what happened since the last row."""
        state, sums = self.run.state, self._sums()
        loss, loss_tokens, right, tokens = (
            new - old for new, old in zip(sums, state.seen, strict=True)
        )
        if not tokens:
            return
        seconds = time.time() - self.run.clock.paused - self.time
        speed = (sums[3] - self.tokens) / max(seconds, 1e-9)
        self._mark(sums)
        row = {
            "step": state.step,
            "epoch": state.epoch + 1,
            "minutes": round(self.run.clock.seconds() / 60, 3),
            "loss": round(loss / loss_tokens, 5),
            "accuracy": round(right / tokens, 5),
            "learning_rate": float(self.model.optimizer.learning_rate),
            "tokens_per_second": round(speed),
        }
        state.rows.append(row)
        self._log(row)
        self.write()

    def _log(self, row):
        with self.writer.as_default(step=row["step"]):
            for name in COLUMNS[3:]:
                if name in row:
                    tf.summary.scalar(name, row[name])

    def add_scores(self, bleu, chrf):
        """Adds an evaluation to the row of this step, and writes all rows."""
        state = self.run.state
        if not state.rows or state.rows[-1]["step"] != state.step:
            self.add_row()
        scores = {"bleu": round(bleu, 3), "chrf": round(chrf, 3)}
        state.rows[-1].update(scores, minutes=round(self.run.clock.seconds() / 60, 3))
        self._log({"step": state.step, **scores})
        self.write()

    def write(self):
        """Writes the rows so far."""
        self.writer.flush()
        write_table(self.run.folder.history, COLUMNS, self.run.state.rows)


class Evaluation(keras.callbacks.Callback):
    """BLEU and chrF of the averaged weights after epochs, and three translations to read.

    As the best weights make a checkpoint, it waits for the epoch's end like `Checkpointing`.
    """

    def __init__(self, run, history):
        super().__init__()
        self.run = run
        self.history = history
        self.last = time.time()

    def on_train_batch_end(self, batch, logs=None):
        if self._counted() and self.run.state.batch < self.run.epoch_batches:
            self.evaluate()

    def _counted(self):
        """Whether an evaluation is due by the number of batches."""
        every = self.run.settings.evaluate_steps
        return bool(every) and self.run.state.step % every == 0

    def on_epoch_end(self, epoch, logs=None):
        waited = time.time() - self.last >= 60 * self.run.settings.evaluate_minutes
        due = waited or self._counted()
        if due and self.run.state.batch == 0 and not self.run.state.trained:
            self.evaluate()

    def evaluate(self):
        """Measures now; keeps the averaged weights if they are the best so far."""
        state = self.run.state
        if state.evaluated == state.step:
            return
        with self.run.clock.pause():
            self.run.trainer.take_averages()
            bleu, chrf, texts = self.run.evaluator.measure()
            state.evaluated = state.step
            self.history.add_scores(bleu, chrf)
            if bleu > state.best_bleu:
                state.best_bleu, state.worse = bleu, 0
                self.run.save_best()
            else:
                state.worse += 1
            self._tell(bleu, chrf, texts)
        self.last = time.time()
        patience = self.run.settings.patience
        if patience and state.worse >= patience:
            print(f"No better BLEU in {patience} evaluations: the training ends here.")
            state.trained = self.run.trainer.stop_training = True

    def _tell(self, bleu, chrf, texts):
        minutes = self.run.clock.seconds() / 60
        print(
            f"\n{minutes:.1f} min, step {self.run.state.step}: BLEU {bleu:.2f}, chrF {chrf:.2f} "
            f"on {len(texts)} validation pairs"
        )
        evaluator = self.run.evaluator
        for i in sorted({0, len(texts) // 3, 2 * len(texts) // 3}):
            print(f"    {evaluator.sources[i]}  ->  {texts[i]}  ({evaluator.references[i]})")


class Checkpointing(keras.callbacks.Callback):
    """Writes checkpoints every few minutes, and one when the user stops the run.

    After the last batch of an epoch it waits for the epoch's end, so that no checkpoint stands
    between the two.
    """

    def __init__(self, run):
        super().__init__()
        self.run = run
        self.last = time.time()

    def on_train_batch_end(self, batch, logs=None):
        if self.run.state.batch < self.run.epoch_batches:
            self._save_if_due()

    def on_epoch_end(self, epoch, logs=None):
        self._save_if_due()

    def _save_if_due(self):
        waited = time.time() - self.last >= 60 * self.run.settings.checkpoint_minutes
        if waited or self.run.interrupts.received is not None:
            with self.run.clock.pause():
                self.run.save()
            self.last = time.time()


class Bar(keras.callbacks.ProgbarLogger):
    """Keras's progress bar, headed by the budget; one line an epoch where nobody watches."""

    def __init__(self, run):
        super().__init__()
        self.run = run

    def set_params(self, params):
        watched = sys.stdout.isatty()
        super().set_params({**params, "verbose": 1 if watched else 2, "epochs": 1})

    def on_epoch_begin(self, epoch, logs=None):
        print(f"Epoch {epoch + 1}, {self.run.share():.0%} of the budget used")
        super().on_epoch_begin(epoch, logs)

    def on_epoch_end(self, epoch, logs=None):
        if self.run.state.batch:  # it stopped before the end
            self.target = self.seen
        super().on_epoch_end(epoch, logs)


def training_callbacks(run):
    """All of them, in order; and the `Evaluation` among them."""
    history = History(run)
    evaluation = Evaluation(run, history)
    return [
        Position(run), Speed(run), history, evaluation, Checkpointing(run), Bar(run),
    ], evaluation  # fmt: skip
