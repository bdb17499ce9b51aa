"""Cleaning of sentence pairs, with filters for pairs from the web.

Every dropped pair is counted under one reason, the first that applies.
"""

import functools
import math
import statistics
import unicodedata

from training.command.disk import RunError

# The reasons to drop a pair, and their wording in summaries.
REASONS = {
    "empty": "with an empty side",  # or one of control characters alone
    "long": "over-long",
    "identical": "with identical sides",
    "length_ratio": "with an unusual length ratio",
    "language": "in another language",
    "duplicate": "duplicate",
    "shared": "that share a sentence with held-out pairs",
}

CHARACTERS = 1000  # maximum length of a side, unless the settings have another
RATIO = 2.2  # maximum length ratio, as a multiple of the typical one
SHORT = 12  # characters added to both sides first, because the ratio of short sentences varies
WORDY = 8  # minimum letters of a side whose language is identified
PROBABLE = 0.02  # minimum probability of the expected language


def cleaned(pairs, settings, counts, filters=(), ratio=0.0):
    """Yields the pairs to keep, composed (NFC) and stripped.

    Args:
        pairs: An iterable of `(source, target)`.
        settings: The run's `max_characters` and languages.
        counts: A Counter, which counts all pairs as `lines`, and the dropped ones by reason.
        filters: Names of filters.
        ratio: Logarithm of the typical ratio of target to source characters.
    """
    for source, target in pairs:
        source, target = composed(source), composed(target)
        counts["lines"] += 1
        if reason := reason_to_drop(source, target, settings, filters, ratio):
            counts[reason] += 1
        else:
            yield source, target


def composed(side):
    """A side in NFC, on one line, stripped."""
    side = side.replace("\t", " ").replace("\n", " ").replace("\r", " ")
    return unicodedata.normalize("NFC", side).strip()


def reason_to_drop(source, target, settings, filters, ratio):
    """A key of `REASONS`, or None for a pair to keep."""
    if not has_text(source) or not has_text(target):
        return "empty"
    if max(len(source), len(target)) > (settings.max_characters or CHARACTERS):
        return "long"
    if "identical" in filters and source.casefold() == target.casefold():
        return "identical"
    if "length_ratio" in filters and not has_typical_ratio(source, target, ratio):
        return "length_ratio"
    if "language" in filters and not in_languages((source, target), settings.languages):
        return "language"
    return None


def has_text(side):
    """Whether a stripped side has a character that can be seen.

    >>> has_text("a"), has_text(""), has_text("\u200b \u200b")  # spaces of no width
    (True, False, False)
    """
    if side.isprintable():
        return side != ""
    return any(char.isprintable() and char != " " for char in side)


def has_typical_ratio(source, target, ratio):
    """Whether the length ratio is near the typical one, given by its logarithm."""
    found = math.log((len(target) + SHORT) / (len(source) * math.exp(ratio) + SHORT))
    return abs(found) <= math.log(RATIO)


def typical_ratio(pairs):
    """The median logarithm of the ratio of target to source characters."""
    pairs = [(source.strip(), target.strip()) for source, target in pairs]
    logs = [math.log(len(target) / len(source)) for source, target in pairs if source and target]
    return statistics.median(logs) if logs else 0.0


def in_languages(texts, languages):
    """Whether each text may be in its language."""
    judge = identifier(*languages)
    for text, language in zip(texts, languages, strict=True):
        if sum(map(str.isalpha, text)) < WORDY:
            continue
        ranks = judge.rank(text)
        if ranks[0][0] != language and dict(ranks)[language] < PROBABLE:
            return False
    return True


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
    if unknown := sorted({*languages} - {*judge.labels}):
        raise RunError(
            f"The filter `language` does not know {', '.join(unknown)}; expected some of: "
            f"{' '.join(sorted(judge.labels))}"
        )
    return judge


def summary(counts):
    """The numbers of dropped pairs by reason, in words; `none` if there are none."""
    reasons = (f"{counts[name]:,} {words}" for name, words in REASONS.items() if counts.get(name))
    return ", ".join(reasons) or "none"
