"""The base of classifiers and taggers: a model that gives each label a probability."""

from collections.abc import Iterable

import keras
import tensorflow as tf

from keras_tfmr.text.buckets import MOST_COMPILED, at_least_one, pad_to_buckets
from keras_tfmr.text.text_model import TextModel, compiled
from keras_tfmr.text.tokenizer import SubwordTokenizer


class LabelModel(TextModel):
    """A model with a class for each label, and its tokeniser.

    Args:
        model: A `SequenceClassifier` or `TokenClassifier`.
        tokenizer: A `SubwordTokenizer`.
        labels: The names of the model's classes, in their order.
        max_length: The most tokens of a text, its end id included.
        xla: Whether XLA compiles the model for batches of up to `MOST_COMPILED`.

    Raises:
        RuntimeError: If Keras does not run on TensorFlow.
        ValueError: If the vocabulary, the labels or the lengths do not fit the model.
    """

    def __init__(
        self,
        model: keras.Model,
        tokenizer: SubwordTokenizer,
        labels: Iterable[str],
        max_length: int,
        xla: bool,
    ) -> None:
        super().__init__(model, {"text": tokenizer}, max_length, xla)
        self.tokenizer, self.labels = tokenizer, checked_labels(labels, model)
        self._check_vocabulary("source_vocab", tokenizer)
        self._check_positions(max_length, f"max_length={max_length}")
        self._plain, self._compiled = (
            compiled(
                lambda token_ids: tf.nn.softmax(model(token_ids, training=False)),
                by_xla,
                token_ids=([None, None], tf.int32),
            )
            for by_xla in (False, True)
        )

    def probabilities(self, ids: tf.Tensor) -> tf.Tensor:
        """The probabilities float32 [rows, ..., labels] for ids [batch, length]; rows >= 1."""
        ids = at_least_one(ids)
        if not self.xla:
            return self._plain(ids)
        return tf.cond(
            tf.shape(ids)[0] <= MOST_COMPILED,
            lambda: self._compiled(pad_to_buckets(ids, self.length_buckets)),
            lambda: self._plain(ids),
        )


def checked_labels(labels: Iterable[str], model: keras.Model) -> list[str]:
    """The labels as a list of str; raises a ValueError unless there is one for each class."""
    labels = list(labels)
    if len(labels) != model.num_classes or len(set(labels)) != len(labels):
        raise ValueError(
            f"The model has {model.num_classes} classes, each of which needs a label of its own. "
            f"Received: {labels}"
        )
    if not all(isinstance(label, str) and label for label in labels):
        raise ValueError(f"A label must be a str of at least one character. Received: {labels}")
    return labels
