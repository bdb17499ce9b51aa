"""The training loop: from batches through updates to history, evaluations and checkpoints."""

import time

from training.run import checkpoints
from training.run.files import RunError
from training.run.history import ROW_UPDATES, History, Progress
from training.run.updates import Updates


class Run:
    """A run in progress.

    Args:
        settings: The `TrainingConfig`.
        task: The task, such as `task.Translation`.
        claim: The `Claim` of the folder.
        trainer: A `Trainer`.
        batches: `steps_per_epoch(epoch)` and `dataset(epoch, skip, shard=, shards=, multiple=)`.
        state: The `RunState`.
        budget: The `Budget`, with the `Clock`.
        evaluator: Measures `trainer.averaged`.
        interrupts: The entered `Interrupts`.
        workers: The `Workers`.
    """

    def __init__(
        self, settings, task, claim, trainer, batches, state, budget, evaluator, interrupts, workers
    ):
        self.settings, self.task, self.claim, self.folder = settings, task, claim, claim.folder
        self.trainer, self.batches, self.state = trainer, batches, state
        self.budget, self.clock, self.evaluator = budget, budget.clock, evaluator
        self.interrupts, self.workers = interrupts, workers
        self.checkpoints = checkpoints.Checkpoints(self.folder.checkpoints, settings.keep)
        self.history = History(self.folder, state, self.clock, task.scores, workers.chief)
        self.progress = Progress(self.history, workers.chief)
        self.model = Updates(self._update, self._updated, settings.accumulate)
        self.updates = 0  # in the current epoch
        self.saved_step = 0  # step of the newest checkpoint, 0 if there is none
        self._saved_at = self._evaluated_at = time.monotonic()

    def fit(self):
        """Trains until the budget is used or a signal stops it; then writes the last checkpoint."""
        stopped = self.workers.count == 1 and self._asked_to_stop()
        while not (self.state.trained or stopped):
            stopped = self.fit_epoch()
        if self.state.trained:
            self.evaluate()
        if self.saved_step != self.state.step or self.state.trained:
            self.save()

    def fit_epoch(self):
        """Trains for the rest of the current epoch; returns whether to stop."""
        state, settings, workers = self.state, self.settings, self.workers
        self.updates = self.updates_in(state.epoch)
        self.progress.began(state, self.budget.share(state, self.updates))
        rows = self.batches.dataset(
            state.epoch, skip=state.update * settings.accumulate,
            shard=workers.index, shards=workers.count, multiple=workers.devices,
        )  # fmt: skip
        return self.model.fit_epoch(rows, state.epoch, self.updates - state.update)

    def _update(self, batches):
        """Makes one update from this worker's rows of its batches."""
        place = self.state.update * self.settings.accumulate
        return self.trainer.update(batches, (self.state.epoch << 32) + place, self._control())

    def _updated(self, values):
        """Called after each update; returns whether to stop."""
        state, epoch = self.state, self.state.epoch
        state.step += 1
        state.update += 1
        self.history.updated(values, epoch)
        self._count_skipped(values)
        ended = state.update == self.updates
        if ended:
            state.epoch, state.update = epoch + 1, 0
        if values["share"] >= 1 or self.budget.counted(state, self.updates) >= 1:
            state.trained = True
        stop = values["stop"] > 0 or (self.workers.count == 1 and self._asked_to_stop())
        self._after_update(ended, overdue=values["overdue"] > 0, stop=stop)
        return state.trained or stop

    def updates_in(self, epoch):
        """Number of updates in an epoch; an update never has batches of two epochs."""
        return -(-self.batches.steps_per_epoch(epoch) // self.settings.accumulate)

    def _control(self):
        """This worker's message to the others, sent with the next update."""
        stop = float(self._asked_to_stop())
        if not self.workers.chief:
            return 0.0, stop, 0.0
        waited = time.monotonic() - self._evaluated_at
        overdue = float(waited >= 60 * self.settings.evaluate_minutes)
        return self.budget.share(self.state, self.updates), stop, overdue

    def _asked_to_stop(self):
        return self.interrupts.received is not None

    def _count_skipped(self, values):
        """Ends the run with an error if too many updates in a row were skipped."""
        state = self.state
        if values["made"]:
            state.skipped_in_row = 0
            return
        state.skipped += 1
        state.skipped_in_row += 1
        if state.skipped_in_row >= self.settings.skip_limit:
            self.history.add_row()
            self.history.write()
            kept = self.checkpoints.paths()
            raise RunError(
                f"The loss or the gradient of {state.skipped_in_row} updates in a row was not "
                f"finite, the last one at step {state.step}: lower --learning_rate or set "
                f"--clip_norm. {f'The last good checkpoint is {kept[-1]}' if kept else ''}".strip()
            )

    def _after_update(self, ended, overdue, stop):
        """Adds a row, evaluates and writes a checkpoint, if they are due."""
        state = self.state
        if state.step % ROW_UPDATES == 0 or ended or state.trained:
            self.history.add_row()
        self.progress.updated(state, self.updates)
        if ended or stop or state.trained:
            self.progress.ended(state, self.updates, state.rows[-1] if state.rows else None)
        every = self.settings.evaluate_steps
        if not state.trained and ((every and state.step % every == 0) or (ended and overdue)):
            self.evaluate()
        due = time.monotonic() - self._saved_at >= 60 * self.settings.checkpoint_minutes
        if (due or stop) and not state.skipped_in_row and self.saved_step != state.step:
            with self.clock.pause():
                self.save()

    def evaluate(self):
        """Evaluates the averaged weights; keeps them if they are the best so far."""
        state = self.state
        if state.evaluated == state.step:
            return
        with self.clock.pause():
            self.trainer.take_averages()
            scores, texts = self.evaluator.measure()
            state.evaluated = state.step
            self.history.add_scores(scores)
            score = scores[self.task.scores[0]]
            if score > state.best:
                state.best, state.worse = score, 0
                self.save_best()
            else:
                state.worse += 1
            self._tell(scores, texts)
        self._evaluated_at = time.monotonic()
        patience = self.settings.patience
        if patience and state.worse >= patience:
            if self.workers.chief:
                name = label(self.task.scores[0])
                print(f"No better {name} in {patience} evaluations: the training ends.")
            state.trained = True

    def _tell(self, scores, texts):
        if not self.workers.chief:
            return
        told = ", ".join(f"{label(name)} {value:.2f}" for name, value in scores.items())
        print(
            f"\n{self.clock.seconds() / 60:.1f} min, step {self.state.step}: {told} on "
            f"{len(texts)} validation pairs"
        )
        for i in sorted({0, len(texts) // 3, 2 * len(texts) // 3}):
            print(f"    {self.evaluator.sample(i, texts[i])}")

    def save(self):
        """Writes a checkpoint."""
        self.state.seconds = self.clock.seconds()
        self.saved_step, self._saved_at = self.state.step, time.monotonic()
        if self.workers.chief:
            self.checkpoints.save(self.state.step, self.trainer.variables(), self.state.to_dict())

    def save_best(self):
        """Keeps the averaged weights, which are the best so far.

        Writes a checkpoint first. If the weights were written first and the process were killed
        before the checkpoint, the resumed run would not know their score, and could replace them
        with worse ones. In this order, `restore` can write the missing weights.
        """
        self.save()
        self._write_best()

    def _write_best(self):
        if self.workers.chief:
            self.folder.save_best(self.trainer.take_averages())

    def restore(self):
        """Restores the newest checkpoint; returns False if there is none."""
        if self.workers.chief:
            self.checkpoints.clean()
        path = self.checkpoints.newest(tell=print if self.workers.chief else lambda _: None)
        if path is None:
            return False
        self.state.take(checkpoints.restore(path, self.trainer.variables()))
        self.clock.before = self.state.seconds
        self.saved_step = self.state.step
        if self.saved_step and self.state.evaluated == self.saved_step and not self.state.worse:
            self._write_best()
        return True


def label(score):
    """The name of a score for people."""
    return {"bleu": "BLEU", "chrf": "chrF"}.get(score, score)
