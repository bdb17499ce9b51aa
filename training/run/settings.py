"""Everything one training run can be told, with the defaults: one frozen dataclass.

The command line is made from its fields, so that each option has one name and one default.
"""

import argparse
import dataclasses
import math

# What the numbers must be unless they are None: (in words, the test, the fields).
RANGES = (
    ("finite", lambda value: abs(value) < math.inf, (
        "minutes", "dropout_rate", "subword_sampling", "learning_rate", "label_smoothing",
        "temperature", "clip_norm", "average", "evaluate_minutes", "checkpoint_minutes",
        "length_penalty",
    )),
    ("positive", lambda value: value > 0, (
        "minutes", "epochs", "steps", "patience", "d_model", "num_heads", "dff", "encoder_layers",
        "decoder_layers", "vocab_size", "learning_rate", "warmup_steps", "tokens_per_batch",
        "accumulate", "devices", "evaluate_steps", "evaluate_pairs", "keep", "beams",
    )),
    ("1 or more", lambda value: value >= 1, ("temperature",)),
    ("0 or more", lambda value: value >= 0, (
        "clip_norm", "evaluate_minutes", "checkpoint_minutes", "length_penalty",
    )),
    ("in [0, 1)", lambda value: 0 <= value < 1, (
        "dropout_rate", "label_smoothing", "average", "subword_sampling",
    )),
    ("in [0, 2**32)", lambda value: 0 <= value < 2**32, ("seed",)),
)  # fmt: skip

# The kinds of model, and the presets of each.
PRESETS = {
    "transformer": ("small", "tiny", "tutorial", "base", "big"),
    "seq2seq": ("small", "tiny", "tutorial", "paper"),
    "rnnsearch": ("small", "tiny", "tutorial", "paper"),
    "convolutional": ("small", "tiny", "tutorial"),
}
# What can be given instead of the preset's; of a transformer only.
SIZES = ("d_model", "num_heads", "dff", "encoder_layers", "decoder_layers", "norm_first")


def option(default, help, **argparse_options):
    """A field of `TrainingConfig` with what the command line needs to know of it."""
    metadata = {"help": help, **argparse_options}
    return dataclasses.field(default=default, metadata=metadata)


def _count(default, help):
    return option(default, help, type=int, metavar="N")


def _number(default, help):
    return option(default, help, type=float, metavar="X")


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """How a translator is trained.

    Where a default is None, it follows from the data: see `resolved`.

    >>> TrainingConfig(minutes=30).resolved().seed
    1
    """

    data: tuple = option(
        (),
        "pairs to learn from: files of SOURCE<TAB>TARGET lines (also .gz, .bz2, .zst), patterns "
        "such as 'part-*.tsv', tatoeba:por-eng or tfds:ted_hrlr_translate/pt_to_en; with a weight "
        "behind each, as in a.tsv:3 b.tsv:1, they are mixed; the built-in phrasebook if left out",
        nargs="+", metavar="FILE",
    )  # fmt: skip
    temperature: float = _number(
        1.0, "mix corpora without weights by their sizes to the power of one by this"
    )
    tag: tuple = option(
        (),
        "FILE=TAG: put a tag in front of the sources of one of the corpora",
        nargs="+", metavar="FILE=TAG",
    )  # fmt: skip
    filters: tuple = option(
        (),
        "drop pairs that are: identical, length_ratio, letters, script, near_duplicate, language",
        nargs="+", metavar="NAME",
    )  # fmt: skip
    languages: tuple = option(
        (),
        "codes of source and target language for the filter language, as in pt en",
        nargs=2, metavar="CODE",
    )  # fmt: skip
    source: str = option(None, "instead of --data: the source lines", metavar="FILE")
    target: str = option(None, "the target lines that go with --source", metavar="FILE")
    validation: tuple = option(
        (),
        "pairs to measure on: one tab-separated file, or the two line-aligned files; "
        "a slice held out of the training pairs if left out",
        nargs="+", metavar="FILE",
    )  # fmt: skip
    run: str = option(None, "the run folder; an unfinished run in it goes on", metavar="DIR")
    overwrite: bool = option(
        False,
        "start anew in a folder that holds a finished run, or one of another command or corpus; "
        "the very same command goes on with its unfinished run all the same",
        action="store_true",
    )

    minutes: float = _number(
        None, "stop after so many minutes from the start of the process, evaluations included"
    )
    epochs: int = _count(None, "stop after so many passes over the pairs")
    steps: int = _count(None, "stop after so many updates")
    patience: int = _count(None, "stop after so many evaluations without a better BLEU")

    model: str = option("transformer", "the kind of model", choices=tuple(PRESETS))
    preset: str = option(
        "small",
        "the size of the model, "
        + "; ".join(f"of a {kind}: {', '.join(names)}" for kind, names in PRESETS.items()),
        metavar="NAME",
    )
    d_model: int = _count(
        None, "instead of a transformer's preset: width of the vectors between layers"
    )
    num_heads: int = _count(None, "heads of every attention")
    dff: int = _count(None, "width of the feed-forward hidden layers")
    encoder_layers: int = _count(None, "depth of the encoder")
    decoder_layers: int = _count(None, "depth of the decoder")
    dropout_rate: float = _number(None, "share dropped in training")
    norm_first: bool = option(
        None, "normalise before each sublayer, not after", action=argparse.BooleanOptionalAction
    )
    vocab_size: int = _count(8000, "number of subwords")
    subword_sampling: float = _number(
        0.0, "share of the words of an epoch that are made up of other subwords than the best"
    )
    joint_vocab: bool = option(
        True, "one vocabulary for both sides", action=argparse.BooleanOptionalAction
    )

    schedule: str = option(
        "cosine", "how the rate falls after the warm-up", choices=("noam", "linear", "cosine")
    )
    learning_rate: float = _number(3e-3, "the rate at the end of the warm-up")
    warmup_steps: int = _count(800, "updates until the full rate")
    label_smoothing: float = _number(0.1, "probability spread over the vocabulary")
    clip_norm: float = _number(1.0, "greatest global norm of the gradient; 0 for no limit")
    average: float = _number(0.999, "decay of the weights' moving average; 0 for none")
    tokens_per_batch: int = _count(1024, "target positions in a batch")
    accumulate: int = _count(1, "batches whose token losses make one update")
    precision: str = option(
        None,
        "in which layers compute (default: mixed_bfloat16 where the processor multiplies "
        "bfloat16, else float32)",
        choices=("float32", "mixed_bfloat16"),
    )
    devices: int = _count(1, "devices that share each batch")
    seed: int = _count(1, "what every random draw follows from")

    evaluate_minutes: float = _number(0.5, "at least so long between two evaluations")
    evaluate_steps: int = _count(
        None, "evaluate every so many batches too, not after epochs only (phrasebook: 300)"
    )
    evaluate_pairs: int = _count(500, "validation pairs translated in training")
    checkpoint_minutes: float = _number(1.0, "time between two checkpoints")
    keep: int = _count(3, "newest checkpoints kept")
    beams: int = _count(4, "beam width of the final evaluation and of the export")
    length_penalty: float = _number(0.6, "length penalty of the beam search")
    export: bool = option(
        True, "write saved_model/1 at the end", action=argparse.BooleanOptionalAction
    )

    def __post_init__(self):
        for expected, holds, names in RANGES:
            for name in names:
                value = getattr(self, name)
                if value is not None and not holds(value):
                    raise ValueError(f"{flag(name)} must be {expected}. Received: {value!r}")
        self._check_data()
        self._check_model()
        if self.accumulate > 1 and self.devices > 1:
            raise ValueError(
                "--accumulate works on one device; several devices share larger batches instead. "
                f"Received: --accumulate {self.accumulate} --devices {self.devices}"
            )

    def _check_data(self):
        if isinstance(self.data, str):
            object.__setattr__(self, "data", (self.data,))
        for name in ("run", "data", "source", "target", "validation"):
            value = getattr(self, name)
            if "" in (value if isinstance(value, tuple) else (value,)):
                raise ValueError(f"{flag(name)} must name a file or folder. Received: ''")
        if bool(self.source) != bool(self.target):
            raise ValueError("--source and --target name two line-aligned files: give both")
        if self.source and self.data:
            raise ValueError("Give --data, or --source and --target, but not both")
        if self.phrasebook and self.validation:
            raise ValueError("--validation goes with --data, or with --source and --target")
        if len(self.validation) > 2:
            raise ValueError(f"--validation takes one or two files. Received: {self.validation}")

    def _check_model(self):
        if self.model not in PRESETS:
            raise ValueError(f"--model must be one of {[*PRESETS]}. Received: {self.model!r}")
        presets = ", ".join(PRESETS[self.model])
        if self.preset not in PRESETS[self.model]:
            raise ValueError(
                f"--preset of --model {self.model} must be one of: {presets}. "
                f"Received: {self.preset!r}"
            )
        sizes = {flag(name): getattr(self, name) for name in SIZES}
        sizes = [name for name, value in sizes.items() if value is not None]
        if sizes and self.model != "transformer":
            raise ValueError(
                f"--model {self.model} has no {', '.join(sizes)}: choose its --preset, one of: "
                f"{presets}"
            )

    @property
    def phrasebook(self):
        """Whether the built-in phrasebook is learned."""
        return not self.data and not self.source

    def resolved(self):
        """The same with the defaults that follow from other fields filled in."""
        changes = {}
        if self.minutes is None and self.epochs is None and self.steps is None:
            changes["minutes"] = 4.0 if self.phrasebook else 30.0
        if self.evaluate_steps is None and self.phrasebook:
            changes["evaluate_steps"] = 300  # its epochs are long
        if self.precision is None:
            changes["precision"] = best_precision()
        if self.run is None:
            changes["run"] = "runs/phrasebook" if self.phrasebook else "runs/translator"
        return dataclasses.replace(self, **changes)


def best_precision():
    """mixed_bfloat16 where the processor has products of it, which are then twice as fast."""
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


def parse_arguments(description, arguments=None):
    """A `TrainingConfig` of command-line arguments; ends the process if they make no sense."""
    parser = argparse.ArgumentParser(description=description)
    for field in dataclasses.fields(TrainingConfig):
        options = dict(field.metadata)
        if field.default not in (None, (), False):
            options["help"] += f" (default: {field.default})"
        parser.add_argument(flag(field.name), default=field.default, **options)
    values = vars(parser.parse_args(arguments))
    for name in ("data", "tag", "filters", "languages", "validation"):
        values[name] = tuple(values[name])
    try:
        return TrainingConfig(**values).resolved()
    except ValueError as error:
        parser.error(str(error))
