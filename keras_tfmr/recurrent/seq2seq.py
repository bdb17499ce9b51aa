"""The recurrent encoder–decoder without attention, which passes a sentence through one vector."""

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.decoding import FunctionStep
from keras_tfmr.models import AttentionScores
from keras_tfmr.models._parts import at_least_one_column
from keras_tfmr.recurrent._loop import over_time
from keras_tfmr.recurrent.config import Seq2SeqConfig
from keras_tfmr.recurrent.gated_unit import GatedUnit
from keras_tfmr.recurrent.rnnsearch import RNNSearchModel


@keras.saving.register_keras_serializable(package="keras_tfmr")
class SummaryEncoder(keras.layers.Layer):
    """A sentence as one vector, c = tanh(V h), where h is the gated unit's last state.

    The sentence is read from its last word to its first, so that the first words of both languages
    stand near each other (Sutskever et al. 2014, section 3.3). Padding changes no state.

    Args:
        units: Width of the state and of the summary.

    Call arguments:
        x: Tensor `[batch, source, width]`, embedded words.
        mask: bool tensor `[batch, source]`, True = valid; by default the Keras mask of `x`.

    Returns:
        Tensor `[batch, units]`.

    Raises:
        ValueError: If `units` is not positive or `x` is not a sequence of vectors.
        TypeError: If the mask is not bool.

    Reference: Cho et al. 2014, Learning Phrase Representations using RNN Encoder–Decoder
    (arXiv 1406.1078), appendix A.1; Sutskever, Vinyals, Le 2014, Sequence to Sequence Learning
    with Neural Networks (arXiv 1409.3215).

    >>> SummaryEncoder(4)(np.ones((2, 5, 3), "float32")).shape
    TensorShape([2, 4])
    """

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = _checks.positive_int("units", units)
        self.word_dense = keras.layers.Dense(
            3 * units, dtype=self.dtype_policy, name="word"
        )  # W_r, W_z, W and the biases
        self.unit = GatedUnit(units, dtype=self.dtype_policy, name="unit")
        self.summary_dense = keras.layers.Dense(
            units, activation="tanh", dtype=self.dtype_policy, name="summary"
        )  # V
        self.supports_masking = True

    def build(self, x_shape):
        _checks.sequence_of_vectors("x", x_shape)
        self.word_dense.build(x_shape)
        self.unit.build((x_shape[0], 3 * self.units))
        self.summary_dense.build((x_shape[0], self.units))
        self.built = True

    def call(self, x, mask=None):
        if mask is not None:
            mask = _checks.sequence_mask("mask", mask, x)
        projected = self.word_dense(x)  # [batch, source, 3 * units]

        def step(x, states):
            state = self.unit(x, states[0])
            return state, [state]

        start = ops.zeros_like(projected[:, 0, : self.units])  # [batch, units]
        states = over_time(step, projected, [start], self.dtype_policy, mask, go_backwards=True)
        return self.summary_dense(states[:, 0])  # the loop ends at the first position

    def compute_mask(self, x, previous_mask=None):
        return None

    def compute_output_shape(self, x_shape):
        return (x_shape[0], self.units)

    def get_config(self):
        return {**super().get_config(), "units": self.units}


@keras.saving.register_keras_serializable(package="keras_tfmr")
class SummaryDecoder(keras.layers.Layer):
    """A gated unit that sees the same summary c before every word, in r_t, z_t and s̃_t.

    s_0 = tanh(V' c). Only c comes from the source.

    Args:
        units: Width of the state.

    Call arguments:
        y: Tensor `[batch, target, width]`, the embedded words y_0 … y_{t-1} …
        summary: Tensor `[batch, summary_width]`.

    Returns:
        Tensor `[batch, target, units + width + summary_width]`: s_t, E y_{t-1} and c side by
        side, the input of the output layer.

    Raises:
        ValueError: If `units` is not positive or an input has the wrong shape.

    Reference: Cho et al. 2014 (arXiv 1406.1078), appendix A.1, with the gated unit as in Bahdanau
    et al. 2015 (arXiv 1409.0473), where r gates the recurrent term and not the summary.

    >>> y, summary = np.ones((2, 3, 4), "float32"), np.ones((2, 5), "float32")
    >>> SummaryDecoder(units=6)(y, summary).shape
    TensorShape([2, 3, 15])
    """

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = _checks.positive_int("units", units)
        self.unit = GatedUnit(units, dtype=self.dtype_policy, name="unit")
        self.word_dense = keras.layers.Dense(
            3 * units, dtype=self.dtype_policy, name="word"
        )  # W_r, W_z, W and the biases
        self.summary_dense = keras.layers.Dense(
            3 * units, use_bias=False, dtype=self.dtype_policy, name="summary"
        )  # C_r, C_z, C
        self.start_dense = keras.layers.Dense(
            units, activation="tanh", dtype=self.dtype_policy, name="start"
        )  # V'
        self.supports_masking = True

    def build(self, y_shape, summary_shape):
        _checks.sequence_of_vectors("y", y_shape)
        if len(summary_shape) != 2 or summary_shape[-1] is None:
            raise ValueError(
                "`summary` must have shape [batch, width] with a known width. "
                f"Received: shape {tuple(summary_shape)}"
            )
        self.unit.build((y_shape[0], 3 * self.units))
        self.word_dense.build(y_shape)
        self.summary_dense.build(summary_shape)
        self.start_dense.build(summary_shape)
        self.built = True

    def start(self, summary):
        """The first state s_0 `[rows, units]` of summaries `[rows, summary_width]`."""
        return self.start_dense(summary)

    def step(self, word, state, summary):
        """The next state.

        Args:
            word: `[rows, width]`, the embedded word.
            state: `[rows, units]`.
            summary: `[rows, 3 * units]`: `summary_dense` of the summary.

        Returns:
            Tensor `[rows, units]`.
        """
        return self.unit(self.word_dense(word) + summary, state)

    def call(self, y, summary):
        y, summary = ops.cast(y, self.compute_dtype), ops.cast(summary, self.compute_dtype)
        projected = self.word_dense(y) + self.summary_dense(summary)[:, None, :]

        def step(x, states):
            state = self.unit(x, states[0])
            return state, [state]

        states = over_time(step, projected, [self.start(summary)], self.dtype_policy)
        copies = ops.zeros_like(y[:, :, :1]) + summary[:, None, :]  # [batch, target, summary_width]
        return ops.concatenate([states, y, copies], axis=-1)

    def compute_mask(self, y, previous_mask=None):
        return getattr(y, "_keras_mask", None)

    def compute_output_spec(self, y, summary):
        width = self.units + y.shape[-1] + summary.shape[-1]
        return keras.KerasTensor((*y.shape[:-1], width), self.compute_dtype)

    def get_config(self):
        return {**super().get_config(), "units": self.units}


@keras.saving.register_keras_serializable(package="keras_tfmr")
class Seq2SeqModel(RNNSearchModel):
    """The encoder–decoder RNN: from source and target ids to the logits of each next target token.

    Whatever the length of the source, the decoder sees only one vector of it, the bottleneck that
    attention removes. Embeddings, gated unit, maxout and logits are those of RNNsearch. The model
    is called, trained, decoded and exported like a `TranslationModel`.

    Args:
        config: A `Seq2SeqConfig`.

    Call arguments:
        inputs: A list of `source_ids` int `[batch, source]` and `target_ids` int
            `[batch, target]`, both padded with 0.

    Returns:
        float32 logits `[batch, target, vocab]`; the ones at position t predict token t + 1.

    Reference: Cho et al. 2014 (arXiv 1406.1078), appendix A; the source is read backwards as in
    Sutskever, Vinyals, Le 2014 (arXiv 1409.3215).

    >>> from keras_tfmr.recurrent import Seq2SeqConfig
    >>> model = Seq2SeqModel(Seq2SeqConfig.preset("tiny", source_vocab=50, target_vocab=50))
    >>> model([np.array([[5, 7, 3]]), np.array([[2, 9]])]).shape
    TensorShape([1, 2, 50])
    """

    config_class = Seq2SeqConfig

    def __init__(self, config, name="seq2seq"):
        super().__init__(config, name)

    @staticmethod
    def make_encoder(config):
        """The layer from embedded words to their summary."""
        return SummaryEncoder(config.units, name="encoder")

    @staticmethod
    def make_decoder(config):
        """The layer from embedded words and a summary to the output layer's features."""
        return SummaryDecoder(config.units, name="decoder")

    def start(self, source_ids, num_beams=1, *, max_length):
        """Encodes the source and starts decoding, one token at a time.

        Args:
            source_ids: int tensor `[batch, source]`, padded with 0.
            num_beams: Number of hypotheses per sentence.
            max_length: Not used: a recurrent state has no maximum length.

        Returns:
            A `DecodingStep` over rows = batch * num_beams, and its first state, whose leaf is
            `[rows, units]`.
        """
        source_ids = at_least_one_column(source_ids)
        x = self.source_embedding(source_ids)
        summary = self.encoder(x, mask=ops.not_equal(source_ids, 0))  # [batch, units]
        summary = ops.repeat(summary, num_beams, axis=0)  # [rows, units]
        projected = self.decoder.summary_dense(summary)  # [rows, 3 * units]

        def step(tokens, state):
            y = self.target_embedding(tokens[:, None])[:, 0]  # [rows, embedding_dim]
            s = self.decoder.step(y, state["s"], projected)
            logits = self.logits(self.maxout(ops.concatenate([s, y, summary], axis=-1)))
            return ops.log_softmax(logits, axis=-1), {"s": s}

        return FunctionStep(step), {"s": self.decoder.start(summary)}

    def explain(self, source_ids, target_ids):
        """The logits, and attention scores of zero: the model has no attention.

        Args:
            source_ids: int tensor `[batch, source]`, padded with 0.
            target_ids: int tensor `[batch, target]`, padded with 0.

        Returns:
            float32 logits `[batch, target, vocab]` and `AttentionScores` whose `cross` are zeros
            `[batch, 1, target, source]`, in the form of one layer with one head.
        """
        source_ids = at_least_one_column(source_ids)
        logits = self([source_ids, ops.convert_to_tensor(target_ids)])
        both = ops.zeros_like(logits[:, :, :1]) * ops.cast(source_ids, "float32")[:, None, :]
        return logits, AttentionScores([both[:, None]])
