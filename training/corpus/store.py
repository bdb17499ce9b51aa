"""A corpus as token ids in memory-mapped files.

Written once, at constant memory, and used at every start of a run. `store.json` is written last; it
records what the files were made from and their checksums, so that a run never learns from a partial
or damaged corpus.
"""

import collections
import contextlib
import hashlib
import itertools
from typing import NamedTuple

import numpy as np

from keras_tfmr._files import read_json
from training.command.disk import RunError, mapped, record, sha256, write_json
from training.corpus.filter import REASONS, summary

SIDES = ("source", "target")
ARRAYS = tuple(f"{side}.{kind}" for side in SIDES for kind in ("values", "offsets"))
INDEX, TEXT = "store.json", "pairs.tsv"
CHUNK = 20_000  # pairs that are encoded together


class Encoded(NamedTuple):
    """The encoded training pairs of a run, and its validation and test pairs.

    Fields:
        sides: `(values, offsets)` of the ids of source and target, memory maps.
        parts: The number of pairs of each corpus.
        held_out: `{"validation": pairs, "test": pairs}`, lists of (source, target).
        record: Counts and checksums, for config.json.
    """

    sides: list
    parts: list
    held_out: dict
    record: dict

    def summaries(self):
        """Lines for people, one for each set of pairs."""
        return [f"{name}: {told(**about)}" for name, about in self.record.items()]

    def changed_files(self):
        """The files that have changed: (path, old checksum, new checksum)."""
        files = [file for about in self.record.values() for file in about["files"]]
        now = ((file["path"], file["sha256"], sha256(file["path"])) for file in files)
        return [change for change in now if change[1] != change[2]]


def identity(tokenizers):
    """Checksums that identify the tokenizers."""
    return [hashlib.sha256(tokenizer.model_bytes).hexdigest() for tokenizer in tokenizers]


def read(folder, tokenizers):
    """The `Encoded` of a folder, or None if it is missing, damaged or of other tokenizers."""
    try:
        index = read_json(folder / INDEX)
    except RunError:
        return None
    known = index["arrays"].items()
    if index["tokenizers"] != identity(tokenizers) or any(
        not (folder / name).is_file() or record(folder / name, about["dtype"]) != about
        for name, about in known
    ):
        return None
    return opened(folder, index)


def opened(folder, index):
    """The `Encoded` of a folder whose files are as its index says."""
    arrays = [mapped(folder / name, index["arrays"][name]["dtype"]) for name in ARRAYS]
    held_out = {name: [tuple(pair) for pair in rows] for name, rows in index["held_out"].items()}
    sides = [tuple(arrays[:2]), tuple(arrays[2:])]
    return Encoded(sides, index["parts"], held_out, index["record"])


def delete(folder):
    """Deletes the files of an encoded corpus by their names, and the folder if it is empty then."""
    for name in (INDEX, TEXT, *ARRAYS):
        (folder / name).unlink(missing_ok=True)
    if folder.exists() and not any(folder.iterdir()):
        folder.rmdir()


def write(folder, pairs, corpora, tokenizers, sets, paths, dropped):
    """Encodes pairs into files; the `Encoded`.

    Args:
        folder: Where to write.
        pairs: Yields (number of its corpus, source, target), as a model reads them.
        corpora: The number of corpora.
        tokenizers: Of source and target.
        sets: {"validation": `Pairs`, …}.
        paths: The files of the training pairs.
        dropped: A Counter of the dropped training pairs by reason.
    """
    counts = write_ids(folder, pairs, tokenizers)
    dtypes = [type_ for t in tokenizers for type_ in (id_type(t.vocab_size), np.int64)]
    arrays = zip(ARRAYS, dtypes, strict=True)
    index = {
        "arrays": {name: record(folder / name, dtype) for name, dtype in arrays},
        "parts": [counts[corpus] for corpus in range(corpora)],
        "tokenizers": identity(tokenizers),
        "held_out": {n: sets[n].tagged() if n in sets else [] for n in ("validation", "test")},
        "record": {"train": described(counts.total(), paths, dropped)}
        | {name: described(len(s.pairs), s.files, s.counts) for name, s in sets.items()},
    }
    write_json(folder / INDEX, index)
    return opened(folder, index)


def id_type(vocab_size):
    """The smallest type that holds the ids."""
    return np.uint16 if vocab_size <= 2**16 else np.int32


def write_ids(folder, pairs, tokenizers):
    """Encodes pairs into files; a Counter of the pairs of each corpus."""
    counts, ends = collections.Counter(), [0, 0]
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context((folder / name).open("wb")) for name in ARRAYS]
        for offsets in files[1::2]:
            offsets.write(np.zeros(1, np.int64).tobytes())
        while chunk := list(itertools.islice(pairs, CHUNK)):
            corpora, *columns = zip(*chunk, strict=True)
            counts.update(corpora)
            for side, (tokenizer, lines) in enumerate(zip(tokenizers, columns, strict=True)):
                values, offsets = tokenizer.encode_lines(lines)
                files[2 * side].write(values.astype(id_type(tokenizer.vocab_size)).tobytes())
                files[2 * side + 1].write((ends[side] + offsets[1:]).tobytes())
                ends[side] += len(values)
    return counts


def told(pairs, files, dropped):
    """A line about a set of pairs: its size, its files, the dropped pairs."""
    names = ", ".join(file["path"] for file in files[:3])
    more = f" and {len(files) - 3} more files" if len(files) > 3 else ""
    left_out = f"; dropped: {summary(dropped)}" if dropped else ""
    return f"{pairs:,} pairs{f' from {names}' if names else ''}{more}{left_out}"


def described(pairs, paths, counts):
    """What config.json says of a set of pairs."""
    dropped = {reason: counts[reason] for reason in REASONS if counts.get(reason)}
    files = [{"path": str(path), "sha256": sha256(path)} for path in paths]
    return {"pairs": pairs, "dropped": dropped, "files": files}
