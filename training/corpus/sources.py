"""The corpora that `--data` names: files, patterns and data sets, with their weights and tags."""

import dataclasses
import re

from training.corpus import files, pile, tatoeba
from training.corpus.files import CorpusError

WEIGHT = re.compile(r"(.+):(\d+(?:\.\d*)?|\.\d+)")


@dataclasses.dataclass(frozen=True)
class Source:
    """One corpus.

    Fields:
        name: The given name, without its weight.
        weight: Its share of an epoch relative to the other weights, or None.
        tag: The tag in front of its sources, or "".
        aligned: The file of the targets, if it is separate.
    """

    name: str
    weight: float | None = None
    tag: str = ""
    aligned: str = ""

    def blocks(self, split, read):
        """The lines of a split as `files.Block`s.

        Args:
            split: `train`, `validation` or `test`; only data sets have the latter two.
            read: A list, to which a `TextFile` is added for each file that was read.
        """
        if self.name.startswith("tfds:"):
            rows, name = tfds_rows(self.name.removeprefix("tfds:"), split)
            read.append(files.TextFile(name, "", len(rows)))
            yield from pile.in_memory(rows)
            return
        for paths in self.paths(split):
            yield from files.blocks(paths, read)

    def paths(self, split="train"):
        """Tuples of one path or of two aligned ones."""
        if self.name.startswith("tatoeba:"):
            return [(tatoeba.split_path(self.name.removeprefix("tatoeba:"), split),)]
        if self.aligned:
            pairs = files.find(self.name), files.find(self.aligned)
            if len(pairs[0]) != len(pairs[1]):
                raise CorpusError(
                    "--source and --target must name the same number of files. Received: "
                    f"{self.name} ({len(pairs[0])}) and {self.aligned} ({len(pairs[1])})"
                )
            return list(zip(*pairs, strict=True))
        return [(path,) for path in files.find(self.name)]

    @property
    def has_splits(self):
        """Whether it has its own validation and test pairs."""
        return self.name.startswith(("tfds:", "tatoeba:"))


class Phrasebook:
    """The built-in corpus: sentences of a small grammar.

    Args:
        seed: Seed of the sentences.
    """

    name, weight, tag, has_splits = "phrasebook", None, "", True

    def __init__(self, seed):
        self._seed, self._split = seed, None

    def blocks(self, split, read):
        """As `Source.blocks`."""
        from training import phrasebook

        self._split = self._split or phrasebook.split(self._seed)
        return pile.in_memory(getattr(self._split, split))


def parse(data, tags=(), also=()):
    """The `Source`s that `--data` names, with the tags of `--tag`.

    Args:
        data: Words `NAME` or `NAME:WEIGHT`; all have weights, or none.
        tags: Words `NAME=TAG`.
        also: Names of other files that may have a tag.

    Raises:
        CorpusError: If weights or tags do not have this form.
    """
    tags, found = tags_of(tags), []
    for word in data:
        match = WEIGHT.fullmatch(word)
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
    2019, arXiv 1907.05019).

    Args:
        sources: list of `Source`.
        sizes: The number of pairs of each.
        temperature: float, at least 1. At 1, each pair occurs once; a higher one gives small
            corpora a larger share.

    Returns:
        list of float.
    """
    shares = [
        source.weight if source.weight is not None else size ** (1 / temperature)
        for source, size in zip(sources, sizes, strict=True)
    ]
    shares = [share if size else 0 for share, size in zip(shares, sizes, strict=True)]
    if temperature == 1 and all(source.weight is None for source in sources):
        return [1.0] * len(sizes)
    per_share = sum(sizes) / sum(shares)
    return [share * per_share / (size or 1) for share, size in zip(shares, sizes, strict=True)]


def tfds_rows(name, split):
    """The pairs of a translation data set, by tensorflow-datasets, which is not a dependency.

    Args:
        name: The name of the data set, such as `ted_hrlr_translate/pt_to_en`.
        split: `train`, `validation` or `test`.

    Returns:
        list of (source, target), and the full name of the data set.

    Raises:
        CorpusError: If the package or the data set is not available; it says what to do.
    """
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
