"""Scores of a model on texts, during training and at the end."""

import functools
import itertools
import math

import keras
import numpy as np

from training.corpus.batches import compiles_by_shape
from training.corpus.read import text_column

BATCH = 64  # texts in a batch
PADDING = 8  # lengths are padded to multiples of this, so that there are fewer shapes


class Evaluator:
    """Evaluates a model on the same texts each time it is called.

    They are tokenised once, and the model is compiled once.

    Args:
        task: The task, such as `tasks.TranslationTask`.
        model: The model, whose weights may change between calls.
        rows: List of (source, target), (text, label) or (anything, text).
        most: Maximum number of rows, evenly spaced; None for all.

    Attributes:
        table: After `measure`, the confusion matrix if there are labels.
    """

    def __init__(self, task, model, rows, most=None):
        self.task, self.model, self.rows, self.table = task, model, spread(rows, most), None
        self.column = text_column(task.settings.task)
        tokenizer = task.tokenizers[0]
        encoded = tokenizer.encode(task.read(self.texts())).to_list()
        ids = [[*row[: task.longest], tokenizer.eos_id] for row in encoded]
        self.order = np.argsort([len(row) for row in ids], kind="stable")
        ids = [ids[i] for i in self.order]
        shape = (BATCH, max(map(len, ids))) if compiles_by_shape() else (0, 0)
        self.batches = [padded(ids[i : i + BATCH], *shape) for i in range(0, len(ids), BATCH)]
        self.function = compiled(functools.partial(task.outputs, model), model)

    def texts(self):
        """The text of each row."""
        return [row[self.column] for row in self.rows]

    def measure(self):
        """Scores by name, and for each row what was found as a str, in order."""
        results = [None] * len(self.rows)
        outputs = itertools.chain.from_iterable(map(self.function, self.batches))
        for place, row in zip(self.order, outputs, strict=False):  # behind them, rows that fill
            results[place] = row
        scores, texts, self.table = self.task.measured(results, self.rows)
        return scores, texts

    def sample(self, number, result):
        """A result with its text and what was expected, for people."""
        return self.task.sample(*self.rows[number], result)


def compiled(function, model):
    """A function of int32 ids `[batch, length]`, compiled by the backend, to a NumPy array.

    It reads the weights of the model at each call. Keras compiles a model's call only, and decoding
    is a loop over calls.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # Traced once for all shapes. Without AutoGraph, whose conversion takes seconds and is not
        # needed: the loops are Keras's.
        signature = [tf.TensorSpec([None, None], tf.int32)]
        graph = tf.function(function, input_signature=signature, autograph=False)
        return lambda ids: graph(ids).numpy()
    import jax

    variables = model.variables

    @jax.jit
    def run(values, ids):
        with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
            return function(ids)

    return lambda ids: np.asarray(run([variable.value for variable in variables], ids))


def padded(rows, count=0, length=0):
    """int32 `[batch, length]` of lists of ids, padded with 0 to a multiple of `PADDING`.

    The last row is repeated up to `count` rows; rows are at least `length` long.
    """
    rows = rows + rows[-1:] * (count - len(rows))
    longest = max(length, *(len(row) for row in rows))
    return keras.utils.pad_sequences(rows, math.ceil(longest / PADDING) * PADDING, padding="post")


def spread(rows, count):
    """At most `count` of the rows, evenly spaced."""
    if count is None or len(rows) <= count:
        return list(rows)
    return [rows[i * len(rows) // count] for i in range(count)]
