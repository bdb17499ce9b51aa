"""What a shortlist changes: translations of an export's texts with it and without it."""

import warnings
from typing import Any

from keras_tfmr.errors import ExportError
from keras_tfmr.shortlist import Shortlist
from keras_tfmr.text.strings import Text

LEAST_SAME = 0.9  # of the translations
MOST_CANDIDATES = 0.25  # of the vocabulary, for a text


def compared(whole: Any, short: Any, shortlist: Shortlist, texts: list[Text]) -> dict[str, Any]:
    """Compares a `Translator` with its copy that has a shortlist, on a list of texts.

    A warning says that the shortlist does not pay.

    Returns:
        {"texts": their number, "same": how many translations are the same, "bleu": BLEU of those
        with the shortlist against the others, "candidates": the mean number of candidates of a
        text, "vocabulary": the number of target ids}.

    Raises:
        ValueError: If there are no texts.
        ExportError: If sacrebleu is not installed.
    """
    try:
        import sacrebleu
    except ImportError as error:
        raise ExportError(
            f"a shortlist needs sacrebleu, to compare with: pip install sacrebleu ({error})"
        ) from error
    if not texts:
        raise ValueError(
            "A shortlist needs texts in the model's source language, a few hundred like those of "
            "real requests, to compare translations of: give `texts`, or --calibrate FILE"
        )
    texts = whole.source_tokenizer.tagged(texts)
    expected, found = whole.translate(texts), short.translate(texts)
    source_ids = whole.source_tokenizer.encode(texts, whole.max_source_length).to_list()
    counts = [len(shortlist.candidates(ids)) for ids in source_ids]
    facts = {
        "texts": len(texts),
        "same": sum(map(str.__eq__, expected, found)),
        "bleu": round(sacrebleu.corpus_bleu(found, [expected]).score, 2),
        "candidates": round(sum(counts) / len(texts)),
        "vocabulary": short.target_tokenizer.vocab_size,
    }
    if facts["same"] < LEAST_SAME * len(texts):
        warnings.warn(
            f"The shortlist does not pay: of {len(texts)} translations, {facts['same']} stay the "
            f"same (at least {LEAST_SAME:.0%} are expected). Learn it from more pairs",
            stacklevel=2,
        )
    if facts["candidates"] > MOST_CANDIDATES * facts["vocabulary"]:
        warnings.warn(
            f"The shortlist does not pay: a text has {facts['candidates']:,} candidates of a "
            f"vocabulary of {facts['vocabulary']:,} (at most {MOST_CANDIDATES:.0%} are expected)",
            stacklevel=2,
        )
    return facts
