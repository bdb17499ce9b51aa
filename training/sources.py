"""The corpora that `--data` names, as blocks of lines: files, patterns, data sets, the phrasebook.

Text is read in blocks, plain or from gzip, bzip2 or Zstandard, so that a corpus may be larger than
memory. An error names the file and the line.
"""

import bz2
import dataclasses
import glob
import gzip
import hashlib
import io
import itertools
import json
import os
import pathlib
import re
import zlib
from typing import NamedTuple

import numpy as np

LINES = 20_000  # in a block
LONGEST_LINE = 600  # characters; a longer line of plain text is cut between words
MOST_LABELS = 1000  # more are probably free text, given by mistake
TATOEBA, SUMS = pathlib.Path("data/tatoeba"), "SHA256SUMS"  # of training/get_tatoeba.py
NOTHING = "-"  # stands for the source side of plain text
_WEIGHT = re.compile(r"(.+):(\d+(?:\.\d*)?|\.\d+)")
_ENDINGS = {".gz": "gzip", ".bz2": "bzip2", ".zst": "zstd"}


class CorpusError(ValueError):
    """An error in a corpus, in one line for the user."""


class TextFile(NamedTuple):
    """A file that was read: its path as given, checksum, lines, size and modification time."""

    path: str
    sha256: str
    lines: int
    bytes: int = 0
    modified: int = 0


class Block(NamedTuple):
    """Lines `first`, `first + 1`, … of one file or of two aligned ones, as bytes."""

    paths: tuple
    first: int
    texts: tuple


@dataclasses.dataclass(frozen=True)
class Source:
    """One corpus.

    Fields:
        name: The given name, without its weight.
        weight: Its share of an epoch relative to the other weights, or None.
        tag: The tag in front of its sources, or "".
        aligned: The file of the targets, if it is separate.
        task: How its lines are read: "translation", or a text task.
    """

    name: str
    weight: float | None = None
    tag: str = ""
    aligned: str = ""
    task: str = "translation"

    def blocks(self, split, read):
        """The lines of a split as `Block`s of two columns.

        Args:
            split: `train`, `validation` or `test`; only data sets have the latter two.
            read: A list, to which a `TextFile` is added for each file that was read.
        """
        change = {"translation": None, "classify": _labelled, "tag": _tagged}.get(self.task, _plain)
        for block in self._blocks(split, read):
            yield two_columns(change(block), block) if change else block

    def _blocks(self, split, read):
        if self.name.startswith("tfds:"):
            rows, name = _tfds_rows(self.name.removeprefix("tfds:"), split)
            read.append(TextFile(name, "", len(rows)))
            yield from in_memory(rows)
            return
        for paths in self._paths(split):
            yield from read_blocks(paths, read)

    def _paths(self, split):
        if self.name.startswith("tatoeba:"):
            return [(split_path(self.name.removeprefix("tatoeba:"), split),)]
        if not self.aligned:
            return [(path,) for path in find(self.name)]
        pairs = find(self.name), find(self.aligned)
        if len(pairs[0]) != len(pairs[1]):
            raise CorpusError(
                "--source and --target must name the same number of files. Received: "
                f"{self.name} ({len(pairs[0])}) and {self.aligned} ({len(pairs[1])})"
            )
        return list(zip(*pairs, strict=True))

    @property
    def has_splits(self):
        """Whether it has its own validation and test pairs."""
        return self.name.startswith(("tfds:", "tatoeba:"))


class Phrasebook:
    """The built-in corpus: sentences of a small grammar.

    Args:
        seed: Seed of the sentences.
        task: As for `Source`.
    """

    name, weight, tag, has_splits = "phrasebook", None, "", True

    def __init__(self, seed, task="translation"):
        self._seed, self._task, self._split = seed, task, None

    def blocks(self, split, read):
        """As `Source.blocks`."""
        if self._split is None:
            from training import phrasebook

            task = "translate" if self._task == "translation" else self._task
            self._split = phrasebook.split(self._seed, task=task)
        pairs = getattr(self._split, split)
        if self._task in ("language", "masked"):
            pairs = [(NOTHING, text) for text in pairs]
        return in_memory(pairs)


def corpora_of(settings):
    """The sources of a run, a list."""
    if settings.phrasebook:
        return [Phrasebook(settings.seed, settings.task)]
    if settings.source:
        return [Source(settings.source, aligned=settings.target)]
    found = parse(settings.data, settings.tag, also=settings.validation)
    return [dataclasses.replace(source, task=settings.task) for source in found]


def parse(data, tags=(), also=()):
    """The `Source`s that `--data` names, with the tags of `--tag`.

    Args:
        data: Words `NAME` or `NAME:WEIGHT`; all have weights, or none.
        tags: Words `NAME=TAG`.
        also: Names of other files that may have a tag.
    """
    tags, found = tags_of(tags), []
    for word in data:
        match = _WEIGHT.fullmatch(word)
        name, weight = (match[1], float(match[2])) if match else (word, None)
        if weight == 0:
            raise CorpusError(f"The weight of a corpus must be positive. Received: {word}")
        found.append(Source(name, weight, tags.get(name, "")))
    weighted = [source for source in found if source.weight is not None]
    if weighted and len(weighted) < len(found):
        other = next(source.name for source in found if source.weight is None)
        raise CorpusError(f"Give either all corpora a weight or none; {other} has none")
    if unknown := [name for name in tags if name not in {*also, *(s.name for s in found)}]:
        raise CorpusError(
            f"--tag must name a file of --data or --validation. Received: {unknown[0]}"
        )
    return found


def tags_of(words):
    """{name: tag} of words `NAME=TAG`."""
    pairs = [word.rpartition("=") for word in words]
    for (name, _, tag), word in zip(pairs, words, strict=True):
        if not name or not tag or len(tag.split()) != 1:
            raise CorpusError(f"--tag needs FILE=TAG, a tag without spaces. Received: {word!r}")
    return {name: tag for name, _, tag in pairs}


def rates(sources, sizes, temperature=1.0):
    """How often each pair of each corpus occurs in an epoch, which is as large as all corpora.

    The shares of the corpora follow the weights, or else size^(1 / temperature) (Arivazhagan et al.
    2019, arXiv 1907.05019); at a temperature of 1, each pair occurs once.

    Args:
        sources: list of `Source`.
        sizes: The number of pairs of each.
        temperature: float, at least 1.
    """
    weights = [source.weight for source in sources]
    if temperature == 1 and all(weight is None for weight in weights):
        return [1.0] * len(sizes)
    shares = [
        (size ** (1 / temperature) if weight is None else weight) if size else 0
        for weight, size in zip(weights, sizes, strict=True)
    ]
    per_share = sum(sizes) / sum(shares)
    return [share * per_share / (size or 1) for share, size in zip(shares, sizes, strict=True)]


def split_path(name, split):
    """The file of a split of a downloaded pair of languages.

    Args:
        name: Two codes such as `por-eng`, or the path of a folder that `build` wrote.
        split: `train`, `validation` or `test`.

    Raises:
        CorpusError: If the file is missing or has changed.
    """
    path = (pathlib.Path(name) if "/" in name else TATOEBA / name) / f"{split}.tsv"
    if not path.exists():
        pair = pathlib.Path(name).name
        raise CorpusError(f"{path} is missing: run `python training/get_tatoeba.py {pair}` first")
    sums = dict(line.split()[::-1] for line in (path.parent / SUMS).read_text().splitlines())
    if sums.get(path.name) != sha256(path):
        raise CorpusError(
            f"{path} does not match {path.parent / SUMS}: delete the folder and run "
            f"`python training/get_tatoeba.py {pathlib.Path(name).name}` again"
        )
    return path


def find(pattern):
    """The paths that match a name or a pattern with `*`, `?` or `[…]`, sorted."""
    if os.path.exists(pattern):
        return [pathlib.Path(pattern)]
    if found := sorted(glob.glob(str(pattern), recursive=True)):
        return [pathlib.Path(path) for path in found]
    raise CorpusError(f"{pattern}: No such file or directory")


def read_blocks(paths, read):
    """Yields the lines of a file of two columns, or of two aligned files, as `Block`s.

    Args:
        paths: One path or two.
        read: A list, to which a `TextFile` is added for each path at the end.
    """
    names, number = tuple(map(str, paths)), 0
    streams = [_opened(path) for path in paths]
    while True:
        texts = [_lines(stream, name) for stream, name in zip(streams, names, strict=True)]
        counts = [text.count(b"\n") + (text[-1:] not in (b"", b"\n")) for text in texts]
        if not number:
            for name, count in zip(names, counts, strict=True):
                if not count:
                    raise CorpusError(f"{name}: the file is empty")
            texts = [text.removeprefix(b"\xef\xbb\xbf") for text in texts]
        if counts[0] != counts[-1]:
            ended, other = names if counts[0] < counts[-1] else names[::-1]
            raise CorpusError(
                f"{ended} ends after line {number + min(counts)}, but {other} has a line "
                f"{number + min(counts) + 1}: the two files must have the same number of lines"
            )
        if not counts[0]:
            break
        yield Block(names, number + 1, tuple(texts))
        number += counts[0]
    for path, stream in zip(paths, streams, strict=True):
        stream.close()
        size, modified = stamp(path)
        read.append(TextFile(str(path), sha256(path), number, size, modified))


def stamp(path):
    """Size and modification time of a file; while they are the same, the content is too."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def sha256(path):
    """The SHA-256 checksum of a file, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def rows(block):
    """Yields the `(source, target)` of each line of a block, unchanged."""
    columns = [[line.rstrip("\r") for line in _text(block, i)] for i in range(len(block.texts))]
    if len(columns) == 2:
        yield from zip(*columns, strict=True)
        return
    for number, line in enumerate(columns[0], block.first):
        row = line.split("\t")
        if len(row) != 2:
            raise CorpusError(
                f"{block.paths[0]}, line {number}: expected two columns with a tab between them, "
                f"found {len(row)} column{'s' * (len(row) > 1)}: {line[:80]!r}"
            )
        yield row


def in_memory(pairs):
    """Pairs in memory as blocks of lines."""
    pairs, first = iter(pairs), 1
    while chunk := list(itertools.islice(pairs, LINES)):
        yield two_columns(chunk, Block(("memory",), first, ()))
        first += len(chunk)


def two_columns(pairs, block):
    """A block of two aligned columns in the place of another; tabs and line ends become spaces."""
    columns = zip(*pairs, strict=True)
    texts = [
        "".join(re.sub(r"[\t\n]", " ", cell) + "\n" for cell in column).encode()
        for column in columns
    ]
    return Block((block.paths * 2)[:2], block.first, tuple(texts) or (b"", b""))


def _text(block, column):
    """The lines of one file of a block, list of str."""
    lines = block.texts[column].removesuffix(b"\n").split(b"\n")
    try:
        return b"\n".join(lines).decode("utf-8").split("\n")
    except UnicodeDecodeError:
        pass
    for number, line in enumerate(lines, block.first):
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise CorpusError(
                f"{block.paths[column]}, line {number}: not UTF-8 at byte {error.start} of the "
                f"line (0x{line[error.start]:02x})"
            ) from error
    raise AssertionError("a text is UTF-8 if its lines are")


def _labelled(block):
    for number, (text, label) in enumerate(rows(block), block.first):
        if len(label.split()) != 1:
            raise CorpusError(
                f"{block.paths[0]}, line {number}: expected `text<TAB>label`, a label without "
                f"spaces. Received: {label[:80]!r}"
            )
        yield text, label.strip()


def _tagged(block):
    for number, (tokens, tags) in enumerate(rows(block), block.first):
        counts = len(tokens.split()), len(tags.split())
        if counts[0] != counts[1]:
            raise CorpusError(
                f"{block.paths[0]}, line {number}: expected `tokens<TAB>tags`, one tag for each "
                f"token. Received {counts[0]} tokens and {counts[1]} tags: {tokens[:80]!r}"
            )
        yield " ".join(tokens.split()), " ".join(tags.split())


def _plain(block):
    for line in _text(block, 0):
        line = re.sub(r"\s+", " ", line).strip()
        while len(line) > LONGEST_LINE:  # a word that is too long is cut too
            cut = line.rfind(" ", 1, LONGEST_LINE)
            cut = cut if cut > 0 else LONGEST_LINE
            yield NOTHING, line[:cut]
            line = line[cut:].lstrip()
        yield NOTHING, line


def _lines(stream, name):
    kind = _ENDINGS.get(pathlib.Path(name).suffix.lower())
    try:
        return b"".join(itertools.islice(stream, LINES))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise CorpusError(f"{name}: not a whole {kind} file ({error})") from error
    except OSError as error:
        if kind == "bzip2" and error.errno is None:
            raise CorpusError(f"{name}: not a whole bzip2 file ({error})") from error
        raise


def _opened(path):
    kind = _ENDINGS.get(pathlib.Path(path).suffix.lower())
    if kind == "gzip":
        return io.BufferedReader(gzip.open(path))
    if kind == "bzip2":
        return bz2.open(path)
    if kind == "zstd":
        return io.BufferedReader(_Zstandard(path))
    return open(path, "rb", buffering=1 << 20)


class _Zstandard(io.RawIOBase):
    """A file of Zstandard frames; unlike in the library's stream, a cut-off frame is an error."""

    def __init__(self, path):
        try:
            import zstandard
        except ImportError as error:
            raise CorpusError(f"{path}: reading .zst needs `pip install zstandard`") from error
        self._library, self._file = zstandard, open(path, "rb")  # noqa: SIM115
        self._frame, self._text = None, memoryview(b"")

    def readable(self):
        return True

    def readinto(self, buffer):
        while not self._text:
            packed = self._frame.unused_data if self._frame and self._frame.eof else b""
            packed = packed or self._file.read(1 << 18)
            if not packed:
                if self._frame and not self._frame.eof:
                    raise EOFError("the last frame is cut off")
                return 0
            if self._frame is None or self._frame.eof:
                self._frame = self._library.ZstdDecompressor().decompressobj()
            try:
                self._text = memoryview(self._frame.decompress(packed))
            except self._library.ZstdError as error:
                raise EOFError(str(error)) from error
        count = min(len(buffer), len(self._text))
        buffer[:count], self._text = self._text[:count], self._text[count:]
        return count


def _tfds_rows(name, split):
    """The pairs of a translation data set, by tensorflow-datasets, and its full name."""
    instead = (
        "Give the sentences as text instead: --data FILE.tsv with `source<TAB>target` lines, "
        "or --source FILE --target FILE with one sentence on each line."
    )
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise CorpusError(
            f"tfds:{name} needs `pip install tensorflow-datasets`. {instead}"
        ) from error
    try:
        data, info = tfds.load(name, split=split, with_info=True, as_supervised=True)
        pairs = [(source.decode(), target.decode()) for source, target in tfds.as_numpy(data)]
    except Exception as error:  # any error of the network, the server or the disk
        raise CorpusError(
            f"tensorflow-datasets could not provide {name} ({error}). {instead}"
        ) from error
    return pairs, f"tfds:{info.full_name}/{split}"


class Labels:
    """Names of classes, in the form of a tokenizer for the target side of a corpus.

    Class c has id c + 1, because 0 is padding. A line of several names has an id for each.

    Args:
        names: list of str.

    >>> Labels(["NOUN", "VERB"]).encode_lines(["VERB NOUN", "NOUN"])
    (array([2, 1, 1], dtype=uint16), array([0, 2, 3]))
    """

    def __init__(self, names):
        self.names = list(names)
        self.vocab_size = len(self.names) + 1
        self._ids = {name: number for number, name in enumerate(self.names, 1)}
        self.model_bytes = json.dumps({"labels": self.names}, ensure_ascii=False).encode()

    @classmethod
    def learn(cls, lines):
        """The labels that occur in lines, in alphabetical order."""
        names = sorted({name for line in lines for name in line.split()})
        if not 2 <= len(names) <= MOST_LABELS:
            raise CorpusError(
                f"Expected 2 to {MOST_LABELS} classes, named without spaces. Received "
                f"{len(names)}: {', '.join(names[:5])}{' …' if len(names) > 5 else ''}"
            )
        return cls(names)

    @classmethod
    def of_bytes(cls, content):
        """The `Labels` with these `model_bytes`, or None if the content is something else."""
        is_mine = content.startswith(b'{"labels"')
        return cls(json.loads(content)["labels"]) if is_mine else None

    def encode_lines(self, lines):
        """`(values, offsets)` of lines, as `SubwordTokenizer.encode_lines` gives."""
        rows = [[self._ids.get(name) for name in line.split()] for line in lines]
        for row, line in zip(rows, lines, strict=True):
            if None in row:
                raise CorpusError(
                    f"expected known labels, found one that no other line has: {line[:80]!r}"
                )
        lengths = np.array([0, *map(len, rows)], np.int64)
        return np.array([i for row in rows for i in row], np.uint16), np.cumsum(lengths)
