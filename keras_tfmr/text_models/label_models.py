"""Classifiers and taggers: a model with its tokenizer, from lists of texts to labels."""

from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from keras_tfmr.signatures.calls import ClassifierCalls, TaggerCalls
from keras_tfmr.signatures.inputs import texts_of
from keras_tfmr.signatures.signature import (
    CLASSIFY,
    CLASSIFY_EXAMPLES,
    REGRESS_EXAMPLES,
    TAG,
    TAG_WORDS,
)
from keras_tfmr.text.subwords import Tokenizer, valid_utf8
from keras_tfmr.text_models.text_model import TextModel, at_least_one, traced

# A number with its inner punctuation (3.5, 10:30), a word with its inner apostrophes and hyphens,
# or a single punctuation mark. Joiners and other invisible characters belong to a word.
_WORD = (
    r"(\pN+(?:[.,:]\pN+)+"
    r"|[\pL\pM\pN\p{Cf}]+(?:['\x{2019}-][\pL\pM\pN\p{Cf}]+)*"
    r"|[^\pZ\p{Cc}])"
)
_SPACE = r"[\pZ\p{Cc}]+"


class LabelModel(TextModel):
    """The base of both: a model that gives each label a probability, and its tokenizer."""

    labels_name = "labels"  # of the constructor's argument and of the metadata

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Tokenizer,
        labels: Iterable[str],
        max_length: int,
    ) -> None:
        super().__init__(model, {"text": tokenizer}, max_length)
        self.tokenizer, self.labels = tokenizer, checked_labels(labels, model)
        self._check_vocabulary("source_vocab", tokenizer)
        self._check_positions(max_length, f"max_length={max_length}")
        self._model = traced(
            lambda ids: tf.nn.softmax(model(ids, training=False)), ids=([None, None], tf.int32)
        )

    def arguments(self) -> dict[str, Any]:
        own = {"tokenizer": self.tokenizer, "max_length": self.max_length}
        return {**own, self.labels_name: self.labels}

    def to_metadata(self) -> dict[str, Any]:
        return {**super().to_metadata(), self.labels_name: self.labels}

    def probabilities(self, ids: tf.Tensor) -> tf.Tensor:
        """The probabilities float32 [rows, ..., labels] for ids [batch, length]; rows >= 1."""
        return self._model(at_least_one(ids))


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


class Classifier(ClassifierCalls, LabelModel):
    """Labels texts with a model, its tokenizer and the names of its classes.

    Args:
        model: A `SequenceClassifier`.
        tokenizer: A `SubwordTokenizer`.
        labels: The names of the model's classes, in their order.
        max_length: Maximum number of tokens of a text, its end id included; a longer text is cut.

    Raises:
        RuntimeError: If Keras does not run on TensorFlow.
        ValueError: If the vocabulary, the labels or the lengths do not fit the model.

    >>> from keras_tfmr import SequenceClassifier, SubwordTokenizer, TransformerConfig
    >>> tokenizer = SubwordTokenizer.learn(["o gato preto", "the black cat"] * 9, vocab_size=300)
    >>> config = TransformerConfig.preset("tiny", source_vocab=tokenizer.vocab_size,
    ...     joint_vocab=False)
    >>> classifier = Classifier(SequenceClassifier(config, 2), tokenizer, ["pt", "en"])
    >>> [answer] = classifier.classify(["o gato"])
    >>> sorted(answer.probabilities), answer.label in ("pt", "en")
    (['en', 'pt'], True)
    """

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Tokenizer,
        labels: Iterable[str],
        *,
        max_length: int = 128,
    ) -> None:
        super().__init__(model, tokenizer, labels, max_length)
        of_two_labels = [(REGRESS_EXAMPLES, self._regress_examples)]
        self._serve(
            (CLASSIFY, self._classify),
            (CLASSIFY_EXAMPLES, self._classify_examples),
            *(of_two_labels if len(self.labels) == 2 else ()),
        )

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


class Tagger(TaggerCalls, LabelModel):
    """Tags the words of texts with a model, its tokenizer and the names of its classes.

    The tag of a word is that of its first subword, as in BERT (arXiv 1810.04805).

    Args:
        model: A `TokenClassifier`.
        tokenizer: A `SubwordTokenizer`.
        tags: The names of the model's classes, in their order.
        max_length: Maximum number of tokens of a text, its end id included; words beyond are left
            out.

    Raises:
        RuntimeError: If Keras does not run on TensorFlow.
        ValueError: If the vocabulary, the tags or the lengths do not fit the model.

    >>> from keras_tfmr import SubwordTokenizer, TokenClassifier, TransformerConfig
    >>> tokenizer = SubwordTokenizer.learn(["o gato preto", "the black cat"] * 9, vocab_size=300)
    >>> config = TransformerConfig.preset("tiny", source_vocab=tokenizer.vocab_size,
    ...     joint_vocab=False)
    >>> tagger = Tagger(TokenClassifier(config, 2), tokenizer, ["NOUN", "OTHER"])
    >>> [answer.words for answer in tagger.tag(["The cat's black.", ""])]
    [['The', "cat's", 'black', '.'], []]
    """

    labels_name = "tags"

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Tokenizer,
        tags: Iterable[str],
        *,
        max_length: int = 128,
    ) -> None:
        super().__init__(model, tokenizer, tags, max_length)
        self._serve((TAG, self._tag), (TAG_WORDS, self._tag_words))

    def _tag(self, text):
        return self._tagged(text, words_of)

    def _tag_words(self, text):
        return self._tagged(text, spaced_words_of)

    def _tagged(self, text, split):
        """`text` string [batch] -> its words and their tags.

        `words` and `tags` string [batch, words], padded with empty strings; `probabilities`
        float32 [batch, words], of these tags, padded with 0; `truncated` bool [batch].
        """
        words = split(tf.ensure_shape(text, [None]))
        ids, words, positions, truncated = first_pieces(words, self.tokenizer, self.max_length)
        probabilities = self.probabilities(ids)  # [rows, length, tags]
        at = tf.stack([positions.value_rowids(), positions.flat_values], axis=1)
        of_words = tf.gather_nd(probabilities, at)  # [words of all texts, tags]
        tags = tf.gather(tf.constant(self.labels), tf.argmax(of_words, axis=1))
        best = words.with_flat_values(tf.reduce_max(of_words, axis=1))
        return {
            "words": words.to_tensor(""),
            "tags": words.with_flat_values(tags).to_tensor(""),
            "probabilities": best.to_tensor(0.0),
            "truncated": truncated,
        }


def words_of(text):
    """Strings [batch] -> their words and punctuation marks, ragged string [batch, (words)].

    >>> words_of(tf.constant(["It's 3.5 km (or so)."])).to_list()[0]
    [b"It's", b'3.5', b'km', b'(', b'or', b'so', b')', b'.']
    """
    return spaced_words_of(tf.strings.regex_replace(valid_utf8(text), _WORD, r"\1 "))


def spaced_words_of(text):
    """Strings [batch] -> their parts between spaces, ragged string [batch, (words)].

    >>> spaced_words_of(tf.constant(["It 's 3.5 km ."])).to_list()[0]
    [b'It', b"'s", b'3.5', b'km', b'.']
    """
    text = tf.strings.regex_replace(valid_utf8(text), _SPACE, " ")
    return tf.strings.split(tf.ensure_shape(text, [None]))


def first_pieces(words, tokenizer, max_length):
    """The subwords of words, and where each word begins among them.

    Args:
        words: ragged string [batch, (words)].
        tokenizer: A `SubwordTokenizer`. Each word is split as it is after a space.
        max_length: Maximum number of ids in a row, the end id included.

    Returns:
        ids: int32 [batch, length], ended by the end id and padded with 0.
        words: ragged string [batch, (words)], the words whose first subword is among the ids.
        positions: ragged int64 [batch, (words)], the position of that subword.
        truncated: bool [batch], whether words or subwords were left out.
    """
    counts = words.row_lengths()
    words = words[:, :max_length]
    pieces = tokenizer.encode(words.flat_values, max_length)  # [words of all texts, (pieces)]
    lengths = words.with_flat_values(tf.cast(pieces.row_lengths(), tf.int64))
    # Where a word begins: the sum of the lengths before it in its text.
    before = tf.cumsum(lengths.flat_values, exclusive=True)
    starts = tf.pad(tf.cumsum(tf.reduce_sum(lengths, axis=1)), [[1, 0]])  # of the texts
    positions = lengths.with_flat_values(before - tf.gather(starts, words.value_rowids()))
    rows = tf.RaggedTensor.from_row_splits(pieces.flat_values, starts)  # [batch, (pieces)]
    has_room = positions < max_length - 1
    truncated = (rows.row_lengths() > max_length - 1) | (counts > words.row_lengths())
    end = tf.fill([rows.nrows(tf.int32), 1], tokenizer.eos_id)
    ids = tf.concat([rows[:, : max_length - 1], end], axis=1).to_tensor(tokenizer.pad_id)
    return (
        ids,
        tf.ragged.boolean_mask(words, has_room),
        tf.ragged.boolean_mask(positions, has_room),
        truncated,
    )
