"""The command line of training: an option for each setting, `--config` and `--set`.

Nothing here imports Keras, so that `--help` is instant.
"""

import argparse
import dataclasses
import json
from pathlib import Path

from keras_tfmr import _command_line
from training.config import TrainingConfig


def parse_arguments(description, arguments=None, config_class=TrainingConfig):
    """A resolved `TrainingConfig` from command-line arguments; ends the process if they are wrong.

    Args:
        description: The docstring of the script.
        arguments: Words, or None for those of the process.
        config_class: `TrainingConfig` or `TextConfig`, whose `hidden` fields have no option.
    """
    parser = _command_line.parser(description)
    fields = {field.name: field for field in dataclasses.fields(config_class)}
    hidden = getattr(config_class, "hidden", ())
    parser.add_argument(
        "--config", metavar="FILE", type=Path,
        help="settings from a YAML or JSON file, such as a run's config.json",
    )  # fmt: skip
    others = [name for name in fields if not fields[name].metadata["flag"] and name not in hidden]
    parser.add_argument(
        "--set", metavar="NAME=VALUE", nargs="+", default=(),
        help=f"any setting by its name, also those without an option: {', '.join(others)}",
    )  # fmt: skip
    for name, field in fields.items():
        if field.metadata["flag"] and name not in hidden:
            about = {"default": field.default, "help": field.metadata["help"]}
            parser.add_argument(f"--{name}", **about, **field.metadata["argparse"])
    unsaid = object()
    said = argparse.Namespace(**dict.fromkeys(fields, unsaid))
    found = vars(parser.parse_args(arguments, said))
    try:
        given = read_config(found.pop("config"), fields)
        given |= dict(assigned(word, fields) for word in found.pop("set"))
        given |= {name: value for name, value in found.items() if value is not unsaid}
        given |= {name: tuple(value) for name, value in given.items() if isinstance(value, list)}
        if given.get("init_from"):
            given = completed(given, config_class)
        return config_class(**given).resolved()
    except (ValueError, TypeError, OSError) as error:
        parser.error(str(error))


def read_config(path, fields):
    """{setting: value} of a YAML or JSON file; of the entry `arguments` of a run's config.json."""
    if path is None:
        return {}
    import yaml

    text, is_yaml = path.read_text(encoding="utf-8"), path.suffix.lower() in (".yaml", ".yml")
    try:
        values = yaml.safe_load(text) if is_yaml else json.loads(text)
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"--config {path}: {' '.join(str(error).split())}") from error
    if isinstance(values, dict):
        values = values.get("arguments", values)
    if not isinstance(values, dict):
        raise ValueError(
            f"--config {path}: expected settings by name. Received: {str(values)[:80]}"
        )
    if unknown := sorted({*map(str, values)} - {*fields}):
        raise ValueError(f"--config {path}: unknown setting {', '.join(unknown)}")
    return {name: value for name, value in values.items() if value is not None}


def assigned(word, fields):
    """(setting, value) of a word NAME=VALUE; a list has commas or spaces between its values."""
    name, equals, text = word.partition("=")
    if not equals or name not in fields:
        raise ValueError(f"--set needs NAME=VALUE of a setting. Received: {word!r}")
    about = fields[name].metadata["argparse"]
    if "action" in about:
        if text not in ("true", "false"):
            raise ValueError(f"--set {name} must be true or false. Received: {text!r}")
        return name, text == "true"
    if "nargs" in about:
        return name, tuple(text.replace(",", " ").split())
    try:
        return name, about.get("type", str)(text)
    except ValueError as error:
        raise ValueError(f"--set {name}: {error}") from error


def completed(given, config_class):
    """The given settings, with those that follow from the run that the training begins from."""
    from training.init_from import Start

    start = Start(given["init_from"])
    if config_class is not TrainingConfig:
        return start.text_settings() | given
    return start.settings_for(given)
