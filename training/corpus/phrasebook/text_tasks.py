"""The phrasebook as three other corpora: types of sentences, parts of speech, English text."""

import itertools

from training.corpus.phrasebook import Split, drawn
from training.corpus.phrasebook.parts_of_speech import tagged

# What the kinds of sentences that the grammar draws are called.
_TYPES = {
    "doing": "action activity journey transfer daily meanwhile",
    "wish": "wish",
    "order": "order",
    "question": "asked",
    "person": "character origin profession mood",
    "quality": "quality event state comparison price",
    "place": "location geography sought",
    "owning": "possession existence",
    "time": "timetable hour weather climate",
    "taste": "taste",
    "compound": "thought reason contrast errand",
    "phrase": "known",
}
_TYPE_OF = {kind: name for name, kinds in _TYPES.items() for kind in kinds.split()}


def split(task, seed=0, train=None, validation=500, test=500):
    """Sentences to learn from, to choose by, and to be judged by; no two parts share one.

    Args:
        task: "classify" gives (Portuguese sentence, type), "tag" gives (tokens, tags) of English
            with spaces between them, and every other task English sentences.
        seed: an int.
        train: how many to learn from; 20,000, or 100,000 of plain text, by default.
        validation, test: how many there are of them.

    Returns:
        a `phrasebook.Split`.

    >>> split("classify", train=3).train[0][1] in ("doing", "wish", "place", "quality")
    True
    """
    make = {"classify": _typed, "tag": _tagged}.get(task, _english)
    train = train or (20_000 if task in ("classify", "tag") else 100_000)
    wanted = validation + test + train
    found = list(itertools.islice(_distinct(make, seed), wanted))
    return Split(
        found[validation + test :], found[:validation], found[validation : validation + test]
    )


def _distinct(make, seed):
    """What is made of the sentences that a seed gives, each text once."""
    seen = set()
    for kind, pair in drawn(seed):
        made = make(kind, pair)
        text = made if isinstance(made, str) else made[0]
        if text not in seen:
            seen.add(text)
            yield made


def _typed(kind, pair):
    return pair[0], _TYPE_OF[kind]


def _tagged(kind, pair):
    words, tags = zip(*tagged(pair[1]), strict=True)
    return " ".join(words), " ".join(tags)


def _english(kind, pair):
    return pair[1]
