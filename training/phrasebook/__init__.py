"""Portuguese and English sentence pairs of everyday language: a grammar and whole pairs.

With it one can try the scripts without data and without a network. The tables in this folder have
its words and kinds of sentences; what no grammar would write is in `pairs.tsv`, what is only
measured on in `everyday.tsv`. The seed determines everything.
"""

import functools
import itertools
import random
import re
from typing import NamedTuple

from training.phrasebook.grammar import Sentence
from training.phrasebook.lexicon import plain, table
from training.phrasebook.tags import tags


class Pair(NamedTuple):
    """A sentence in both languages, its type, and the English with tags: `She/PRON runs/VERB`."""

    portuguese: str
    english: str
    type: str
    tagged: str


class Split(NamedTuple):
    """Three lists of examples that share no sentence, and the whole pairs, to train on too."""

    train: list
    validation: list
    test: list
    whole: list


def pairs(seed=0):
    """Yields `Pair`s of distinct Portuguese without end; none is one of `everyday`."""
    draw, seen = random.Random(seed), _held_out()
    weights, rows = zip(*((float(row[0]), row[1:]) for row in table("sentences")), strict=True)
    weights = list(itertools.accumulate(weights))
    while True:
        kind, moods, *row = draw.choices(rows, cum_weights=weights)[0]
        written, tagged = Sentence(draw, draw.choice(moods)).write(*row)
        pair = Pair(written, plain(tagged), kind, tagged)
        if seen.isdisjoint(map(_bare, pair[:2])):
            seen.add(_bare(written))
            yield pair


@functools.cache
def whole_pairs():
    """The pairs of `pairs.tsv`, a list of (Portuguese, English); none is one of `everyday`."""
    return [pair for pair in map(tuple, table("pairs")) if _held_out().isdisjoint(map(_bare, pair))]


@functools.cache
def everyday():
    """The pairs of `everyday.tsv`, on which a model is measured; never trained on."""
    return list(map(tuple, table("everyday")))


def _held_out():
    return set(map(_bare, itertools.chain(*everyday())))


def _bare(text):
    """A sentence without what makes no difference: case and marks."""
    return re.sub(r"[^\w' -]", "", text.replace("’", "'")).lower()


def generate(n, seed=0):
    """The first `n` distinct pairs of a seed, a list of (Portuguese, English).

    >>> generate(1, seed=5)[0] == generate(1000, seed=5)[0]
    True
    """
    return [pair[:2] for pair in itertools.islice(pairs(seed), n)]


def split(seed=0, train=None, validation=500, test=500, task="translation"):
    """Examples for training, validation and test, as a `Split`.

    Args:
        seed: Int.
        train, validation, test: Numbers of examples; `train` is 100,000 by default, and 20,000
            with labels or tags.
        task: "translation" gives (Portuguese, English), and the whole pairs beside those of the
            grammar; "classify" (Portuguese, type of sentence); "tag" (tokens, parts of speech) of
            English, each separated by spaces; any other task English sentences.

    >>> split(task="classify", train=3).train[0][1] in ("doing", "wish", "place", "quality")
    True
    """
    column, make = _TASKS.get(task, _TASKS["text"])
    train = train or (20_000 if task in ("classify", "tag") else 100_000)
    distinct, whole = _distinct(pairs(seed), column), []
    held_out = list(itertools.islice(distinct, validation + test))
    if task == "translation":  # its training sentences may repeat English, but none held out
        known = {text for pair in held_out for text in pair[:2]}
        distinct = (pair for pair in pairs(seed) if known.isdisjoint(pair[:2]))
        whole = [pair for pair in whole_pairs() if known.isdisjoint(pair)]
    found = [make(pair) for pair in itertools.islice(distinct, train)]
    held_out = [make(pair) for pair in held_out]
    return Split(found, held_out[:validation], held_out[validation:], whole)


def _distinct(found, column):
    """Those whose text of a column has not been there before."""
    seen = set()
    return (pair for pair in found if not (pair[column] in seen or seen.add(pair[column])))


# The column that no two parts share, and the example made of a pair.
_TASKS = {
    "translation": (1, lambda pair: pair[:2]),
    "classify": (0, lambda pair: (pair.portuguese, pair.type)),
    "tag": (1, lambda pair: tuple(" ".join(column) for column in tags(pair))),
    "text": (1, lambda pair: pair.english),
}
