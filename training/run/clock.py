"""The time that a run has used, and when it is over."""

import contextlib
import time


class Clock:
    """Time that a run has used: in this process, and in those it went on from.

    By the monotonic clock, which no correction of the date moves.

    Args:
        started: `time.monotonic()` of the start of this process.
    """

    def __init__(self, started):
        self.started = started
        self.before = 0.0  # seconds, of earlier processes
        self.paused = 0.0  # seconds of this process in which it did not train
        self._pausing = None  # since when it does not, or None

    def seconds(self):
        """All the time used."""
        return self.before + time.monotonic() - self.started

    def training(self):
        """Seconds of this process in which it trained."""
        now = time.monotonic() if self._pausing is None else self._pausing
        return now - self.started - self.paused

    @contextlib.contextmanager
    def pause(self):
        """Inside, time counts for the budget, but not for the training speed."""
        if self._pausing is not None:  # within another one
            yield
            return
        self._pausing = time.monotonic()
        try:
            yield
        finally:
            self.paused += time.monotonic() - self._pausing
            self._pausing = None


class Budget:
    """When a training is over: after minutes, epochs or updates, whichever comes first.

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
        """How much of it a run has used up, from 0 to 1.

        Args:
            state: The `RunState`.
            epoch_updates: Number of updates in the epoch under way.
        """
        minutes = self.clock.seconds() / 60 / self.minutes if self.minutes else 0.0
        return min(1.0, max(minutes, self.counted(state, epoch_updates)))

    def counted(self, state, epoch_updates):
        """The share by what is counted alone, which every worker finds the same."""
        shares = [0.0]
        if self.epochs:
            shares.append((state.epoch + state.update / epoch_updates) / self.epochs)
        if self.steps:
            shares.append(state.step / self.steps)
        return min(1.0, max(shares))
