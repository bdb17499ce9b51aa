"""Classifiers: a model with its tokeniser, from lists of texts to labels with probabilities."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from keras_tfmr._examples import example_of, texts_of
from keras_tfmr._inputs import Text
from keras_tfmr.text.label_model import LabelModel
from keras_tfmr.text.text_model import traced
from keras_tfmr.text.tokenizer import SubwordTokenizer


class Classification(NamedTuple):
    """The labels of a text.

    Fields:
        label: The most probable one.
        probabilities: A dict from every label to its probability, the most probable first.
    """

    label: str
    probabilities: dict[str, float]


class Classifier(LabelModel):
    """Labels texts with a model, its tokeniser and the names of its classes.

    Args:
        model: A `SequenceClassifier`.
        tokenizer: A `SubwordTokenizer`.
        labels: The names of the model's classes, in their order.
        max_length: The most tokens of a text, its end id included; a longer text is cut.
        xla: Whether XLA compiles the model, once for each pair of a batch size and a length up to
            which batches are padded.

    Raises:
        RuntimeError: If Keras does not run on TensorFlow.
        ValueError: If the vocabulary, the labels or the lengths do not fit the model.

    >>> from keras_tfmr import SequenceClassifier, SubwordTokenizer, TransformerConfig
    >>> tokenizer = SubwordTokenizer.learn(["o gato preto", "the black cat"] * 9, vocab_size=300)
    >>> config = TransformerConfig.preset("tiny", source_vocab=tokenizer.vocab_size,
    ...     joint_vocab=False)
    >>> classifier = Classifier(SequenceClassifier(config, 2), tokenizer, ["pt", "en"])
    >>> [found] = classifier.classify(["o gato"])
    >>> sorted(found.probabilities), found.label in ("pt", "en")
    (['en', 'pt'], True)
    """

    default = "classify"

    def __init__(
        self,
        model: keras.Model,
        tokenizer: SubwordTokenizer,
        labels: Iterable[str],
        *,
        max_length: int = 128,
        xla: bool = False,
    ) -> None:
        super().__init__(model, tokenizer, labels, max_length, xla)
        self.signatures = {
            "classify": traced(self._classify, text=tf.string),
            "classify_examples": traced(self._classify_examples, inputs=tf.string),
        }
        self.methods = {"classify_examples": tf.saved_model.CLASSIFY_METHOD_NAME}
        if len(self.labels) == 2:
            self.signatures["regress_examples"] = traced(self._regress_examples, inputs=tf.string)
            self.methods["regress_examples"] = tf.saved_model.REGRESS_METHOD_NAME

    def arguments(self) -> dict[str, Any]:
        return {
            "tokenizer": self.tokenizer, "labels": self.labels, "max_length": self.max_length,
        }  # fmt: skip

    def request(self, signature: str, texts: Sequence[Text]) -> dict[str, list[Any]]:
        if signature in self.methods:
            return {"inputs": [example_of(text) for text in texts]}
        return {"text": list(texts)}

    def answers_when_rounded(self, signature: str) -> tuple[str, ...] | None:
        return ("probabilities",) if signature == "classify" else None

    def to_metadata(self) -> dict[str, Any]:
        return {**super().to_metadata(), "labels": self.labels}

    def classify(self, texts: Iterable[Text], batch_size: int = 32) -> list[Classification]:
        """The labels of each text.

        Args:
            texts: A list of strings.
            batch_size: The number of texts in a batch; texts of similar length share a batch.

        Returns:
            A list of `Classification`, in the order of `texts`.
        """
        return [
            Classification(
                row["label"].decode(),
                {
                    label.decode(): float(probability)
                    for label, probability in zip(row["labels"], row["probabilities"], strict=True)
                },
            )
            for row in self._rows("classify", texts, batch_size=batch_size)
        ]

    def _classify(self, text):
        """`text` string [batch] -> the labels, the most probable first.

        `label` string and `truncated` bool, both [batch]; `labels` string and `probabilities`
        float32, both [batch, classes]. A text that is too long is cut, and `truncated` is True.
        """
        probabilities, truncated = self._probabilities(text)
        sorted_probabilities, order = tf.nn.top_k(probabilities, len(self.labels))
        labels = tf.gather(tf.constant(self.labels), order)
        return {
            "label": labels[:, 0],
            "labels": labels,
            "probabilities": sorted_probabilities,
            "truncated": truncated,
        }

    def _classify_examples(self, inputs):
        """Examples [batch] -> `classes` string, `scores` float32 [batch, classes], in model order.

        For TensorFlow Serving's Classify.
        """
        probabilities, _ = self._probabilities(texts_of(inputs))
        classes = tf.tile(tf.constant([self.labels]), [tf.shape(probabilities)[0], 1])
        return {"classes": classes, "scores": probabilities}

    def _regress_examples(self, inputs):
        """Examples [batch] -> `outputs` float32 [batch], the probability of the second label.

        For TensorFlow Serving's Regress.
        """
        probabilities, _ = self._probabilities(texts_of(inputs))
        return {"outputs": probabilities[:, 1]}

    def _probabilities(self, text):
        """Strings [batch] -> float32 [batch, classes], bool [batch]."""
        text = tf.ensure_shape(text, [None])
        ids, truncated = self.tokenizer.encode_truncated(text, self.max_length)
        return self.probabilities(ids)[: tf.size(text)], truncated
