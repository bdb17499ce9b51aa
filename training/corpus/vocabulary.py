"""The subwords, or labels, that a run learns from its training text."""

import itertools

import numpy as np

from training.corpus.read import text_column
from training.files import RunError
from training.labels import Labels

LEARNED = 200_000  # lines that a vocabulary is learned from


def tokenizers_of(settings, known, unique, held_out):
    """The tokenizers of both sides: known, learned from the `UniquePairs`, or both."""
    if settings.task != "translation":
        return _of_texts(settings, known, unique, held_out)
    if known and not settings.extend_vocab:
        return known
    columns = list(zip(*unique.spaced(LEARNED // (1 + settings.joint_vocab)), strict=True))
    columns = [columns[0] + columns[1]] if settings.joint_vocab else columns
    learned = [_learn(lines, settings.vocab_size) for lines in columns]
    if not known:
        return learned[0], learned[-1]
    try:
        source = known[0].extended(learned[0])
        return source, source if known[0] is known[1] else known[1].extended(learned[-1])
    except ValueError as error:
        raise RunError(f"--extend_vocab: {error}") from error


def _of_texts(settings, known, unique, held_out):
    """The subwords of the texts, and their labels or the subwords again."""
    column = text_column(settings.task)
    texts = () if known else [pair[column] for pair in unique.spaced(LEARNED)]
    subwords = known[0] if known else _learn(texts, settings.vocab_size)
    if column:
        return subwords, subwords
    # With the held-out texts, which may have a label that no training text has.
    every = itertools.chain(unique.read(np.flatnonzero(unique.kept)), held_out)
    return subwords, Labels.learn(row[1] for row in every)


def _learn(lines, size):
    from keras_tfmr.text.tokenizer import SubwordTokenizer

    try:
        return SubwordTokenizer.learn(lines, size)
    except ValueError as error:
        raise RunError(str(error)) from error
