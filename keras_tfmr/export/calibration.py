"""Texts that an export is calibrated and warmed up with, and how far int8 strays on them."""

import importlib.resources
from collections.abc import Iterable
from typing import Any

import numpy as np

from keras_tfmr.errors import ExportError
from keras_tfmr.finished.int8 import share_of_int8
from keras_tfmr.text.sentences import list_of
from keras_tfmr.text.strings import Text, checked_texts

_FOLDER = importlib.resources.files("keras_tfmr.export") / "sentences"
MOST_TEXTS = 256
MOST_NATS = 0.1  # a token; a trained translator's log-probabilities move by a tenth of it


def texts_for(text_model: Any, texts: Iterable[Text] | None) -> list[Text]:
    """At most `MOST_TEXTS` of these texts; else those of the model's preset, or of its language."""
    if texts is None:
        texts = text_model.texts or sentences_of(text_model)
    return checked_texts(texts)[:MOST_TEXTS]


def sentences_of(text_model: Any) -> list[str]:
    """Sentences in the source language of a translator; none in another than those of the lists."""
    language = list_of(text_model.languages[0])
    if language is None:
        return []
    return (_FOLDER / f"{language}.txt").read_text(encoding="utf-8").splitlines()


def measured(exact, rounded, texts):
    """Compares a `Translator` or `Completer` in float32 with its copy in int8, on a list of texts.

    Returns:
        {"texts": their number, "nats_per_token": the mean difference of the log-probability of a
        token, "same": how many translations are the same in these batches (in others, int8 may
        choose the other one of two that are nearly as probable), "int8_share": the share of the
        weights that are integers}; of a `Completer`, without "same".

    Raises:
        ExportError: If the log-probabilities differ by more than `MOST_NATS`.
    """
    facts = {"texts": len(texts), "int8_share": round(share_of_int8(rounded.model), 3)}
    if "translate" in exact.declared:
        texts = exact.source_tokenizer.tagged(texts)
        translations = exact.translate(texts)
        facts["same"] = sum(map(str.__eq__, translations, rounded.translate(texts)))
        pairs = [model.score(texts, translations) for model in (exact, rounded)]
    else:
        pairs = [model.log_prob(texts) for model in (exact, rounded)]
    tokens = sum(one.tokens for one in pairs[0])
    differences = [abs(a.log_prob - b.log_prob) for a, b in zip(*pairs, strict=True)]
    facts["nats_per_token"] = round(float(np.sum(differences)) / max(tokens, 1), 5)
    if not facts["nats_per_token"] <= MOST_NATS:
        raise ExportError(
            f"In int8, the log-probability of a token differs by {facts['nats_per_token']} nats "
            f"from float32, on the mean of {len(texts)} texts. Expected: at most {MOST_NATS}. "
            "Calibrate with a few hundred texts like those of real requests (`texts`, --calibrate "
            "FILE), or export in bfloat16. Weights that were never trained stray further than "
            "those of a trained model"
        )
    return facts
