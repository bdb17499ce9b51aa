"""Portuguese and English sentence pairs from a small grammar of everyday language.

A demonstration and a self-test, not a corpus: with it one can try the scripts without data and
without a network, and a model that learns it has learned this grammar, not the two languages. It
writes Brazilian Portuguese and American English with some hundred words per language, with
agreement, tenses, contractions, negation, questions, numbers and clock times.

The words are in the tables of this folder (`nouns.tsv`, `adjectives.tsv`, `actions.tsv`,
`phrases.tsv`), the kinds of sentences in `sentences.tsv`, irregular forms in `grammar.toml`.
A Portuguese sentence has only one translation. The seed determines everything.
"""

import functools
import itertools
import random
import re
from typing import NamedTuple

from training.phrasebook.forms import TABLES, english_number
from training.phrasebook.grammar import Sentence
from training.phrasebook.words import plain, table

_TAGGED = re.compile(r"([\w'-]+)(?:/([A-Z]+))?|([,.?!])")


class Pair(NamedTuple):
    """A sentence in both languages, its type, and the English with tags: `She/PRON runs/VERB`."""

    portuguese: str
    english: str
    type: str
    tagged: str


class Split(NamedTuple):
    """Three lists of examples that share no sentence of either language."""

    train: list
    validation: list
    test: list


def pairs(seed=0):
    """Yields `Pair`s of distinct Portuguese without end, as the seed determines."""
    draw, seen = random.Random(seed), set()
    rows = [(float(weight), *rest[:4]) for weight, *rest in table("sentences")]
    weights = list(itertools.accumulate(row[0] for row in rows))
    while True:
        _, kind, moods, tenses, text = draw.choices(rows, cum_weights=weights)[0]
        mood, tense = draw.choice(moods), draw.choice(tenses.split())
        portuguese, tagged, *_ = Sentence(draw, tense).write(text, mood)
        if portuguese not in seen:
            seen.add(portuguese)
            yield Pair(portuguese, plain(tagged), kind, tagged)


def generate(n, seed=0):
    """The first `n` distinct pairs of a seed, a list of (Portuguese, English).

    >>> generate(1, seed=5)[0] == generate(1000, seed=5)[0]
    True
    """
    return [pair[:2] for pair in itertools.islice(pairs(seed), n)]


def split(seed=0, train=None, validation=500, test=500, task="translation"):
    """Examples for training, validation and test.

    Args:
        seed: Int.
        train, validation, test: Numbers of examples; `train` is 100,000 by default, and 20,000
            with labels or tags.
        task: "translation" gives (Portuguese, English); "classify" (Portuguese, type of sentence);
            "tag" (tokens, parts of speech) of English, each separated by spaces; any other task
            English sentences.

    Returns:
        A `Split`. No sentence of a validation or test example occurs in another part.

    >>> split(task="classify", train=3).train[0][1] in ("doing", "wish", "place", "quality")
    True
    """
    column, make = _TASKS.get(task, _TASKS["text"])
    train = train or (20_000 if task in ("classify", "tag") else 100_000)
    # Different English has different Portuguese, because a sentence has one translation.
    distinct = _distinct(pairs(seed), column)
    held_out = list(itertools.islice(distinct, validation + test))
    if task == "translation":  # its training sentences may repeat English, but none held out
        english = {pair.english for pair in held_out}
        distinct = (pair for pair in pairs(seed) if pair.english not in english)
    found = [make(pair) for pair in itertools.islice(distinct, train)]
    held_out = [make(pair) for pair in held_out]
    return Split(found, held_out[:validation], held_out[validation:])


def tags(pair):
    """The tokens of a pair's English and their parts of speech, two lists.

    The tags are those of Universal Dependencies (arXiv 2004.10643).
    """
    found = [(word or mark, _tag(word, tag)) for word, tag, mark in _TAGGED.findall(pair.tagged)]
    return [list(column) for column in zip(*found, strict=True)]


def _tag(word, tag):
    if tag or not word:
        return tag or "PUNCT"
    return _closed_classes().get(word.lower()) or ("PROPN" if word[0].isupper() else "NOUN")


@functools.cache
def _closed_classes():
    found = {word: tag for tag, words in TABLES["tags"].items() for word in words.split()}
    return {english_number(n): "NUM" for n in range(100)} | found


def _distinct(found, column):
    """Those whose text of a column has not been there before."""
    seen = set()
    for pair in found:
        if pair[column] not in seen:
            seen.add(pair[column])
            yield pair


# The column that no two parts share, and the example made of a pair.
_TASKS = {
    "translation": (1, lambda pair: pair[:2]),
    "classify": (0, lambda pair: (pair.portuguese, pair.type)),
    "tag": (1, lambda pair: tuple(" ".join(column) for column in tags(pair))),
    "text": (1, lambda pair: pair.english),
}
