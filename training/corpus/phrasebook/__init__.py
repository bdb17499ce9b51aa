"""Portuguese and English sentence pairs, written by a small grammar of everyday language.

With these pairs one can try the translator without a corpus and without a network: Brazilian
Portuguese and American English with a few hundred words per language, with agreement, three tenses
and the progressive, contractions, negation, questions, numbers and clock times. It is a
demonstration: a model that learns the phrasebook has learned this grammar, not the language.

A Portuguese sentence has only one translation. The seed determines everything.
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
    """Three lists of (Portuguese, English) pairs that share no sentence of either language."""

    train: list
    validation: list
    test: list


def generate(n, seed=0):
    """The first `n` distinct pairs of a seed.

    Args:
        n: Number of pairs; more than 100,000 are possible.
        seed: Int.

    Returns:
        List of (Portuguese, English).

    Example:

    >>> generate(1, seed=5)[0] == generate(1000, seed=5)[0]
    True
    """
    return list(itertools.islice(_distinct(seed), n))


def split(seed=0, train=100_000, validation=500, test=500):
    """Pairs for training, validation and test.

    Returns:
        A `Split`. Neither the Portuguese nor the English of a validation or test pair occurs in
        another part.
    """
    pairs = _distinct(seed)
    held_out, english = [], set()
    while len(held_out) < validation + test:
        pair = next(pairs)
        if pair[1] not in english:
            english.add(pair[1])
            held_out.append(pair)
    # A Portuguese sentence has one translation, so different English has different Portuguese.
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
    """Yields without end (name of the kind of sentence, pair), as the seed determines."""
    draw = random.Random(seed)
    kinds, weights = zip(*_KINDS.items(), strict=True)
    weights = list(itertools.accumulate(weights))
    while True:
        kind = draw.choices(kinds, cum_weights=weights)[0]
        yield kind.__name__, tuple(kind(draw))
