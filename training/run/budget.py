"""The length of a run: its updates, made and left, and the time that they take."""

import dataclasses
import statistics
import time

from training.run.checkpoints import read_meta
from training.run.run_folder import record_steps

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


class Budget:
    """Counts the updates, chooses their number, and estimates the time that is left.

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
        self.state, self.settings, self.folder, self.say = state, settings, folder, say
        self.started = started - state.seconds
        self.validation_seconds = 0.0  # of the last validation
        self.times = []  # seconds of each update, until the rest is estimated
        self.estimated = False

    def begin(self):
        """Times the updates from now on."""
        self.last = time.monotonic()

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
        """Whether the run is over: by its length or its scores, as this command sets them."""
        state, settings = self.state, self.settings
        return bool(
            0 < state.steps <= state.step
            or (settings.patience and state.worse >= settings.patience)
            or (settings.target_score and state.best >= settings.target_score)
        )

    def count(self):
        """Counts an update."""
        self.state.step += 1
        if not self.estimated:
            now = time.monotonic()
            self.times.append(now - self.last)
            self.last = now
            self.estimate()

    def estimate(self):
        """Estimates the rest when enough updates were timed."""
        state, settings = self.state, self.settings
        enough = len(self.times) >= MEASURED
        if not state.steps:
            enough = enough and self.seconds() >= 15 * settings.minutes
            enough = enough or state.step >= settings.warmup_steps
        if enough:
            pace = statistics.median(self.times)
            pace += self.validation_seconds / settings.validate_steps
            self.estimated = True
            if not state.steps:
                self.fix(pace)
            left = (state.steps - state.step) * pace / 60
            self.say(f"{state.steps:,} updates: about {left:.1f} minutes at the present pace.")

    def fix(self, pace):
        """Converts the minutes to a number of updates, at `pace` seconds each."""
        state, minutes = self.state, self.settings.minutes
        left = 60 * minutes - self.seconds()
        state.steps = max(4 * state.step, state.step + int(left / pace))
        record_steps(self.folder, state.steps)
        self.say(
            f"An update takes {pace:.3g} s, so {minutes:g} minutes are {state.steps:,} updates; "
            f"--steps {state.steps} repeats this run."
        )
