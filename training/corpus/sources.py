"""The corpora that `--data` names: files, patterns, data sets, the phrasebook."""

import dataclasses
import glob
import os
import pathlib
import re

from training import phrasebook
from training.command.disk import RunError, sha256
from training.corpus.data_sets import data_set_rows, opened
from training.corpus.read import file_rows, form, lines

_WEIGHT = re.compile(r"(.+):(\d+(?:\.\d*)?|\.\d+)")


@dataclasses.dataclass(frozen=True)
class Corpus:
    """A file, or the files of a pattern.

    Fields:
        name: The given name, without its weight.
        weight: Its fraction of an epoch, relative to the other weights; or None.
        tag: The tag in front of its sources, or "".
        aligned: The file of the targets, if they have one of their own.
    """

    name: str
    weight: float | None = None
    tag: str = ""
    aligned: str = ""

    def splits(self):
        """The splits `validation` and `test`, if it has them."""
        return ()

    def files(self, split="train"):
        """The files of a split: a list of tuples, of one path or of source and target."""
        if not self.aligned:
            return [(path,) for path in find(self.name)]
        pairs = find(self.name), find(self.aligned)
        if len(pairs[0]) != len(pairs[1]):
            raise RunError(
                "--source and --target must name the same number of files. Received: "
                f"{self.name} ({len(pairs[0])}) and {self.aligned} ({len(pairs[1])})"
            )
        return list(zip(*pairs, strict=True))

    def paths(self, split="train"):
        """The paths of all files of a split."""
        return [path for paths in self.files(split) for path in paths]

    def checksums(self, split="train"):
        """The entries in config.json of all files of a split, as they are now."""
        return [{"path": str(path), "sha256": sha256(path)} for path in self.paths(split)]

    def rows(self, settings, split="train"):
        """Yields the rows of a split, `(source, target)`, in the form of the task: see `read`."""
        for paths in self.files(split):
            yield from file_rows(paths, settings)


class DataSetCorpus(Corpus):
    """A data set that another library downloads and keeps: see `data_sets`."""

    def splits(self):
        return [name for name in ("validation", "test") if name in opened(self.name).splits]

    def files(self, split="train"):
        return []

    def rows(self, settings, split="train"):
        return data_set_rows(self.name, split, settings)


class Phrasebook(Corpus):
    """The files of the built-in phrasebook that have a split each, and columns for every task."""

    def splits(self):
        return ("validation", "test")

    def files(self, split="train"):
        return [(phrasebook.path(split),)]

    def rows(self, settings, split="train"):
        for line in lines(phrasebook.path(split)):
            yield from form(phrasebook.cells(line, settings.task), settings, self.name)


def corpus_of(name, **fields):
    """The `Corpus` for the name of a data set or a file, or for a pattern of files."""
    kind = DataSetCorpus if name.startswith(("tfds:", "hf:")) else Corpus
    return kind(name, **fields)


def of_phrasebook(task):
    """The corpora of a run without `--data`; for a translator, a quarter is hand-written."""
    if task != "translation":
        return [Phrasebook("phrasebook")]
    by_hand = Corpus(str(phrasebook.FOLDER / "pairs.tsv"), weight=1.0)
    return [Phrasebook("phrasebook", weight=3.0), by_hand]


def corpora_of(settings):
    """The corpora of a run, a list."""
    if settings.phrasebook:
        return of_phrasebook(settings.task)
    if settings.source:
        return [Corpus(settings.source, aligned=settings.target)]
    return parse(settings.data, settings.tag, also=settings.validation)


def check_apart(settings, folder):
    """Raises a RunError if beginning again in a run folder would delete a file that it reads."""
    start = settings.init_from
    if start and os.path.realpath(start) == os.path.realpath(folder.path):
        raise RunError(f"--output must not be the run of --init_from. Received: {start}")
    own = list(folder.files()) if settings.overwrite else []
    if not own:
        return
    for corpus in corpora_of(settings) + [corpus_of(name) for name in settings.validation]:
        for path in corpus.paths():
            if any(os.path.samefile(path, file) for file in own):
                raise RunError(
                    f"--overwrite would delete {path}, which the run reads: move it away"
                )


def parse(data, tags=(), also=()):
    """The corpora that `--data` names, with the tags of `--tag`.

    Args:
        data: Words `NAME` or `NAME:WEIGHT`; all have weights, or none. The name of a file that
            exists is never split.
        tags: Words `NAME=TAG`.
        also: Names of other files that may have a tag.
    """
    tags, corpora = tags_of(tags), []
    for word in data:
        match = None if os.path.exists(word) else _WEIGHT.fullmatch(word)
        name, weight = (match[1], float(match[2])) if match else (word, None)
        if weight == 0:
            raise RunError(f"The weight of a corpus must be positive. Received: {word}")
        corpora.append(corpus_of(name, weight=weight, tag=tags.get(name, "")))
    unweighted = [corpus.name for corpus in corpora if corpus.weight is None]
    if 0 < len(unweighted) < len(corpora):
        raise RunError(f"Give either all corpora a weight or none; {unweighted[0]} has none")
    known = {*also, *(corpus.name for corpus in corpora)}
    for name in tags:
        if name not in known:
            raise RunError(f"--tag must name a file of --data or --validation. Received: {name}")
    return corpora


def tags_of(words):
    """{name: tag} of words `NAME=TAG`."""
    tags = {}
    for word in words:
        name, _, tag = word.rpartition("=")
        if not name or not tag or len(tag.split()) != 1:
            raise RunError(f"--tag needs FILE=TAG, a tag without spaces. Received: {word!r}")
        if name in tags:
            raise RunError(f"--tag takes one tag for each file. Received: {' '.join(words)}")
        tags[name] = tag
    return tags


def tagged(tag, source):
    """A source with its tag, as a model reads it."""
    return f"{tag} {source}" if tag else source


def rates(corpora, sizes):
    """The number of times that each pair of each corpus occurs in an epoch, on average.

    An epoch has as many pairs as all corpora together. The weights set each corpus's fraction of
    it; without weights, each pair occurs once.

    Args:
        corpora: list of `Corpus`.
        sizes: The number of pairs of each.
    """
    if corpora[0].weight is None:
        return [1.0] * len(sizes)
    weights = sum(corpus.weight for corpus, size in zip(corpora, sizes, strict=True) if size)
    pairs = sum(sizes) / weights  # for a weight of 1
    return [
        corpus.weight * pairs / size if size else 0.0
        for corpus, size in zip(corpora, sizes, strict=True)
    ]


def find(pattern):
    """The paths that match a name or a pattern with `*`, `?` or `[…]`, sorted."""
    if os.path.exists(pattern):
        return [pathlib.Path(pattern)]
    if matches := sorted(glob.glob(str(pattern), recursive=True)):
        return [pathlib.Path(path) for path in matches]
    raise RunError(f"{pattern}: No such file or directory")
