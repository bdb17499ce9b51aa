"""RNNsearch's decoder: alignment, context and gated unit; and the maxout layer above it."""

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.layers.masking import attention_mask, masked_softmax
from keras_tfmr.recurrent._loop import over_time
from keras_tfmr.recurrent.gated_unit import GatedUnit


@keras.saving.register_keras_serializable(package="keras_tfmr")
class Alignment(keras.layers.Layer):
    """Additive attention: e_ij = v_aᵀ tanh(W_a s_i + U_a h_j), α_i = softmax_j(e_ij), c_i = Σ α h.

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

    >>> alignment = Alignment(units=8)
    >>> states, annotations = np.ones((2, 3, 4), "float32"), np.ones((2, 5, 6), "float32")
    >>> alignment.build(states.shape, annotations.shape)
    >>> context, scores = alignment(states, annotations, alignment.project(annotations))
    >>> context.shape, scores.shape
    (TensorShape([2, 3, 6]), TensorShape([2, 3, 5]))
    """

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = _checks.positive_int("units", units)
        self.state_dense = self._dense(units, "state")  # W_a
        self.annotation_dense = keras.layers.Dense(
            units, dtype=self.dtype_policy, name="annotation"
        )  # U_a, and the bias of both
        self.score_dense = self._dense(1, "score")  # v_a

    def _dense(self, units, name):
        return keras.layers.Dense(units, use_bias=False, dtype=self.dtype_policy, name=name)

    def build(self, states_shape, annotations_shape, keys_shape=None):
        self.state_dense.build(states_shape)
        self.annotation_dense.build(annotations_shape)
        self.score_dense.build((*annotations_shape[:-1], self.units))
        self.built = True

    def project(self, annotations):
        """Annotations `[batch, source, annotation_width]` → U_a h `[batch, source, units]`."""
        return self.annotation_dense(annotations)

    def call(self, states, annotations, keys, annotations_mask=None):
        queries = self.state_dense(states)[:, :, None, :]  # [batch, query, 1, units]
        hidden = ops.tanh(queries + keys[:, None, :, :])  # [batch, query, source, units]
        scores = self.score_dense(hidden)[..., 0]  # [batch, query, source]
        allowed = None if annotations_mask is None else annotations_mask[:, None, :]
        scores = ops.cast(masked_softmax(scores, attention_mask(allowed)), self.compute_dtype)
        return ops.matmul(scores, annotations), scores  # [batch, query, annotation_width]

    def compute_output_shape(self, states_shape, annotations_shape, keys_shape):
        batch, query = states_shape[:2]
        return (batch, query, annotations_shape[-1]), (batch, query, annotations_shape[1])

    def get_config(self):
        return {**super().get_config(), "units": self.units}


@keras.saving.register_keras_serializable(package="keras_tfmr")
class AlignedDecoder(keras.layers.Layer):
    """A gated unit that aligns before each word: context c_i enters r_i, z_i and s̃_i.

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
        TypeError: If the mask is not bool.

    Reference: Bahdanau, Cho, Bengio 2015 (arXiv 1409.0473), appendix A.2.2.

    >>> decoder = AlignedDecoder(units=6, alignment_units=5)
    >>> y, annotations = np.ones((2, 3, 4), "float32"), np.ones((2, 7, 8), "float32")
    >>> decoder(y, annotations).shape
    TensorShape([2, 3, 18])
    """

    def __init__(self, units, alignment_units, **kwargs):
        super().__init__(**kwargs)
        self.units = _checks.positive_int("units", units)
        self.alignment = Alignment(alignment_units, dtype=self.dtype_policy, name="alignment")
        self.unit = GatedUnit(units, dtype=self.dtype_policy, name="unit")
        self.word_dense = keras.layers.Dense(
            3 * units, dtype=self.dtype_policy, name="word"
        )  # W_r, W_z, W and the biases
        self.context_dense = keras.layers.Dense(
            3 * units, use_bias=False, dtype=self.dtype_policy, name="context"
        )  # C_r, C_z, C
        self.start_dense = keras.layers.Dense(
            units, activation="tanh", dtype=self.dtype_policy, name="start"
        )  # W_s
        self.supports_masking = True

    def build(self, y_shape, annotations_shape):
        _checks.sequence_of_vectors("y", y_shape)
        _checks.sequence_of_vectors("annotations", annotations_shape)
        width = annotations_shape[-1]
        if width % 2:
            raise ValueError(
                "`annotations` must have an even width, two directions side by side. "
                f"Received: shape {tuple(annotations_shape)}"
            )
        of_keys, of_values = self.views(keras.KerasTensor(annotations_shape))
        self.alignment.build((*y_shape[:-1], self.units), of_keys.shape)
        self.unit.build((y_shape[0], 3 * self.units))
        self.word_dense.build(y_shape)
        self.context_dense.build((*y_shape[:-1], of_values.shape[-1]))
        self.start_dense.build((y_shape[0], width // 2))
        self.built = True

    def views(self, annotations):
        """The vectors to align with, and those that contexts sum: here, annotations for both."""
        return annotations, annotations

    def read(self, annotations):
        """What all steps of a sentence share.

        Returns:
            The keys of the alignment `[batch, source, alignment_units]`, and the vectors that
            contexts are sums of, `[batch, source, n]`.
        """
        aligned_to, values = self.views(annotations)
        return self.alignment.project(aligned_to), values

    def start(self, annotations, annotations_mask=None):
        """The first state s_0 `[batch, units]`."""
        backward = annotations[:, 0, annotations.shape[-1] // 2 :]  # [batch, n]
        return self.start_dense(backward)

    def step(self, projected, state, context):
        """The next state.

        Args:
            projected: `[rows, 3 * units]`: `word_dense` of the embedded word.
            state: `[rows, units]`.
            context: `[rows, n]`, the context of the state.

        Returns:
            Tensor `[rows, units]`.
        """
        return self.unit(projected + self.context_dense(context), state)

    def call(self, y, annotations, annotations_mask=None, return_attention_scores=False):
        if annotations_mask is not None:
            annotations_mask = _checks.sequence_mask(
                "annotations_mask", annotations_mask, annotations
            )
        y = ops.cast(y, self.compute_dtype)
        annotations = ops.cast(annotations, self.compute_dtype)
        keys, values = self.read(annotations)

        def step(projected, states):
            state = states[0]
            context, scores = self.alignment(
                state[:, None, :], values, keys, annotations_mask=annotations_mask
            )
            seen = [state, context[:, 0]] + [scores[:, 0]] * return_attention_scores
            return ops.concatenate(seen, axis=-1), [self.step(projected, state, context[:, 0])]

        start = self.start(annotations, annotations_mask)
        seen = over_time(step, self.word_dense(y), [start], self.dtype_policy)
        states, rest = seen[:, :, : self.units], seen[:, :, self.units :]
        width = values.shape[-1]
        features = ops.concatenate([states, y, rest[:, :, :width]], axis=-1)
        return (features, rest[:, :, width:]) if return_attention_scores else features

    def compute_mask(self, y, previous_mask=None):
        return getattr(y, "_keras_mask", None)

    def compute_output_spec(
        self, y, annotations, annotations_mask=None, return_attention_scores=False
    ):
        batch, target, width = y.shape
        width = self.units + width + self.views(annotations)[1].shape[-1]
        features = keras.KerasTensor((batch, target, width), self.compute_dtype)
        if not return_attention_scores:
            return features
        shape = (batch, target, annotations.shape[1])
        return features, keras.KerasTensor(shape, self.compute_dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "units": self.units,
            "alignment_units": self.alignment.units,
        }


@keras.saving.register_keras_serializable(package="keras_tfmr")
class Maxout(keras.layers.Layer):
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

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = _checks.positive_int("units", units)
        self.dense = keras.layers.Dense(2 * units, dtype=self.dtype_policy, name="dense")
        self.supports_masking = True

    def build(self, x_shape):
        self.dense.build(x_shape)
        self.built = True

    def call(self, x):
        x = self.dense(x)  # [..., 2 * units]
        return ops.maximum(x[..., 0::2], x[..., 1::2])

    def compute_output_shape(self, x_shape):
        return (*x_shape[:-1], self.units)

    def get_config(self):
        return {**super().get_config(), "units": self.units}
