"""Taggers: a model with its tokeniser, from lists of texts to their words with tags."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from keras_tfmr._inputs import Text
from keras_tfmr.text.label_model import LabelModel
from keras_tfmr.text.text_model import traced
from keras_tfmr.text.tokenizer import SubwordTokenizer
from keras_tfmr.text.words import first_pieces, spaced_words_of, words_of


class TaggedWord(NamedTuple):
    """A word of a text, its most probable tag, and the probability of that tag."""

    word: str
    tag: str
    probability: float


class Tagger(LabelModel):
    """Tags the words of texts with a model, its tokeniser and the names of its classes.

    The tag of a word is that of its first subword, as in BERT (arXiv 1810.04805).

    Args:
        model: A `TokenClassifier`.
        tokenizer: A `SubwordTokenizer`.
        tags: The names of the model's classes, in their order.
        max_length: The most tokens of a text, its end id included; words beyond are left out.
        xla: Whether XLA compiles the model, once for each pair of a batch size and a length up to
            which batches are padded.

    Raises:
        RuntimeError: If Keras does not run on TensorFlow.
        ValueError: If the vocabulary, the tags or the lengths do not fit the model.

    >>> from keras_tfmr import SubwordTokenizer, TokenClassifier, TransformerConfig
    >>> tokenizer = SubwordTokenizer.learn(["o gato preto", "the black cat"] * 9, vocab_size=300)
    >>> config = TransformerConfig.preset("tiny", source_vocab=tokenizer.vocab_size,
    ...     joint_vocab=False)
    >>> tagger = Tagger(TokenClassifier(config, 2), tokenizer, ["NOUN", "OTHER"])
    >>> [[word.word for word in text] for text in tagger.tag(["The cat's black.", ""])]
    [['The', "cat's", 'black', '.'], []]
    """

    default = "tag"

    def __init__(
        self,
        model: keras.Model,
        tokenizer: SubwordTokenizer,
        tags: Iterable[str],
        *,
        max_length: int = 128,
        xla: bool = False,
    ) -> None:
        super().__init__(model, tokenizer, tags, max_length, xla)
        self.signatures = {
            "tag": traced(lambda text: self._tag(text, words_of), text=tf.string),
            "tag_words": traced(lambda text: self._tag(text, spaced_words_of), text=tf.string),
        }

    def arguments(self) -> dict[str, Any]:
        return {"tokenizer": self.tokenizer, "tags": self.labels, "max_length": self.max_length}

    def request(self, signature: str, texts: Sequence[Text]) -> dict[str, list[Any]]:
        return {"text": list(texts)}

    def answers_when_rounded(self, signature: str) -> tuple[str, ...] | None:
        return ("words", "truncated")

    def to_metadata(self) -> dict[str, Any]:
        return {**super().to_metadata(), "tags": self.labels}

    def tag(
        self, texts: Iterable[Text], *, split: bool = True, batch_size: int = 32
    ) -> list[list[TaggedWord]]:
        """The words of each text with their tags.

        Args:
            texts: A list of strings.
            split: Whether to split punctuation marks off words; otherwise texts are split at
                spaces only.
            batch_size: The number of texts in a batch; texts of similar length share a batch.

        Returns:
            A list of lists of `TaggedWord`, in the order of `texts`.
        """
        found = []
        for row in self._rows("tag" if split else "tag_words", texts, batch_size=batch_size):
            columns = zip(row["words"], row["tags"], row["probabilities"], strict=True)
            found.append([TaggedWord(w.decode(), t.decode(), float(p)) for w, t, p in columns if w])
        return found

    def _tag(self, text, split):
        """`text` string [batch] -> its words and their tags.

        `words` and `tags` string [batch, words], padded with empty strings; `probabilities`
        float32 [batch, words], of these tags, padded with 0; `truncated` bool [batch].
        """
        words = split(tf.ensure_shape(text, [None]))
        ids, words, places, truncated = first_pieces(words, self.tokenizer, self.max_length)
        probabilities = self.probabilities(ids)  # [rows, length, tags]
        at = tf.stack([places.value_rowids(), places.flat_values], axis=1)
        found = tf.gather_nd(probabilities, at)  # [words of all texts, tags]
        tags = tf.gather(tf.constant(self.labels), tf.argmax(found, axis=1))
        best = words.with_flat_values(tf.reduce_max(found, axis=1))
        return {
            "words": words.to_tensor(""),
            "tags": words.with_flat_values(tags).to_tensor(""),
            "probabilities": best.to_tensor(0.0),
            "truncated": truncated,
        }
