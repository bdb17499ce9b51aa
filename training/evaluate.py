"""Scores of a model on texts, during training and at the end."""

import math

import keras
import numpy as np
import sacrebleu
from keras import ops

BATCH = 64  # texts in a batch
PADDING = 8  # lengths are padded to multiples of this, so that there are fewer shapes
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


class Evaluator:
    """Evaluates a model on the same texts each time it is called.

    They are tokenised once, and the model is compiled once.

    Args:
        task: The task, such as `tasks.Translation`.
        model: The model, whose weights may change between calls.
        rows: List of (source, target), (text, label), (tokens, tags) or (anything, text).

    Attributes:
        table: After `measure`, the confusion matrix if there are labels.
    """

    learned = 0  # the column whose tokens are read
    most = None  # tokens of a text that are read

    def __init__(self, task, model, rows):
        self.task, self.model, self.rows, self.table = task, model, rows, None
        self.tokenizer, self.target = task.tokenizers
        encoded = self.tokenizer.encode(self.texts()).to_list()
        ids = [[*row[: self.most], self.tokenizer.eos_id] for row in encoded]
        self.order = np.argsort([len(row) for row in ids], kind="stable")
        rows = [ids[i] for i in self.order]
        self.batches = [padded(rows[i : i + BATCH]) for i in range(0, len(rows), BATCH)]
        self.function = compiled(self.of_batch, model)

    def outputs(self):
        """The result of `of_batch` for each row, in order."""
        found, places = [None] * len(self.rows), iter(self.order)
        for batch in self.batches:
            for row in self.function(batch):
                found[next(places)] = row
        return found

    def texts(self):
        """The text of each row."""
        return [row[self.learned] for row in self.rows]

    def sample(self, number, found):
        """A result with its text and what was expected, for people."""
        source, expected = self.rows[number]
        return f"{source}  ->  {found}  ({expected})"


class TranslationEvaluator(Evaluator):
    """BLEU and chrF of greedy translations, by the served decoder with a lower maximum length.

    The final figures come from the `Translator`, with its beam.
    """

    most = 128

    def __init__(self, task, model, rows):
        from keras_tfmr.decoding import DecodingConfig

        self.decoding = DecodingConfig(num_beams=1)
        super().__init__(task, model, rows)

    def of_batch(self, source_ids):
        limit = self.decoding.max_length
        step, state = self.model.start(source_ids, 1, max_length=limit)
        lengths = ops.sum(ops.cast(source_ids != 0, "int32"), axis=1)
        target = self.target
        result = self.decoding.decode(
            step,
            state,
            bos_ids=ops.full(ops.shape(source_ids)[:1], target.bos_id, dtype="int32"),
            eos_id=target.eos_id,
            banned_ids=(target.pad_id, target.unknown_id, target.bos_id),
            max_lengths=self.decoding.max_lengths(lengths),
        )
        return result.ids[:, 0]

    def measure(self):
        """Scores by name, and the translations."""
        ids = padded(self.outputs())
        texts = [text.decode() for text in self.target.decode(ids).numpy()]
        return corpus_scores(texts, [reference for _, reference in self.rows]), texts


class LabelEvaluator(Evaluator):
    """Accuracy and F1 of a label for each text."""

    def of_batch(self, ids):
        return ops.argmax(self.model(ids, training=False), axis=-1)[:, None]

    def measure(self):
        """Scores by name, and the found labels of each row, separated by spaces."""
        names, found = self.target.names, [row[row >= 0] for row in self.outputs()]
        wanted = [names.index(label) for _, labels in self.rows for label in labels.split()]
        self.table = confusion(wanted, np.concatenate(found), len(names))
        return accuracy_and_f1(self.table), [" ".join(names[one] for one in row) for row in found]


class TagEvaluator(LabelEvaluator):
    """Accuracy and F1 of a tag for each token."""

    def of_batch(self, ids):
        begins = ops.take(ops.convert_to_tensor(self.tokenizer.word_beginnings()), ids, axis=0)
        found = ops.argmax(self.model(ids, training=False), axis=-1)
        return ops.where(begins, found, -1)

    def sample(self, number, found):
        tokens = self.rows[number][0].split()
        return " ".join(f"{t}/{tag}" for t, tag in zip(tokens, found.split(), strict=False))


class LanguageEvaluator(Evaluator):
    """Perplexity and bits per byte of whole texts."""

    learned = 1

    def of_batch(self, ids):
        from keras_tfmr.decoding import score

        start = ops.full((ops.shape(ids)[0], 1), self.tokenizer.bos_id, dtype="int32")
        fed = ops.concatenate([start, ids[:, :-1]], axis=1)
        log_prob, tokens = score(self.model(fed, training=False), ids)
        return ops.stack([log_prob, ops.cast(tokens, "float32")], axis=1)

    def measure(self):
        """Scores by name, and the log-probability of each text as a str."""
        found = np.array(self.outputs(), np.float64)
        log_prob, tokens = found.sum(axis=0)
        # The line end of a text counts as a byte, because the model predicts an end id for it.
        bits = -log_prob / math.log(2) / sum(len(text.encode()) + 1 for _, text in self.rows)
        return {
            "byte_probability": 100 * 2**-bits,
            "bits_per_byte": bits,
            "perplexity": math.exp(min(-log_prob / tokens, 700)),
        }, [f"{one:.1f}" for one, _ in found]

    def sample(self, number, found):
        return f"{self.rows[number][1]}  ({found} nats)"


class MaskedEvaluator(Evaluator):
    """Accuracy and perplexity of masked tokens, always the same ones."""

    learned = 1

    def of_batch(self, ids):
        """`ids` int `[rows, 2 · length]`: the masked tokens, then the labels."""
        length = ops.shape(ids)[1] // 2
        fed, labels = ids[:, :length], ids[:, length:]
        log_probs = ops.log_softmax(ops.cast(self.model(fed, training=False), "float32"))
        wanted, classes = ops.cast(labels > 0, "float32"), ops.maximum(labels - 1, 0)
        right = ops.cast(ops.equal(ops.argmax(log_probs, axis=-1), classes), "float32")
        each = ops.take_along_axis(log_probs, classes[..., None], axis=-1)[..., 0]
        return ops.stack([ops.sum(x * wanted, axis=1) for x in (right, each, wanted)], axis=1)

    def __init__(self, task, model, rows):
        super().__init__(task, model, rows)
        random, eos_id = np.random.default_rng(7), self.tokenizer.eos_id
        masked = [task.masked(ids, ids > eos_id, random) for ids in self.batches]
        self.batches = [np.concatenate(pair, axis=1) for pair in masked]

    def measure(self):
        """Scores by name, and "found of masked tokens" for each text."""
        found = np.array(self.outputs(), np.float64)
        right, log_prob, count = found.sum(axis=0)
        perplexity = math.exp(min(-log_prob / max(count, 1), 700))
        texts = [f"{int(row[0])} of {int(row[2])}" for row in found]
        return {"accuracy": 100 * right / max(count, 1), "perplexity": perplexity}, texts

    def sample(self, number, found):
        return f"{self.rows[number][1]}  ({found} masked tokens found)"


_EVALUATORS = {
    "classify": LabelEvaluator, "tag": TagEvaluator, "language": LanguageEvaluator,
    "masked": MaskedEvaluator,
}  # fmt: skip


def make_evaluator(task, model, rows, most=None):
    """The `Evaluator` of a task, on at most `most` of the rows."""
    return _EVALUATORS.get(task.kind, TranslationEvaluator)(task, model, spread(rows, most))


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


def in_words(scores):
    """Scores by name, for people."""
    return ", ".join(f"{SCORES[n][0]} {SCORES[n][1].format(value)}" for n, value in scores.items())


def corpus_scores(hypotheses, references):
    """Corpus BLEU and chrF, 0 to 100, by sacrebleu's defaults: cased, detokenised."""
    bleu = sacrebleu.corpus_bleu(hypotheses, [references]).score
    return {"bleu": bleu, "chrf": sacrebleu.corpus_chrf(hypotheses, [references]).score}


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


def padded(rows):
    """int32 `[batch, length]` of lists of ids, padded with 0 to a multiple of `PADDING`."""
    length = -(-max(map(len, rows)) // PADDING) * PADDING
    return keras.utils.pad_sequences(rows, length, padding="post")


def spread(rows, count):
    """At most `count` of the rows, evenly spaced."""
    if count is None or len(rows) <= count:
        return list(rows)
    return [rows[i * len(rows) // count] for i in range(count)]
