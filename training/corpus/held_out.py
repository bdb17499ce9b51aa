"""Pairs that a run is evaluated on: given, or held out of the training pairs."""

import collections
import dataclasses
import math

import numpy as np

from training.command.disk import RunError
from training.corpus.filter import Rules, cleaned, summary
from training.corpus.sources import corpus_of, tagged, tags_of

HELD_OUT = 1000  # pairs held out without a validation set; at most a tenth of all


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
    counts, tags, rules = collections.Counter(), {}, Rules(settings.max_characters)
    for corpus in corpora:
        for pair in cleaned(corpus.rows(settings, split), rules, counts):
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
