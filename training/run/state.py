"""Where a run stands: what a checkpoint knows beside the arrays."""

import contextlib
import dataclasses
import signal
import time


@dataclasses.dataclass
class RunState:
    """The position of a run and what it has seen, as plain data.

    Args:
        epoch: Index of the epoch under way.
        batch: Number of batches done in it.
        step: Number of batches done in all.
        seconds: Wall-clock time used by all processes of this run, until `mark_time`.
        trained: Whether the training is over (what follows it may not be).
        best_bleu: The best BLEU so far.
        worse: Number of evaluations since the best.
        evaluated: Step of the last evaluation.
        rows: The rows of history.csv, dictionaries.
        seen: The sums of the metrics at the last row, from the begin of the epoch.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    seconds: float = 0.0
    trained: bool = False
    best_bleu: float = -1.0
    worse: int = 0
    evaluated: int = 0
    rows: list = dataclasses.field(default_factory=list)
    seen: list = dataclasses.field(default_factory=list)

    def to_dict(self):
        """For JSON."""
        return dataclasses.asdict(self)


class Clock:
    """Wall-clock time that a run has used: in this process, and in those it went on from.

    Args:
        started: `time.time()` of the start of this process.
    """

    def __init__(self, started):
        self.started = started
        self.before = 0.0  # seconds, of earlier processes
        self.paused = 0.0  # seconds of this process in which it did not train

    def seconds(self):
        """All the time used."""
        return self.before + time.time() - self.started

    def pause(self):
        """A context in which time counts for the budget, but not for the training speed."""
        return _Pause(self)


class _Pause:
    def __init__(self, clock):
        self.clock = clock

    def __enter__(self):
        self.entered = time.time()

    def __exit__(self, *_):
        self.clock.paused += time.time() - self.entered


class Budget:
    """When a training is over: after minutes, epochs or batches, whichever comes first.

    Args:
        clock: A `Clock`.
        minutes: Of wall-clock time, or None.
        epochs: Number of epochs, or None.
        batches: Number of batches, or None.
    """

    def __init__(self, clock, minutes=None, epochs=None, batches=None):
        self.clock = clock
        self.minutes = minutes
        self.epochs = epochs
        self.batches = batches

    def share(self, state, epoch_batches):
        """How much of it a run has used up, from 0 to 1.

        Args:
            state: The `RunState`.
            epoch_batches: Number of batches in the epoch under way.
        """
        shares = [0.0]
        if self.minutes:
            shares.append(self.clock.seconds() / 60 / self.minutes)
        if self.epochs:
            shares.append((state.epoch + state.batch / epoch_batches) / self.epochs)
        if self.batches:
            shares.append(state.step / self.batches)
        return min(1.0, max(shares))


class Interrupts:
    """Remembers that the user (or the system) asked the process to stop.

    While batches are trained, the first Ctrl-C lets the one under way end, so that a checkpoint can
    be written; the second one, and any at another time, ends the process at once.
    """

    def __init__(self):
        self.received = None
        self._waits = False

    def __enter__(self):
        self.previous = {
            number: signal.signal(number, self._receive)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def __exit__(self, *_):
        for number, handler in self.previous.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def waiting(self):
        """Inside, the first signal is only remembered."""
        self._waits = True
        try:
            yield
        finally:
            self._waits = False

    def _receive(self, number, frame):
        first, self.received = self.received is None, number
        if not (first and self._waits):
            raise KeyboardInterrupt
        print("\nStopping after this batch; once more to stop at once.", flush=True)
