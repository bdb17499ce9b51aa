"""What config.json of a preset must look like: whatever is wrong in it is an error that names it.

The error names the file, the entry, what was received and what was expected. `check` needs no Keras
and looks at the shape of the whole file; what is made of an entry is made inside `blaming`.
"""

import pathlib
from typing import Any

from keras_tfmr.errors import PresetError

_NULL = type(None)
_TEXT, _TEXTS, _COUNT = (str, _NULL), ([str], _NULL), (1, _NULL)
_WORDS = {
    str: "a string", int: "an integer", float: "a number", bool: "true or false", _NULL: "null",
    dict: "an object", list: "a list",
}  # fmt: skip
# An object is {name: what its entry must be}, with "?" for one that may be missing and "*" for all
# others; a list is [what each of its entries must be]; a value is its type, or a number, the least
# one that it may be; a tuple, one of these.
_PUBLISHED = {
    "name?": _TEXT, "form?": _TEXT, "source_language?": _TEXT, "target_language?": _TEXT,
    "target_languages?": _TEXTS, "notes?": _TEXTS,
}  # fmt: skip
SHAPE: dict[str, Any] = {
    "model": {"kind": str, "config": {"*": (int, float, str, bool, _NULL)}, "classes?": _COUNT},
    "arguments": {
        "data?": [str], "source?": _TEXT, "languages?": _TEXTS, "protect?": _TEXTS,
        "num_return_sequences?": 1, "preset?": _TEXT, "vocab_size?": _COUNT, "steps?": _COUNT,
        "precision?": _TEXT,
    },
    "text_model?": {
        "max_source_length?": 1, "max_length?": 1, "max_new_tokens?": 1,
        "protect?": _TEXTS, "abbreviations?": _TEXT,
    },
    "published?": _PUBLISHED,
    "start?": {"path": str, "weights_sha256": str, "published?": _PUBLISHED},
    "asked?": {}, "command?": str,
    "corpus?": {"*": {"files?": [{"path": str, "sha256": str}]}},
}  # fmt: skip


def check(config: Any, file: pathlib.Path) -> None:
    """Raises a PresetError unless a file's content has the entries of a run's or preset's config.

    >>> model = {"kind": "transformer", "config": {}, "classes": "a"}
    >>> check({"model": model, "arguments": {}}, pathlib.Path("config.json"))
    Traceback (most recent call last):
    keras_tfmr._files.PresetError: config.json: model.classes must be an integer or null. \
Received: 'a'
    """
    parts = (config.get("model"), config.get("arguments")) if isinstance(config, dict) else ()
    if not (parts and all(isinstance(part, dict) for part in parts)):
        raise PresetError(
            f"{file} is not the configuration of a run or preset: choose another folder"
        )
    _check(config, SHAPE, "", file)


def _check(value, shape, entry, file):
    shapes = shape if isinstance(shape, tuple) else (shape,)
    types = [each if isinstance(each, type) else type(each) for each in shapes]
    if type(value) not in types:
        expected = " or ".join(_WORDS[kind] for kind in types)
        raise PresetError(f"{file}: {entry} must be {expected}. Received: {value!r:.80}")
    inner = next((each for each in shapes if type(each) is type(value)), None)
    if isinstance(inner, int) and value < inner:
        raise PresetError(f"{file}: {entry} must be at least {inner}. Received: {value}")
    if isinstance(inner, list):
        for number, each in enumerate(value):
            _check(each, inner[0], f"{entry}[{number}]", file)
    elif isinstance(inner, dict):
        if missing := [name for name in inner if name[-1] not in "?*" and name not in value]:
            raise PresetError(f"{file}: {entry} has no entry {missing[0]}. Received: {value!r:.80}")
        for name, each in value.items():
            known = [inner[key] for key in (name, f"{name}?", "*") if key in inner]
            if known:
                _check(each, known[0], f"{entry}.{name}".lstrip("."), file)
