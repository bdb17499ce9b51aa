"""A corpus as token ids in memory-mapped files.

Written once, at constant memory, and used at every start of a run. `store.json` is written last; it
records what the files were made from and their checksums, so that a run never learns from a partial
or damaged corpus.
"""

import collections
import contextlib
import hashlib
import zlib
from typing import NamedTuple

import numpy as np

from keras_tfmr._files import read_json
from keras_tfmr.text.lines import id_type
from training.command.disk import RunError, appending, mapped, record, sha256, write_json
from training.corpus.filter import summary
from training.corpus.read import TextFile, stamp
from training.corpus.unique import NOTHING_LEFT, learned, pairs_of
from training.corpus.workers import in_processes

SIDES = ("source", "target")
ARRAYS = tuple(f"{side}.{kind}" for side in SIDES for kind in ("values", "offsets"))
INDEX, TEXT = "store.json", "pairs.tsv"


class Encoded(NamedTuple):
    """The encoded training pairs of a run, and its validation and test pairs.

    Fields:
        sides: `(values, offsets)` of the ids of source and target, memory maps.
        parts: The number of pairs of each corpus.
        held_out: `{"validation": pairs, "test": pairs}`, lists of (source, target).
        record: Counts and checksums, for config.json.
        files: A `TextFile` for each file that was read.
    """

    sides: list
    parts: list
    held_out: dict
    record: dict
    files: list

    def summaries(self):
        """Lines for people, one for each set of pairs."""
        return [f"{name}: {_told(**about)}" for name, about in self.record.items()]

    def changed_files(self):
        """The files that have changed: (path, old checksum, new checksum)."""
        suspects = (f for f in self.files if stamp(f.path) != (f.bytes, f.modified))
        now = ((file.path, file.sha256, sha256(file.path)) for file in suspects)
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
    return _opened(folder, index)


def _opened(folder, index):
    arrays = [mapped(folder / name, index["arrays"][name]["dtype"]) for name in ARRAYS]
    held_out = {name: [tuple(pair) for pair in rows] for name, rows in index["held_out"].items()}
    files = [TextFile(*file) for file in index["files"]]
    sides = [tuple(arrays[:2]), tuple(arrays[2:])]
    return Encoded(sides, index["parts"], held_out, index["record"], files)


def delete(folder):
    """Deletes the files of an encoded corpus by their names, and the folder if it is empty then."""
    for name in (INDEX, TEXT, *ARRAYS):
        (folder / name).unlink(missing_ok=True)
    if folder.exists() and not any(folder.iterdir()):
        folder.rmdir()


def write(folder, unique, tokenizers, sets, files):
    """Encodes the pairs that are kept into files; the `Encoded`.

    Args:
        folder: Where to write.
        unique: The `UniquePairs`.
        tokenizers: Of source and target.
        sets: {"validation": `Pairs`, …}.
        files: The `TextFile`s of the training pairs.
    """
    parts, arrays = _write_ids(folder, unique, tokenizers)
    counts = {"train": (sum(parts), files, unique.dropped)}
    counts |= {name: (len(s.pairs), s.files, s.dropped) for name, s in sets.items()}
    index = {
        "arrays": arrays,
        "parts": parts,
        "tokenizers": identity(tokenizers),
        "held_out": {n: sets[n].tagged() if n in sets else [] for n in ("validation", "test")},
        "record": {name: _record(*about) for name, about in counts.items()},
        "files": [*files, *(file for pairs in sets.values() for file in pairs.files)],
    }
    write_json(folder / INDEX, index)
    return _opened(folder, index)


class PairEncoder:
    """Encodes the kept pairs of a `FilePiece`, in a process without Keras and TensorFlow."""

    def __init__(self, unique, tokenizers):
        self._path, self._excluded, self._tags = unique.path, unique.excluded, unique.tags
        self._protect = unique.protect
        self._encoders = [getattr(tokenizer, "lines", tokenizer) for tokenizer in tokenizers]

    def __call__(self, job):
        piece, is_kept = job
        read = pairs_of(self._path, piece, np.flatnonzero(is_kept))
        left_out, tag = self._excluded, self._tags[piece.part]
        pairs = [
            learned(*pair, tag, self._protect)
            for pair in read
            if not any(map(set.__contains__, left_out, pair))
        ]
        sides = []
        for column, encoder in enumerate(self._encoders):
            values, offsets = encoder.encode_lines([pair[column] for pair in pairs])
            sides.append((values, np.diff(offsets)))
        return len(pairs), len(read) - len(pairs), sides


def _write_ids(folder, unique, tokenizers):
    """Encodes the kept pairs into files: the number of pairs in each part, records of the files."""
    sizes, ends, sums = collections.Counter(), [0, 0], [0] * len(ARRAYS)
    jobs = ((p, np.array(unique.kept[p.first : p.first + p.pairs])) for p in unique.pieces)
    results = in_processes(PairEncoder(unique, tokenizers), jobs)
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(appending(folder / name)) for name in ARRAYS]

        def put(number, array):
            files[number].write(content := array.tobytes())
            sums[number] = zlib.crc32(content, sums[number])

        for number in (1, 3):
            put(number, np.zeros(1, np.int64))
        for piece, (pairs, shared, sides) in zip(unique.pieces, results, strict=True):
            sizes[piece.part] += pairs
            unique.dropped["shared"] += shared
            for side, (values, lengths) in enumerate(sides):
                put(2 * side, values)
                put(2 * side + 1, ends[side] + np.cumsum(lengths))
                ends[side] += len(values)
    if not sizes.total():
        raise RunError(NOTHING_LEFT)
    lengths = [length for end in ends for length in (end, sizes.total() + 1)]
    dtypes = [dtype for t in tokenizers for dtype in (id_type(t.vocab_size), np.dtype(np.int64))]
    records = {
        name: {"dtype": dtype.str, "length": length, "crc32": checksum}
        for name, dtype, length, checksum in zip(ARRAYS, dtypes, lengths, sums, strict=True)
    }
    return [sizes[number] for number in range(1 + max(p.part for p in unique.pieces))], records


def _told(pairs, files, dropped):
    """A line about a corpus: its size, its files, the dropped pairs."""
    names = ", ".join(f"{file['path']} (sha256 {file['sha256'][:12]})" for file in files[:3])
    more = f" and {len(files) - 3} more files" if len(files) > 3 else ""
    left_out = f"; dropped: {summary(dropped)}" if dropped else ""
    return f"{pairs:,} pairs{f' from {names}' if names else ''}{more}{left_out}"


def _record(pairs, files, dropped):
    known = [{"path": f.path, "sha256": f.sha256, "lines": f.lines} for f in files]
    return {"pairs": pairs, "dropped": {k: n for k, n in dropped.items() if n}, "files": known}
