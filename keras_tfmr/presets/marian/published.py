"""The files of a published model's folder."""

import re

from keras_tfmr._files import read_json
from keras_tfmr.errors import PresetError


def only(folder, *patterns):
    """The only file of a folder that matches the first pattern with a match, or a PresetError."""
    for pattern in patterns:
        matches = sorted(folder.glob(pattern))
        if len(matches) == 1:
            return matches[0]
        if matches:
            names = ", ".join(file.name for file in matches)
            raise PresetError(f"expected one file named {pattern}, found {names}")
    there = ", ".join(sorted(file.name for file in folder.iterdir())[:20]) or "nothing"
    raise PresetError(f"expected a file {' or '.join(patterns)}; the folder has {there}")


def read_spms(folder):
    """The bytes of source.spm and target.spm."""
    for file in ("source.bpe", "target.bpe"):
        if (folder / file).exists():
            raise PresetError(
                f"{file}: the model was made with subword-nmt, which is not supported; expected "
                "source.spm and target.spm"
            )
    return tuple(only(folder, f"{side}.spm").read_bytes() for side in ("source", "target"))


def stated_languages(folder):
    """(source, target): codes such as "pt", as far as a model's files say; None if they do not."""
    known, readme = folder / "tokenizer_config.json", folder / "README.md"
    settings = json_object(known) if known.exists() else {}
    text = readme.read_text(encoding="utf-8", errors="replace") if readme.exists() else ""
    for side in ("source", "target"):
        line = re.search(rf"{side} language(?:s|\(s\))?: *([a-z]{{2,3}})\s*$", text, re.MULTILINE)
        yield settings.get(f"{side}_lang") or (line and line[1])


def sentences_of(folder, most=256):
    """The sources of tests: files with lines of source, reference, output, and an empty one."""
    sentences = []
    for path in sorted((*folder.glob("*.test.txt"), *folder.glob("*.compare"))):
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
        sentences += lines[: 4 * most : 4] if not any(lines[3 : 4 * most : 4]) else []
    return tuple(line for line in sentences if line.strip())[:most]


def json_object(path):
    """The object in a JSON file."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise PresetError(f"{path.name}: expected an object")
    return value
