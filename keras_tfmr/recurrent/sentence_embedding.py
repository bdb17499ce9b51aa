"""Sentences as vectors, with the order of their words and their age in a story."""

import keras
from keras import ops

from keras_tfmr import _checks


def position_weights(word_mask, width):
    """Position encoding l_kj = (1 − j/J) − (k/d)(1 − 2j/J), which represents the order of words.

    For word j = 1 … J of a sentence of J real words, and vector entry k = 1 … d.

    Args:
        word_mask: bool tensor `[..., words]`, True = a word.
        width: Width d of the vectors.

    Returns:
        float32 tensor `[..., words, width]`, zero at padding.

    Reference: Sukhbaatar et al. 2015 (arXiv 1503.08895), section 4.1.

    >>> position_weights(np.array([[True, True, False]]), 4).shape
    TensorShape([1, 3, 4])
    """
    mask = ops.cast(word_mask, "float32")[..., None]  # [..., words, 1]
    j = ops.cumsum(mask, axis=-2)
    share = j / ops.maximum(ops.sum(mask, axis=-2, keepdims=True), 1.0)
    k = ops.arange(1, width + 1, dtype="float32") / width
    return mask * ((1.0 - share) - k * (1.0 - 2.0 * share))


@keras.saving.register_keras_serializable(package="keras_tfmr")
class SentenceEmbedding(keras.layers.Layer):
    """A sentence as one vector Σ_j l_j ∘ E x_j, plus T(age) for a fact with an age.

    The age of a fact is the number of real facts after it, so that the newest fact of a story has
    age 0: the paper's temporal encoding.

    Args:
        vocab_size: Number of word ids; 0 is padding.
        width: Width d of the vectors.
        max_facts: Number of ages that have a vector; all older facts share the last one. None for
            sentences without an age.
        position_encoding: Whether to weight words by their position; False gives a bag of words.

    Call arguments:
        words: int tensor `[..., words]`, padded with 0; `[batch, facts, words]` for facts.
        aged: Whether to add T(age).

    Returns:
        Tensor `[..., width]`.

    Raises:
        ValueError: If a size is not positive, or `aged` is given without `max_facts`.

    Reference: Sukhbaatar et al. 2015 (arXiv 1503.08895), section 4.1.

    >>> SentenceEmbedding(30, 8, max_facts=10)(np.ones((2, 5, 4), "int32"), aged=True).shape
    TensorShape([2, 5, 8])
    """

    def __init__(self, vocab_size, width, max_facts=None, position_encoding=True, **kwargs):
        super().__init__(**kwargs)
        self.vocab_size = _checks.positive_int("vocab_size", vocab_size)
        self.width = _checks.positive_int("width", width)
        self.max_facts = None
        if max_facts is not None:
            self.max_facts = _checks.positive_int("max_facts", max_facts)
        self.position_encoding = bool(position_encoding)

    def build(self, words_shape):
        normal = {"initializer": keras.initializers.RandomNormal(stddev=0.1)}  # section 4.2
        self.table = self.add_weight(shape=(self.vocab_size, self.width), name="table", **normal)
        if self.max_facts is not None:
            self.ages = self.add_weight(shape=(self.max_facts, self.width), name="ages", **normal)
        self.built = True

    def call(self, words, aged=False):
        if aged and self.max_facts is None:
            raise ValueError("`aged` needs `max_facts`. Received: aged=True, max_facts=None")
        real = ops.not_equal(words, 0)  # [..., words]
        weights = ops.cast(real, "float32")[..., None]
        if self.position_encoding:
            weights = position_weights(real, self.width)
        vectors = ops.take(self.table, words, axis=0)  # [..., words, width]
        sentence = ops.sum(vectors * ops.cast(weights, self.compute_dtype), axis=-2)
        return sentence + self._age(real) if aged else sentence

    def _age(self, real):
        facts = ops.cast(ops.any(real, axis=-1), "int32")  # [batch, facts]
        behind = ops.sum(facts, axis=-1, keepdims=True) - ops.cumsum(facts, axis=-1)
        vectors = ops.take(self.ages, ops.minimum(behind, self.max_facts - 1), axis=0)
        return vectors * ops.cast(facts, self.compute_dtype)[..., None]  # [batch, facts, width]

    def answer(self, u):
        """The product with the transposed table: `[batch, width]` → `[batch, vocab]`."""
        return ops.matmul(u, ops.transpose(ops.cast(self.table, self.compute_dtype)))

    def compute_output_shape(self, words_shape):
        return (*words_shape[:-1], self.width)

    def get_config(self):
        return {
            **super().get_config(),
            "vocab_size": self.vocab_size,
            "width": self.width,
            "max_facts": self.max_facts,
            "position_encoding": self.position_encoding,
        }
