"""Pairs that a run is measured on: given, or held out of the training pairs."""

import collections
import dataclasses

import numpy as np

from training.corpus.filter import Cleaner, Rules, summary
from training.corpus.read import read_blocks
from training.corpus.sources import Source, tagged, tags_of
from training.files import RunError

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


def read_pairs(*paths, most=None, rules=None):
    """The cleaned `Pairs` of one file of `source<TAB>target` lines, or of two aligned files.

    Args:
        most: Of how many pairs to read no more; None for all.
        rules: The `Rules` of cleaning.
    """
    files = []
    found = clean_pairs([(read_blocks(paths, files), "")], files, most=most, rules=rules)
    if not found.pairs:
        raise RunError(
            f"{paths[0]}: no pair is left of {files[0].lines} lines; "
            f"dropped: {summary(found.dropped)}"
        )
    return found


def clean_pairs(corpora, files=(), task="translation", most=None, rules=None):
    """The cleaned `Pairs` of corpora, each blocks of lines and their tag.

    Args:
        corpora: An iterable of (blocks, tag).
        files: A list, to which reading the blocks adds.
        task: What the lines are for.
        most: The most pairs; None for all.
        rules: The `Rules` of cleaning.
    """
    cleaner, dropped, tags, count = Cleaner(rules or Rules(), task), collections.Counter(), {}, 0
    for blocks, tag in corpora:
        for cleaned in map(cleaner, blocks):
            for line in cleaned.text.decode().split("\n")[:-1]:
                tags.setdefault(line, tag)
                count += 1
            dropped.update(cleaned.dropped)
            if most and len(tags) >= most:
                break
    dropped["duplicate"] += count - len(tags)
    pairs = [tuple(line.split("\t")) for line in tags][:most]
    return Pairs(pairs, list(tags.values()), dropped, tuple(files))


def given_sets(settings, corpora):
    """The validation and test sets that were given, {name: Pairs}."""
    if paths := settings.validation:
        tag, aligned = tags_of(settings.tag).get(paths[0], ""), "".join(paths[1:])
        own, splits = [Source(paths[0], tag=tag, aligned=aligned)], {"validation": "train"}
    else:
        own = [corpus for corpus in corpora if corpus.has_splits]
        splits = {name: name for name in ("validation", "test") if own}
    sets = {}
    for name, split in splits.items():
        files, rules = [], Rules(settings.max_characters)
        found = [(corpus.blocks(split, files), corpus.tag) for corpus in own]
        sets[name] = clean_pairs(found, files, settings.task, rules=rules)
    if sets and not sets["validation"].pairs:
        dropped = summary(sets["validation"].dropped)
        raise RunError(f"{own[0].name}: no pair is left; dropped: {dropped}")
    return sets


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
    found = list(unique.read(numbers))
    unique.kept[numbers] = False
    return Pairs([pair[:2] for pair in found], [tag for *_, tag in found], {})
