"""All settings of a training run. Each stands here alone: its default, its range, what it is.

The command line, the checks and config.json follow from the fields of `TrainingConfig`. Nothing
here imports Keras, so that `--help` is instant.
"""

import dataclasses
import math
import typing
from collections.abc import Callable

from keras_tfmr.text.spans import PATTERNS, python_pattern
from training.settings.recipes import RECIPES

TEXT_TASKS = ("classify", "language")
TASKS = ("translation", *TEXT_TASKS)
TRANSLATION = TASKS[:1]
# Of a run on the phrasebook: updates, about five minutes on two cores, and a score that is enough.
PHRASEBOOK_STEPS = {"translation": 1200, "classify": 800, "language": 1200}
PHRASEBOOK_SCORE = 99.0
FILTERS = ("identical", "length_ratio", "language")
LENGTHS = ("minutes", "epochs", "steps")  # of which a run has one
# Fields of a model's config that a task does not read.
UNREAD = {
    "translation": (), "classify": ("decoder_layers", "tied_logits", "logits_bias"),
    "language": ("encoder_layers",),
}  # fmt: skip
PRESETS = "; ".join(f"{kind}: {', '.join(recipes)}" for kind, recipes in RECIPES.items())
# The types of settings, in words.
KINDS = {
    bool: "true or false", float: "a number", int: "a whole number", str: "a text",
    tuple: "a list of texts",
}  # fmt: skip


class Range(typing.NamedTuple):
    """The values that a setting may have, in words and as a function."""

    words: str
    holds: Callable


def at_most(most):
    return Range(f"positive and at most {most}", lambda value: 0 < value <= most)


def one_of(*names):
    return Range(f"one of {', '.join(names)}", lambda value: value in names)


def some_of(*names):
    return Range(f"some of {', '.join(names)}", lambda value: {*value} <= {*names})


POSITIVE = Range("positive", lambda value: 0 < value < math.inf)
NOT_NEGATIVE = Range("0 or more", lambda value: 0 <= value < math.inf)
FRACTION = Range("in [0, 1)", lambda value: 0 <= value < 1)
SEED = Range("0 or more and below 2**31", lambda value: 0 <= value < 2**31)
TWO_CODES = Range("two codes", lambda codes: len(codes) in (0, 2))


def setting(
    about, option=None, range=None, *,
    default=None, texts=None, tasks=TASKS, free=False,
):  # fmt: skip
    """A field of `TrainingConfig`.

    Args:
        about: A description for `--help`.
        option: The name of its value in `--help`, as N in `--steps N`; "" for a switch. Without
            one, only `--set` and files of settings set it.
        range: The `Range` of its values, if the type does not say it.
        default: None if it follows from the data, the preset or the machine.
        texts: The description in trainings of `TEXT_TASKS`, if it differs.
        tasks: The tasks that it has an effect on.
        free: Whether it may change when a run is resumed.
    """
    metadata = {
        "about": about, "option": option, "range": range, "texts": texts or about, "tasks": tasks,
        "free": free,
    }  # fmt: skip
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """Settings of a training.

    Fields:
        model_fields: {field: value} of the model's config, in place of its preset's. Files and
            `--set` have them beside the settings; the config checks them.

    Raises:
        ValueError: If a setting is of another type, out of its range, or without effect beside the
            others.

    >>> TrainingConfig(minutes=30).resolved().seed
    1
    """

    # fmt: off
    task: str = setting(
        "what to learn: classify, a label for each text, or language, the next token (default: "
        "classify)", "TASK", one_of(*TASKS), default="translation", tasks=TEXT_TASKS)

    data: tuple = setting(
        "pairs to learn from: files of SOURCE<TAB>TARGET lines, .csv, .jsonl or .parquet (also "
        ".gz), patterns such as 'part-*.tsv', tfds:NAME/CONFIG of TensorFlow Datasets, or "
        "hf:NAME:CONFIG of Hugging Face; weights, as in a.tsv:3 b.tsv:1, set the fraction of each "
        "(default: the built-in phrasebook)", "FILE", default=(),
        texts="files to learn from: TEXT<TAB>LABEL lines or plain text, .csv, .jsonl or .parquet "
        "(also .gz), tfds:NAME/CONFIG or hf:NAME:CONFIG (default: sentences of the built-in "
        "phrasebook)")
    source: str | None = setting("source lines, instead of --data", "FILE", tasks=TRANSLATION)
    target: str | None = setting(
        "target lines, one for each line of --source", "FILE", tasks=TRANSLATION)
    validation: tuple = setting(
        "pairs to evaluate on: one file of SOURCE<TAB>TARGET lines, or a source and a target file "
        "(default: pairs held out of the training pairs)", "FILE", default=(),
        texts="texts to evaluate on, in the form of --data (default: texts held out of --data)")
    tag: tuple = setting(
        "put TAG in front of the sources from FILE", "FILE=TAG", default=(), tasks=TRANSLATION)
    filters: tuple = setting(
        f"filters that drop pairs: {', '.join(FILTERS)}", "NAME", some_of(*FILTERS), default=(),
        tasks=TRANSLATION)
    languages: tuple = setting(
        "codes of source and target, as in pt en: for abbreviations in documents, the demo page, "
        "the columns of tables and data sets, and the filter language", "CODE", TWO_CODES,
        default=(), tasks=TRANSLATION)
    protect: tuple | None = setting(
        f"spans to leave untranslated: names from {', '.join(PATTERNS)}, and regular expressions, "
        "or none (default: all names but number)", "NAME", tasks=TRANSLATION)
    max_tokens: int | None = setting(
        "longest side of a pair, in tokens; longer pairs are dropped (default: 256)", None,
        at_most(2048))
    max_characters: int | None = setting(
        "longest side of a pair, in characters (default: 1000)", None, POSITIVE)
    vocab_size: int = setting("number of subwords", "N", POSITIVE, default=8000)
    joint_vocab: bool = setting(
        "one vocabulary for both sides", default=True, tasks=TRANSLATION)

    init_from: str | None = setting(
        "begin with the weights and vocabulary of this finished or imported run", "RUN",
        texts="begin with the subwords and weights of this finished run of the same task; a "
        "classifier's labels may be others")
    output: str | None = setting(
        "run folder; an unfinished run in it is resumed (default: runs/phrasebook or "
        "runs/translator)", "DIR", free=True,
        texts="run folder; an unfinished run in it is resumed (default: runs/TASK)")
    overwrite: bool = setting(
        "delete an earlier run in the folder; an unfinished run of exactly this command is resumed "
        "instead", "", default=False, free=True)

    minutes: float | None = setting(
        "train for about X minutes: updates are timed for up to a quarter of them, and their "
        "number is fixed then (default: 30; the phrasebook has a number of updates)", "X", POSITIVE)
    epochs: int | None = setting(
        "passes over the data, instead of updates or minutes", None, POSITIVE, free=True)
    steps: int | None = setting("stop after N updates", "N", POSITIVE, free=True)
    patience: int | None = setting(
        "stop after N validations with worse scores than the best", "N", POSITIVE, free=True)
    target_score: float | None = setting(
        "stop when a validation reaches this score: BLEU, or the first one of the task", "X",
        at_most(100), free=True)
    validate_steps: int | None = setting(
        "validate every N updates, at the end of a row of history.csv (default: 500, phrasebook "
        "300)", "N", POSITIVE, free=True)

    model: str = setting(
        f"kind of model: {', '.join(RECIPES)}", "NAME", one_of(*RECIPES), default="transformer",
        tasks=TRANSLATION)
    preset: str = setting(
        f"size and training recipe of the model; {PRESETS}", "NAME", default="small")
    model_fields: dict = dataclasses.field(default_factory=dict)

    learning_rate: float | None = setting(
        "learning rate at the end of the warm-up (default: the preset's)", "X", POSITIVE)
    warmup_steps: int | None = setting("updates of the warm-up", None, POSITIVE)
    schedule: str | None = setting(
        "how the rate falls after the warm-up: noam or cosine", None, one_of("noam", "cosine"))
    label_smoothing: float = setting(
        "probability spread over all tokens or labels", None, FRACTION, default=0.1)
    clip_norm: float | None = setting(
        "maximum global norm of the gradients; 0 for none", None, NOT_NEGATIVE)
    ema: float = setting(
        "decay of the weights' moving average; 0 for none", "X", FRACTION, default=0.999)
    tokens_per_batch: int | None = setting(
        "target positions in a batch, over all devices (default: the preset's)", "N", POSITIVE)
    gradient_accumulation_steps: int | None = setting(
        "batches per update (default: the preset's)", "N", POSITIVE)
    precision: str | None = setting(
        "float32 or mixed_bfloat16, the policy of the layers (default: mixed_bfloat16 if the "
        "processor has bfloat16 instructions)", "POLICY", one_of("float32", "mixed_bfloat16"))
    devices: int = setting("devices of this host to train on", "N", POSITIVE, default=1)
    cluster: str | None = setting(
        "slurm: its variables list the hosts (default: TF_CONFIG if set)", "KIND", one_of("slurm"),
        free=True)
    seed: int = setting("seed of all random numbers", "N", SEED, default=1)

    log_steps: int | None = setting(
        "updates per row of history.csv (default: 100 batches' worth)", None, POSITIVE)
    validation_pairs: int = setting(
        "pairs or texts of a validation during training", None, POSITIVE, default=500, free=True)
    checkpoint_minutes: float = setting(
        "minutes between checkpoints", None, NOT_NEGATIVE, default=1.0, free=True)
    max_checkpoints: int = setting("checkpoints kept", None, POSITIVE, default=3, free=True)
    num_beams: int = setting(
        "beam width of the final evaluation and of the export", "N", POSITIVE, default=4,
        tasks=TRANSLATION, free=True)
    length_penalty: float = setting(
        "exponent of the length penalty in beam search", None, NOT_NEGATIVE, default=0.6,
        tasks=TRANSLATION, free=True)
    export: bool = setting("do not export the trained model", "", default=True, free=True)
    # fmt: on

    def __post_init__(self):
        for field in FIELDS.values():
            check_value(field, getattr(self, field.name))
        self.check_effects()
        self.check_data()

    def check_effects(self):
        """Raises a ValueError for a setting that has no effect beside the others."""
        presets = RECIPES[self.model]
        if self.preset not in presets:
            known = ", ".join(presets)
            raise ValueError(f"preset must be one of {known}. Received: {self.preset!r}")
        for name in self.model_fields:
            if name in ("source_vocab", "target_vocab"):
                raise ValueError(f"{name} follows from the vocabulary: give vocab_size")
            if name in UNREAD[self.task]:
                raise ValueError(f"{name} has no effect with task {self.task}")
        lengths = [name for name in LENGTHS if getattr(self, name)]
        if len(lengths) > 1:
            raise ValueError(f"{lengths[0]} has no effect beside {lengths[1]}")
        if self.validate_steps and self.log_steps and self.validate_steps < self.log_steps:
            raise ValueError(
                f"validate_steps must be log_steps, which is {self.log_steps}, or more. "
                f"Received: {self.validate_steps}"
            )

    def check_data(self):
        """The same for the settings of the data."""
        if bool(self.source) != bool(self.target):
            raise ValueError("source and target have no effect without each other")
        if self.source and self.data:
            raise ValueError("data has no effect beside source and target")
        if self.tag and not self.data:
            raise ValueError("tag has no effect without data")
        if "language" in self.filters and not self.languages:
            raise ValueError("the filter language needs languages, as in --languages pt en")
        if self.validation and self.phrasebook:
            raise ValueError("validation has no effect without a corpus of your own")
        if len(self.validation) > (2 if self.task == "translation" else 1):
            files = "one or two files" if self.task == "translation" else "one file"
            raise ValueError(f"validation must be {files}. Received: {self.validation}")
        if self.protect:
            python_pattern(self.protect)

    @classmethod
    def from_dict(cls, values):
        """The settings of a dictionary that JSON, YAML or a command line may have held.

        What is no setting is a field of the model's config.
        """
        own = {name: value for name, value in values.items() if name in FIELDS}
        own = {name: tuple(v) if isinstance(v, list) else v for name, v in own.items()}
        others = {name: value for name, value in values.items() if name not in FIELDS}
        return cls(**own, model_fields=others)

    def to_dict(self):
        """{setting: value} of the settings of the task, and of the model's fields, for JSON."""
        names = [name for name, field in FIELDS.items() if self.task in field.metadata["tasks"]]
        values = {name: getattr(self, name) for name in names} | self.model_fields
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}

    @property
    def phrasebook(self):
        """Whether the run trains on the built-in phrasebook."""
        return not self.data and not self.source

    def resolved(self):
        """The same with the defaults filled in that follow from other settings."""
        defaults = dict(RECIPES[self.model][self.preset])
        own = "phrasebook" if self.phrasebook else "translator"
        defaults["output"] = f"runs/{own if self.task == 'translation' else self.task}"
        defaults["validate_steps"] = max(300 if self.phrasebook else 500, self.log_steps or 0)
        if not any(getattr(self, name) for name in LENGTHS):
            if self.phrasebook:  # of the same length on any machine
                defaults["steps"] = PHRASEBOOK_STEPS[self.task]
                defaults["target_score"] = PHRASEBOOK_SCORE
            else:
                defaults["minutes"] = 30.0
        changes = {name: v for name, v in defaults.items() if getattr(self, name) is None}
        settings = dataclasses.replace(self, **changes)
        batches = max(1, 100 // settings.gradient_accumulation_steps)
        log_steps = settings.log_steps or min(batches, settings.validate_steps)
        return dataclasses.replace(settings, log_steps=log_steps)


FIELDS = {field.name: field for field in dataclasses.fields(TrainingConfig) if field.metadata}
FREE = [name for name, field in FIELDS.items() if field.metadata["free"]]


def kind_of(field):
    """The type of a setting's values other than None: a key of `KINDS`."""
    return next(kind for kind in KINDS if kind in (field.type, *typing.get_args(field.type)))


def check_value(field, value):
    """Raises a ValueError for a value of another type than its field's, or out of its range."""
    if value is None and field.default is None:
        return
    kind, range = kind_of(field), field.metadata["range"]
    right = isinstance(value, int | float if kind is float else kind) and value != ""
    if isinstance(value, bool):  # which is an int, too
        right = kind is bool
    if isinstance(value, tuple):
        right = right and all(isinstance(word, str) for word in value)
    if not right:
        raise ValueError(f"{field.name} must be {KINDS[kind]}. Received: {value!r}")
    if range and not range.holds(value):
        raise ValueError(f"{field.name} must be {range.words}. Received: {value!r}")
