"""The end-to-end memory network: several hops of attention over the facts of a story."""

import itertools
from typing import Any, Unpack

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.config import Nested, Shape, Tensor
from keras_tfmr.layers.base import MaskingLayer
from keras_tfmr.layers.masking import masked_softmax
from keras_tfmr.layers.options import KerasOptions
from keras_tfmr.recurrent.configured import ConfiguredModel
from keras_tfmr.recurrent.recurrent_configs import MemoryNetworkConfig


def position_weights(word_mask: Tensor, width: int) -> Tensor:
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
class SentenceEmbedding(MaskingLayer):
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

    def __init__(
        self, vocab_size: int, width: int, max_facts: int | None = None,
        position_encoding: bool = True, **kwargs: Unpack[KerasOptions],
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.vocab_size = _checks.integer("vocab_size", vocab_size)
        self.width = _checks.integer("width", width)
        if max_facts is not None:
            _checks.integer("max_facts", max_facts)
        self.max_facts = max_facts
        self.position_encoding = bool(position_encoding)

    def build(self, words_shape: Shape) -> None:
        normal = {"initializer": keras.initializers.RandomNormal(stddev=0.1)}  # section 4.2
        self.table = self.add_weight(shape=(self.vocab_size, self.width), name="table", **normal)
        if self.max_facts is not None:
            self.ages = self.add_weight(shape=(self.max_facts, self.width), name="ages", **normal)

    def call(self, words: Tensor, aged: bool = False) -> Nested:
        if aged and self.max_facts is None:
            raise ValueError("`aged` needs `max_facts`. Received: aged=True, max_facts=None")
        real = ops.not_equal(words, 0)  # [..., words]
        weights = ops.cast(real, "float32")[..., None]
        if self.position_encoding:
            weights = position_weights(real, self.width)
        vectors = ops.take(self.table, ops.cast(words, "int32"), axis=0)  # [..., words, width]
        sentence = ops.sum(vectors * ops.cast(weights, self.compute_dtype), axis=-2)
        return sentence + self._age(real) if aged else sentence

    def _age(self, real):
        facts = ops.cast(ops.any(real, axis=-1), "int32")  # [batch, facts]
        behind = ops.sum(facts, axis=-1, keepdims=True) - ops.cumsum(facts, axis=-1)
        vectors = ops.take(self.ages, ops.minimum(behind, self.max_facts - 1), axis=0)
        return vectors * ops.cast(facts, self.compute_dtype)[..., None]  # [batch, facts, width]

    def answer(self, u: Tensor) -> Tensor:
        """The product with the transposed table: `[batch, width]` → `[batch, vocab]`."""
        return ops.matmul(u, ops.transpose(ops.cast(self.table, self.compute_dtype)))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "vocab_size": self.vocab_size,
            "width": self.width,
            "max_facts": self.max_facts,
            "position_encoding": self.position_encoding,
        }


class Memories(MaskingLayer):
    """The base of both ways of tying: all but the parts and what is tied."""

    def __init__(
        self, vocab_size: int, width: int, hops: int, max_facts: int,
        position_encoding: bool = True, **kwargs: Unpack[KerasOptions],
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.vocab_size, self.width, self.max_facts = vocab_size, width, max_facts
        self.hops = _checks.integer("hops", hops)
        self.position_encoding = bool(position_encoding)
        self.make_parts()

    def _embedding(self, name, aged=True):
        return SentenceEmbedding(
            self.vocab_size, self.width, self.max_facts if aged else None, self.position_encoding,
            name=name, **self.part_options(),
        )  # fmt: skip

    def call(
        self, facts: Tensor, question: Tensor, return_attention_scores: bool = False
    ) -> Nested:
        span = "int32", 0, self.vocab_size - 1
        facts = _checks.tensor("facts", facts, *span, batch=None, facts=None, words=None)
        question = _checks.tensor("question", question, *span, batch=facts.shape[0], words=None)
        fact_mask = ops.any(ops.not_equal(facts, 0), axis=-1)  # [batch, facts]
        u = self.ask(question)  # [batch, width]
        all_scores = []
        for memories, outputs in self.memories(facts):
            p = ops.matmul(memories, u[:, :, None])[:, :, 0]  # [batch, facts]
            p = masked_softmax(p, fact_mask)
            p = ops.cast(p, self.compute_dtype)
            u = self.carry(u) + ops.matmul(p[:, None, :], outputs)[:, 0]
            all_scores.append(p)
        logits = ops.cast(self.answer(u), "float32")  # [batch, vocab]
        return (logits, all_scores) if return_attention_scores else logits

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "vocab_size": self.vocab_size,
            "width": self.width,
            "hops": self.hops,
            "max_facts": self.max_facts,
            "position_encoding": self.position_encoding,
        }


@keras.saving.register_keras_serializable(package="keras_tfmr")
class AdjacentMemories(Memories):
    """Adjacent tying: A of a hop is C of the previous one, B is the first A, Wᵀ is the last C.

    u_1 = B q, K hops u_{k+1} = u_k + o_k, an answer W u. A hop is p = softmax(uᵀ m) over the real
    facts, in float32, and o = Σ p c, with the input memories m = A x and the output memories
    c = C x. A story without facts gives zeros. There are K + 1 embeddings for K hops.

    Args:
        hops: Number K of hops.
        vocab_size, width, max_facts, position_encoding: As for `SentenceEmbedding`.

    Call arguments:
        facts: int tensor `[batch, facts, words]`, padded with 0, the newest fact last.
        question: int tensor `[batch, words]`, padded with 0.
        return_attention_scores: Whether to return the attention p over facts too.

    Returns:
        float32 logits `[batch, vocab]`; with scores, a pair of them and a list over hops of
        `[batch, facts]`.

    Raises:
        ValueError: If a size is not positive, or an input has the wrong shape.
        TypeError: If an input is not of integers.

    Reference: Sukhbaatar et al. 2015, End-To-End Memory Networks (arXiv 1503.08895), section 2.

    >>> memories = AdjacentMemories(30, 8, hops=3, max_facts=10)
    >>> memories(np.ones((2, 5, 4), "int32"), np.ones((2, 3), "int32")).shape
    TensorShape([2, 30])
    """

    def make_parts(self) -> None:
        self.embeddings = [self._embedding(f"embedding_{k}") for k in range(self.hops + 1)]

    def build(self, facts_shape: Shape, question_shape: Shape) -> None:
        for embedding in self.embeddings:
            embedding.build(facts_shape)

    def ask(self, question: Tensor) -> Tensor:
        return self.embeddings[0](question)

    def memories(self, facts: Tensor) -> Nested:
        vectors = [embedding(facts, aged=True) for embedding in self.embeddings]
        return itertools.pairwise(vectors)  # m and c of each hop, [batch, facts, width]

    def carry(self, u: Tensor) -> Tensor:
        return u

    def answer(self, u: Tensor) -> Tensor:
        return self.embeddings[-1].answer(u)


@keras.saving.register_keras_serializable(package="keras_tfmr")
class LayerwiseMemories(Memories):
    """Layer-wise tying, like a recurrent network: one A and one C, u_{k+1} = H u_k + o_k.

    Arguments, returns and errors are those of `AdjacentMemories`.

    >>> memories = LayerwiseMemories(30, 8, hops=3, max_facts=10)
    >>> memories(np.ones((2, 5, 4), "int32"), np.ones((2, 3), "int32")).shape
    TensorShape([2, 30])
    """

    def make_parts(self) -> None:
        self.input_embedding = self._embedding("input")  # A
        self.output_embedding = self._embedding("output")  # C
        self.question_embedding = self._embedding("question", aged=False)  # B
        options = {"use_bias": False, **self.part_options()}
        self.carry_dense = keras.layers.Dense(self.width, name="carry", **options)  # H
        self.answer_dense = keras.layers.Dense(self.vocab_size, name="answer", **options)  # W

    def build(self, facts_shape: Shape, question_shape: Shape) -> None:
        for embedding in (self.input_embedding, self.output_embedding, self.question_embedding):
            embedding.build(facts_shape)
        for dense in (self.carry_dense, self.answer_dense):
            dense.build((facts_shape[0], self.width))

    def ask(self, question: Tensor) -> Tensor:
        return self.question_embedding(question)

    def memories(self, facts: Tensor) -> Nested:
        m = self.input_embedding(facts, aged=True)  # [batch, facts, width]
        c = self.output_embedding(facts, aged=True)
        return [(m, c)] * self.hops

    def carry(self, u: Tensor) -> Tensor:
        return self.carry_dense(u)

    def answer(self, u: Tensor) -> Tensor:
        return self.answer_dense(u)


@keras.saving.register_keras_serializable(package="keras_tfmr")
class MemoryNetwork(ConfiguredModel, keras.Model):
    """Answers a question about a story in one word.

    Args:
        config: A `MemoryNetworkConfig`.

    Call arguments:
        inputs: A list of `facts` int `[batch, facts, words]`, the newest last, and `question`
            int `[batch, words]`, both padded with 0.

    Returns:
        float32 logits `[batch, vocab]` of the answer.

    Reference: Sukhbaatar et al. 2015, End-To-End Memory Networks (arXiv 1503.08895).

    >>> from keras_tfmr.recurrent import MemoryNetworkConfig
    >>> model = MemoryNetwork(MemoryNetworkConfig(vocab=30))
    >>> model([np.ones((2, 5, 4), "int32"), np.ones((2, 3), "int32")]).shape
    TensorShape([2, 30])
    """

    config_class = MemoryNetworkConfig

    def __init__(self, config: MemoryNetworkConfig, name: str = "memory_network") -> None:
        facts = keras.Input((None, None), dtype="int32", name="facts")
        question = keras.Input((None,), dtype="int32", name="question")
        kind = LayerwiseMemories if config.layerwise else AdjacentMemories
        memories = kind(
            config.vocab, config.width, config.hops, config.max_facts, config.position_encoding,
            name="memories",
        )  # fmt: skip
        super().__init__([facts, question], memories(facts, question), name=name)
        self.config = config
        self.memories = memories

    def explain(self, facts: Tensor, question: Tensor) -> Nested:
        """The logits, and what each hop attended to.

        Args:
            facts: int tensor `[batch, facts, words]`, padded with 0.
            question: int tensor `[batch, words]`, padded with 0.

        Returns:
            float32 logits `[batch, vocab]` and a list over hops of `[batch, facts]`.
        """
        return self.memories(facts, question, return_attention_scores=True)
