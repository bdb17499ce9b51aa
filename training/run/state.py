"""The state of a run as plain data: the part of a checkpoint that is not arrays."""

import dataclasses


@dataclasses.dataclass
class RunState:
    """The position of a run and its results so far.

    Args:
        epoch: Index of the current epoch.
        update: Number of updates made in it.
        step: Number of updates made in total.
        seconds: Wall-clock time used by all processes of this run, up to the checkpoint.
        trained: Whether the training is over; the final evaluation may not be.
        best: The best score so far.
        worse: Number of evaluations since the best one.
        evaluated: Step of the last evaluation.
        skipped: Number of updates skipped because the loss or the gradient was not finite.
        skipped_in_row: Number of updates skipped in a row, up to the last one.
        rows: The rows of history.csv, dictionaries.
        sums: Sums over the updates since the last row, by name.
    """

    epoch: int = 0
    update: int = 0
    step: int = 0
    seconds: float = 0.0
    trained: bool = False
    best: float = -1.0
    worse: int = 0
    evaluated: int = 0
    skipped: int = 0
    skipped_in_row: int = 0
    rows: list = dataclasses.field(default_factory=list)
    sums: dict = dataclasses.field(default_factory=dict)

    def to_dict(self):
        """The fields as a dictionary, which JSON can hold."""
        return dataclasses.asdict(self)

    def take(self, values):
        """Sets the fields to those of `to_dict`."""
        for name, value in values.items():
            setattr(self, name, value)
