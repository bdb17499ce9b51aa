"""All settings of a training run with their defaults.

A field holds everything about a setting: its type, default and range, its help, when it is read,
whether it has an option of its own, and whether it may change when a run is resumed. The other
fields are set in a file (`--config`) or by `--set NAME=VALUE`. A setting of a wrong type or range,
or without effect, is an error, wherever it comes from. Nothing here imports Keras, so that `--help`
is instant.
"""

import dataclasses
from pathlib import Path

from keras_tfmr.text.spans import PATTERNS, python_pattern
from training.settings.fields import (
    NOT_NEGATIVE,
    PERCENT,
    SEED,
    SHARE,
    Rule,
    option,
    setting,
    what_is_wrong,
)
from training.settings.recipes import PRESETS, RECIPES

TEXT_TASKS = ("classify", "language")
TRANSLATION = ("translation",)
# Of a run on the phrasebook: updates, about five minutes on two cores, and a score that is enough.
PHRASEBOOK_STEPS = {"translation": 1200, "classify": 800, "language": 1200}
PHRASEBOOK_SCORE = 99.0
NOTHING = ("none",)  # for --protect; in config.json, an empty list
# The fields that a Transformer's preset sets too.
SIZES = ("d_model", "num_heads", "dff", "encoder_layers", "decoder_layers", "norm_first")

# {setting: those that are given instead of it}
INSTEAD = {
    "data": ("source",), "minutes": ("epochs", "steps"), "epochs": ("minutes", "steps"),
    "steps": ("minutes", "epochs"),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """Settings of a translator's training. A default of None follows from data or preset.

    >>> TrainingConfig(minutes=30).resolved().seed
    1
    """

    data: tuple = option(
        (), "pairs to learn from: files of SOURCE<TAB>TARGET lines (also .gz, .bz2, .xz, .zst), "
        "patterns such as 'part-*.tsv', tatoeba:por-eng, or multi30k:en-de; weights, as in "
        "a.tsv:3 b.tsv:1, set the fraction of each (default: the built-in phrasebook)",
    )  # fmt: skip
    source: str = option(
        None, "source lines, instead of --data", tasks=TRANSLATION,
    )  # fmt: skip
    target: str = option(
        None, "target lines, one for each line of --source", tasks=TRANSLATION,
    )  # fmt: skip
    validation: tuple = option(
        (), "pairs to evaluate on: one file of SOURCE<TAB>TARGET lines, or a source and a target "
        "file (default: pairs held out of the training pairs)",
        Rule("one or two files", lambda value: len(value) <= 2),
    )  # fmt: skip
    tag: tuple = option(
        (), "put TAG in front of the sources from FILE", metavar="FILE=TAG", tasks=TRANSLATION,
    )  # fmt: skip
    filters: tuple = option(
        (), "filters that drop pairs: identical, length_ratio, language", metavar="NAME",
        tasks=TRANSLATION,
    )  # fmt: skip
    languages: tuple = setting(
        (), "codes of source and target, as in pt,en: for the filter `language`, abbreviations in "
        "documents and the demo page",
        Rule("two codes", lambda value: len(value) in (0, 2)), tasks=TRANSLATION,
    )  # fmt: skip
    protect: tuple = option(
        None, f"spans to leave untranslated: names from {', '.join(PATTERNS)}, and "
        "regular expressions, or none (default: all names but number)",
        metavar="NAME", tasks=TRANSLATION,
    )  # fmt: skip
    max_tokens: int = setting(
        None, "tokens of a side; longer pairs are dropped (default: 256)",
        Rule("in [1, 2048]", lambda value: 1 <= value <= 2048),
    )  # fmt: skip
    max_characters: int = setting(
        None, "characters of a side; longer pairs are dropped (default: 1000)"
    )
    init_from: str = option(
        None, "begin with the weights and vocabulary of this finished or imported run",
        metavar="RUN",
    )  # fmt: skip
    output: str = option(
        None, "run folder; an unfinished run in it is resumed (default: runs/phrasebook or "
        "runs/translator)",
        resumes=True, metavar="DIR",
    )  # fmt: skip
    overwrite: bool = option(
        False, "delete an earlier run in the folder; an unfinished run of exactly this command is "
        "resumed instead",
        resumes=True,
    )  # fmt: skip

    minutes: float = option(
        None, "train for about X minutes: updates are timed for up to a quarter of them, and their "
        "number is fixed then (default: 30; the phrasebook has a number of updates)",
    )  # fmt: skip
    epochs: int = setting(None, "stop after N passes over the pairs", resumes=True)
    steps: int = option(None, "stop after N updates", resumes=True)
    patience: int = option(None, "stop after N validations without a better score", resumes=True)
    target_score: float = option(
        None, "stop when a validation reaches this score: BLEU, or the first one of the task",
        PERCENT, resumes=True,  # as every first score is
    )  # fmt: skip
    validate_steps: int = option(
        None, "validate every N updates, at the end of a row of history.csv (default: 500, "
        "phrasebook 300)",
        resumes=True,
    )  # fmt: skip

    model: str = option("transformer", "kind of model", choices=tuple(PRESETS), tasks=TRANSLATION)
    preset: str = option(
        "small", "size and training recipe of the model; "
        + "; ".join(f"{kind}: {', '.join(names)}" for kind, names in PRESETS.items()),
        metavar="NAME",
    )  # fmt: skip
    d_model: int = setting(None, "width of the vectors between layers")
    num_heads: int = setting(None, "attention heads per layer")
    dff: int = setting(None, "width of the feed-forward hidden layers")
    encoder_layers: int = setting(None, "layers of the encoder", tasks=("translation", "classify"))
    decoder_layers: int = setting(None, "layers of the decoder", tasks=("translation", "language"))
    norm_first: bool = setting(None, "normalise before each sublayer, not after it")
    dropout_rate: float = option(
        None, "fraction of the values dropped in training (default: the preset's)", SHARE
    )
    attention_dropout_rate: float = setting(
        None, "fraction of the attention weights dropped in training (default: that of the values)",
        SHARE,
    )  # fmt: skip
    vocab_size: int = option(8000, "number of subwords")
    joint_vocab: bool = setting(True, "share one vocabulary between both sides", tasks=TRANSLATION)

    schedule: str = setting(
        None, "how the rate falls after the warm-up", choices=("noam", "cosine")
    )
    learning_rate: float = option(
        None, "learning rate at the end of the warm-up (default: the preset's)"
    )
    warmup_steps: int = setting(None, "updates until the full learning rate")
    label_smoothing: float = setting(0.1, "probability spread over the classes", SHARE)
    clip_norm: float = setting(None, "maximum global norm; 0: none", NOT_NEGATIVE)
    ema: float = option(0.999, "decay of the weights' moving average; 0 for none", SHARE)
    tokens_per_batch: int = option(
        None, "target positions in a batch, over all devices (default: the preset's)"
    )
    gradient_accumulation_steps: int = option(None, "batches per update (default: the preset's)")
    precision: str = option(
        None, "dtype policy of the layers (default: mixed_bfloat16 if the processor has "
        "bfloat16 instructions, else float32)",
        choices=("float32", "mixed_bfloat16"),
    )  # fmt: skip
    devices: int = option(1, "devices of this host to train on")
    cluster: str = option(
        None, "where the list of hosts comes from (default: TF_CONFIG if set)", choices=("slurm",),
        resumes=True,
    )  # fmt: skip
    seed: int = option(1, "seed of all random numbers", SEED)

    log_steps: int = setting(
        None, "updates in a row of history.csv (default: 100 batches' worth, at most "
        "--validate_steps)"
    )  # fmt: skip
    validation_pairs: int = setting(500, "validation pairs used during training", resumes=True)
    checkpoint_minutes: float = setting(
        1.0, "minutes between checkpoints", NOT_NEGATIVE, resumes=True
    )
    max_checkpoints: int = setting(3, "number of checkpoints to keep", resumes=True)
    num_beams: int = option(
        4, "beam width of the final evaluation and of the export", resumes=True, tasks=TRANSLATION
    )
    length_penalty: float = setting(
        0.6, "length penalty of the beam search", NOT_NEGATIVE, resumes=True, tasks=TRANSLATION
    )
    export: bool = option(True, "export the trained model to saved_model/1", resumes=True)

    task, tasks = "translation", TRANSLATION

    def __post_init__(self):
        fields = dataclasses.fields(self)
        for field in fields:
            if wrong := what_is_wrong(field, getattr(self, field.name)):
                raise ValueError(f"{self.spelt(field.name)} {wrong}")
        presets = PRESETS[self.model]
        if self.preset not in presets:
            raise ValueError(
                f"--preset must be one of {', '.join(presets)}, those of the model {self.model}. "
                f"Received: {self.preset!r}"
            )
        if self.protect and self.protect != NOTHING:
            python_pattern(self.protect)
        self.check_read(f.name for f in fields if getattr(self, f.name) != f.default)

    def without_effect(self):
        """{setting: why it has no effect beside the others}: the rules between settings."""
        corpus = "--data, or --source and --target" if self.task == "translation" else "--data"
        log_steps = self.log_steps or 0
        other = self.model != "transformer" and f"with --model {self.model}"
        rules = {
            "source": not self.target and "without --target",
            "target": not self.source and "without --source",
            "validation": self.phrasebook and f"without {corpus}",
            "tag": not self.data and "without --data",
            "validate_steps": (self.validate_steps or log_steps) < log_steps
            and f"below log_steps, which is {log_steps}",
            **dict.fromkeys((*SIZES, "attention_dropout_rate"), other),
        }
        for name, others in INSTEAD.items():
            rules[name] = next((f"beside {self.spelt(n)}" for n in others if getattr(self, n)), "")
        for field in dataclasses.fields(self):
            if not self.reads(field.name, self.task):
                rules[field.name] = f"with --task {self.task}"
        return {name: why for name, why in rules.items() if why}

    def check_read(self, names):
        """Raises a ValueError if one of these settings has no effect beside the others."""
        rules, fields = self.without_effect(), self.__dataclass_fields__
        for name in names:
            field, value = fields[name], getattr(self, name)
            asks_nothing = value is False and (field.metadata["flag"] or field.default is False)
            if name in rules and not asks_nothing:
                raise ValueError(
                    f"{self.spelt(name)} has no effect {rules[name]}. Received: {value!r}"
                )

    @classmethod
    def reads(cls, name, *tasks):
        """Whether one of the tasks reads a setting."""
        own = cls.__dataclass_fields__[name].metadata["tasks"]
        return not own or not {*own}.isdisjoint(tasks)

    @classmethod
    def own_fields(cls):
        """{name: field} of the settings that one of its tasks reads."""
        fields = dataclasses.fields(cls)
        return {field.name: field for field in fields if cls.reads(field.name, *cls.tasks)}

    @classmethod
    def spelt(cls, name):
        """A setting as it is given on the command line."""
        field = cls.own_fields().get(name)
        return f"--{name}" if field and field.metadata["flag"] else f"--set {name}"

    def sizes(self):
        """{field: value} of the fields that a Transformer's preset sets too."""
        return {name: getattr(self, name) for name in SIZES}

    def dropouts(self):
        """{field: value} of the dropout rates of a model, as far as they are set."""
        names = ("dropout_rate", "attention_dropout_rate")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

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
    def default_length(self):
        """{setting: value} of a run without a budget; of the phrasebook alike on any machine."""
        if self.phrasebook:
            return {"steps": PHRASEBOOK_STEPS[self.task], "target_score": PHRASEBOOK_SCORE}
        return {"minutes": 30.0}

    @property
    def default_output(self):
        """The folder of a run without --output."""
        return "runs/phrasebook" if self.phrasebook else "runs/translator"

    def resolved(self):
        """The same with the defaults that follow from other fields filled in."""
        defaults = {
            **RECIPES[self.model][self.preset].defaults(),
            "validate_steps": max(300 if self.phrasebook else 500, self.log_steps or 0),
            "output": self.default_output,
        }
        if self.protect == NOTHING:
            return dataclasses.replace(self, protect=()).resolved()
        if self.minutes is None and self.epochs is None and self.steps is None:
            defaults |= self.default_length
        changes = {name: v for name, v in defaults.items() if getattr(self, name) is None}
        settings = dataclasses.replace(self, **changes)
        log_steps = min(
            max(1, 100 // settings.gradient_accumulation_steps), settings.validate_steps
        )
        return dataclasses.replace(settings, log_steps=settings.log_steps or log_steps)


@dataclasses.dataclass(frozen=True)
class TextConfig(TrainingConfig):
    """Settings of the training of a classifier or a language model.

    >>> TextConfig(task="language").resolved().output
    'runs/language'
    """

    task: str = option(
        "classify", "what to learn: a label for each text, or the next token", choices=TEXT_TASKS,
    )  # fmt: skip
    data: tuple = option(
        (), "files to learn from, also .gz, .bz2, .xz or .zst: TEXT<TAB>LABEL lines or plain text "
        "(default: sentences of the built-in phrasebook)"
    )  # fmt: skip
    validation: tuple = option(
        (), "texts to evaluate on, in the form of --data (default: texts held out of --data)",
        Rule("one file", lambda value: len(value) <= 1),
    )  # fmt: skip
    init_from: str = option(
        None, "begin with the subwords and weights of this finished run of the same task; a "
        "classifier's labels may be others",
        metavar="RUN",
    )  # fmt: skip
    output: str = option(
        None, "run folder; an unfinished run in it is resumed (default: runs/TASK)", resumes=True,
        metavar="DIR",
    )  # fmt: skip
    preset: str = option(
        "small", f"size and training recipe of the model: {', '.join(PRESETS['transformer'])}",
        metavar="NAME",
    )  # fmt: skip
    tasks = TEXT_TASKS

    @property
    def default_output(self):
        return f"runs/{self.task}"


def best_precision():
    """mixed_bfloat16 if the processor has bfloat16 instructions.

    With avx512_bf16, a step of `tutorial` then takes 17 % less time, one of `small` 20 %, one of
    `base` 40 %: `benchmarks/train_step.py`.
    """
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    flags = next((line for line in lines if line.startswith("flags")), "").split()
    return "mixed_bfloat16" if {"avx512_bf16", "amx_bf16"} & {*flags} else "float32"
