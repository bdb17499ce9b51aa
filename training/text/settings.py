"""What `train_text.py` can be told: the translator's settings, and which task it is."""

import dataclasses

from training.run.settings import TrainingConfig, option

TASKS = ("classify", "tag", "language", "masked")
# Settings of the translator that have no meaning here.
NOT_HERE = (
    "temperature", "tag", "filters", "languages", "source", "target", "model",
    "subword_sampling", "joint_vocab", "beams", "length_penalty",
)  # fmt: skip
MINUTES = {"classify": 2.0, "tag": 3.0, "language": 4.0, "masked": 4.0}  # of the phrasebook


@dataclasses.dataclass(frozen=True)
class TextConfig(TrainingConfig):
    """How a classifier, tagger or language model is trained.

    >>> TextConfig(task="tag").resolved().run
    'runs/tag'
    """

    task: str = option(
        "classify",
        "what is learned: a label for each text, a tag for each token, the next token, or what "
        "is behind a mask, to begin another training from",
        choices=TASKS,
    )
    data: tuple = option(
        (),
        "files to learn from, also .gz, .bz2 or .zst: TEXT<TAB>LABEL lines, TOKENS<TAB>TAGS lines, "
        "or plain text (default: sentences of the built-in phrasebook)",
        nargs="+", metavar="FILE",
    )  # fmt: skip
    validation: tuple = option(
        (), "a file like those of --data to measure on (default: a held-out slice)",
        nargs=1, metavar="FILE",
    )  # fmt: skip
    start_from: str = option(
        None,
        "a finished run whose subwords and encoder (masked) or whole model (language) are where "
        "this one begins",
        metavar="DIR",
    )
    fresh_weights: bool = option(
        False,
        "take the subwords and sizes of --start_from, but not its weights, to compare",
        action="store_true",
    )
    hidden = NOT_HERE

    def __post_init__(self):
        super().__post_init__()
        if self.task not in TASKS:
            raise ValueError(f"--task must be one of {[*TASKS]}. Received: {self.task!r}")

    @classmethod
    def completed(cls, given):
        return given  # what follows from another run, the tasks say

    def resolved(self):
        """The same with the defaults that follow from other fields filled in."""
        changes = {}
        if self.minutes is None and self.epochs is None and self.steps is None:
            changes["minutes"] = MINUTES[self.task] if self.phrasebook else 30.0
        if self.run is None:
            changes["run"] = f"runs/{self.task}"
        return super(TextConfig, dataclasses.replace(self, **changes)).resolved()
