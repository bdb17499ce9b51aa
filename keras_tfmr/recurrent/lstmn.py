"""The LSTMN, an LSTM with a memory network in place of its memory cell, and a language model."""

from typing import Any, Unpack

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.config import Nested, Shape, Tensor
from keras_tfmr.decoding import FunctionStep
from keras_tfmr.layers import LMHead
from keras_tfmr.layers.masking import masked_softmax
from keras_tfmr.layers.options import KerasOptions
from keras_tfmr.models.language import log_prob
from keras_tfmr.recurrent.configured import ConfiguredModel
from keras_tfmr.recurrent.gru import RecurrentLayer
from keras_tfmr.recurrent.over_time import over_time
from keras_tfmr.recurrent.recurrent_configs import LSTMNConfig


@keras.saving.register_keras_serializable(package="keras_tfmr")
class LSTMN(RecurrentLayer):
    """LSTMN: attention over a hidden tape and a memory tape instead of one memory cell.

        a_i = vᵀ tanh(W_h h_i + W_x x_t + W_h̃ h̃_{t-1}),  s = softmax(a)  over i < t
        [h̃_t ; c̃_t] = Σ s_i [h_i ; c_i]
        [i ; f ; o ; ĉ] = [σ ; σ ; σ ; tanh] (W [h̃_t, x_t] + b)
        c_t = f ∘ c̃_t + i ∘ ĉ,  h_t = o ∘ tanh(c_t)

    The summaries of the first position, which has none before it, are zero. Padding is never
    attended to and changes no state.

    Args:
        units: Width of both tapes.
        return_sequences: Whether to return every h_t instead of the last.

    Call arguments:
        x: Tensor `[batch, length, width]`.
        mask: bool tensor `[batch, length]`, True = valid; by default the Keras mask of `x`.
        return_attention_scores: Whether to return the attention s too.

    Returns:
        Tensor `[batch, length, units]`, or `[batch, units]` without `return_sequences`; with
        scores, a pair of it and s `[batch, length, length]` (position t, then i < t).

    Raises:
        ValueError: If `units` is not positive or `x` is not a sequence of vectors.

    Reference: Cheng, Dong, Lapata 2016, Long Short-Term Memory-Networks for Machine Reading
    (arXiv 1601.06733), section 3.1.

    >>> layer = LSTMN(8, return_sequences=True)
    >>> y, scores = layer(np.ones((2, 5, 3), "float32"), return_attention_scores=True)
    >>> y.shape, scores.shape
    (TensorShape([2, 5, 8]), TensorShape([2, 5, 5]))
    """

    def __init__(
        self, units: int, return_sequences: bool = False, **kwargs: Unpack[KerasOptions]
    ) -> None:
        super().__init__(units, **kwargs)
        self.input_spec = keras.layers.InputSpec(ndim=3, name="x")
        self.return_sequences = bool(return_sequences)
        # W_x and the gates' half of W, with the biases of both: one product over all positions.
        self.input_dense = self.make_dense(5 * units, "input", bias_initializer=_forget_at_first)
        plain = {"use_bias": False}
        self.key_dense = self.make_dense(units, "key", **plain)  # W_h
        self.summary_dense = self.make_dense(units, "summary", **plain)  # W_h̃
        self.score_dense = self.make_dense(1, "score", **plain)  # v
        self.gate_dense = self.make_dense(
            4 * units, "gate", kernel_initializer="orthogonal", **plain
        )  # the other half of W

    def build(self, x_shape: Shape) -> None:
        self.input_dense.build(x_shape)
        row = (x_shape[0], self.units)
        for dense in (self.key_dense, self.summary_dense, self.gate_dense):
            dense.build(row)
        self.score_dense.build((*x_shape[:-1], self.units))

    def call(
        self, x: Tensor, mask: Tensor | None = None, return_attention_scores: bool = False
    ) -> Nested:
        mask = _checks.mask("mask", mask, batch=x.shape[0], length=x.shape[1])
        projected = self.input_dense(x)  # [batch, length, 5 * units]
        valid = ops.ones_like(projected[:, :, 0])  # [batch, length]
        if mask is not None:
            valid = ops.cast(mask, self.compute_dtype)
        start = self.start(*ops.shape(projected)[:2])

        def step(x, states):
            h, scores, states = self._step(x, states, valid)
            return ops.concatenate([h] + [scores] * return_attention_scores, axis=-1), states

        seen = over_time(step, projected, start, self.dtype_policy)
        h = seen[:, :, : self.units] if self.return_sequences else seen[:, -1, : self.units]
        return (h, seen[:, :, self.units :]) if return_attention_scores else h

    def start(self, rows: Any, max_length: int) -> Nested:
        """The states before the first position, all of them zero, for `step`.

        Returns:
            A list of h̃ and the last h, `[rows, units]` each, the mask `[rows, max_length]` of
            written positions, and the tape `[rows, max_length, 3 * units]`: W_h h, h and c side by
            side.
        """
        tape = (rows, max_length, 3 * self.units)
        shapes = [(rows, self.units), (rows, self.units), (rows, max_length), tape]
        return [ops.zeros(shape, self.compute_dtype) for shape in shapes]

    def step(self, x: Tensor, states: Nested) -> Nested:
        """Reads one position.

        Args:
            x: Tensor `[rows, width]`.
            states: The list that `start` or the last `step` returned. Each step writes one position
                of the tape, so there can be `max_length` steps.

        Returns:
            h_t `[rows, units]` and the next states.
        """
        valid = ops.ones_like(states[2])
        h, _, states = self._step(self.input_dense(x), states, valid)
        return h, states

    def _step(self, projected, states, valid):
        summary, last, written, tape = states
        n = self.units
        scores = self._attend(projected[:, :n], summary, tape[:, :, :n], written * valid > 0)
        summaries = ops.matmul(scores[:, None, :], tape[:, :, n:])[:, 0]  # [rows, 2 * units]
        gates = projected[:, n:] + self.gate_dense(summaries[:, :n])  # [rows, 4 * units]
        i, f, o = (ops.sigmoid(gates[:, k * n : (k + 1) * n]) for k in range(3))
        c = f * summaries[:, n:] + i * ops.tanh(gates[:, 3 * n :])
        h = o * ops.tanh(c)
        # `written` is 1 … 1 0 … 0; shifted by one, minus itself, it marks the position to write.
        shifted = ops.concatenate([ops.ones_like(written[:, :1]), written[:, :-1]], axis=1)
        here = shifted - written  # [rows, length], one-hot
        entry = ops.concatenate([self.key_dense(h), h, c], axis=-1)  # [rows, 3 * units]
        tape = ops.where(here[:, :, None] > 0, entry[:, None, :], tape)
        real = ops.sum(here * valid, axis=-1, keepdims=True) > 0  # [rows, 1]
        summary = ops.where(real, summaries[:, :n], summary)
        last = ops.where(real, h, last)
        return last, scores, [summary, last, shifted, tape]

    def _attend(self, x, summary, keys, attendable):
        """softmax(a) over the attendable positions, `[rows, length]`; zero if there is none."""
        query = x + self.summary_dense(summary)  # [rows, units]
        scores = self.score_dense(ops.tanh(keys + query[:, None, :]))[..., 0]  # [rows, length]
        return ops.cast(masked_softmax(scores, attendable), self.compute_dtype)

    def compute_mask(self, x: Tensor, previous_mask: Tensor | None = None) -> Tensor | None:
        return previous_mask if self.return_sequences else None

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "return_sequences": self.return_sequences}


@keras.saving.register_keras_serializable(package="keras_tfmr", name="forget_at_first")
def _forget_at_first(shape, dtype=None):
    """The bias of W_x, then of i, f, o and ĉ: one for the forget gate f, zero for the others."""
    n = shape[0] // 5
    return ops.cast(ops.repeat(ops.convert_to_tensor([0.0, 0.0, 1.0, 0.0, 0.0]), n), dtype)


@keras.saving.register_keras_serializable(package="keras_tfmr")
class LSTMNLanguageModel(ConfiguredModel, keras.Model):
    """A `LanguageModel` by an LSTMN, called and trained like one: p(x) = Π p(x_t | x_<t).

    Args:
        config: An `LSTMNConfig`.

    Reference: Cheng, Dong, Lapata 2016 (arXiv 1601.06733), section 5.1.

    >>> from keras_tfmr.recurrent import LSTMNConfig
    >>> model = LSTMNLanguageModel(LSTMNConfig(vocab=50, embedding_dim=8, units=8))
    >>> model.log_prob(np.array([[2, 9, 4, 3], [2, 9, 3, 0]])).shape
    TensorShape([2])
    """

    config_class = LSTMNConfig

    def __init__(self, config: LSTMNConfig, name: str = "lstmn_language") -> None:
        token_ids = keras.Input((None,), dtype="int32", name="token_ids")
        embedding = keras.layers.Embedding(
            config.vocab, config.embedding_dim, mask_zero=True, name="embedding"
        )
        dropout = keras.layers.Dropout(config.dropout_rate, name="dropout")
        lstmn = LSTMN(config.units, return_sequences=True, name="lstmn")
        logits = LMHead(config.vocab, name="logits")
        outputs = logits(dropout(lstmn(dropout(embedding(token_ids)))))
        super().__init__(inputs=token_ids, outputs=outputs, name=name)
        self.config = config
        self.embedding, self.lstmn, self.logits = embedding, lstmn, logits

    def log_prob(self, token_ids: Tensor) -> Tensor:
        """As for `LanguageModel`."""
        return log_prob(self, token_ids)

    def explain(self, token_ids: Tensor) -> Nested:
        """The logits, and what each position attended to.

        Args:
            token_ids: int tensor `[batch, length]`, padded with 0.

        Returns:
            float32 logits `[batch, length, vocab]` and a list of one tensor of scores
            `[batch, 1, length, length]`, in the form of one layer with one head.
        """
        h, scores = self.lstmn(
            self.embedding(token_ids),
            mask=ops.not_equal(token_ids, 0),
            return_attention_scores=True,
        )
        return self.logits(h), [scores[:, None]]

    def start(self, rows: Any, *, max_length: int) -> Nested:
        """Starts decoding, one token at a time.

        Args:
            rows: Number of hypotheses.
            max_length: Number of tokens that can be decoded: the length of the tapes.

        Returns:
            A `DecodingStep` and its first state.
        """

        def step(tokens, state):
            h, state = self.lstmn.step(self.embedding(tokens[:, None])[:, 0], state)
            return ops.log_softmax(self.logits(h), axis=-1), state  # [rows, vocab]

        vocab_size = self.embedding.input_dim
        return FunctionStep(step, max_length, vocab_size=vocab_size), self.lstmn.start(
            rows, max_length
        )
