"""The pairs of a run, each once: those to learn from in a file, those to evaluate on in memory."""

import array
import collections
import dataclasses
import hashlib
import itertools
import math

import numpy as np

from training.command.disk import RunError
from training.corpus.filter import cleaned, summary
from training.corpus.sources import corpus_of, tagged, tags_of

HELD_OUT = 1000  # pairs held out without a validation set; at most a tenth of all


class UniquePairs:
    """Pairs in a file, one per line; `kept` marks those that are left.

    In memory it holds 8 bytes a pair while it is made, and 1 byte afterwards.

    Args:
        path: The file to write, a `pathlib.Path`.
        corpora: For each corpus, an iterable of cleaned `(source, target)`.
        counts: A Counter of dropped pairs by reason, to which it adds.

    Attributes:
        kept: bool [pairs].
        sizes: The number of pairs of each corpus, dropped duplicates included.
    """

    def __init__(self, path, corpora, counts):
        self.path, self.sizes, self.counts = path, [], counts
        keys = array.array("Q")
        with path.open("wb") as file:
            for pairs in corpora:
                before = len(keys)
                for pair in pairs:
                    line = "\t".join(pair).encode()
                    file.write(line + b"\n")
                    # With 64 bits, a collision among millions of pairs is very unlikely.
                    digest = hashlib.blake2b(line, digest_size=8).digest()
                    keys.append(int.from_bytes(digest, "little"))
                self.sizes.append(len(keys) - before)
        self.kept = first_of_equal(np.asarray(keys))
        self.counts["duplicate"] = len(keys) - len(self)

    def __len__(self):
        return int(self.kept.sum())

    def read(self, mask=None):
        """Yields (number of its corpus, source, target) of each kept pair, or of a mask's."""
        mask, begin = self.kept if mask is None else mask, 0
        with self.path.open("rb") as file:
            for corpus, size in enumerate(self.sizes):
                lines = itertools.islice(file, size)
                for line in itertools.compress(lines, mask[begin : begin + size]):
                    source, target = line[:-1].decode().split("\t")
                    yield corpus, source, target
                begin += size


def first_of_equal(keys):
    """bool [keys]: whether no key before is the same.

    >>> first_of_equal(np.array([3, 1, 3, 2, 1], np.uint64)).tolist()
    [True, True, False, True, False]
    """
    first = np.zeros(len(keys), bool)
    parts = (keys >> np.uint64(60)).astype(np.uint8)
    for part in range(16):  # one at a time, because sorting takes several times the memory
        places = np.flatnonzero(parts == part)
        _, indices = np.unique(keys[places], return_index=True)
        first[places[indices]] = True
    return first


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Pairs in memory, each once.

    Fields:
        pairs: list of (source, target).
        tags: The tag of each source, or "".
        counts: A Counter of the dropped pairs by reason.
        files: The entries in config.json of the files they come from.
    """

    pairs: list
    tags: list
    counts: dict
    files: tuple = ()

    def tagged(self):
        """The pairs as a model reads them."""
        rows = zip(self.tags, self.pairs, strict=True)
        return [(tagged(tag, source), target) for tag, (source, target) in rows]


def given_sets(settings, corpora):
    """The evaluation sets that are given: {name: `Pairs`} of `validation` and `test`."""
    if settings.validation:
        name, *aligned = settings.validation
        tag = tags_of(settings.tag).get(name, "")
        corpus = corpus_of(name, tag=tag, aligned="".join(aligned))
        split = "validation" if "validation" in corpus.splits() else "train"
        return {"validation": read_pairs([corpus], settings, split)}
    sets = {}
    for split in ("validation", "test"):
        if own := [corpus for corpus in corpora if split in corpus.splits()]:
            sets[split] = read_pairs(own, settings, split)
    return sets


def read_pairs(corpora, settings, split="train"):
    """The cleaned `Pairs` of a split of some corpora."""
    files = tuple(entry for corpus in corpora for entry in corpus.checksums(split))
    counts, tags = collections.Counter(), {}
    for corpus in corpora:
        for pair in cleaned(corpus.rows(settings, split), settings, counts):
            counts["duplicate"] += pair in tags
            tags.setdefault(pair, corpus.tag)
    check_any(tags, corpora, counts)
    return Pairs([*tags], [*tags.values()], counts, files)


def check_any(pairs, corpora, counts):
    """Raises a RunError if no pair is left."""
    if not len(pairs):
        raise RunError(
            f"{corpora[0].name}: no pair is left of {counts['lines']:,} lines; "
            f"dropped: {summary(counts)}"
        )


def hold_out(unique, tags, seed):
    """Takes validation pairs out of the `UniquePairs`; the `Pairs`.

    Args:
        tags: The tag of each corpus.
    """
    every = len(unique)
    count = min(HELD_OUT, math.ceil(every / 10))
    if count >= every:
        raise RunError(
            f"cannot hold out {count} of {every} pairs for validation: give more pairs, or "
            "--validation"
        )
    places = np.random.default_rng([seed, 1]).choice(every, count, replace=False)
    mask = np.zeros(len(unique.kept), bool)
    mask[np.flatnonzero(unique.kept)[places]] = True
    rows = list(unique.read(mask))
    unique.kept &= ~mask
    return Pairs([tuple(row[1:]) for row in rows], [tags[row[0]] for row in rows], {})
