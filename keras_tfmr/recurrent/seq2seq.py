"""The recurrent encoder–decoder without attention, which passes a sentence through one vector."""

from typing import Any, Unpack

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.config import Nested, Shape, Tensor
from keras_tfmr.decoding import FunctionStep
from keras_tfmr.layers import LMHead
from keras_tfmr.layers.options import KerasOptions
from keras_tfmr.models import AttentionScores
from keras_tfmr.recurrent.configured import ConfiguredModel
from keras_tfmr.recurrent.gru import GRU, RecurrentLayer
from keras_tfmr.recurrent.recurrent_configs import Seq2SeqConfig


@keras.saving.register_keras_serializable(package="keras_tfmr")
class GRUEncoder(RecurrentLayer):
    """A sentence as one vector, c = tanh(V h), where h is the last state of a `GRU`.

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

    Reference: Cho et al. 2014, Learning Phrase Representations using RNN Encoder–Decoder
    (arXiv 1406.1078), appendix A.1; Sutskever, Vinyals, Le 2014, Sequence to Sequence Learning
    with Neural Networks (arXiv 1409.3215).

    >>> GRUEncoder(4)(np.ones((2, 5, 3), "float32")).shape
    TensorShape([2, 4])
    """

    def __init__(self, units: int, **kwargs: Unpack[KerasOptions]) -> None:
        super().__init__(units, **kwargs)
        self.gru = GRU(units, go_backwards=True, name="gru", **self.part_options())
        self.summary_dense = self.make_dense(units, "summary", activation="tanh")  # V

    def build(self, x_shape: Shape) -> None:
        self.gru.build(x_shape)
        self.summary_dense.build((x_shape[0], self.units))

    def call(self, x: Tensor, mask: Tensor | None = None) -> Nested:
        return self.summary_dense(self.gru(x, mask=mask)[:, 0])  # it ends at the first position

    def compute_mask(self, x: Tensor, previous_mask: Tensor | None = None) -> Tensor | None:
        return None


@keras.saving.register_keras_serializable(package="keras_tfmr")
class SummaryDecoder(RecurrentLayer):
    """A `GRU` that reads the same summary c beside every word, from s_0 = tanh(V' c).

    Only c comes from the source.

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

    def __init__(self, units: int, **kwargs: Unpack[KerasOptions]) -> None:
        super().__init__(units, **kwargs)
        self.input_spec = keras.layers.InputSpec(ndim=3, name="y")
        self.gru = GRU(units, name="gru", **self.part_options())
        self.summary_dense = self.make_dense(3 * units, "summary", use_bias=False)  # C_r, C_z, C
        self.start_dense = self.make_dense(units, "start", activation="tanh")  # V'

    def build(self, y_shape: Shape, summary_shape: Shape) -> None:
        self.gru.build(y_shape)
        self.summary_dense.build(summary_shape)
        self.start_dense.build(summary_shape)

    def call(self, y: Tensor, summary: Tensor) -> Nested:
        _checks.shaped("summary", summary, batch=y.shape[0], width=None)
        y, summary = ops.cast(y, self.compute_dtype), ops.cast(summary, self.compute_dtype)
        projected = self.gru.input_dense(y) + self.summary_dense(summary)[:, None, :]
        states = self.gru.read(projected, self.start_dense(summary))  # [batch, target, units]
        copies = ops.zeros_like(y[:, :, :1]) + summary[:, None, :]  # [batch, target, summary_width]
        return ops.concatenate([states, y, copies], axis=-1)

    def decode(self, summary: Tensor, mask: Tensor, num_beams: int) -> Nested:
        """The first state, and the step from a word and a state to features and the next state.

        Args:
            summary: Tensor `[batch, summary_width]`, what the encoder made of the source.
            mask: Not used: a summary has no padding.
            num_beams: Number of hypotheses of an example.

        Returns:
            Tensor `[batch, units]`, and a function `step(y, s)` of tensors `[rows, width]` and
            `[rows, units]`, where rows = batch * num_beams.
        """
        copies = ops.repeat(summary, num_beams, axis=0)  # [rows, summary_width]
        projected = self.summary_dense(copies)  # [rows, 3 * units]

        def step(y, s):
            s = self.gru.cell(self.gru.input_dense(y) + projected, s)
            return ops.concatenate([s, y, copies], axis=-1), s

        return self.start_dense(summary), step


@keras.saving.register_keras_serializable(package="keras_tfmr")
class Maxout(RecurrentLayer):
    """A linear layer of twice the width, then the maximum of each two neighbouring numbers.

        t_j = max(t̃_2j, t̃_2j+1),  t̃ = U_o s_{i-1} + V_o E y_{i-1} + C_o c_i

    where x is s_{i-1}, E y_{i-1} and c_i side by side.

    Args:
        units: Width of the output.

    Call arguments:
        x: Tensor `[..., width]`; its mask is passed on.

    Returns:
        Tensor `[..., units]`.

    Reference: Goodfellow et al. 2013, Maxout Networks (arXiv 1302.4389), as Bahdanau et al. 2015
    (arXiv 1409.0473) use it, appendix A.2.2.

    >>> Maxout(4)(np.ones((2, 3, 6), "float32")).shape
    TensorShape([2, 3, 4])
    """

    def __init__(self, units: int, **kwargs: Unpack[KerasOptions]) -> None:
        super().__init__(units, **kwargs)
        self.dense = self.make_dense(2 * units, "dense")

    def build(self, x_shape: Shape) -> None:
        self.dense.build(x_shape)

    def call(self, x: Tensor) -> Nested:
        x = self.dense(x)  # [..., 2 * units]
        return ops.maximum(x[..., 0::2], x[..., 1::2])


def at_least_one_column(source_ids):
    """int `[batch, source]`, padded to length 1 if empty: a state is that after the last word."""
    source_ids = ops.convert_to_tensor(source_ids)
    return ops.pad(source_ids, [[0, 0], [0, 1]]) if source_ids.shape[1] == 0 else source_ids


class RecurrentTranslator(ConfiguredModel, keras.Model):
    """The base of the recurrent translators, which differ in encoder and decoder.

    They are called, trained, decoded and exported like a `TranslationModel`.
    """

    def __init__(self, config: Seq2SeqConfig, encoder: Any, decoder: Any, name: str) -> None:
        source_ids = keras.Input((None,), dtype="int32", name="source_ids")
        target_ids = keras.Input((None,), dtype="int32", name="target_ids")

        def embedding(vocab, name):
            return keras.layers.Embedding(vocab, config.embedding_dim, mask_zero=True, name=name)

        if config.joint_vocab:
            source = target = embedding(config.target_vocab, "embedding")
        else:
            source = embedding(config.source_vocab, "source_embedding")
            target = embedding(config.target_vocab, "target_embedding")
        dropout = keras.layers.Dropout(config.dropout_rate, name="dropout")
        maxout = Maxout(config.maxout_units, name="maxout")
        logits = LMHead(config.target_vocab, name="logits")
        annotations = encoder(dropout(source(source_ids)))  # [batch, source, width], or a summary
        features = decoder(dropout(target(target_ids)), annotations)
        outputs = logits(dropout(maxout(features)))  # [batch, target, vocab]
        super().__init__(inputs=[source_ids, target_ids], outputs=outputs, name=name)
        self.config = config
        self.source_embedding, self.target_embedding = source, target
        self.encoder, self.decoder = encoder, decoder
        self.maxout, self.logits = maxout, logits

    def call(
        self, inputs: Tensor, training: bool | None = None, mask: Tensor | None = None
    ) -> Nested:
        if isinstance(inputs, dict):  # by name, not in the order of the alphabet
            inputs = [inputs["source_ids"], inputs["target_ids"]]
        source_ids, target_ids = inputs
        inputs = [at_least_one_column(source_ids), target_ids]
        return super().call(inputs, training=training, mask=mask)

    def encode(self, source_ids: Tensor) -> Nested:
        """The encoder's output for ids `[batch, source]`, and their mask `[batch, source]`."""
        source_ids = at_least_one_column(source_ids)
        mask = ops.not_equal(source_ids, 0)
        return self.encoder(self.source_embedding(source_ids), mask=mask), mask

    def start(self, source_ids: Tensor, num_beams: int = 1, *, max_length: int) -> Nested:
        """As for `TranslationModel`; `max_length` is not used, for any number of steps can follow.

        Returns:
            A `DecodingStep` over rows = batch * num_beams, and its first state: the decoder's,
            `[rows, units]`.
        """
        first, decode = self.decoder.decode(*self.encode(source_ids), num_beams)

        def step(tokens, state):
            y = self.target_embedding(tokens[:, None])[:, 0]  # [rows, embedding_dim]
            features, s = decode(y, state["s"])
            logits = self.logits(self.maxout(features))  # [rows, vocab]
            return ops.log_softmax(logits, axis=-1), {"s": s}

        vocab_size = self.target_embedding.input_dim
        state = {"s": ops.repeat(first, num_beams, axis=0)}
        return FunctionStep(step, num_beams=num_beams, vocab_size=vocab_size), state

    def explain(self, source_ids: Tensor, target_ids: Tensor) -> Nested:
        """As for `TranslationModel`; alignments are the cross-attention of one layer and head."""
        annotations, mask = self.encode(source_ids)
        features, scores = self.decoder(
            self.target_embedding(target_ids),
            annotations,
            annotations_mask=mask,
            return_attention_scores=True,
        )
        return self.logits(self.maxout(features)), AttentionScores([scores[:, None]])


@keras.saving.register_keras_serializable(package="keras_tfmr")
class Seq2SeqModel(RecurrentTranslator):
    """The encoder–decoder RNN: from source and target ids to the logits of each next target token.

    Whatever the length of the source, the decoder sees only one vector of it, the bottleneck that
    attention removes. The model is called, trained, decoded and exported like a
    `TranslationModel`.

    Args:
        config: A `Seq2SeqConfig`.

    Reference: Cho et al. 2014 (arXiv 1406.1078), appendix A; the source is read backwards as in
    Sutskever, Vinyals, Le 2014 (arXiv 1409.3215).

    >>> from keras_tfmr.recurrent import Seq2SeqConfig
    >>> model = Seq2SeqModel(Seq2SeqConfig.preset("tiny", source_vocab=50, target_vocab=50))
    >>> model([np.array([[5, 7, 3]]), np.array([[2, 9]])]).shape
    TensorShape([1, 2, 50])
    """

    config_class = Seq2SeqConfig

    def __init__(self, config: Seq2SeqConfig, name: str = "seq2seq") -> None:
        encoder = GRUEncoder(config.units, name="encoder")
        decoder = SummaryDecoder(config.units, name="decoder")
        super().__init__(config, encoder, decoder, name)

    def explain(self, source_ids: Tensor, target_ids: Tensor) -> Nested:
        """As for `TranslationModel`; the cross-attention is zero, for the model has none."""
        source_ids = at_least_one_column(source_ids)
        logits = self([source_ids, ops.convert_to_tensor(target_ids)])
        both = ops.zeros_like(logits[:, :, :1]) * ops.cast(source_ids, "float32")[:, None, :]
        return logits, AttentionScores([both[:, None]])
