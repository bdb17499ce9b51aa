"""Portuguese and English sentence pairs, written by a small grammar of everyday language.

The pairs are for trying the translator out, without a corpus and without a network: Brazilian
Portuguese and American English of a few hundred words a side, with agreement, three tenses and the
progressive, contractions, negation, questions, numbers and clock times. It is a demonstration: what
learns it has learned this grammar, not the language.

A Portuguese sentence has one translation only. Everything follows from the seed.
"""

import itertools
import random
from typing import NamedTuple

from training.corpus.phrasebook import compounds, doings, opinions, states

# How often each kind of sentence is drawn.
_KINDS = {
    doings.action: 22,
    doings.activity: 10,
    doings.journey: 9,
    doings.transfer: 7,
    doings.wish: 12,
    doings.order: 5,
    doings.asked: 8,
    doings.daily: 3,
    doings.meanwhile: 4,
    states.character: 3,
    states.origin: 2,
    states.profession: 2,
    states.mood: 4,
    states.quality: 6,
    states.event: 2,
    states.state: 4,
    states.location: 6,
    states.geography: 2,
    states.possession: 5,
    states.existence: 4,
    states.weather: 2,
    states.climate: 1,
    states.timetable: 2,
    states.hour: 0.5,
    opinions.price: 3,
    opinions.taste: 5,
    opinions.comparison: 4,
    opinions.sought: 4,
    compounds.thought: 5,
    compounds.reason: 3,
    compounds.contrast: 3,
    compounds.errand: 3,
    compounds.known: 1,
}


class Split(NamedTuple):
    """Lists of (portuguese, english) pairs that share no sentence of either language."""

    train: list
    validation: list
    test: list


def generate(n, seed=0):
    """The first `n` distinct pairs that a seed gives.

    Args:
        n: how many; over 100,000 are no trouble.
        seed: an int.

    Returns:
        list of (portuguese, english).

    Example:

    >>> generate(1, seed=5)[0] == generate(1000, seed=5)[0]
    True
    """
    return list(itertools.islice(_distinct(seed), n))


def split(seed=0, train=100_000, validation=500, test=500):
    """Pairs to learn from, to choose by, and to be judged by.

    Returns:
        a `Split`. Neither the Portuguese nor the English of a validation or test pair occurs in
        another part.
    """
    pairs = _distinct(seed)
    held_out, english = [], set()
    while len(held_out) < validation + test:
        pair = next(pairs)
        if pair[1] not in english:
            english.add(pair[1])
            held_out.append(pair)
    # Portuguese has one translation, so what differs in English differs in Portuguese.
    unseen = (pair for pair in pairs if pair[1] not in english)
    return Split(
        list(itertools.islice(unseen, train)), held_out[:validation], held_out[validation:]
    )


def _distinct(seed):
    seen = set()
    for _, pair in drawn(seed):
        if pair[0] not in seen:
            seen.add(pair[0])
            yield pair


def drawn(seed):
    """Endlessly what a seed gives: the name of the kind of sentence, and the pair."""
    draw = random.Random(seed)
    kinds, weights = zip(*_KINDS.items(), strict=True)
    weights = list(itertools.accumulate(weights))
    while True:
        kind = draw.choices(kinds, cum_weights=weights)[0]
        yield kind.__name__, tuple(kind(draw))
