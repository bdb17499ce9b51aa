"""The command line of training: an option for each setting, `--config` and `--set`.

Nothing here imports Keras, so that `--help` is instant.
"""

import contextlib
import dataclasses
import functools
import json
from pathlib import Path

from training.command import scripts
from training.settings.fields import what_is_wrong
from training.settings.training_config import INSTEAD, TrainingConfig


def parse_arguments(description, arguments=None, config_class=TrainingConfig):
    """A resolved `TrainingConfig` from command-line arguments; ends the process if they are wrong.

    Args:
        description: The docstring of the script.
        arguments: Words, or None for those of the process.
        config_class: `TrainingConfig` or `TextConfig`.
    """
    parser, own = scripts.parser(description), config_class.own_fields()
    fields = {field.name: field for field in dataclasses.fields(config_class)}
    parser.add_argument(
        "--config", metavar="FILE", type=Path,
        help="settings from a YAML or JSON file, such as a run's config.json",
    )  # fmt: skip
    others = [name for name, field in own.items() if not field.metadata["flag"]]
    parser.add_argument(
        "--set", metavar="NAME=VALUE", nargs="+", default=(),
        help="any setting by its name, and commas between the values of a list; without an option "
        f"of their own: {', '.join(others)}",
    )  # fmt: skip
    for name, field in own.items():
        if field.metadata["flag"]:
            about = {"default": field.default, "help": told(field)}
            parser.add_argument(f"--{name}", **about, **read_as(field))
    options, unknown = parser.parse_known_args(arguments)
    try:
        check_known(unknown, others)
        assignments = [assigned(word, fields) for word in options.set]
        assignments += [(o.dest, value) for o, value in parser.given.items() if o.dest in own]
        given, values = together(assignments, fields), read_config(options.config, fields)
        for name in given:
            for other in INSTEAD.get(name, ()):
                values.pop(other, None)
        values |= given
        if values.get("init_from"):
            values = completed(values, config_class)
        settings = config_class(**values)
        settings.check_read(given)
        return settings.resolved()
    except (ValueError, OSError) as error:
        parser.error(str(error))


def told(field):
    """The help of a setting, with its range in front of its default."""
    text, default, rest = field.metadata["help"].partition(" (default")
    words = field.metadata["range"].words if field.metadata["range"] else ""
    is_number = field.type in (int, float) and words
    return f"{text}, {words}{default}{rest}" if is_number else f"{text}{default}{rest}"


def read_as(field):
    """Arguments of argparse for a setting, from its type."""
    if field.type is bool:
        return {"action": scripts.Switch if field.default else "store_true"}
    if field.type in (int, float):
        return {"type": field.type, "metavar": "N" if field.type is int else "X"}
    about = {"nargs": "+"} if field.type is tuple else {}
    choices, metavar = field.metadata["choices"], field.metadata["metavar"]
    return about | ({"choices": choices} if choices else {"metavar": metavar})


def check_known(words, settings):
    """Raises a ValueError for words that are no options, and says which are settings."""
    names = [word.partition("=")[0].removeprefix("--").removeprefix("no_") for word in words]
    hints = [f": use --set {name}=VALUE" for name in names if name in settings]
    if words:
        raise ValueError(f"unrecognized arguments: {' '.join(words)}{''.join(hints[:1])}")


def together(assignments, fields):
    """{setting: value} of (setting, value); lists add up, and another may be given once."""
    values = {}
    for name, value in assignments:
        if fields[name].type is tuple:
            values[name] = (*values.get(name, ()), *value)
        elif name in values:
            raise ValueError(f"{name} is given twice: {values[name]!r} and {value!r}")
        else:
            values[name] = value
    return values


def read_config(path, fields):
    """{setting: value} of a YAML or JSON file; of the entry `arguments` of a run's config.json."""
    if path is None:
        return {}
    import yaml

    class Loader(yaml.SafeLoader):
        """Names what is in a mapping twice."""

    pairs = functools.partial(Loader.construct_pairs, deep=True)
    Loader.add_constructor("tag:yaml.org,2002:map", lambda *where: once(pairs(*where)))
    try:
        text, is_yaml = path.read_text(encoding="utf-8"), path.suffix.lower() in (".yaml", ".yml")
        values = yaml.load(text, Loader) if is_yaml else json.loads(text, object_pairs_hook=once)
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"--config {path}: {' '.join(str(error).split())}") from error
    if isinstance(values, dict):
        values = values.get("arguments", values)
    if not isinstance(values, dict):
        raise ValueError(
            f"--config {path}: expected settings by name. Received: {str(values)[:80]}"
        )
    if unknown := sorted({*values} - {*fields}):
        raise ValueError(f"--config {path}: unknown setting {', '.join(unknown)}")
    values = {name: value for name, value in values.items() if value is not None}
    for name, value in values.items():
        if wrong := what_is_wrong(fields[name], value):
            raise ValueError(f"--config {path}: {name} {wrong}")
    return {n: tuple(v) if isinstance(v, list) else v for n, v in values.items()}


def once(pairs):
    """{name: value} of pairs; raises a ValueError if a name has two values."""
    values = {str(name): value for name, value in pairs}
    if len(values) < len(pairs):
        names = [str(name) for name, _ in pairs]
        raise ValueError(f"given twice: {next(n for n in names if names.count(n) > 1)}")
    return values


def assigned(word, fields):
    """(setting, value) of a word NAME=VALUE; a value of another type stays the text that it is."""
    name, equals, text = word.partition("=")
    if not equals or name not in fields:
        raise ValueError(f"--set needs NAME=VALUE of a setting. Received: {word!r}")
    kind = fields[name].type
    if kind is bool:
        return name, {"true": True, "false": False}.get(text, text)
    if kind is tuple:
        return name, tuple(text.split(","))
    with contextlib.suppress(ValueError):
        return name, kind(text)
    return name, text


def completed(given, config_class):
    """The given settings, with those that follow from the run that the training begins from."""
    from training.settings.init_from import Start

    return Start(given["init_from"]).settings_for(given, config_class)
