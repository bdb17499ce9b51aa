"""RNNsearch, the recurrent encoder–decoder with attention."""

from typing import Any, Unpack

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.config import Nested, Shape, Tensor
from keras_tfmr.layers.masking import masked_softmax
from keras_tfmr.layers.options import KerasOptions
from keras_tfmr.recurrent.gru import BidirectionalEncoder, GRUCell, RecurrentLayer
from keras_tfmr.recurrent.over_time import over_time
from keras_tfmr.recurrent.recurrent_configs import RNNSearchConfig
from keras_tfmr.recurrent.seq2seq import RecurrentTranslator


@keras.saving.register_keras_serializable(package="keras_tfmr")
class AdditiveAttention(RecurrentLayer):
    """e_ij = v_aᵀ tanh(W_a s_i + U_a h_j), α_i = softmax_j(e_ij), c_i = Σ α h.

    `keras.layers.AdditiveAttention` has neither W_a nor U_a, and attends to padding alike where
    nothing else is there; here, contexts are then zero.

    Args:
        units: Width of the alignment model's hidden layer.

    Call arguments:
        states: Tensor `[batch, query, width]`, the decoder's states s.
        annotations: Tensor `[batch, source, annotation_width]`, the encoder's h.
        keys: Tensor `[batch, source, units]`: `project(annotations)`, computed once per sentence.
        annotations_mask: bool tensor `[batch, source]`, True = valid. A sentence without valid
            positions has scores and a context of zero.

    Returns:
        Contexts `[batch, query, annotation_width]` and scores α `[batch, query, source]`. The
        softmax is in float32.

    Reference: Bahdanau, Cho, Bengio 2015 (arXiv 1409.0473), section 3.1 and appendix A.1.2.

    >>> attention = AdditiveAttention(units=8)
    >>> states, annotations = np.ones((2, 3, 4), "float32"), np.ones((2, 5, 6), "float32")
    >>> attention.build(states.shape, annotations.shape)
    >>> context, scores = attention(states, annotations, attention.project(annotations))
    >>> context.shape, scores.shape
    (TensorShape([2, 3, 6]), TensorShape([2, 3, 5]))
    """

    def __init__(self, units: int, **kwargs: Unpack[KerasOptions]) -> None:
        super().__init__(units, **kwargs)
        self.state_dense = self.make_dense(units, "state", use_bias=False)  # W_a
        self.annotation_dense = self.make_dense(units, "annotation")  # U_a, the bias of both
        self.score_dense = self.make_dense(1, "score", use_bias=False)  # v_a

    def build(
        self, states_shape: Shape, annotations_shape: Shape, keys_shape: Shape | None = None
    ) -> None:
        self.state_dense.build(states_shape)
        self.annotation_dense.build(annotations_shape)
        self.score_dense.build((*annotations_shape[:-1], self.units))

    def project(self, annotations: Tensor) -> Nested:
        """Annotations `[batch, source, annotation_width]` → U_a h `[batch, source, units]`."""
        return self.annotation_dense(annotations)

    def call(
        self, states: Nested, annotations: Tensor, keys: Tensor,
        annotations_mask: Tensor | None = None,
    ) -> Nested:  # fmt: skip
        queries = self.state_dense(states)[:, :, None, :]  # [batch, query, 1, units]
        hidden = ops.tanh(queries + keys[:, None, :, :])  # [batch, query, source, units]
        scores = self.score_dense(hidden)[..., 0]  # [batch, query, source]
        allowed = None if annotations_mask is None else annotations_mask[:, None, :]
        scores = ops.cast(masked_softmax(scores, allowed), self.compute_dtype)
        return ops.matmul(scores, annotations), scores  # [batch, query, annotation_width]


@keras.saving.register_keras_serializable(package="keras_tfmr")
class AlignedDecoder(RecurrentLayer):
    """A `GRUCell` that attends before each word and reads the context c_i beside it.

    s_0 = tanh(W_s ←h_1) with the backward annotation of the first word. Only what depends on the
    state is computed in the loop; U_a h and the words' projections are products over all positions.

    Args:
        units: Width of the state.
        alignment_units: Width of the alignment model's hidden layer.

    Call arguments:
        y: Tensor `[batch, target, width]`, the embedded words y_0 … y_{i-1} …
        annotations: Tensor `[batch, source, 2 * n]` of a `BidirectionalEncoder(n)`.
        annotations_mask: bool tensor `[batch, source]`, True = valid; by default the Keras mask
            of `annotations`.
        return_attention_scores: Whether to return the alignments too.

    Returns:
        Tensor `[batch, target, units + width + 2 * n]`: s_{i-1}, E y_{i-1} and c_i side by side,
        the input of the output layer; with scores, a pair of it and α `[batch, target, source]`.

    Raises:
        ValueError: If a size is not positive, or an input or the mask has the wrong shape.

    Reference: Bahdanau, Cho, Bengio 2015 (arXiv 1409.0473), appendix A.2.2.

    >>> decoder = AlignedDecoder(units=6, alignment_units=5)
    >>> y, annotations = np.ones((2, 3, 4), "float32"), np.ones((2, 7, 8), "float32")
    >>> decoder(y, annotations).shape
    TensorShape([2, 3, 18])
    """

    def __init__(self, units: int, alignment_units: int, **kwargs: Unpack[KerasOptions]) -> None:
        super().__init__(units, **kwargs)
        self.alignment_units = alignment_units
        self.input_spec = keras.layers.InputSpec(ndim=3, name="y")
        options = self.part_options()
        self.attention = AdditiveAttention(alignment_units, name="attention", **options)
        self.cell = GRUCell(units, name="cell", **options)
        self.word_dense = self.make_dense(3 * units, "word")  # W_r, W_z, W and the biases
        self.context_dense = self.make_dense(3 * units, "context", use_bias=False)  # C_r, C_z, C
        self.start_dense = self.make_dense(units, "start", activation="tanh")  # W_s

    def build(self, y_shape: Shape, annotations_shape: Shape) -> None:
        width = annotations_shape[-1]
        if width % 2:
            raise ValueError(
                "`annotations` must have an even width, two directions side by side. "
                f"Received: shape {tuple(annotations_shape)}"
            )
        of_keys, of_values = self.views(keras.KerasTensor(annotations_shape))
        self.attention.build((*y_shape[:-1], self.units), of_keys.shape)
        self.cell.build((y_shape[0], 3 * self.units))
        self.word_dense.build(y_shape)
        self.context_dense.build((*y_shape[:-1], of_values.shape[-1]))
        self.start_dense.build((y_shape[0], width // 2))

    def views(self, annotations: Tensor) -> tuple[Tensor, Tensor]:
        """The vectors to align with, and those that contexts sum: here, annotations for both."""
        return annotations, annotations

    def start(self, annotations: Tensor, annotations_mask: Tensor | None = None) -> Nested:
        """The first state s_0 `[batch, units]`."""
        backward = annotations[:, 0, annotations.shape[-1] // 2 :]  # [batch, n]
        return self.start_dense(backward)

    def decode(self, annotations: Tensor, annotations_mask: Tensor, num_beams: int) -> Nested:
        """As for `SummaryDecoder`; the annotations and their mask are those of the call."""
        read = self._reader(annotations, annotations_mask, num_beams)

        def step(y, s):
            context, _, following = read(self.word_dense(y), s)
            return ops.concatenate([s, y, context], axis=-1), following

        return self.start(annotations, annotations_mask), step

    def _reader(self, annotations, mask, num_beams=1):
        """A function from a projected word and s to context, scores and the next s."""
        aligned_to, values = self.views(annotations)
        keys = self.attention.project(aligned_to)  # the same for all words

        def read(projected, s):
            queries = ops.reshape(s, (-1, num_beams, self.units))
            context, scores = self.attention(queries, values, keys, annotations_mask=mask)
            context = ops.reshape(context, (-1, values.shape[-1]))  # [rows, n]
            return context, scores, self.cell(projected + self.context_dense(context), s)

        return read

    def call(
        self, y: Tensor, annotations: Tensor, annotations_mask: Tensor | None = None,
        return_attention_scores: bool = False,
    ) -> Nested:  # fmt: skip
        batch, source = y.shape[0], annotations.shape[1]
        _checks.shaped("annotations", annotations, batch=batch, source=None, width=None)
        annotations_mask = _checks.mask(
            "annotations_mask", annotations_mask, batch=batch, source=source
        )
        y = ops.cast(y, self.compute_dtype)
        annotations = ops.cast(annotations, self.compute_dtype)
        read = self._reader(annotations, annotations_mask)

        def step(projected, states):
            context, scores, following = read(projected, states[0])
            seen = [states[0], context] + [scores[:, 0]] * return_attention_scores
            return ops.concatenate(seen, axis=-1), [following]

        start = self.start(annotations, annotations_mask)
        seen = over_time(step, self.word_dense(y), [start], self.dtype_policy)
        width = self.units + self.views(annotations)[1].shape[-1]
        s, context = seen[:, :, : self.units], seen[:, :, self.units : width]
        features = ops.concatenate([s, y, context], axis=-1)
        return (features, seen[:, :, width:]) if return_attention_scores else features

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "alignment_units": self.alignment_units}


@keras.saving.register_keras_serializable(package="keras_tfmr")
class RNNSearchModel(RecurrentTranslator):
    """RNNsearch: from source and target ids to the logits of each next target token.

    It has a bidirectional encoder, a decoder that aligns before each word, and a maxout
    layer. It is called, trained, decoded and exported like a `TranslationModel`.

    Args:
        config: An `RNNSearchConfig`.

    Reference: Bahdanau, Cho, Bengio 2015, Neural Machine Translation by Jointly Learning to
    Align and Translate (arXiv 1409.0473).

    >>> from keras_tfmr.recurrent import RNNSearchConfig
    >>> model = RNNSearchModel(RNNSearchConfig.preset("tiny", source_vocab=50, target_vocab=50))
    >>> model([np.array([[5, 7, 3]]), np.array([[2, 9]])]).shape
    TensorShape([1, 2, 50])
    """

    config_class = RNNSearchConfig

    def __init__(self, config: RNNSearchConfig, name: str = "rnnsearch") -> None:
        encoder = BidirectionalEncoder(config.units, name="encoder")
        decoder = AlignedDecoder(config.units, config.alignment_units, name="decoder")
        super().__init__(config, encoder, decoder, name)
