"""All settings of a training run, with their defaults: one frozen dataclass.

A field holds everything about a setting: its default, its range, its help, and whether it may
change when a run is resumed. The command line is made from the fields.
"""

import argparse
import dataclasses
import math
from typing import NamedTuple

from keras_tfmr import _command_line
from training.run.files import RunError
from training.run.recipes import RECIPES
from training.run.start import opened

PRESETS = {kind: tuple(recipes) for kind, recipes in RECIPES.items()}


class Range(NamedTuple):
    """What a number must be, in words and as a test."""

    words: str
    holds: object


POSITIVE = Range("positive", lambda value: value > 0)
ONE_OR_MORE = Range("1 or more", lambda value: value >= 1)
NOT_NEGATIVE = Range("0 or more", lambda value: value >= 0)
SHARE = Range("in [0, 1)", lambda value: 0 <= value < 1)
SEED = Range("in [0, 2**32)", lambda value: 0 <= value < 2**32)


def option(default, help, *, range=None, resumes=False, size=False, **argparse_options):
    """A field of `TrainingConfig`.

    Args:
        default: The value if none is given; None if it follows from other fields.
        help: A phrase for `--help`.
        range: A `Range`, or None if the value is not a number.
        resumes: Whether it may change when the run is resumed, because the weights do not depend
            on it.
        size: Whether a Transformer's preset sets it.
        **argparse_options: For `add_argument`.
    """
    metadata = {"help": help, "range": range, "resumes": resumes, "size": size}
    return dataclasses.field(default=default, metadata=metadata | {"argparse": argparse_options})


def _count(default, help, range=POSITIVE, **about):
    return option(default, help, range=range, type=int, metavar="N", **about)


def _number(default, help, range=POSITIVE, **about):
    return option(default, help, range=range, type=float, metavar="X", **about)


def _switch(default, help, **about):
    return option(default, help, action=_command_line.Switch, **about)


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """How a translator is trained.

    Where a default is None, it follows from the data or the preset: see `resolved`.

    >>> TrainingConfig(minutes=30).resolved().seed
    1
    """

    data: tuple = option(
        (),
        "pairs to learn from: files of SOURCE<TAB>TARGET lines (also .gz, .bz2, .zst), patterns "
        "such as 'part-*.tsv', tatoeba:por-eng or tfds:ted_hrlr_translate/pt_to_en; weights, as in "
        "a.tsv:3 b.tsv:1, set the share of each (default: the built-in phrasebook)",
        nargs="+", metavar="FILE",
    )  # fmt: skip
    temperature: float = _number(
        1.0, "mix corpora without weights in proportion to size^(1 / X)", ONE_OR_MORE
    )
    tag: tuple = option(
        (),
        "put TAG in front of the sources from FILE",
        nargs="+", metavar="FILE=TAG",
    )  # fmt: skip
    filters: tuple = option(
        (),
        "filters that drop pairs: identical, length_ratio, letters, script, near_duplicate, "
        "language",
        nargs="+", metavar="NAME",
    )  # fmt: skip
    languages: tuple = option(
        (),
        "codes of the source and target language for the filter `language`, as in pt en",
        nargs=2, metavar="CODE",
    )  # fmt: skip
    source: str = option(None, "source lines, instead of --data", metavar="FILE")
    target: str = option(None, "target lines, one for each line of --source", metavar="FILE")
    validation: tuple = option(
        (),
        "pairs to evaluate on: one file of SOURCE<TAB>TARGET lines, or a source and a target file "
        "(default: pairs held out of the training pairs)",
        nargs="+", metavar="FILE",
    )  # fmt: skip
    start_from: str = option(
        None,
        "begin with the model, weights and vocabulary of this finished run, imported run or "
        "exported version; optimizer, schedule and budget are new",
        metavar="RUN",
    )  # fmt: skip
    extend_vocab: bool = option(
        False,
        "with --start_from, learn --vocab_size subwords from these pairs and add those that the "
        "vocabulary lacks; their embeddings are made from those of their parts",
        action="store_true",
    )
    run: str = option(
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
        None, "stop X minutes after the start of the process, evaluations included "
        "(default: 30, phrasebook 4)",
        resumes=True,
    )  # fmt: skip
    epochs: int = _count(None, "stop after N passes over the pairs", resumes=True)
    steps: int = _count(None, "stop after N updates", resumes=True)
    patience: int = _count(None, "stop after N evaluations without a better BLEU", resumes=True)

    model: str = option("transformer", "kind of model", choices=tuple(PRESETS))
    preset: str = option(
        "small",
        "size and training recipe of the model; "
        + "; ".join(f"{kind}: {', '.join(names)}" for kind, names in PRESETS.items()),
        metavar="NAME",
    )
    d_model: int = _count(
        None, "width of the vectors between layers (default: the preset's)", size=True
    )
    num_heads: int = _count(None, "heads of every attention (default: the preset's)", size=True)
    dff: int = _count(
        None, "width of the feed-forward hidden layers (default: the preset's)", size=True
    )
    encoder_layers: int = _count(None, "layers of the encoder (default: the preset's)", size=True)
    decoder_layers: int = _count(None, "layers of the decoder (default: the preset's)", size=True)
    norm_first: bool = _switch(
        None, "normalise before each sublayer, not after (default: the preset's)", size=True
    )
    dropout_rate: float = _number(
        None, "share of the values dropped in training (default: the preset's)", SHARE
    )
    vocab_size: int = _count(8000, "number of subwords")
    subword_sampling: float = _number(
        0.0, "share of the words split into subwords other than the most probable ones, drawn "
        "again in every epoch",
        SHARE,
    )  # fmt: skip
    joint_vocab: bool = _switch(True, "share one vocabulary between source and target")

    schedule: str = option(
        None, "how the learning rate falls after the warm-up (default: the preset's)",
        choices=("noam", "linear", "cosine"),
    )  # fmt: skip
    learning_rate: float = _number(
        None, "learning rate at the end of the warm-up (default: the preset's)"
    )
    warmup_steps: int = _count(None, "updates until the full learning rate (default: the preset's)")
    label_smoothing: float = _number(0.1, "probability spread over the vocabulary", SHARE)
    clip_norm: float = _number(
        None, "maximum global norm of the gradient; 0 for no limit (default: the preset's)",
        NOT_NEGATIVE,
    )  # fmt: skip
    average: float = _number(0.999, "decay of the weights' moving average; 0 for none", SHARE)
    tokens_per_batch: int = _count(
        None, "target positions in a batch, over all workers (default: the preset's)"
    )
    accumulate: int = _count(None, "batches in an update (default: the preset's)")
    skip_limit: int = _count(
        10, "end the run with an error after N updates in a row whose loss or gradient is not "
        "finite",
        resumes=True,
    )  # fmt: skip
    precision: str = option(
        None,
        "dtype policy of the layers (default: mixed_bfloat16 if the processor multiplies bfloat16, "
        "else float32)",
        choices=("float32", "mixed_bfloat16"),
    )
    reduce_dtype: str = option(
        None,
        "type in which devices and workers send their gradients; bfloat16 halves what is sent "
        "(default: float32)",
        choices=("float32", "bfloat16"),
    )
    devices: int = _count(1, "devices of this host to train on")
    cluster: str = option(
        None, "where the list of hosts comes from (default: TF_CONFIG if set)",
        resumes=True, choices=("slurm",),
    )  # fmt: skip
    worker_timeout: float = _number(
        300.0,
        "seconds to wait for another worker before the run ends with an error",
        resumes=True,
    )
    seed: int = _count(1, "seed of all random numbers", SEED)

    evaluate_minutes: float = _number(
        0.5, "minimum minutes between two evaluations", NOT_NEGATIVE, resumes=True
    )
    evaluate_steps: int = _count(
        None, "evaluate every N updates as well as after epochs (default: never, phrasebook 300)",
        resumes=True,
    )  # fmt: skip
    evaluate_pairs: int = _count(
        500, "validation pairs used in evaluations during training", resumes=True
    )
    checkpoint_minutes: float = _number(
        1.0, "minutes between two checkpoints", NOT_NEGATIVE, resumes=True
    )
    keep: int = _count(3, "number of checkpoints to keep", resumes=True)
    beams: int = _count(4, "beam width of the final evaluation and of the export", resumes=True)
    length_penalty: float = _number(
        0.6, "length penalty of the beam search", NOT_NEGATIVE, resumes=True
    )
    export: bool = _switch(True, "export the trained model to saved_model/1", resumes=True)

    hidden = ()

    def __post_init__(self):
        for field in dataclasses.fields(self):
            check_range(flag(field.name), getattr(self, field.name), field.metadata["range"])
        self._check_data()
        self._check_model()

    def _check_data(self):
        if isinstance(self.data, str):
            object.__setattr__(self, "data", (self.data,))
        for name in ("run", "data", "source", "target", "validation", "start_from"):
            value = getattr(self, name)
            if "" in (value if isinstance(value, tuple) else (value,)):
                raise ValueError(f"{flag(name)} must name a file or folder. Received: ''")
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
        if self.extend_vocab and not (self.start_from and self.model == "transformer"):
            raise ValueError(
                "--extend_vocab needs --start_from and a Transformer. Received: "
                f"--start_from {self.start_from}, --model {self.model}"
            )
        if self.model not in PRESETS:
            raise ValueError(f"--model must be one of {[*PRESETS]}. Received: {self.model!r}")
        presets = ", ".join(PRESETS[self.model])
        if self.preset not in PRESETS[self.model]:
            raise ValueError(
                f"--preset of --model {self.model} must be one of: {presets}. "
                f"Received: {self.preset!r}"
            )
        sizes = [flag(name) for name, value in self.sizes().items() if value is not None]
        if sizes and self.model != "transformer":
            raise ValueError(
                f"{', '.join(sizes)} cannot be set for --model {self.model}: choose a --preset "
                f"instead, one of: {presets}"
            )

    def sizes(self):
        """{field: value} of the fields that a Transformer's preset sets too."""
        fields = dataclasses.fields(self)
        return {field.name: getattr(self, field.name) for field in fields if field.metadata["size"]}

    def identity(self):
        """{field: value} of the fields that the weights depend on, fixed when a run is resumed."""
        fields = [field for field in dataclasses.fields(self) if not field.metadata["resumes"]]
        return {field.name: getattr(self, field.name) for field in fields}

    @property
    def recipe(self):
        """The `Recipe` of the preset."""
        return RECIPES[self.model][self.preset]

    @classmethod
    def completed(cls, given):
        """The given settings, with those that follow from the run that the training begins from.

        Args:
            given: {setting: value}.

        Raises:
            RunError: If there is no such run.
            ValueError: If a given setting contradicts it.
        """
        if not given.get("start_from"):
            return given
        start = opened(given["start_from"])
        config = start.config
        of_start = {
            "model": start.kind,
            "preset": start.preset,
            "joint_vocab": config["joint_vocab"],
        }
        if not given.get("extend_vocab"):
            of_start["vocab_size"] = start.settings.get("vocab_size", config["target_vocab"])
        if start.kind == "transformer":
            sizes = (field.name for field in dataclasses.fields(cls) if field.metadata["size"])
            of_start |= {name: config[name] for name in sizes}
        for name, value in of_start.items():
            if given.get(name, value) != value:
                raise ValueError(
                    f"{flag(name)} is that of --start_from {given['start_from']}, {value}: leave "
                    f"it out. Received: {given[name]}"
                )
        rates = RECIPES[start.kind][start.preset].for_tuning()
        return {**rates, "dropout_rate": config["dropout_rate"], **given, **of_start}

    @property
    def phrasebook(self):
        """Whether the run trains on the built-in phrasebook."""
        return not self.data and not self.source

    def resolved(self):
        """The same with the defaults that follow from other fields filled in."""
        changes = {
            name: value
            for name, value in self.recipe.defaults().items()
            if getattr(self, name) is None
        }
        if self.minutes is None and self.epochs is None and self.steps is None:
            changes["minutes"] = 4.0 if self.phrasebook else 30.0
        if self.evaluate_steps is None and self.phrasebook:
            changes["evaluate_steps"] = 300  # its epochs are long
        if self.precision is None:
            changes["precision"] = best_precision()
        if self.run is None:
            changes["run"] = "runs/phrasebook" if self.phrasebook else "runs/translator"
        return dataclasses.replace(self, **changes)


def check_range(name, value, range):
    """Raises a ValueError that names the option unless the value is finite and in its range."""
    if range is None or value is None:
        return
    for words, holds in (("finite", math.isfinite), range):
        if not holds(value):
            raise ValueError(f"{name} must be {words}. Received: {value!r}")


def best_precision():
    """mixed_bfloat16 if the processor multiplies bfloat16, which is then twice as fast."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            flags = next((line for line in file if line.startswith("flags")), "")
    except OSError:
        flags = ""
    fast = {"avx512_bf16", "amx_bf16"} & set(flags.split())
    return "mixed_bfloat16" if fast else "float32"


def flag(name):
    """The command-line option of a field."""
    return "--" + name


def parse_arguments(description, arguments=None, config_class=TrainingConfig):
    """A `TrainingConfig` from command-line arguments; ends the process if they are wrong.

    Args:
        description: The docstring of the script.
        arguments: Words, or None for those of the process.
        config_class: `TrainingConfig` or a subclass, whose `hidden` fields have no option.
    """
    parser = _command_line.parser(description)
    return parse(parser, arguments, config_class)[0]


def parse(parser, arguments=None, config_class=TrainingConfig):
    """As `parse_arguments`, with a parser that may have other arguments as well.

    Returns:
        The settings, and {name: value} of the other arguments.
    """
    fields = dataclasses.fields(config_class)
    for field in fields:
        if field.name in config_class.hidden:
            continue
        help = field.metadata["help"]
        parser.add_argument(
            flag(field.name), default=field.default, help=help, **field.metadata["argparse"]
        )
    unsaid = object()
    said = argparse.Namespace(**{field.name: unsaid for field in fields})
    given = {n: v for n, v in vars(parser.parse_args(arguments, said)).items() if v is not unsaid}
    given = {n: tuple(value) if isinstance(value, list) else value for n, value in given.items()}
    others = {name: given.pop(name) for name in given.keys() - {field.name for field in fields}}
    try:
        return config_class(**config_class.completed(given)).resolved(), others
    except (ValueError, RunError) as error:
        parser.error(str(error))
