"""The encoded corpus of a run, in files of its folder: written once, used at every start.

`store.json` is written last. It records what the files were made from and their checksums, so that
a run never learns from a partial or damaged corpus.
"""

import json
import os
from typing import NamedTuple

from training.corpus import arrays
from training.corpus.encode import Encoder, SideWriter, id_type, portable
from training.corpus.files import TextFile, sha256, stamp

SIDES = ("source", "target")
ARRAYS = tuple(f"{side}.{kind}" for side in SIDES for kind in ("values", "offsets"))
INDEX, HELD_OUT = "store.json", "held_out.json"


class Store(NamedTuple):
    """The encoded training pairs of a run, and its validation and test pairs.

    Fields:
        sides: `(values, offsets)` for source and target, memory maps.
        parts: The number of pairs of each corpus.
        held_out: `{"validation": pairs, "test": pairs}`, lists of (source, target).
        record: Counts and checksums, for config.json.
        summaries: Lines for people.
        files: A `TextFile` for each file that was read.
    """

    sides: list
    parts: list
    held_out: dict
    record: dict
    summaries: list
    files: list

    def changed_files(self):
        """The files that have changed: (path, old checksum, new checksum)."""
        changed = []
        for file in self.files:
            if not file.bytes or stamp(file.path) == (file.bytes, file.modified):
                continue
            if (now := sha256(file.path)) != file.sha256:
                changed.append((file.path, file.sha256, now))
        return changed


def write(folder, pile, tokenizers, excluded, tags):
    """Encodes the kept pairs of a `Pile` into files, for `finish`.

    Args:
        folder: A `pathlib.Path`.
        pile: The `Pile`.
        tokenizers: Those of source and target.
        excluded: Sets of the sources and targets that must not be learned.
        tags: The tag of each part, or "".

    Returns:
        `(parts, files)`: the number of pairs in each part, and the records of the files.
    """
    sides = [
        SideWriter(folder, name, id_type(tokenizer))
        for name, tokenizer in zip(SIDES, tokenizers, strict=True)
    ]
    try:
        parts = pile.encode(Encoder([portable(t) for t in tokenizers], excluded, tags), sides)
    finally:
        files = {name: record for side in sides for name, record in side.close().items()}
    return parts, files


def finish(folder, index, held_out):
    """Writes the index of the encoded files, and opens the store.

    Args:
        folder: A `pathlib.Path`.
        index: The fields of `Store` other than `sides` and `held_out`; `arrays`, the records of the
            files; `tokenizers`, their checksums.
        held_out: As in `Store`.
    """
    index = {**index, "files": [file._asdict() for file in index["files"]]}
    _write_json(folder / HELD_OUT, held_out)
    _write_json(folder / INDEX, index)
    return read(folder, index["tokenizers"])


def read(folder, tokenizers):
    """The `Store` of a folder, or None if it is missing, damaged or of other tokenizers."""
    try:
        index = json.loads((folder / INDEX).read_text())
        held_out = json.loads((folder / HELD_OUT).read_text())
    except (OSError, ValueError):
        return None
    records = index["arrays"]
    if index["tokenizers"] != tokenizers:
        return None
    if not all(arrays.is_whole(folder / name, records[name]) for name in ARRAYS):
        return None
    sides = [
        tuple(
            arrays.read(folder / name, records[name]["dtype"])
            for name in (f"{side}.values", f"{side}.offsets")
        )
        for side in SIDES
    ]
    held_out = {name: [tuple(pair) for pair in pairs] for name, pairs in held_out.items()}
    files = [TextFile(**file) for file in index["files"]]
    return Store(sides, index["parts"], held_out, index["record"], index["summaries"], files)


def delete(folder):
    """Deletes the files of a store by their names, and the folder if it is empty then."""
    names = (INDEX, HELD_OUT, "pairs.tsv", "keys", "near_keys", *ARRAYS)
    for name in names:
        (folder / name).unlink(missing_ok=True)
    try:
        folder.rmdir()
    except OSError:
        return


def _write_json(path, value):
    temporary = path.with_name(f".{path.name}")
    with temporary.open("w") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
