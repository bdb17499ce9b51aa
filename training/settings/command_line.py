"""The command line of training: options, `--config` and `--set`.

Nothing here imports Keras, so that `--help` is instant.
"""

import argparse
import dataclasses
import json
from pathlib import Path

from keras_tfmr.text.spans import PATTERNS
from training.command import scripts
from training.settings.recipes import RECIPES
from training.settings.training_config import TextConfig, TrainingConfig

LISTS = ("data", "validation", "tag", "filters", "languages", "protect")
LENGTHS = ("minutes", "epochs", "steps")
PRESETS = "; ".join(f"{kind}: {', '.join(recipes)}" for kind, recipes in RECIPES.items())
# (option, type, what its value is, help)
OF_TRANSLATORS = (
    ("data", list, "FILE", "pairs to learn from: files of SOURCE<TAB>TARGET lines, .csv, .jsonl or "
     ".parquet (also .gz, .bz2, .xz, .zst), patterns such as 'part-*.tsv', tfds:NAME/CONFIG of "
     "TensorFlow Datasets, or hf:NAME:CONFIG of Hugging Face; weights, as in a.tsv:3 b.tsv:1, set "
     "the fraction of each (default: the built-in phrasebook)"),
    ("source", str, "FILE", "source lines, instead of --data"),
    ("target", str, "FILE", "target lines, one for each line of --source"),
    ("validation", list, "FILE", "pairs to evaluate on: one file of SOURCE<TAB>TARGET lines, or a "
     "source and a target file (default: pairs held out of the training pairs)"),
    ("languages", list, "CODE", "codes of source and target, as in pt en: for abbreviations in "
     "documents, the demo page, the columns of tables and data sets, and the filter language"),
    ("tag", list, "FILE=TAG", "put TAG in front of the sources from FILE"),
    ("filters", list, "NAME", "filters that drop pairs: identical, length_ratio, language"),
    ("protect", list, "NAME", f"spans to leave untranslated: names from {', '.join(PATTERNS)}, and "
     "regular expressions, or none (default: all names but number)"),
    ("init_from", str, "RUN", "begin with the weights and vocabulary of this finished or imported "
     "run"),
    ("output", str, "DIR", "run folder; an unfinished run in it is resumed (default: "
     "runs/phrasebook or runs/translator)"),
    ("model", str, "NAME", f"kind of model: {', '.join(RECIPES)} (default: transformer)"),
    ("num_beams", int, "N", "beam width of the final evaluation and of the export (default: 4)"),
)  # fmt: skip
OF_TEXT_TASKS = (
    ("task", str, "TASK", "what to learn: classify, a label for each text, or language, the next "
     "token (default: classify)"),
    ("data", list, "FILE", "files to learn from: TEXT<TAB>LABEL lines or plain text, .csv, .jsonl "
     "or .parquet (also .gz, .bz2, .xz, .zst), tfds:NAME/CONFIG or hf:NAME:CONFIG (default: "
     "sentences of the built-in phrasebook)"),
    ("validation", list, "FILE", "texts to evaluate on, in the form of --data (default: texts held "
     "out of --data)"),
    ("init_from", str, "RUN", "begin with the subwords and weights of this finished run of the "
     "same task; a classifier's labels may be others"),
    ("output", str, "DIR", "run folder; an unfinished run in it is resumed (default: runs/TASK)"),
)  # fmt: skip
OPTIONS = (
    ("minutes", float, "X", "train for about X minutes: updates are timed for up to a quarter of "
     "them, and their number is fixed then (default: 30; the phrasebook has a number of updates)"),
    ("steps", int, "N", "stop after N updates"),
    ("patience", int, "N", "stop after N validations with worse scores than the best"),
    ("target_score", float, "X", "stop when a validation reaches this score: BLEU, or the first "
     "one of the task"),
    ("validate_steps", int, "N", "validate every N updates, at the end of a row of history.csv "
     "(default: 500, phrasebook 300)"),
    ("preset", str, "NAME", "size and training recipe of the model; "
     f"{PRESETS} (default: small)"),
    ("dropout_rate", float, "X", "fraction of the values dropped in training, in [0, 1) (default: "
     "the preset's)"),
    ("vocab_size", int, "N", "number of subwords (default: 8000)"),
    ("learning_rate", float, "X", "learning rate at the end of the warm-up (default: the "
     "preset's)"),
    ("ema", float, "X", "decay of the weights' moving average; 0 for none (default: 0.999)"),
    ("tokens_per_batch", int, "N", "target positions in a batch, over all devices (default: the "
     "preset's)"),
    ("gradient_accumulation_steps", int, "N", "batches per update (default: the preset's)"),
    ("precision", str, "POLICY", "float32 or mixed_bfloat16, the policy of the layers (default: "
     "mixed_bfloat16 if the processor has bfloat16 instructions)"),
    ("devices", int, "N", "devices of this host to train on (default: 1)"),
    ("cluster", str, "KIND", "slurm: its variables list the hosts (default: TF_CONFIG if set)"),
    ("seed", int, "N", "seed of all random numbers (default: 1)"),
)  # fmt: skip


def parse_arguments(description, arguments=None, config_class=TrainingConfig):
    """Resolved settings from command-line arguments; ends the process if they are wrong.

    Args:
        description: The docstring of the script.
        arguments: Words, or None for those of the process.
        config_class: `TrainingConfig` or `TextConfig`.
    """
    parser = scripts.parser(description, argument_default=argparse.SUPPRESS)
    own = OF_TEXT_TASKS if config_class is TextConfig else OF_TRANSLATORS
    for name, kind, metavar, about in own + OPTIONS:
        if kind is list:
            parser.add_argument(
                f"--{name}", nargs="+", action="extend", metavar=metavar, help=about
            )
        else:
            parser.add_argument(f"--{name}", type=kind, metavar=metavar, help=about)
    parser.add_argument(
        "--overwrite", action="store_true",
        help="delete an earlier run in the folder; an unfinished run of exactly this command is "
        "resumed instead",
    )  # fmt: skip
    parser.add_argument(
        "--no_export", dest="export", action="store_false", help="do not export the trained model"
    )
    parser.add_argument(
        "--config", type=Path, default=None, metavar="FILE",
        help="settings from a YAML or JSON file, such as a run's config.json",
    )  # fmt: skip
    names = [field.name for field in dataclasses.fields(config_class)]
    parser.add_argument(
        "--set", nargs="+", action="extend", default=[], metavar="NAME=VALUE",
        help=f"any of {', '.join(sorted(names))}; with commas between the values of a list",
    )  # fmt: skip
    given = vars(parser.parse_args(arguments))
    path, words = given.pop("config"), given.pop("set")
    try:
        values = merged(read_config(path), with_assigned(given, words))
        if unknown := sorted({*values} - {*names}):
            raise ValueError(f"unknown setting {', '.join(unknown)}")
        if values.get("init_from"):
            from training.settings.init_from import Start  # reads with Keras

            values = Start(values["init_from"]).settings_for(values, config_class)
        return config_class(**values).resolved()
    except (ValueError, OSError) as error:
        parser.error(str(error))


def read_config(path):
    """{setting: value} of a YAML or JSON file; of the entry `arguments` of a run's config.json."""
    if path is None:
        return {}
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        values = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"--config {path}: {' '.join(str(error).split())}") from error
    if isinstance(values, dict) and "arguments" in values:
        values = values["arguments"]
    if not isinstance(values, dict):
        raise ValueError(f"--config {path}: expected settings by name. Received: {values!r:.80}")
    return {str(name): listed(value) for name, value in values.items() if value is not None}


def listed(value):
    """A setting's value, in which a tuple stands for a list."""
    return tuple(value) if isinstance(value, list) else value


def with_assigned(given, words):
    """The options that are given, and those of `--set`."""
    found = {name: listed(value) for name, value in given.items()}
    for word in words:
        name, value = assigned(word)
        if name in found:
            raise ValueError(f"{name} is given twice: {found[name]!r} and {value!r}")
        found[name] = value
    return found


def merged(values, given):
    """The values of a file with those that are given instead; one length or corpus for another."""
    values = dict(values)
    if any(name in given for name in LENGTHS):
        for name in LENGTHS:
            values.pop(name, None)
    if "source" in given:
        values.pop("data", None)
    return values | given


def assigned(word):
    """(setting, value) of a word NAME=VALUE; a value that is no number stays the text that it is.

    >>> assigned("d_model=32"), assigned("languages=pt,en")
    (('d_model', 32), ('languages', ('pt', 'en')))
    """
    name, equals, text = word.partition("=")
    if not equals:
        raise ValueError(f"--set needs NAME=VALUE of a setting. Received: {word!r}")
    if name in LISTS:
        return name, tuple(text.split(","))
    if text in ("true", "false"):
        return name, text == "true"
    for kind in (int, float):
        try:
            return name, kind(text)
        except ValueError:
            pass
    return name, text
