"""All settings of a training run with their defaults, checked as soon as they are made.

Nothing here imports Keras, so that `--help` is instant.
"""

import dataclasses
import math

from keras_tfmr.text.spans import python_pattern
from training.settings.recipes import RECIPES

Whole = int | None
Number = int | float | None
Text = str | None

TEXT_TASKS = ("classify", "language")
# Of a run on the phrasebook: updates, about five minutes on two cores, and a score that is enough.
PHRASEBOOK_STEPS = {"translation": 1200, "classify": 800, "language": 1200}
PHRASEBOOK_SCORE = 99.0
NOTHING = ("none",)  # for --protect; in config.json, an empty list
# The fields that a Transformer's preset sets too.
SIZES = ("d_model", "num_heads", "dff", "encoder_layers", "decoder_layers", "norm_first")
DROPOUTS = ("dropout_rate", "attention_dropout_rate")
# Settings that may change when a run is resumed.
FREE = (
    "output", "overwrite", "epochs", "steps", "patience", "target_score", "validate_steps",
    "cluster", "validation_pairs", "checkpoint_minutes", "max_checkpoints", "num_beams",
    "length_penalty", "export",
)  # fmt: skip
POSITIVE = (
    "max_tokens", "max_characters", "minutes", "epochs", "steps", "patience", "target_score",
    "validate_steps", "d_model", "num_heads", "dff", "encoder_layers", "decoder_layers",
    "vocab_size", "learning_rate", "warmup_steps", "tokens_per_batch",
    "gradient_accumulation_steps", "devices", "log_steps", "validation_pairs", "max_checkpoints",
    "num_beams",
)  # fmt: skip
NOT_NEGATIVE = ("clip_norm", "checkpoint_minutes", "length_penalty", "seed")
BELOW_ONE = ("dropout_rate", "attention_dropout_rate", "label_smoothing", "ema")
IN_WORDS = {
    int: "a whole number", Whole: "a whole number", Number: "a number",
    str: "a text", Text: "a text", bool: "true or false", bool | None: "true or false",
    tuple: "a list of texts", tuple | None: "a list of texts",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the trainings of all tasks have; None follows from data or preset.

    `--help` says what each setting is that has an option; the others are commented here.

    Raises:
        ValueError: If a setting is out of range, or has no effect beside the others.
    """

    data: tuple = ()
    validation: tuple = ()
    init_from: Text = None
    output: Text = None
    overwrite: bool = False

    max_tokens: Whole = None  # of a side; longer pairs are dropped (256)
    max_characters: Whole = None  # of a side; longer pairs are dropped (1,000)

    minutes: Number = None
    epochs: Whole = None  # passes over the pairs, instead of updates or minutes
    steps: Whole = None
    patience: Whole = None
    target_score: Number = None
    validate_steps: Whole = None

    preset: str = "small"
    d_model: Whole = None  # width of the vectors between layers
    num_heads: Whole = None  # attention heads in a layer
    dff: Whole = None  # width of the feed-forward hidden layers
    encoder_layers: Whole = None
    decoder_layers: Whole = None
    norm_first: bool | None = None  # normalise before each sublayer, not after it
    dropout_rate: Number = None
    attention_dropout_rate: Number = None  # of the attention weights (that of the values)
    vocab_size: int = 8000

    schedule: Text = None  # how the rate falls after the warm-up: noam or cosine
    learning_rate: Number = None
    warmup_steps: Whole = None  # updates until the full learning rate
    label_smoothing: Number = 0.1  # probability spread over the classes
    clip_norm: Number = None  # maximum global norm of the gradients; 0 for none
    ema: Number = 0.999
    tokens_per_batch: Whole = None
    gradient_accumulation_steps: Whole = None
    precision: Text = None
    devices: int = 1
    cluster: Text = None
    seed: int = 1

    log_steps: Whole = None  # updates in a row of history.csv (100 batches' worth)
    validation_pairs: int = 500  # validated during training
    checkpoint_minutes: Number = 1.0  # between checkpoints
    max_checkpoints: int = 3  # kept
    export: bool = True

    def __post_init__(self):
        self.check_types()
        self.check_ranges()
        self.check_effects()

    def check_types(self):
        """Raises a ValueError for a value of another type than its field's."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            right = isinstance(value, field.type) and value != ""
            if isinstance(value, bool):  # which is an int, too
                right = field.type in (bool, bool | None)
            if isinstance(value, tuple):
                right = right and all(isinstance(word, str) for word in value)
            if not right:
                raise ValueError(
                    f"{field.name} must be {IN_WORDS[field.type]}. Received: {value!r}"
                )

    def check_ranges(self):
        """Raises a ValueError for a value that nothing could make right."""
        for name in POSITIVE:
            value = getattr(self, name, None)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} must be positive. Received: {value}")
        for name in NOT_NEGATIVE:
            value = getattr(self, name, None)
            if value is not None and not 0 <= value < math.inf:
                raise ValueError(f"{name} must be 0 or more. Received: {value}")
        for name in BELOW_ONE:
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ValueError(f"{name} must be in [0, 1). Received: {value}")
        check_choice("schedule", self.schedule, (None, "noam", "cosine"))
        check_choice("precision", self.precision, (None, "float32", "mixed_bfloat16"))
        check_choice("cluster", self.cluster, (None, "slurm"))
        check_choice("model", self.model, RECIPES)
        check_choice("preset", self.preset, RECIPES[self.model])
        if self.max_tokens and self.max_tokens > 2048:
            raise ValueError(f"max_tokens must be at most 2048. Received: {self.max_tokens}")
        if self.target_score and self.target_score > 100:
            raise ValueError(f"target_score must be at most 100. Received: {self.target_score}")
        if self.seed >= 2**31:
            raise ValueError(f"seed must be below 2**31. Received: {self.seed}")

    def check_effects(self):
        """Raises a ValueError for a setting that has no effect beside the others."""
        lengths = [name for name in ("minutes", "epochs", "steps") if getattr(self, name)]
        if len(lengths) > 1:
            raise ValueError(f"{lengths[0]} has no effect beside {lengths[1]}")
        if self.validation and self.phrasebook:
            raise ValueError("validation has no effect without a corpus of your own")
        if self.validate_steps and self.log_steps and self.validate_steps < self.log_steps:
            raise ValueError(
                f"validate_steps must be log_steps, which is {self.log_steps}, or more. "
                f"Received: {self.validate_steps}"
            )

    def sizes(self):
        """{field: value} of the fields that a Transformer's preset sets too."""
        return {name: getattr(self, name) for name in SIZES}

    def dropouts(self):
        """{field: value} of the dropout rates of a model, as far as they are set."""
        rates = {name: getattr(self, name) for name in DROPOUTS}
        return {name: rate for name, rate in rates.items() if rate is not None}

    def to_dict(self):
        """{field: value}, which JSON can hold."""
        return dataclasses.asdict(self)

    @property
    def phrasebook(self):
        """Whether the run trains on the built-in phrasebook."""
        return not self.data and not self.source

    def resolved(self):
        """The same with the defaults that follow from other fields filled in."""
        defaults = RECIPES[self.model][self.preset].defaults()
        defaults["output"] = self.default_output
        defaults["validate_steps"] = max(300 if self.phrasebook else 500, self.log_steps or 0)
        if self.minutes is None and self.epochs is None and self.steps is None:
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


@dataclasses.dataclass(frozen=True)
class TrainingConfig(Settings):
    """Settings of a translator's training.

    >>> TrainingConfig(minutes=30).resolved().seed
    1
    """

    source: Text = None
    target: Text = None
    tag: tuple = ()
    filters: tuple = ()
    languages: tuple = ()
    protect: tuple | None = None
    model: str = "transformer"
    joint_vocab: bool = True  # share one vocabulary between both sides
    num_beams: int = 4
    length_penalty: Number = 0.6  # of the beam search

    task = "translation"

    @property
    def default_output(self):
        """The folder of a run without --output."""
        return "runs/phrasebook" if self.phrasebook else "runs/translator"

    def check_ranges(self):
        super().check_ranges()
        if len(self.validation) > 2:
            raise ValueError(f"validation must be one or two files. Received: {self.validation}")
        if len(self.languages) not in (0, 2):
            raise ValueError(f"languages must be two codes. Received: {self.languages}")
        if self.protect and self.protect != NOTHING:
            python_pattern(self.protect)

    def check_effects(self):
        super().check_effects()
        if bool(self.source) != bool(self.target):
            raise ValueError("source and target have no effect without each other")
        if self.source and self.data:
            raise ValueError("data has no effect beside source and target")
        if self.tag and not self.data:
            raise ValueError("tag has no effect without data")
        if self.model != "transformer":
            for name in (*SIZES, "attention_dropout_rate"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} has no effect with model {self.model}")

    def resolved(self):
        settings = super().resolved()
        if settings.protect == NOTHING:
            settings = dataclasses.replace(settings, protect=())
        return settings


@dataclasses.dataclass(frozen=True)
class TextConfig(Settings):
    """Settings of the training of a classifier or a language model.

    >>> TextConfig(task="language").resolved().output
    'runs/language'
    """

    task: str = "classify"

    # What only translators have.
    source, target, tag, filters, languages, protect = None, None, (), (), (), ()
    model, joint_vocab = "transformer", True

    @property
    def default_output(self):
        """The folder of a run without --output."""
        return f"runs/{self.task}"

    def check_ranges(self):
        super().check_ranges()
        check_choice("task", self.task, TEXT_TASKS)
        if len(self.validation) > 1:
            raise ValueError(f"validation must be one file. Received: {self.validation}")

    def check_effects(self):
        super().check_effects()
        if self.task == "classify" and self.decoder_layers is not None:
            raise ValueError("decoder_layers has no effect with task classify")
        if self.task == "language" and self.encoder_layers is not None:
            raise ValueError("encoder_layers has no effect with task language")


def check_choice(name, value, choices):
    """Raises a ValueError for a value that is none of the choices."""
    if value not in choices:
        known = ", ".join(choice for choice in choices if choice is not None)
        raise ValueError(f"{name} must be one of {known}. Received: {value!r}")
