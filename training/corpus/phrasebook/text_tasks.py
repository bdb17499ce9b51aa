"""The phrasebook as corpora of three other tasks: types of sentences, parts of speech, text."""

import itertools

from training.corpus.phrasebook import Split, drawn
from training.corpus.phrasebook.parts_of_speech import tagged

# The types of sentences: the grammar's kinds that belong to each.
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
    """Sentences for training, validation and test; no two parts share one.

    Args:
        task: "classify" gives (Portuguese sentence, type); "tag" gives (tokens, tags) of English,
            both separated by spaces; every other task gives English sentences.
        seed: Int.
        train: Number of training sentences; default: 20,000, or 100,000 of plain text.
        validation, test: Number of validation and of test sentences.

    Returns:
        A `phrasebook.Split`.

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
    """Yields the examples made of a seed's sentences, each text once."""
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
