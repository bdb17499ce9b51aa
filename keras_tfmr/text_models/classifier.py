"""Classifiers: a model with its tokenizer, from lists of texts to labels."""

from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from keras_tfmr.layers import PositionalEmbedding
from keras_tfmr.signatures.answers import Classification
from keras_tfmr.signatures.inputs import text_of
from keras_tfmr.signatures.signature import CLASSIFY
from keras_tfmr.text.labels import Labels
from keras_tfmr.text.strings import Text
from keras_tfmr.text.tokenizer import Tokenizer
from keras_tfmr.text_models.text_model import BATCH, TextModel, traced


@keras.saving.register_keras_serializable(package="keras_tfmr")
class Classifier(TextModel):
    """Labels texts with a model, its tokenizer and the names of its classes.

    Args:
        model: A functional model from token IDs `[batch, length]` to logits `[batch, classes]`,
            such as that of `TransformerClassifier`.
        tokenizer: A `SubwordTokenizer`.
        labels: The names of the model's classes, in their order.
        max_length: Maximum number of tokens of a text, its end id included; a longer text is cut.

    Raises:
        RuntimeError: If Keras does not run on TensorFlow.
        ValueError: If the vocabulary, the labels or the lengths do not fit the model.

    >>> from keras_tfmr import SubwordTokenizer, TransformerClassifier, TransformerConfig
    >>> tokenizer = SubwordTokenizer.learn(["o gato preto", "the black cat"] * 9, vocab_size=300)
    >>> config = TransformerConfig.preset("tiny", source_vocab=tokenizer.vocab_size,
    ...     joint_vocab=False)
    >>> classifier = Classifier(TransformerClassifier(config, 2), tokenizer, ["pt", "en"])
    >>> [answer] = classifier.classify(["o gato"])
    >>> sorted(answer.probabilities), answer.label in ("pt", "en")
    (['en', 'pt'], True)
    """

    options = ("max_length",)

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Tokenizer,
        labels: Iterable[str],
        *,
        max_length: int = 128,
    ) -> None:
        super().__init__(model, {"text": tokenizer}, max_length)
        self.tokenizer, self.labels = tokenizer, checked_labels(labels, model)
        for layer in model.layers:
            if isinstance(layer, PositionalEmbedding):
                self._check_vocabulary(layer.vocab_size, tokenizer)
                layer(keras.KerasTensor((1, max_length), "int32"))  # may have fewer positions
        self._trace()

    def _trace(self):
        self._model = traced(
            lambda ids: tf.nn.softmax(self.model(ids, training=False)),
            ids=([None, None], tf.int32),
        )
        self._serve((CLASSIFY, self._classify))

    def classify(self, texts: Iterable[Text], batch_size: int = BATCH) -> list[Classification]:
        """The labels of each text, str or bytes, with their probabilities, in order.

        Texts of similar length are answered `batch_size` at a time.
        """
        return self._answers(CLASSIFY, text_of(texts), batch_size)

    def get_config(self) -> dict[str, Any]:
        return {"max_length": self.max_length}

    @classmethod
    def _made_of(cls, config, model, source, target):
        return cls(model, source, target.names, **config)

    def sides(self) -> tuple[Any, Any]:
        return self.tokenizer, Labels(self.labels)

    def _classify(self, text):
        """`text` string [batch] -> the labels, the most probable first.

        `label` string and `truncated` bool, both [batch]; `labels` string and `probabilities`
        float32, both [batch, classes]. A text that is too long is cut, and `truncated` is True.
        """
        text = tf.ensure_shape(text, [None])
        ids, truncated = self.tokenizer.encode_truncated(text, self.max_length)
        probabilities = self._model(ids)
        sorted_probabilities, order = tf.nn.top_k(probabilities, len(self.labels))
        labels = tf.gather(tf.constant(self.labels), order)
        return {
            "label": labels[:, 0],
            "labels": labels,
            "probabilities": sorted_probabilities,
            "truncated": truncated,
        }


def checked_labels(labels: Iterable[str], model: keras.Model) -> list[str]:
    """The labels as a list of str; raises a ValueError unless there is one for each class."""
    labels = list(labels)
    classes = model.output_shape[-1]
    if len(labels) != classes or len(set(labels)) != len(labels):
        raise ValueError(
            f"The model has {classes} classes, each of which needs a label of its own. "
            f"Received: {labels}"
        )
    if not all(isinstance(label, str) and label for label in labels):
        raise ValueError(f"A label must be a str of at least one character. Received: {labels}")
    return labels
