"""The command line of training: options, `--config` and `--set`.

Nothing here imports Keras, so that `--help` is instant.
"""

import argparse
import json
from pathlib import Path

from keras_tfmr.compat import import_tensorflow
from training.command import scripts
from training.settings.training_config import FIELDS, LENGTHS, TRANSLATION, TrainingConfig, kind_of


def parse_arguments(description, arguments=None, tasks=TRANSLATION):
    """Resolved settings from command-line arguments; ends the process if they are wrong.

    Args:
        description: The docstring of the script.
        arguments: Words, or None for those of the process.
        tasks: The tasks of the script; the first one is its default.
    """
    fields = [field for field in FIELDS.values() if {*tasks} & {*field.metadata["tasks"]}]
    parser = make_parser(description, fields, "about" if tasks == TRANSLATION else "texts")
    given, unknown = parser.parse_known_args(arguments)
    if unknown:
        parser.error(
            f"unrecognized arguments: {' '.join(unknown)}; --set NAME=VALUE sets what has no option"
        )
    given = vars(given)
    path, words = given.pop("config"), given.pop("set")
    try:
        return settings_of(merged(read_config(path), with_assigned(given, words)), tasks)
    except (ValueError, OSError) as error:
        parser.error(str(error))


def settings_of(values, tasks):
    """The resolved settings with these values, {setting: value}, of a script for these tasks."""
    values = {"task": tasks[0]} | values
    if (task := values["task"]) not in tasks:
        raise ValueError(f"task must be one of {', '.join(tasks)}. Received: {task!r}")
    for name in sorted({*values} & {*FIELDS} - {"task"}):
        if task not in FIELDS[name].metadata["tasks"]:
            raise ValueError(f"{name} has no effect with task {task}")
    if values.get("protect") == ["none"]:
        values["protect"] = []
    start = None
    if values.get("init_from"):
        import_tensorflow()
        from training.settings.init_from import Start

        start = Start(values["init_from"])
        values = start.settings_for(values)
    settings = TrainingConfig.from_dict(values).resolved()
    if settings.model_fields:
        import_tensorflow()
        from training.settings.models import config_of

        config_of(settings, start and start.config)
    return settings


def make_parser(description, fields, key):
    """The parser of these settings, whose metadata have what they are under `key`."""
    parser = scripts.parser(description, argument_default=argparse.SUPPRESS)
    others = []
    for field in fields:
        about, option = field.metadata[key], field.metadata["option"]
        if field.default and field.default is not True and "(default: " not in about:
            about += f" (default: {field.default})"
        if option is None:
            others.append(f"{field.name}: {about}")
        elif option == "":
            prefix, action = ("no_", "store_false") if field.default else ("", "store_true")
            parser.add_argument(
                f"--{prefix}{field.name}", dest=field.name, action=action, help=about
            )
        elif kind_of(field) is tuple:
            parser.add_argument(
                f"--{field.name}", nargs="+", action="extend", metavar=option, help=about
            )
        else:
            parser.add_argument(f"--{field.name}", type=kind_of(field), metavar=option, help=about)
    parser.add_argument(
        "--config", type=Path, default=None, metavar="FILE",
        help="settings from a YAML or JSON file, such as a run's config.json",
    )  # fmt: skip
    parser.add_argument(
        "--set", nargs="+", action="extend", default=[], metavar="NAME=VALUE",
        help="any of these settings, with commas between the values of a list; or a field of the "
        "model's config, as in d_model=256 dropout_rate=0.3: see TransformerConfig",
    )  # fmt: skip
    parser.add_argument_group("settings for --set, beside the options", "\n".join(others))
    return parser


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
    return {str(name): value for name, value in values.items() if value is not None}


def merged(values, given):
    """The values of a file with those that are given instead; one length or corpus for another."""
    replaced = set(LENGTHS) if {*given} & {*LENGTHS} else set()
    if "source" in given:
        replaced.add("data")
    return {name: value for name, value in values.items() if name not in replaced} | given


def with_assigned(given, words):
    """The options that are given, and those of `--set`."""
    found = dict(given)
    for word in words:
        name, value = assigned(word)
        if name in found:
            raise ValueError(f"{name} is given twice: {found[name]!r} and {value!r}")
        found[name] = value
    return found


def assigned(word):
    """(setting, value) of a word NAME=VALUE: a value of JSON, or else the text that it is.

    >>> assigned("seed=32"), assigned("languages=pt,en"), assigned("norm=rms")
    (('seed', 32), ('languages', ['pt', 'en']), ('norm', 'rms'))
    """
    name, equals, text = word.partition("=")
    if not equals:
        raise ValueError(f"--set needs NAME=VALUE of a setting. Received: {word!r}")
    if name in FIELDS and kind_of(FIELDS[name]) is tuple:
        return name, text.split(",")
    try:
        return name, json.loads(text)
    except ValueError:
        return name, text
