"""Where a run stands, as plain data: what a checkpoint knows beside the arrays."""

import dataclasses


@dataclasses.dataclass
class RunState:
    """The position of a run and what it has seen.

    Args:
        epoch: Index of the epoch under way.
        update: Number of updates done in it.
        step: Number of updates done in all.
        seconds: Wall-clock time used by all processes of this run, until the checkpoint.
        trained: Whether the training is over (what follows it may not be).
        best: The best score so far.
        worse: Number of evaluations since the best.
        evaluated: Step of the last evaluation.
        skipped: Number of updates that were left out, as something was not finite.
        skipped_in_row: The latest of them without one in between that was made.
        rows: The rows of history.csv, dictionaries.
        sums: Sums of the updates since the last row, by name.
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
        """For JSON."""
        return dataclasses.asdict(self)

    def take(self, values):
        """Becomes what `to_dict` gave."""
        for name, value in values.items():
            setattr(self, name, value)
