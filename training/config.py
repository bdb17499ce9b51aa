"""All settings of a training run with their defaults.

A field holds everything about a setting: its default, its range, its help, whether it has an option
of its own, and whether it may change when a run is resumed. The other fields are set in a file
(`--config`) or by `--set NAME=VALUE`. Nothing here imports Keras, so that `--help` is instant.
"""

import dataclasses
import math
from pathlib import Path
from typing import Any, NamedTuple

from keras_tfmr import _command_line
from training.recipes import PRESETS, RECIPES

TEXT_TASKS = ("classify", "tag", "language", "masked")
# The fields that a Transformer's preset sets too.
SIZES = (
    "d_model", "num_heads", "dff", "encoder_layers", "decoder_layers", "decoder_self", "norm_first",
)  # fmt: skip


class Range(NamedTuple):
    """What a number must be, in words and as a test."""

    words: str
    holds: Any


POSITIVE = Range("positive", lambda value: value > 0)
ONE_OR_MORE = Range("1 or more", lambda value: value >= 1)
NOT_NEGATIVE = Range("0 or more", lambda value: value >= 0)
SHARE = Range("in [0, 1)", lambda value: 0 <= value < 1)
SEED = Range("in [0, 2**31)", lambda value: 0 <= value < 2**31)


def option(default, help, *, range=None, resumes=False, flag=True, **argparse_options):
    """A field of `TrainingConfig`.

    Args:
        default: The value if none is given; None if it follows from other fields.
        help: A phrase for `--help`.
        range: A `Range`, or None if the value is not a number.
        resumes: Whether it may change when the run is resumed.
        flag: Whether it has an option of its own.
        **argparse_options: For `add_argument`.
    """
    metadata = {"help": help, "range": range, "resumes": resumes, "flag": flag}
    return dataclasses.field(default=default, metadata=metadata | {"argparse": argparse_options})


def _count(default, help, range=POSITIVE, **about):
    return option(default, help, range=range, type=int, metavar="N", **about)


def _number(default, help, range=POSITIVE, **about):
    return option(default, help, range=range, type=float, metavar="X", **about)


def _switch(default, help, **about):
    return option(default, help, action=_command_line.Switch, **about)


def _words(help, metavar="FILE", nargs="+", **about):
    return option((), help, nargs=nargs, metavar=metavar, **about)


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """How a translator is trained. Where a default is None, it follows from data or preset.

    >>> TrainingConfig(minutes=30).resolved().seed
    1
    """

    data: tuple = _words(
        "pairs to learn from: files of SOURCE<TAB>TARGET lines (also .gz, .bz2, .xz, .zst), "
        "patterns such as 'part-*.tsv', or tatoeba:por-eng; weights, as in a.tsv:3 b.tsv:1, set "
        "the share of each (default: the built-in phrasebook)"
    )
    source: str = option(None, "source lines, instead of --data", metavar="FILE")
    target: str = option(None, "target lines, one for each line of --source", metavar="FILE")
    validation: tuple = _words(
        "pairs to evaluate on: one file of SOURCE<TAB>TARGET lines, or a source and a target file "
        "(default: pairs held out of the training pairs)"
    )
    tag: tuple = _words("put TAG in front of the sources from FILE", "FILE=TAG")
    filters: tuple = _words(
        "filters that drop pairs: identical, length_ratio, letters, script, near_duplicate, "
        "language",
        "NAME",
    )
    languages: tuple = _words(
        "codes of source and target for the filter `language`, as in pt en", "CODE", 2, flag=False
    )
    max_tokens: int = _count(
        None, "tokens of a side; longer pairs are dropped (default: 256)",
        Range("in [1, 2048]", lambda value: 1 <= value <= 2048), flag=False,
    )  # fmt: skip
    max_characters: int = _count(
        None, "characters of a side; longer pairs are dropped (default: 1000)", flag=False
    )
    temperature: float = _number(
        1.0, "corpus sampling temperature; 1: by size", ONE_OR_MORE, flag=False
    )
    init_from: str = option(
        None,
        "begin with the weights and vocabulary of this finished or imported run; with other "
        "layers, as a student of it",
        metavar="RUN",
    )
    extend_vocab: bool = option(
        False, "with --init_from, add the subwords of these pairs that its vocabulary lacks",
        action="store_true",
    )  # fmt: skip
    output: str = option(
        None,
        "run folder; an unfinished run in it is resumed "
        "(default: runs/phrasebook or runs/translator)",
        resumes=True,
        metavar="DIR",
    )
    overwrite: bool = option(
        False,
        "delete an earlier run in the folder; an unfinished run of exactly this command is resumed "
        "instead",
        resumes=True, action="store_true",
    )  # fmt: skip

    minutes: float = _number(
        None, "train for about X minutes: the first updates are timed, and the number of updates "
        "is fixed from then on (default: 30, phrasebook 4)",
        resumes=True,
    )  # fmt: skip
    epochs: int = _count(None, "stop after N passes over the pairs", resumes=True, flag=False)
    steps: int = _count(None, "stop after N updates", resumes=True)
    patience: int = _count(None, "stop after N validations without a better score", resumes=True)
    validate_steps: int = _count(
        None, "validate every N updates (default: 500, phrasebook 300)", resumes=True
    )

    model: str = option("transformer", "kind of model", choices=tuple(PRESETS))
    preset: str = option(
        "small",
        "size and training recipe of the model; "
        + "; ".join(f"{kind}: {', '.join(names)}" for kind, names in PRESETS.items()),
        metavar="NAME",
    )
    d_model: int = _count(None, "width of the vectors between layers", flag=False)
    num_heads: int = _count(None, "attention heads per layer", flag=False)
    dff: int = _count(None, "width of the feed-forward hidden layers", flag=False)
    encoder_layers: int = _count(None, "layers of the encoder", flag=False)
    decoder_layers: int = _count(None, "layers of the decoder", flag=False)
    decoder_self: str = option(
        None, "what the decoder's first sublayer is", choices=("attention", "ssru"), flag=False
    )
    norm_first: bool = _switch(None, "normalise before each sublayer, not after it", flag=False)
    dropout_rate: float = _number(
        None, "fraction of the values dropped in training (default: the preset's)", SHARE
    )
    vocab_size: int = _count(8000, "number of subwords")
    joint_vocab: bool = _switch(True, "share one vocabulary between both sides", flag=False)
    subword_sampling: float = _number(
        0.0, "fraction of the words segmented anew each epoch", SHARE,
        flag=False,
    )  # fmt: skip

    schedule: str = option(
        None, "how the rate falls after the warm-up", choices=("noam", "cosine"), flag=False
    )
    learning_rate: float = _number(
        None, "learning rate at the end of the warm-up (default: the preset's)"
    )
    warmup_steps: int = _count(None, "updates until the full learning rate", flag=False)
    label_smoothing: float = _number(0.1, "probability spread over the classes", SHARE, flag=False)
    clip_norm: float = _number(None, "maximum global norm; 0: none", NOT_NEGATIVE, flag=False)
    ema: float = _number(0.999, "decay of the weights' moving average; 0 for none", SHARE)
    tokens_per_batch: int = _count(
        None, "target positions in a batch, over all devices (default: the preset's)"
    )
    gradient_accumulation_steps: int = _count(None, "batches in an update (default: the preset's)")
    precision: str = option(
        None,
        "dtype policy of the layers (default: mixed_bfloat16 if the processor multiplies bfloat16, "
        "else float32)",
        choices=("float32", "mixed_bfloat16"),
    )
    devices: int = _count(1, "devices of this host to train on")
    cluster: str = option(
        None, "where the list of hosts comes from (default: TF_CONFIG if set)",
        resumes=True, choices=("slurm",),
    )  # fmt: skip
    seed: int = _count(1, "seed of all random numbers", SEED)

    log_steps: int = _count(
        None, "updates in a row of history.csv (default: 100 batches' worth)", flag=False
    )
    validation_pairs: int = _count(
        500, "validation pairs used during training", resumes=True, flag=False
    )
    checkpoint_minutes: float = _number(
        1.0, "minutes between checkpoints", NOT_NEGATIVE, resumes=True, flag=False
    )
    max_checkpoints: int = _count(3, "number of checkpoints to keep", resumes=True, flag=False)
    num_beams: int = _count(4, "beam width of the final evaluation and of the export", resumes=True)
    length_penalty: float = _number(
        0.6, "length penalty of the beam search", NOT_NEGATIVE, resumes=True, flag=False
    )
    export: bool = _switch(True, "export the trained model to saved_model/1", resumes=True)

    task = "translation"

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value, range = getattr(self, field.name), field.metadata["range"]
            for words, holds in (("finite", math.isfinite), range) if range else ():
                if value is not None and not holds(value):
                    raise ValueError(f"--{field.name} must be {words}. Received: {value!r}")
            choices = field.metadata["argparse"].get("choices")
            if choices and value is not None and value not in choices:
                words = ", ".join(choices)
                raise ValueError(f"--{field.name} must be one of {words}. Received: {value!r}")
        self._check_data()
        self._check_model()

    def _check_data(self):
        for name in ("output", "data", "source", "target", "validation", "init_from"):
            value = getattr(self, name)
            if "" in (value if isinstance(value, tuple) else (value,)):
                raise ValueError(f"--{name} must name a file or folder. Received: ''")
        if bool(self.source) != bool(self.target):
            raise ValueError(
                "--source and --target must be given together. Received: "
                f"--source {self.source}, --target {self.target}"
            )
        if self.source and self.data:
            raise ValueError(
                "Give either --data or --source and --target. Received: "
                f"--data {' '.join(self.data)} --source {self.source} --target {self.target}"
            )
        if self.phrasebook and self.validation:
            raise ValueError(
                "--validation needs --data, or --source and --target. Received: "
                f"--validation {' '.join(self.validation)} alone"
            )
        if len(self.validation) > 2:
            raise ValueError(f"--validation takes one or two files. Received: {self.validation}")

    def _check_model(self):
        if self.extend_vocab and not (self.init_from and self.model == "transformer"):
            raise ValueError(
                "--extend_vocab needs --init_from and a Transformer. Received: "
                f"--init_from {self.init_from}, --model {self.model}"
            )
        presets = PRESETS[self.model]
        if self.preset not in presets:
            raise ValueError(
                f"--preset of --model {self.model} must be one of: {', '.join(presets)}. "
                f"Received: {self.preset!r}"
            )
        sizes = [name for name, value in self.sizes().items() if value is not None]
        if sizes and self.model != "transformer":
            raise ValueError(
                f"{', '.join(sizes)} cannot be set for --model {self.model}: choose a --preset "
                f"instead, one of: {', '.join(presets)}"
            )

    def sizes(self):
        """{field: value} of the fields that a Transformer's preset sets too."""
        return {name: getattr(self, name) for name in SIZES}

    @classmethod
    def free(cls):
        """Names of the fields that may change when a run is resumed."""
        return {field.name for field in dataclasses.fields(cls) if field.metadata["resumes"]}

    def to_dict(self):
        """{field: value}, which JSON can hold."""
        return dataclasses.asdict(self)

    @property
    def phrasebook(self):
        """Whether the run trains on the built-in phrasebook."""
        return not self.data and not self.source

    @property
    def default_minutes(self):
        """Minutes of a run without a budget."""
        return 4.0 if self.phrasebook else 30.0

    @property
    def default_output(self):
        """The folder of a run without --output."""
        return "runs/phrasebook" if self.phrasebook else "runs/translator"

    def resolved(self):
        """The same with the defaults that follow from other fields filled in."""
        defaults = {
            **RECIPES[self.model][self.preset].defaults(),
            "validate_steps": 300 if self.phrasebook else 500,
            "precision": best_precision(),
            "output": self.default_output,
        }
        if self.minutes is None and self.epochs is None and self.steps is None:
            defaults["minutes"] = self.default_minutes
        changes = {name: v for name, v in defaults.items() if getattr(self, name) is None}
        found = dataclasses.replace(self, **changes)
        log_steps = max(1, 100 // found.gradient_accumulation_steps)
        return dataclasses.replace(found, log_steps=found.log_steps or log_steps)


@dataclasses.dataclass(frozen=True)
class TextConfig(TrainingConfig):
    """How a classifier, tagger or language model is trained.

    >>> TextConfig(task="tag").resolved().output
    'runs/tag'
    """

    task: str = option(
        "classify",
        "what to learn: a label for each text, a tag for each token, the next token, or masked "
        "tokens, as a start for other tasks",
        choices=TEXT_TASKS,
    )
    data: tuple = _words(
        "files to learn from, also .gz, .bz2, .xz or .zst: TEXT<TAB>LABEL lines, TOKENS<TAB>TAGS "
        "lines or plain text (default: sentences of the built-in phrasebook)"
    )
    validation: tuple = _words(
        "texts to evaluate on, in the form of --data (default: texts held out of --data)", nargs=1
    )
    init_from: str = option(
        None,
        "begin with the subwords and encoder of this finished run of --task masked, classify or "
        "tag; with the whole model of a run of --task language",
        metavar="RUN",
    )
    output: str = option(
        None, "run folder; an unfinished run in it is resumed (default: runs/TASK)",
        resumes=True, metavar="DIR",
    )  # fmt: skip
    minutes: float = _number(
        None, "train for about X minutes: the first updates are timed, and the number of updates "
        "is fixed from then on (default: 30; without --data classify 2, tag 3, the others 4)",
        resumes=True,
    )  # fmt: skip
    preset: str = option(
        "small",
        f"size and training recipe of the model: {', '.join(PRESETS['transformer'])}",
        metavar="NAME",
    )
    fresh_weights: bool = option(
        False, "take the subwords of --init_from, but not its weights, for a comparison",
        action="store_true", flag=False,
    )  # fmt: skip

    hidden = ("source", "target", "tag", "filters", "model", "extend_vocab", "num_beams")

    @property
    def default_minutes(self):
        short = {"classify": 2.0, "tag": 3.0}
        return short.get(self.task, 4.0) if self.phrasebook else 30.0

    @property
    def default_output(self):
        return f"runs/{self.task}"


def best_precision():
    """mixed_bfloat16 if the processor multiplies bfloat16, which is then twice as fast."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    flags = next((line for line in lines if line.startswith("flags")), "").split()
    return "mixed_bfloat16" if {"avx512_bf16", "amx_bf16"} & {*flags} else "float32"
