"""Scores of texts and labels, and their names for people."""

import math

import numpy as np
import sacrebleu

# The names of scores for people, and the form of their numbers.
SCORES = {
    "bleu": ("BLEU", "{:.2f}"),
    "chrf": ("chrF", "{:.2f}"),
    "accuracy": ("accuracy", "{:.2f} %"),
    "macro_f1": ("mean F1 of the labels", "{:.2f} %"),
    "byte_probability": ("geometric mean of a byte's probability", "{:.2f} %"),
    "bits_per_byte": ("bits per byte", "{:.4f}"),
    "perplexity": ("perplexity of a token", "{:.3f}"),
}


def scores_in_words(scores):
    """Scores by name, for people."""
    return ", ".join(f"{SCORES[n][0]} {SCORES[n][1].format(value)}" for n, value in scores.items())


def corpus_scores(hypotheses, references):
    """Corpus BLEU and chrF, 0 to 100, by sacrebleu's defaults: cased, detokenised."""
    bleu = sacrebleu.corpus_bleu(hypotheses, [references]).score
    return {"bleu": bleu, "chrf": sacrebleu.corpus_chrf(hypotheses, [references]).score}


def confusion(wanted, predicted, classes):
    """The confusion matrix, int64 `[classes, classes]`: expected classes by found classes.

    >>> confusion([0, 0, 1], [0, 1, 1], 2).tolist()
    [[1, 1], [0, 1]]
    """
    table = np.zeros((classes, classes), np.int64)
    np.add.at(table, (np.asarray(wanted, int), np.asarray(predicted, int)), 1)
    return table


def class_scores(table):
    """Precision, recall, F1 and number of cases of each class, float64 `[classes, 4]`.

    A score without cases is 0.

    >>> class_scores(np.array([[1, 1], [0, 1]])).round(3).tolist()
    [[1.0, 0.5, 0.667, 2.0], [0.5, 1.0, 0.667, 1.0]]
    """
    right, wanted, predicted = np.diag(table), table.sum(axis=1), table.sum(axis=0)
    precision = right / np.maximum(predicted, 1)
    recall = right / np.maximum(wanted, 1)
    f1 = 2 * right / np.maximum(wanted + predicted, 1)
    return np.stack([precision, recall, f1, wanted], axis=1)


def accuracy_and_f1(table):
    """Accuracy, and the mean F1 over the classes that occur, both 0 to 100."""
    scores = class_scores(table)
    occurs = (table.sum(axis=1) + table.sum(axis=0)) > 0
    accuracy = np.diag(table).sum() / max(table.sum(), 1)
    return {"accuracy": 100 * accuracy, "macro_f1": 100 * scores[occurs, 2].mean()}


def perplexity(log_prob, tokens):
    """The perplexity per token of a text with this log-probability; at most e^700."""
    return math.exp(min(-log_prob / tokens, 700))
