"""history.csv, the TensorBoard log and the progress line of a run."""

import sys
import time

from training.run.files import write_table

ROW_UPDATES = 100  # updates between two rows of history.csv
MEASURED = ("loss", "accuracy", "learning_rate", "tokens_per_second", "skipped")


class History:
    """Rows of means over the updates since the last row.

    Args:
        folder: The `RunFolder`.
        state: The `RunState`, whose `rows` and `sums` it updates.
        clock: The `Clock`.
        scores: Names of the evaluations' scores.
        writes: Whether this worker writes files.
    """

    def __init__(self, folder, state, clock, scores, writes=True):
        self.folder, self.state, self.clock, self.writes = folder, state, clock, writes
        self.columns = ("step", "epoch", "minutes", *MEASURED, *scores)
        self.writer = None
        if writes:
            import tensorflow as tf

            self.writer = tf.summary.create_file_writer(str(folder.tensorboard))
        self._tokens, self._time = 0.0, clock.training()  # of this process, to compute its speed

    def updated(self, values, epoch):
        """Adds the values of an update in this epoch."""
        sums = self.state.sums
        if values["made"]:
            for name in ("loss", "weight", "right"):
                sums[name] = sums.get(name, 0.0) + values[name]
            self._tokens += values["weight"]
        sums["epoch"], sums["rate"] = epoch, values["rate"]

    def speed(self):
        """Real target tokens a second since the last row."""
        return self._tokens / max(self.clock.training() - self._time, 1e-9)

    def add_row(self):
        """Adds a row of the updates since the last row, if there were any."""
        sums = self.state.sums
        if not sums.get("weight"):
            return
        row = {
            "step": self.state.step,
            "epoch": sums["epoch"] + 1,
            "minutes": round(self.clock.seconds() / 60, 3),
            "loss": round(sums["loss"] / sums["weight"], 5),
            "accuracy": round(sums["right"] / sums["weight"], 5),
            "learning_rate": sums["rate"],
            "tokens_per_second": round(self.speed()),
            "skipped": self.state.skipped,
        }
        self.state.rows.append(row)
        self.state.sums = {}
        self._tokens, self._time = 0.0, self.clock.training()
        self._log(row, MEASURED)
        self.write()

    def add_scores(self, scores):
        """Adds an evaluation to the row of this step, and writes all rows."""
        rows = self.state.rows
        if not rows or rows[-1]["step"] != self.state.step:
            self.add_row()
        if not rows or rows[-1]["step"] != self.state.step:  # all updates were skipped
            rows.append({"step": self.state.step, "epoch": self.state.epoch + 1})
        scores = {name: round(value, 3) for name, value in scores.items()}
        rows[-1].update(scores, minutes=round(self.clock.seconds() / 60, 3))
        self._log(rows[-1], scores)
        self.write()

    def _log(self, row, names):
        if self.writer is None:
            return
        import tensorflow as tf

        with self.writer.as_default(step=row["step"]):
            for name in names:
                tf.summary.scalar(name, row[name])

    def write(self):
        """Writes the rows so far."""
        if self.writes:
            self.writer.flush()
            write_table(self.folder.history, self.columns, self.state.rows)


class Progress:
    """Prints the progress of an epoch; on a terminal, as a line that is overwritten.

    Args:
        history: The `History`.
        says: Whether this worker prints.
    """

    def __init__(self, history, says=True, out=None):
        self.history, self.says, self.out = history, says, out or sys.stdout
        self.watched = self.out.isatty()
        self._next = 0.0

    def began(self, state, share):
        """Called when an epoch starts, or its rest after a resume."""
        if self.says:
            print(f"Epoch {state.epoch + 1}, {share:.0%} of the budget used", file=self.out)

    def updated(self, state, updates):
        """Called after an update."""
        if self.says and self.watched and time.monotonic() >= self._next:
            self._next = time.monotonic() + 0.5
            self.out.write(f"\r{state.update or updates}/{updates} updates, {self._means(state)} ")
            self.out.flush()

    def ended(self, state, updates, row):
        """Called when an epoch ends or is stopped."""
        if self.says and row:
            line = (
                f"{updates} updates, loss {row['loss']:.4f}, accuracy {row['accuracy']:.4f}, "
                f"{row['tokens_per_second']:,} tokens/s"
            )
            print(f"\r{line}" if self.watched else line, file=self.out)

    def _means(self, state):
        sums = state.sums
        if not sums.get("weight"):
            return ""
        loss, accuracy = (sums[name] / sums["weight"] for name in ("loss", "right"))
        return f"loss {loss:.4f}, accuracy {accuracy:.4f}, {self.history.speed():,.0f} tokens/s"
