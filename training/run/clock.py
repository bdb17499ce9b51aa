"""The time that a run has used, and its budget."""

import contextlib
import time


class Clock:
    """The time that a run has used, in this process and in the processes before a resume.

    It uses the monotonic clock, which corrections of the date do not change.

    Args:
        started: `time.monotonic()` of the start of this process.
    """

    def __init__(self, started):
        self.started = started
        self.before = 0.0  # seconds used by earlier processes
        self.paused = 0.0  # seconds of this process in which it did not train
        self._pausing = None  # start of the current pause, or None

    def seconds(self):
        """Seconds used in total."""
        return self.before + time.monotonic() - self.started

    def training(self):
        """Seconds in which this process trained."""
        now = time.monotonic() if self._pausing is None else self._pausing
        return now - self.started - self.paused

    @contextlib.contextmanager
    def pause(self):
        """A context whose time counts for the budget, but not for the training speed."""
        if self._pausing is not None:  # within another pause
            yield
            return
        self._pausing = time.monotonic()
        try:
            yield
        finally:
            self.paused += time.monotonic() - self._pausing
            self._pausing = None


class Budget:
    """The budget of a training: minutes, epochs or updates, whichever are used up first.

    Args:
        clock: A `Clock`.
        minutes: Of wall-clock time, or None.
        epochs: Number of epochs, or None.
        steps: Number of updates, or None.
    """

    def __init__(self, clock, minutes=None, epochs=None, steps=None):
        self.clock = clock
        self.minutes = minutes
        self.epochs = epochs
        self.steps = steps

    def share(self, state, epoch_updates):
        """The share of the budget that a run has used, from 0 to 1.

        Args:
            state: The `RunState`.
            epoch_updates: Number of updates in the current epoch.
        """
        minutes = self.clock.seconds() / 60 / self.minutes if self.minutes else 0.0
        return min(1.0, max(minutes, self.counted(state, epoch_updates)))

    def counted(self, state, epoch_updates):
        """The used share by epochs and updates only, which is the same on all workers."""
        shares = [0.0]
        if self.epochs:
            shares.append((state.epoch + state.update / epoch_updates) / self.epochs)
        if self.steps:
            shares.append(state.step / self.steps)
        return min(1.0, max(shares))
