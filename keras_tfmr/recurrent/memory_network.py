"""The end-to-end memory network: several hops of attention over the facts of a story."""

import itertools

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.layers.masking import attention_mask, masked_softmax
from keras_tfmr.models._parts import ConfiguredModel
from keras_tfmr.recurrent.config import MemoryNetworkConfig
from keras_tfmr.recurrent.sentence_embedding import SentenceEmbedding


def _check(facts, question):
    facts = _checks.sequence_of_ids("facts", facts, ("batch", "facts", "words"))
    question = _checks.sequence_of_ids("question", question, ("batch", "words"))
    stories, questions = facts.shape[0], question.shape[0]
    if None not in (stories, questions) and stories != questions:
        raise ValueError(
            "`facts` and `question` must have the same batch size. Received: shapes "
            f"{tuple(facts.shape)} and {tuple(question.shape)}"
        )
    return facts, question


class Memories(keras.layers.Layer):
    """The base of both ways of tying: u_1 = B q, K hops u_{k+1} = carry(u_k) + o_k, an answer.

    A hop is p = softmax(uᵀ m) over the real facts, in float32, and o = Σ p c, with the input
    memories m and the output memories c. A story without facts gives zeros.

    Args:
        vocab_size: Number of word ids; 0 is padding.
        width: Width d of the vectors.
        hops: Number K of hops.
        max_facts: Number of ages that have a vector.
        position_encoding: Weigh words by their position.

    Call arguments:
        facts: int tensor `[batch, facts, words]`, padded with 0, the newest fact last.
        question: int tensor `[batch, words]`, padded with 0.
        linear: Leave out the softmax over facts, as in the first phase of a linear start.
        return_attention_scores: Whether to return the attention p over facts too.

    Returns:
        float32 logits `[batch, vocab]`; with scores, a pair of them and a list over hops of
        `[batch, facts]`.

    Raises:
        ValueError: If a size is not positive, or an input has the wrong shape.
        TypeError: If an input is not of integers.

    Reference: Sukhbaatar et al. 2015, End-To-End Memory Networks (arXiv 1503.08895), section 2;
    linear start, section 4.2.
    """

    def __init__(self, vocab_size, width, hops, max_facts, position_encoding=True, **kwargs):
        super().__init__(**kwargs)
        self.vocab_size = _checks.positive_int("vocab_size", vocab_size)
        self.width = _checks.positive_int("width", width)
        self.hops = _checks.positive_int("hops", hops)
        self.max_facts = _checks.positive_int("max_facts", max_facts)
        self.position_encoding = bool(position_encoding)

    def _embedding(self, name, aged=True):
        return SentenceEmbedding(
            self.vocab_size,
            self.width,
            self.max_facts if aged else None,
            self.position_encoding,
            dtype=self.dtype_policy,
            name=name,
        )

    def build(self, facts_shape, question_shape):
        self.build_parts(facts_shape)
        self.built = True

    def call(self, facts, question, linear=False, return_attention_scores=False):
        facts, question = _check(facts, question)
        fact_mask = ops.any(ops.not_equal(facts, 0), axis=-1)  # [batch, facts]
        u = self.ask(question)  # [batch, width]
        all_scores = []
        for memories, outputs in self.memories(facts):
            p = ops.matmul(memories, u[:, :, None])[:, :, 0]  # [batch, facts]
            if linear:
                p = ops.where(fact_mask, p, ops.zeros_like(p))
            else:
                p = masked_softmax(p, attention_mask(fact_mask))
            p = ops.cast(p, self.compute_dtype)
            u = self.carry(u) + ops.matmul(p[:, None, :], outputs)[:, 0]
            all_scores.append(p)
        logits = ops.cast(self.answer(u), "float32")  # [batch, vocab]
        return (logits, all_scores) if return_attention_scores else logits

    def compute_output_shape(self, facts_shape, question_shape):
        return (facts_shape[0], self.vocab_size)

    def compute_output_spec(self, facts, question, linear=False, return_attention_scores=False):
        facts, question = _check(facts, question)
        logits = keras.KerasTensor((facts.shape[0], self.vocab_size), "float32")
        if not return_attention_scores:
            return logits
        return logits, [
            keras.KerasTensor(facts.shape[:2], self.compute_dtype) for _ in range(self.hops)
        ]

    def get_config(self):
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

    There are K + 1 embeddings for K hops. Arguments, returns and errors are those of `Memories`.

    >>> memories = AdjacentMemories(30, 8, hops=3, max_facts=10)
    >>> memories(np.ones((2, 5, 4), "int32"), np.ones((2, 3), "int32")).shape
    TensorShape([2, 30])
    """

    def __init__(self, vocab_size, width, hops, max_facts, position_encoding=True, **kwargs):
        super().__init__(vocab_size, width, hops, max_facts, position_encoding, **kwargs)
        self.embeddings = [self._embedding(f"embedding_{k}") for k in range(hops + 1)]

    def build_parts(self, facts_shape):
        for embedding in self.embeddings:
            embedding.build(facts_shape)

    def ask(self, question):
        return self.embeddings[0](question)

    def memories(self, facts):
        vectors = [embedding(facts, aged=True) for embedding in self.embeddings]
        return itertools.pairwise(vectors)  # m and c of each hop, [batch, facts, width]

    def carry(self, u):
        return u

    def answer(self, u):
        return self.embeddings[-1].answer(u)


@keras.saving.register_keras_serializable(package="keras_tfmr")
class LayerwiseMemories(Memories):
    """Layer-wise tying, like a recurrent network: one A and one C, u_{k+1} = H u_k + o_k.

    Arguments, returns and errors are those of `Memories`.

    >>> memories = LayerwiseMemories(30, 8, hops=3, max_facts=10)
    >>> memories(np.ones((2, 5, 4), "int32"), np.ones((2, 3), "int32")).shape
    TensorShape([2, 30])
    """

    def __init__(self, vocab_size, width, hops, max_facts, position_encoding=True, **kwargs):
        super().__init__(vocab_size, width, hops, max_facts, position_encoding, **kwargs)
        self.input_embedding = self._embedding("input")  # A
        self.output_embedding = self._embedding("output")  # C
        self.question_embedding = self._embedding("question", aged=False)  # B
        self.carry_dense = self._dense(width, "carry")  # H
        self.answer_dense = self._dense(vocab_size, "answer")  # W

    def _dense(self, units, name):
        return keras.layers.Dense(units, use_bias=False, dtype=self.dtype_policy, name=name)

    def build_parts(self, facts_shape):
        embeddings = (self.input_embedding, self.output_embedding, self.question_embedding)
        for embedding in embeddings:
            embedding.build(facts_shape)
        for dense in (self.carry_dense, self.answer_dense):
            dense.build((facts_shape[0], self.width))

    def ask(self, question):
        return self.question_embedding(question)

    def memories(self, facts):
        m = self.input_embedding(facts, aged=True)  # [batch, facts, width]
        c = self.output_embedding(facts, aged=True)
        return [(m, c)] * self.hops

    def carry(self, u):
        return self.carry_dense(u)

    def answer(self, u):
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

    def __init__(self, config, name="memory_network"):
        facts = keras.Input((None, None), dtype="int32", name="facts")
        question = keras.Input((None,), dtype="int32", name="question")
        kind = LayerwiseMemories if config.layerwise else AdjacentMemories
        memories = kind(
            config.vocab,
            config.width,
            config.hops,
            config.max_facts,
            config.position_encoding,
            name="memories",
        )
        outputs = memories(facts, question)
        super().__init__(inputs=[facts, question], outputs=outputs, name=name)
        self.config = config
        self.memories = memories

    def linear_start(self):
        """A model with the same weights but no softmax over facts, with which training begins.

        Returns:
            A functional `keras.Model` with the inputs and outputs of this one.
        """
        inputs = [
            keras.Input(tensor.shape[1:], dtype=tensor.dtype, name=tensor.name)
            for tensor in self.inputs
        ]
        return keras.Model(inputs, self.memories(*inputs, linear=True), name="linear_start")

    def explain(self, facts, question):
        """The logits, and what each hop attended to.

        Args:
            facts: int tensor `[batch, facts, words]`, padded with 0.
            question: int tensor `[batch, words]`, padded with 0.

        Returns:
            float32 logits `[batch, vocab]` and a list over hops of `[batch, facts]`.
        """
        return self.memories(facts, question, return_attention_scores=True)
