"""Pairs that a run is measured on: given, or held out of the training pairs."""

import collections
import dataclasses
import itertools

import numpy as np

from training.command.disk import RunError
from training.corpus.filter import Cleaner, Rules, summary
from training.corpus.sources import corpus_of, tagged, tags_of

HELD_OUT = 1000  # pairs held out if the settings name no validation set; at most a tenth of all


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Sentence pairs in memory, each once, with their tags and the files they come from."""

    pairs: list
    tags: list
    dropped: dict
    files: tuple = ()

    def tagged(self):
        """The pairs as a model reads them."""
        rows = zip(self.tags, self.pairs, strict=True)
        return [(tagged(tag, source), target) for tag, (source, target) in rows]


def read_pairs(corpora, split="train", task="translation", rules=None, most=None):
    """The cleaned `Pairs` of corpora.

    Args:
        corpora: Sources, as of `corpora_of`.
        split: Which part of them to read.
        task: What the lines are for.
        rules: The `Rules` of cleaning.
        most: Maximum number of pairs, of which no more are read; None for all.
    """
    cleaner, files, dropped = Cleaner(rules or Rules(), task), [], collections.Counter()
    tags, lines, cleaned_lines = {}, 0, 0
    for corpus in corpora:
        for cleaned in map(cleaner, corpus.blocks(split, files)):
            for line in cleaned.text.decode().split("\n")[:-1]:
                tags.setdefault(line, corpus.tag)
            lines, cleaned_lines = lines + cleaned.lines, cleaned_lines + len(cleaned.keys)
            dropped.update(cleaned.dropped)
            if most and len(tags) >= most:
                break
    dropped["duplicate"] += cleaned_lines - len(tags)
    if not tags:
        raise RunError(
            f"{corpora[0].name}: no pair is left of {lines:,} lines; dropped: {summary(dropped)}"
        )
    rows = list(itertools.islice(tags.items(), most))
    pairs = [tuple(line.split("\t")) for line, _ in rows]
    return Pairs(pairs, [tag for _, tag in rows], dropped, tuple(files))


def given_sets(settings, corpora):
    """The validation and test sets that were given, {name: Pairs}."""
    if paths := settings.validation:
        tag, aligned = tags_of(settings.tag).get(paths[0], ""), "".join(paths[1:])
        own = [corpus_of(paths[0], tag=tag, aligned=aligned)]
        splits = {"validation": "validation" if own[0].has_splits else "train"}
    else:
        own = [corpus for corpus in corpora if corpus.has_splits]
        splits = {name: name for name in ("validation", "test") if own}
    rules = Rules(settings.max_characters)
    return {n: read_pairs(own, split, settings.task, rules) for n, split in splits.items()}


def hold_out(unique, seed):
    """Takes validation pairs out of the `UniquePairs`; the `Pairs`."""
    every = len(unique)
    count = min(HELD_OUT, -(-every // 10))
    if count >= every:
        raise RunError(
            f"cannot hold out {count} of {every} pairs for validation: give more pairs, or "
            "--validation"
        )
    places = np.random.default_rng([seed, 1]).choice(every, count, replace=False)
    numbers = np.flatnonzero(unique.kept)[np.sort(places)]
    rows = list(unique.read(numbers))
    unique.kept[numbers] = False
    return Pairs([pair[:2] for pair in rows], [tag for *_, tag in rows], {})
