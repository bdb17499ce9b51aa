"""The settings of `train_text.py`: those of the translator, and the task."""

import dataclasses

from training.run.settings import TrainingConfig, option

TASKS = ("classify", "tag", "language", "masked")
MINUTES = {"classify": 2.0, "tag": 3.0, "language": 4.0, "masked": 4.0}  # of the phrasebook


@dataclasses.dataclass(frozen=True)
class TextConfig(TrainingConfig):
    """How a classifier, tagger or language model is trained.

    >>> TextConfig(task="tag").resolved().run
    'runs/tag'
    """

    task: str = option(
        "classify",
        "what to learn: a label for each text, a tag for each token, the next token, or masked "
        "tokens, as a start for other tasks",
        choices=TASKS,
    )
    data: tuple = option(
        (),
        "files to learn from, also .gz, .bz2 or .zst: TEXT<TAB>LABEL lines, TOKENS<TAB>TAGS lines "
        "or plain text (default: sentences of the built-in phrasebook)",
        nargs="+", metavar="FILE",
    )  # fmt: skip
    validation: tuple = option(
        (), "texts to evaluate on, in the form of --data (default: texts held out of --data)",
        nargs=1, metavar="FILE",
    )  # fmt: skip
    start_from: str = option(
        None,
        "begin with the subwords and encoder of this finished run of --task masked, classify or "
        "tag; with the whole model of a run of --task language",
        metavar="RUN",
    )
    fresh_weights: bool = option(
        False,
        "take the subwords and sizes of --start_from, but not its weights, for a comparison",
        action="store_true",
    )
    hidden = (
        "temperature", "tag", "filters", "languages", "source", "target", "model",
        "extend_vocab", "subword_sampling", "joint_vocab", "beams", "length_penalty",
    )  # fmt: skip

    def __post_init__(self):
        super().__post_init__()
        if self.task not in TASKS:
            raise ValueError(f"--task must be one of {[*TASKS]}. Received: {self.task!r}")

    @classmethod
    def completed(cls, given):
        return given  # the tasks take over what follows from another run

    def resolved(self):
        """The same with the defaults that follow from other fields filled in."""
        changes = {}
        if self.minutes is None and self.epochs is None and self.steps is None:
            changes["minutes"] = MINUTES[self.task] if self.phrasebook else 30.0
        if self.run is None:
            changes["run"] = f"runs/{self.task}"
        return super(TextConfig, dataclasses.replace(self, **changes)).resolved()
