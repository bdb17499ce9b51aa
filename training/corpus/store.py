"""A corpus as token ids in memory-mapped files.

Written once, at constant memory, and used at every start of a run. `store.json` is written last; it
records where the files come from and their checksums, so that a run never learns from a partial or
damaged corpus.
"""

import collections
import contextlib
import dataclasses
import hashlib
import itertools
import sys

import numpy as np

from keras_tfmr._files import read_json
from keras_tfmr.presets.folder import INDEX, SIDES
from training.command.disk import RunError, mapped, sha256, write_json
from training.corpus.filter import REASONS, summary

ARRAYS = tuple(f"{side}.{kind}" for side in SIDES for kind in ("values", "offsets"))
TEXT = "pairs.tsv"
CHUNK = 20_000  # pairs that are encoded together


@dataclasses.dataclass
class Encoded:
    """The encoded training pairs of a run, and its validation and test pairs.

    Fields:
        sides: `(values, offsets)` of the ids of source and target, memory maps.
        parts: The number of pairs of each corpus.
        held_out: `{"validation": pairs}`, lists of (source, target); of a test set, too, if there
            is one.
        record: Counts and checksums, for config.json.
    """

    sides: list
    parts: list
    held_out: dict
    record: dict

    def summaries(self):
        """Lines for people, one for each set of pairs."""
        return [f"{name}: {in_words(**entry)}" for name, entry in self.record.items()]

    def changed_files(self):
        """The files that have changed since they were read, with both checksums, for people."""
        changes = []
        for entry in self.record.values():
            for file in entry["files"]:
                path, before, now = file["path"], file["sha256"], sha256(file["path"])
                if now != before:
                    changes.append(f"{path} (sha256 {before[:12]}, now {now[:12]})")
        return changes


def identity(tokenizers):
    """Checksums that identify the tokenizers."""
    return [hashlib.sha256(tokenizer.model_bytes).hexdigest() for tokenizer in tokenizers]


def read(folder, tokenizers):
    """The `Encoded` in a folder; None if it is missing, damaged or of other tokenizers."""
    try:
        index = read_json(folder / INDEX)
    except RunError:
        return None
    if index["tokenizers"] != identity(tokenizers):
        return None
    for name, entry in index["arrays"].items():
        path = folder / name
        if not path.is_file() or sha256(path) != entry.get("sha256"):
            print(f"warning: {path} is damaged: reading the corpus again", file=sys.stderr)
            return None
    return opened(folder, index)


def opened(folder, index):
    """The `Encoded` of a folder whose files are as its index says."""
    arrays = {name: mapped(folder / name, index["arrays"][name]["dtype"]) for name in ARRAYS}
    sides = [(arrays[f"{side}.values"], arrays[f"{side}.offsets"]) for side in SIDES]
    held_out = {name: [tuple(pair) for pair in rows] for name, rows in index["held_out"].items()}
    return Encoded(sides, index["parts"], held_out, index["record"])


def delete(folder):
    """Deletes the files of an encoded corpus by their names, and the folder if it is empty then."""
    for name in (INDEX, TEXT, *ARRAYS):
        (folder / name).unlink(missing_ok=True)
    if folder.exists() and not any(folder.iterdir()):
        folder.rmdir()


def write(folder, pairs, num_corpora, tokenizers, sets, files, dropped):
    """Encodes pairs into files; the `Encoded`.

    Args:
        folder: Where to write.
        pairs: Yields (number of its corpus, source, target), as a model reads them.
        num_corpora: The number of corpora.
        tokenizers: The tokenizers of source and target.
        sets: {"validation": `Pairs`, …}.
        files: The entries in config.json of the files of the training pairs.
        dropped: A Counter of the dropped training pairs by reason.
    """
    counts = write_ids(folder, pairs, tokenizers)
    arrays = {}
    for side, tokenizer in zip(SIDES, tokenizers, strict=True):
        for name, dtype in (("values", id_type(tokenizer.vocab_size)), ("offsets", np.int64)):
            checksum = sha256(folder / f"{side}.{name}")
            arrays[f"{side}.{name}"] = {"dtype": np.dtype(dtype).str, "sha256": checksum}
    entries = {"train": entry_of(counts.total(), files, dropped)}
    for name, held_out in sets.items():
        entries[name] = entry_of(len(held_out.pairs), held_out.files, held_out.counts)
    index = {
        "arrays": arrays,
        "parts": [counts[corpus] for corpus in range(num_corpora)],
        "tokenizers": identity(tokenizers),
        "held_out": {name: held_out.tagged() for name, held_out in sets.items()},
        "record": entries,
    }
    write_json(folder / INDEX, index)
    return opened(folder, index)


def id_type(vocab_size):
    """The smallest type that holds the ids."""
    return np.uint16 if vocab_size <= 2**16 else np.int32


def write_ids(folder, pairs, tokenizers):
    """Encodes pairs into files; a Counter of the pairs of each corpus."""
    counts = collections.Counter()
    with contextlib.ExitStack() as files:
        source, target = (
            IdsFile(folder, side, tokenizer, files)
            for side, tokenizer in zip(SIDES, tokenizers, strict=True)
        )
        while chunk := list(itertools.islice(pairs, CHUNK)):
            counts.update(corpus for corpus, _, _ in chunk)
            source.write([line for _, line, _ in chunk])
            target.write([line for _, _, line in chunk])
    return counts


class IdsFile:
    """The two files of a side: the ids of all lines, and where each line begins and ends."""

    def __init__(self, folder, side, tokenizer, files):
        self.tokenizer, self.end = tokenizer, 0
        self.values = files.enter_context((folder / f"{side}.values").open("wb"))
        self.offsets = files.enter_context((folder / f"{side}.offsets").open("wb"))
        self.offsets.write(np.zeros(1, np.int64).tobytes())

    def write(self, lines):
        values, offsets = self.tokenizer.encode_lines(lines)
        self.values.write(values.astype(id_type(self.tokenizer.vocab_size)).tobytes())
        self.offsets.write((self.end + offsets[1:]).tobytes())
        self.end += len(values)


def in_words(pairs, files, dropped):
    """A line about a set of pairs: its size, its files, the dropped pairs."""
    names = ", ".join(file["path"] for file in files[:3])
    more = f" and {len(files) - 3} more files" if len(files) > 3 else ""
    left_out = f"; dropped: {summary(dropped)}" if dropped else ""
    return f"{pairs:,} pairs{f' from {names}' if names else ''}{more}{left_out}"


def entry_of(pairs, files, counts):
    """The entry of a set of pairs in config.json."""
    dropped = {reason: counts[reason] for reason in REASONS if counts.get(reason)}
    return {"pairs": pairs, "dropped": dropped, "files": [*files]}
