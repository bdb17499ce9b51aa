"""The position-wise feed-forward sublayer."""

import keras

from keras_tfmr import _checks
from keras_tfmr.layers.residual import Sublayer


@keras.saving.register_keras_serializable(package="keras_tfmr")
class FeedForward(Sublayer):
    """max(0, xW₁ + b₁)W₂ + b₂ at each position, with dropout, residual and normalisation.

    Args:
        d_model: Width of input and output.
        dff: Width of the hidden layer.
        dropout_rate: Share of the sublayer's output that is dropped in training.
        norm_first: Normalise the sublayer's input (pre-norm) instead of the sum (post-norm).

    Call arguments:
        x: Tensor `[batch, length, d_model]`; its mask is passed on.

    Returns:
        Tensor `[batch, length, d_model]`.

    Raises:
        ValueError: If a size is not positive or `x` is not `[batch, length, d_model]`.

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.3.

    >>> FeedForward(d_model=16, dff=64)(np.ones((2, 5, 16), "float32")).shape
    TensorShape([2, 5, 16])
    """

    def __init__(self, d_model, dff, dropout_rate=0.1, norm_first=False, **kwargs):
        super().__init__(**kwargs)
        self.d_model = _checks.positive_int("d_model", d_model)
        self.dff = _checks.positive_int("dff", dff)
        self.dropout_rate = _checks.rate("dropout_rate", dropout_rate)
        self.norm_first = bool(norm_first)
        self.hidden = keras.layers.Dense(
            dff, activation="relu", dtype=self.dtype_policy, name="hidden"
        )
        self.output_dense = keras.layers.Dense(d_model, dtype=self.dtype_policy, name="output")
        self.residual = self.make_residual(norm_first, dropout_rate)
        self.supports_masking = True

    def build(self, x_shape):
        _checks.sequence_of_vectors("x", x_shape)
        if x_shape[-1] != self.d_model:
            raise ValueError(
                f"`x` must have width d_model={self.d_model}. Received: shape {tuple(x_shape)}"
            )
        self.hidden.build(x_shape)
        self.output_dense.build((*x_shape[:-1], self.dff))
        self.residual.build(x_shape)
        self.built = True

    def call(self, x, training=None):
        h = self.hidden(self.residual.prepare(x))  # [batch, length, dff]
        return self.residual(x, self.output_dense(h), training=training)

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "dff": self.dff,
            "dropout_rate": self.dropout_rate,
            "norm_first": self.norm_first,
        }
