"""Cleaning of sentence pairs, with filters for pairs from the web, line by line.

Every dropped pair is counted under one reason, the first that applies.
"""

import collections
import dataclasses
import functools
import hashlib
import math
import statistics
import unicodedata
from typing import NamedTuple

import numpy as np

from training.command.disk import RunError
from training.corpus.read import rows

# The reasons to drop a pair, and how they are printed.
REASONS = {
    "empty": "with an empty side",  # or one of control characters alone
    "long": "over-long",
    "identical": "with identical sides",
    "length_ratio": "with an unusual length ratio",
    "language": "in another language",
    "duplicate": "duplicate",
    "shared": "that share a sentence with held-out pairs",
}

CHARACTERS = 1000  # a side may have at most so many, unless the rules say otherwise
RATIO = 2.2  # a side may be at most this many times as long as is usual for its partner
SHORT = 12  # characters added to both sides first, because the ratio of short sentences varies
WORDY = 8  # minimum letters of a side whose language is identified
PROBABLE = 0.02  # below this probability of the expected language, the language is another one


@dataclasses.dataclass(frozen=True)
class Rules:
    """The rules of cleaning.

    Fields:
        max_characters: Pairs with a longer side are dropped; None stands for `CHARACTERS`.
        filters: Names from `FILTERS`.
        languages: ISO 639-1 codes of source and target, for the filter `language`.
        ratio: Median logarithm of the ratio of target to source characters.
    """

    max_characters: int | None = None
    filters: tuple = ()
    languages: tuple = ()
    ratio: float = 0.0

    def __post_init__(self):
        unknown = sorted({*self.filters} - {*FILTERS})
        if unknown:
            raise RunError(f"Filters are {', '.join(FILTERS)}. Received: {', '.join(unknown)}")
        if "language" in self.filters:
            if len(self.languages) != 2:
                raise RunError(
                    "The filter `language` needs the languages of source and target, as in "
                    f"--set languages=pt,en. Received: {self.languages}"
                )
            identifier(*self.languages)

    def measured_on(self, pairs):
        """A copy with the usual length ratio of some pairs."""
        pairs = [pair for pair in pairs if pair[0].strip() and pair[1].strip()]
        if not pairs:
            return self
        ratio = statistics.median(math.log(len(target) / len(source)) for source, target in pairs)
        return dataclasses.replace(self, ratio=ratio)


class Cleaned(NamedTuple):
    """The kept pairs of a block as `source<TAB>target` lines, with hashes of each.

    Fields:
        text: UTF-8 lines.
        keys: uint64 [pairs]: equal for equal pairs.
        dropped: Counter of the reasons.
        lines: Number of lines in the block.
    """

    text: bytes
    keys: np.ndarray
    dropped: collections.Counter
    lines: int


class Cleaner:
    """Cleans blocks of lines: composes (NFC), strips and filters them.

    Their `task` is what the lines are for.
    """

    def __init__(self, rules, task="translation"):
        self.rules, self.task = rules, task
        self._filters = [(name, keeps) for name, keeps in _KEEPS.items() if name in rules.filters]

    def __call__(self, block):
        """The `Cleaned` of a `LineBlock`.

        Raises:
            RunError: If a line is not UTF-8 or does not have two columns; it names the line.
        """
        lines, keys, dropped, count = [], [], collections.Counter(), 0
        for source, target in rows(block, self.task, self.rules.max_characters):
            count += 1
            source = unicodedata.normalize("NFC", source).strip()
            target = unicodedata.normalize("NFC", target).strip()
            if reason := self.reason(source, target):
                dropped[reason] += 1
                continue
            line = f"{source}\t{target}".encode()
            lines.append(line)
            keys.append(_digest(line))
        text = b"\n".join([*lines, b""])
        return Cleaned(text, np.frombuffer(b"".join(keys), np.uint64), dropped, count)

    def reason(self, source, target):
        """The reason to drop a pair, a key of `REASONS`, or None."""
        if not has_text(source) or not has_text(target):
            return "empty"
        if max(len(source), len(target)) > (self.rules.max_characters or CHARACTERS):
            return "long"
        for name, keeps in self._filters:
            if not keeps(source, target, self.rules):
                return name
        return None


def has_text(side):
    """Whether a side has a character that can be seen.

    >>> has_text("a"), has_text(""), has_text("\u200b \u200b")  # spaces of no width
    (True, False, False)
    """
    return any(char.isprintable() and char != " " for char in side)


def summary(dropped):
    """The numbers of dropped pairs by reason, in words; `none` if there are none."""
    reasons = (f"{dropped[name]:,} {words}" for name, words in REASONS.items() if dropped.get(name))
    return ", ".join(reasons) or "none"


@functools.cache
def identifier(*languages):
    """py3langid's language identifier, with probabilities over all of its languages.

    Raises:
        RunError: If py3langid is not installed, or does not know one of these languages.
    """
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError as error:
        raise RunError("The filter `language` needs `pip install py3langid`") from error
    judge = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    unknown = sorted({*languages} - {*judge.labels})
    if unknown:
        raise RunError(
            f"The filter `language` does not know {', '.join(unknown)}; expected some of: "
            f"{' '.join(sorted(judge.labels))}"
        )
    return judge


def _different(source, target, rules):
    return source.casefold() != target.casefold()


def _usual_lengths(source, target, rules):
    ratio = math.log((len(target) + SHORT) / (len(source) * math.exp(rules.ratio) + SHORT))
    return abs(ratio) <= math.log(RATIO)


def _expected_languages(source, target, rules):
    judge = identifier(*rules.languages)
    for text, language in zip((source, target), rules.languages, strict=True):
        if sum(map(str.isalpha, text)) < WORDY:
            continue
        best, *_ = ranks = judge.rank(text)
        if best[0] != language and dict(ranks)[language] < PROBABLE:
            return False
    return True


_KEEPS = {
    "identical": _different,
    "length_ratio": _usual_lengths,
    "language": _expected_languages,
}
FILTERS = tuple(_KEEPS)


def _digest(line):
    # With 64 bits, a collision among millions of pairs is very unlikely.
    return hashlib.blake2b(line, digest_size=8).digest()
