"""Which languages a run translates, as far as its config says."""

import re

# At the end of a published name, or of a data set's, behind which a weight may stand.
_PAIR = re.compile(r"(?:[-:]|^tfds:.*/)([a-z]{2,3})(?:-|_to_)([a-z]{2,3})(?::[\d.]+)?$")
_SHORT = {
    "deu": "de", "eng": "en", "spa": "es", "fra": "fr", "ita": "it", "nld": "nl", "por": "pt",
}  # fmt: skip


def is_of_phrasebook(config):
    """Whether a run's config is that of one on the built-in phrasebook only."""
    settings = config.get("arguments", {})
    return settings.get("data", True) in ([], ()) and settings.get("source") is None


def languages_of(config):
    """(code of the source, code of the target) of a run's config; "" for one that is not known.

    >>> languages_of({"arguments": {"data": ["tfds:ted_hrlr_translate/pt_to_en"]}})
    ('pt', 'en')
    >>> languages_of({"arguments": {"data": ["own.tsv:1", "hf:opus_books:en-pt:3"]}})
    ('en', 'pt')
    """
    published, settings = config.get("published", {}), config.get("arguments", {})
    if not published and is_of_phrasebook(config):
        return "pt", "en"
    names = [published.get("name", ""), *settings.get("data", ())]
    codes = settings.get("languages") or next(
        (pair.groups() for name in names if (pair := _PAIR.search(name))), ("", "")
    )
    sides = ("source_language", "target_language")
    return tuple(published.get(side) or code for side, code in zip(sides, codes, strict=True))


def with_abbreviations(language):
    """The language as a list of abbreviations is named, or None if there is no such list."""
    from keras_tfmr.text.sentences import LANGUAGES  # imports TensorFlow

    language = _SHORT.get(language, language)
    return language if language in LANGUAGES else None
