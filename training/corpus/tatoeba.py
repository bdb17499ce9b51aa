"""Sentence pairs of Tatoeba (https://tatoeba.org): direct translations, cleaned and split."""

import bz2
import collections
import re

import numpy as np

from training.command.disk import RunError
from training.corpus.data_set import SPLITS, DataSet
from training.corpus.filter import Cleaner, Rules
from training.corpus.read import in_memory

EXPORTS = "https://downloads.tatoeba.org/exports/per_language"
HELD_OUT = 1000  # pairs in validation and in test, each at most a twentieth of all
# A line of sentences: what it is, and its number and text.
SENTENCE = ("`number<TAB>language<TAB>sentence`", r"(\d+)\t[^\t]*\t([^\t]*)")
SEED = 1  # of the choice of held-out pairs
TERMS = """Sentence pairs of Tatoeba, https://tatoeba.org, by its contributors.
Licence: CC BY 2.0 FR, https://creativecommons.org/licenses/by/2.0/fr/
Direct translations, composed (NFC), without duplicates, split so that no sentence of
validation.tsv or test.tsv occurs in another file.
"""


def exports(pair):
    """{name: URL} of the exports for a pair of languages, such as `por-eng`.

    Raises:
        RunError: If the pair is not two ISO 639-3 codes.
    """
    codes = re.fullmatch("([a-z]{3})-([a-z]{3})", pair)
    if not codes:
        raise RunError(
            f"Expected two language codes of three letters, as in por-eng. Received: {pair!r}"
        )
    source, target = codes.groups()
    places = {
        f"{source}_sentences.tsv.bz2": source,
        f"{target}_sentences.tsv.bz2": target,
        f"{source}-{target}_links.tsv.bz2": source,
    }
    return {name: f"{EXPORTS}/{language}/{name}" for name, language in places.items()}


def splits(exports):
    """The pairs of each split; both held-out ones share no sentence with any other.

    Args:
        exports: The paths of the sentences of both languages, and of the links between them.

    Raises:
        RunError: If an export is missing or does not have Tatoeba's form.
    """
    links = [(int(a), int(b)) for a, b in rows(exports[2], "two numbers", r"(\d+)\t(\d+)")]
    wanted = {number for link in links for number in link}
    texts = {
        int(number): text
        for path in exports[:2]
        for number, text in rows(path, *SENTENCE)
        if int(number) in wanted
    }
    pairs = [(texts[a], texts[b]) for a, b in links if a in texts and b in texts]
    lines = b"".join(cleaned.text for cleaned in map(Cleaner(Rules()), in_memory(pairs)))
    pairs = [tuple(line.split("\t")) for line in dict.fromkeys(lines.decode().split("\n")[:-1])]
    if len(pairs) < 20:
        raise RunError(
            f"{exports[2].name}: expected at least 20 pairs to split, found {len(pairs)}"
        )
    return split(pairs)


def split(pairs):
    """Training, validation and test pairs; the latter share no sentence with any other split."""
    count = min(HELD_OUT, len(pairs) // 20)
    chosen = np.random.default_rng(SEED).permutation(len(pairs))[: 2 * count].tolist()
    used = collections.Counter(side for i in chosen for side in enumerate(pairs[i]))
    # Pairs of the test set that share a sentence with the validation set are dropped.
    groups = [chosen[:count], chosen[count:]]
    sides = [{side for i in group for side in enumerate(pairs[i])} for group in groups]
    groups[1] = [i for i in groups[1] if sides[0].isdisjoint(enumerate(pairs[i]))]
    train = [pair for pair in pairs if not any(side in used for side in enumerate(pair))]
    held_out = ([pairs[i] for i in sorted(group)] for group in groups)
    return dict(zip(SPLITS, (train, *held_out), strict=True))


def rows(path, what, form):
    """Yields what each line of an export holds: the groups of the regular expression `form`."""
    try:
        with bz2.open(path, "rt", encoding="utf-8", newline="\n") as file:
            for number, line in enumerate(file, 1):
                match = re.fullmatch(form, line.rstrip("\r\n"))
                if not match:
                    raise RunError(f"{path}, line {number}: expected {what}, found {line[:80]!r}")
                yield match.groups()
    except FileNotFoundError as error:
        raise RunError(f"{path} is missing: download it first") from error
    except (EOFError, OSError, UnicodeDecodeError) as error:
        raise RunError(
            f"{path}: not a complete export ({error}): delete it and try again"
        ) from error


TATOEBA = DataSet("tatoeba", exports, splits, TERMS)
