"""Evaluates classifiers, taggers and language models, during training and at the end."""

import math

import numpy as np
import tensorflow as tf

from training.report.evaluation import padded

BATCH = 64  # texts in a batch


def confusion(wanted, found, classes):
    """The confusion matrix, int64 `[classes, classes]`: expected classes by found classes.

    >>> confusion([0, 0, 1], [0, 1, 1], 2).tolist()
    [[1, 1], [0, 1]]
    """
    table = np.zeros((classes, classes), np.int64)
    np.add.at(table, (np.asarray(wanted, int), np.asarray(found, int)), 1)
    return table


def class_scores(table):
    """Precision, recall, F1 and number of cases of each class, float64 `[classes, 4]`.

    A score without cases is 0.

    >>> class_scores(np.array([[1, 1], [0, 1]])).round(3).tolist()
    [[1.0, 0.5, 0.667, 2.0], [0.5, 1.0, 0.667, 1.0]]
    """
    right, wanted, found = np.diag(table), table.sum(axis=1), table.sum(axis=0)
    precision = right / np.maximum(found, 1)
    recall = right / np.maximum(wanted, 1)
    f1 = 2 * right / np.maximum(wanted + found, 1)
    return np.stack([precision, recall, f1, wanted], axis=1)


def accuracy_and_f1(table):
    """Accuracy, and the mean F1 over the classes that occur, both 0 to 100."""
    scores = class_scores(table)
    occurs = (table.sum(axis=1) + table.sum(axis=0)) > 0
    accuracy = np.diag(table).sum() / max(table.sum(), 1)
    return {"accuracy": 100 * accuracy, "macro_f1": 100 * scores[occurs, 2].mean()}


class TextEvaluator:
    """Evaluates the same texts each time it is called.

    Args:
        task: The `TextTask`.
        model: The model, whose weights may change between calls.
        tokenizers: Those of both sides.
        rows: List of (text, label), (tokens, tags) or (anything, text).
    """

    learned = 0  # the column whose tokens are read

    def __init__(self, task, model, tokenizers, rows):
        self.task, self.model, self.rows = task, model, rows
        self.tokenizer, self.labels = tokenizers
        texts = [row[self.learned] for row in rows]
        ids = [self.ids_of(row) for row in self.tokenizer.encode(texts).to_list()]
        self.order = np.argsort([len(row) for row in ids], kind="stable")
        self.batches = [
            padded([ids[i] for i in self.order[start : start + BATCH]])
            for start in range(0, len(ids), BATCH)
        ]
        self.function = tf.function(
            self.of_batch,
            input_signature=[tf.TensorSpec([None, None], tf.int32)],
            autograph=False,
        )

    def ids_of(self, pieces):
        """The ids that the model reads, for the ids of a text."""
        return [*pieces, self.tokenizer.end_id]

    def outputs(self):
        """The result of `of_batch` for each row, in order."""
        found = [None] * len(self.rows)
        places = iter(self.order)
        for batch in self.batches:
            for row in self.function(batch).numpy():
                found[next(places)] = row
        return found


class LabelEvaluator(TextEvaluator):
    """Accuracy and F1 of a label for each text."""

    def of_batch(self, ids):
        return tf.argmax(self.model(ids, training=False), axis=-1)

    def measure(self):
        """Scores by name, and the found label of each row."""
        found = [int(one) for one in self.outputs()]
        names = self.labels.names
        self.table = confusion([names.index(label) for _, label in self.rows], found, len(names))
        return accuracy_and_f1(self.table), [names[one] for one in found]

    def sample(self, number, found):
        text, label = self.rows[number]
        return f"{text}  ->  {found}  ({label})"


class TagEvaluator(TextEvaluator):
    """Accuracy and F1 of a tag for each token."""

    def of_batch(self, ids):
        begins = tf.gather(tf.constant(self.tokenizer.word_beginnings()), ids)
        found = tf.argmax(self.model(ids, training=False), axis=-1)
        return tf.where(begins, found, -1)

    def measure(self):
        """Scores by name, and the found tags of each row, separated by spaces."""
        names, texts = self.labels.names, []
        wanted, found = [], []
        for (_, tags), row in zip(self.rows, self.outputs(), strict=True):
            mine = row[row >= 0]
            wanted += [names.index(tag) for tag in tags.split()]
            found += mine.tolist()
            texts.append(" ".join(names[one] for one in mine))
        self.table = confusion(wanted, found, len(names))
        return accuracy_and_f1(self.table), texts

    def sample(self, number, found):
        tokens = self.rows[number][0].split()
        return " ".join(f"{t}/{tag}" for t, tag in zip(tokens, found.split(), strict=False))


class LanguageEvaluator(TextEvaluator):
    """Perplexity and bits per byte of whole texts."""

    learned = 1

    def of_batch(self, ids):
        """Log-probability and number of tokens of each text: `[rows, 2]`."""
        from keras_tfmr import decoding

        start = tf.fill([tf.shape(ids)[0], 1], self.tokenizer.start_id)
        fed = tf.concat([start, ids[:, :-1]], axis=1)
        log_prob, tokens = decoding.score(self.model(fed, training=False), ids)
        return tf.stack([log_prob, tf.cast(tokens, tf.float32)], axis=1)

    def measure(self):
        """Scores by name, and the log-probability of each text as a str."""
        found = np.array(self.outputs(), np.float64)
        log_prob, tokens = found.sum(axis=0)
        # The line end of a text counts as a byte, because the model predicts an end id for it.
        count = sum(len(text.encode()) + 1 for _, text in self.rows)
        bits = -log_prob / math.log(2) / count
        self.table = None
        return {
            "byte_probability": 100 * 2**-bits,
            "bits_per_byte": bits,
            "perplexity": math.exp(min(-log_prob / tokens, 700)),
        }, [f"{one:.1f}" for one, _ in found]

    def sample(self, number, found):
        return f"{self.rows[number][1]}  ({found} nats)"


class MaskedEvaluator(TextEvaluator):
    """Accuracy and perplexity of masked tokens, always the same ones."""

    learned = 1

    def of_batch(self, ids):
        """Correct tokens, log-probability and number of the masked tokens: `[rows, 3]`."""
        fed, wanted = self.task.masked(ids, tf.constant([7, 7]))
        log_probs = tf.nn.log_softmax(tf.cast(self.model(fed, training=False), tf.float32))
        right = tf.cast(tf.argmax(log_probs, axis=-1, output_type=tf.int32) == ids, tf.float32)
        each = tf.gather(log_probs, ids, batch_dims=2)
        wanted = tf.cast(wanted, tf.float32)
        return tf.stack([tf.reduce_sum(x * wanted, axis=1) for x in (right, each, wanted)], axis=1)

    def measure(self):
        """Scores by name, and "found of masked tokens" for each text."""
        found = np.array(self.outputs(), np.float64)
        right, log_prob, count = found.sum(axis=0)
        self.table = None
        perplexity = math.exp(min(-log_prob / max(count, 1), 700))
        texts = [f"{int(row[0])} of {int(row[2])}" for row in found]
        return {"accuracy": 100 * right / max(count, 1), "perplexity": perplexity}, texts

    def sample(self, number, found):
        return f"{self.rows[number][1]}  ({found} masked tokens found)"
