"""Parallel text: read, checked line by line, cleaned, and counted.

Source and target are labels only; any pair of languages will do.
"""

import array
import collections.abc
import dataclasses
import gzip
import hashlib
import itertools
import pathlib
import unicodedata
import zlib

import numpy as np


class Lines(collections.abc.Sequence):
    """Many lines of text in one block of UTF-8, a fraction of what a list of str takes."""

    def __init__(self, lines=()):
        self._text, self._ends = bytearray(), array.array("q", [0])
        for line in lines:
            self.append(line)

    def append(self, line):
        self._text += line.encode()
        self._ends.append(len(self._text))

    def __len__(self):
        return len(self._ends) - 1

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        return self._text[self._ends[index] : self._ends[index + 1]].decode()

    def __iter__(self):
        return (self[i] for i in range(len(self)))


@dataclasses.dataclass(frozen=True)
class TextFile:
    """What was read: path as given, checksum of the file, lines in it."""

    path: str
    sha256: str
    lines: int


@dataclasses.dataclass(frozen=True)
class Drops:
    """Pairs that were left out, by reason."""

    empty: int = 0
    long: int = 0
    duplicate: int = 0
    shared: int = 0  # a side of theirs is held out


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Sentence pairs: `targets[i]` is the translation of `sources[i]`.

    Both are in Unicode's composed form (NFC), without spaces around, and not empty; no pair occurs
    twice. `files` and `drops` say where they come from and what was left out.
    """

    sources: collections.abc.Sequence
    targets: collections.abc.Sequence
    drops: Drops = Drops()
    files: tuple[TextFile, ...] = ()

    def __len__(self):
        return len(self.sources)

    def pairs(self):
        return zip(self.sources, self.targets, strict=True)

    def lines(self):
        """All lines of both sides, to learn a joint vocabulary from."""
        return itertools.chain(self.sources, self.targets)

    def hold_out(self, count, seed=0):
        """Splits off pairs to validate with.

        Args:
            count: how many; the same `seed` picks the same ones.

        Returns:
            the corpus without them and without every pair that shares a sentence with them, and a
            corpus of them.

        Raises:
            ValueError: if no pair would be left to train with.
        """
        if not 0 < count < len(self):
            raise ValueError(f"cannot hold out {count} of {len(self)} pairs")
        chosen = np.random.default_rng(seed).permutation(len(self))[:count]
        chosen = sorted(chosen.tolist())
        held_out = Corpus(
            Lines(self.sources[i] for i in chosen), Lines(self.targets[i] for i in chosen)
        )
        rest = self.without(held_out)
        drops = dataclasses.replace(rest.drops, shared=rest.drops.shared - count)
        return dataclasses.replace(rest, drops=drops), held_out

    def without(self, other):
        """This corpus without the pairs of which one side also stands in `other`."""
        sources, targets = set(other.sources), set(other.targets)
        kept_sources, kept_targets = Lines(), Lines()
        for source, target in self.pairs():
            if source not in sources and target not in targets:
                kept_sources.append(source)
                kept_targets.append(target)
        if not len(kept_sources):
            raise ValueError("every pair shares a sentence with the pairs that are held out")
        shared = self.drops.shared + len(self) - len(kept_sources)
        drops = dataclasses.replace(self.drops, shared=shared)
        return Corpus(kept_sources, kept_targets, drops, self.files)

    def summary(self):
        """One line for people."""
        names = ", ".join(f"{file.path} (sha256 {file.sha256[:12]})" for file in self.files)
        reasons = {
            "with an empty side": self.drops.empty,
            "over-long": self.drops.long,
            "duplicate": self.drops.duplicate,
            "sharing a sentence with the held-out ones": self.drops.shared,
        }
        dropped = ", ".join(f"{n:,} {reason}" for reason, n in reasons.items() if n)
        return f"{len(self):,} pairs from {names or 'memory'}; dropped: {dropped or 'none'}"

    def record(self):
        """Counts and checksums, as JSON can hold them."""
        files = [dataclasses.asdict(file) for file in self.files]
        return {"pairs": len(self), "dropped": dataclasses.asdict(self.drops), "files": files}


def read_pairs(source_path, target_path=None, *, max_characters=1000):
    """Reads a corpus from one file of `source<TAB>target` lines or from two line-aligned files.

    Args:
        source_path: the one file, or the sources. A name that ends in `.gz`, in either
            case, is decompressed.
        target_path: the translations, line by line, where they have a file of their own.
        max_characters: pairs with a longer side are dropped.

    Returns:
        a `Corpus`; what was dropped is counted in its `drops`.

    Raises:
        ValueError: for a file that is empty, not UTF-8, not two columns wide, or of another length
            than its partner; it names the file and the line.
    """
    if target_path is None:
        paths, rows = [source_path], _columns(source_path)
    else:
        paths, rows = [source_path, target_path], _aligned(source_path, target_path)
    counted = _Counted(rows)
    corpus = clean(counted, max_characters=max_characters)
    files = tuple(TextFile(str(path), _sha256(path), counted.count) for path in paths)
    if not len(corpus):
        raise ValueError(f"{paths[0]}: no pair is left of {counted.count} lines: {corpus.drops}")
    return dataclasses.replace(corpus, files=files)


def read_tfds(name, split, *, max_characters=1000):
    """Reads a translation data set through tensorflow-datasets, which is not installed with us.

    Args:
        name: as in `ted_hrlr_translate/pt_to_en`.
        split: `train`, `validation` or `test`.

    Raises:
        RuntimeError: if the package is missing or the data set cannot be had; it says what to do.
    """
    instead = (
        "Give the sentences as text instead: --data FILE.tsv with `source<TAB>target` lines, "
        "or --source FILE --target FILE, line by line."
    )
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise RuntimeError(
            f"tfds:{name} needs `pip install tensorflow-datasets`. {instead}"
        ) from error
    try:
        data, info = tfds.load(name, split=split, with_info=True, as_supervised=True)
        rows = [(source.decode(), target.decode()) for source, target in tfds.as_numpy(data)]
    except Exception as error:  # whatever the network, the server or the disk says
        raise RuntimeError(
            f"tensorflow-datasets could not provide {name} ({error}). The server of the TED talks "
            f"has been down since 2026. {instead}"
        ) from error
    corpus = clean(rows, max_characters=max_characters)
    file = TextFile(f"tfds:{info.full_name}/{split}", "", len(rows))
    return dataclasses.replace(corpus, files=(file,))


def clean(pairs, *, max_characters=1000):
    """Makes a `Corpus` of (source, target) pairs: composed, stripped, each kept once."""
    sources, targets, seen = Lines(), Lines(), set()
    empty = long = duplicate = 0
    for source, target in pairs:
        source = unicodedata.normalize("NFC", source).strip()
        target = unicodedata.normalize("NFC", target).strip()
        # Millions of pairs are remembered by 64 bits each; that two share them is not to be seen.
        key = hash((source, target))
        if not source or not target:
            empty += 1
        elif max(len(source), len(target)) > max_characters:
            long += 1
        elif key in seen:
            duplicate += 1
        else:
            seen.add(key)
            sources.append(source)
            targets.append(target)
    return Corpus(sources, targets, Drops(empty, long, duplicate))


class _Counted:
    """Iterates once, and knows afterwards how many there were."""

    def __init__(self, items):
        self._items, self.count = items, 0

    def __iter__(self):
        for item in self._items:
            self.count += 1
            yield item


def _columns(path):
    for number, line in enumerate(_text_lines(path), 1):
        columns = line.split("\t")
        if len(columns) != 2:
            raise ValueError(
                f"{path}, line {number}: expected `source<TAB>target`, found {len(columns)} "
                f"column{'s' * (len(columns) > 1)}: {line[:80]!r}"
            )
        yield columns


def _aligned(source_path, target_path):
    missing = object()
    rows = itertools.zip_longest(
        _text_lines(source_path), _text_lines(target_path), fillvalue=missing
    )
    for number, row in enumerate(rows, 1):
        if missing in row:
            ended, other = (source_path, target_path)[:: 1 if row[0] is missing else -1]
            raise ValueError(
                f"{ended} ends after line {number - 1}, but {other} has a line {number}: "
                "the files have to have as many lines as each other"
            )
        yield row


def _text_lines(path):
    """Lines of a UTF-8 file, without line ends and byte order mark."""
    path = pathlib.Path(path)
    number = 0
    with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
        for number, line in enumerate(_read(file, path), 1):
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{path}, line {number}: not UTF-8 at byte {error.start} of the line "
                    f"(0x{line[error.start]:02x})"
                ) from error
            yield (text.removeprefix("\ufeff") if number == 1 else text).rstrip("\r\n")
    if not number:
        raise ValueError(f"{path}: the file is empty")


def _read(file, path):
    try:
        yield from file
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path}: not a whole gzip file ({error})") from error


def _sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
