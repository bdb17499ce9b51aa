"""The position-wise feed-forward sublayer, plain and gated."""

import functools

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.layers._parts import described
from keras_tfmr.layers.dot_product import flat
from keras_tfmr.layers.residual import Sublayer

ACTIVATIONS = {
    "relu": ops.relu,
    "gelu": functools.partial(ops.gelu, approximate=False),
    "gelu_tanh": functools.partial(ops.gelu, approximate=True),
    "silu": ops.silu,
}


@keras.saving.register_keras_serializable(package="keras_tfmr")
class FeedForward(Sublayer):
    """max(0, xW₁ + b₁)W₂ + b₂ at each position, with dropout, residual and normalisation.

    Args:
        d_model: Width of input and output.
        dff: Width of the hidden layer.
        dropout_rate: Share of the sublayer's output that is dropped in training.
        norm_first: Normalise the sublayer's input (pre-norm) instead of the sum (post-norm).
        activation: "relu", "gelu", "gelu_tanh" (its approximation) or "silu".
        use_bias: Whether the projections add a bias.
        norm: A normalisation layer to copy; `LayerNormalization()` by default.

    Call arguments:
        x: Tensor `[batch, length, d_model]`; its mask is passed on.

    Returns:
        Tensor `[batch, length, d_model]`.

    Raises:
        ValueError: If a size is not positive, the activation is unknown, or `x` is not
            `[batch, length, d_model]`.

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.3.

    >>> FeedForward(d_model=16, dff=64)(np.ones((2, 5, 16), "float32")).shape
    TensorShape([2, 5, 16])
    """

    def __init__(
        self,
        d_model,
        dff,
        dropout_rate=0.1,
        norm_first=False,
        *,
        activation="relu",
        use_bias=True,
        norm=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.d_model = _checks.positive_int("d_model", d_model)
        self.dff = _checks.positive_int("dff", dff)
        self.dropout_rate = _checks.rate("dropout_rate", dropout_rate)
        self.norm_first = bool(norm_first)
        self.activation = _checks.one_of("activation", activation, ACTIVATIONS)
        self.use_bias = bool(use_bias)
        self.hidden_dense = self._dense(dff, "hidden")
        self.output_dense = self._dense(d_model, "output")
        self.residual = self.make_residual(norm_first, dropout_rate, norm)
        self.supports_masking = True

    def _dense(self, units, name):
        return keras.layers.Dense(units, use_bias=self.use_bias, dtype=self.dtype_policy, name=name)

    def build(self, x_shape):
        _checks.sequence_of_vectors("x", x_shape)
        if x_shape[-1] != self.d_model:
            raise ValueError(
                f"`x` must have width d_model={self.d_model}. Received: shape {tuple(x_shape)}"
            )
        self.hidden_dense.build(x_shape)
        self.output_dense.build((*x_shape[:-1], self.dff))
        self.residual.build(x_shape)
        self.built = True

    def call(self, x, training=None):
        h = self.hidden(flat(self.residual.prepare(x)))  # [batch * length, dff]
        y = self.output_dense(h)
        if len(x.shape) == 3:
            y = ops.reshape(y, (-1, ops.shape(x)[1], self.d_model))
        return self.residual(x, y, training=training)

    def hidden(self, x):
        """The hidden layer `[..., dff]` of `x` `[..., d_model]`."""
        return ACTIVATIONS[self.activation](self.hidden_dense(x))

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "dff": self.dff,
            "dropout_rate": self.dropout_rate,
            "norm_first": self.norm_first,
            "activation": self.activation,
            "use_bias": self.use_bias,
            "norm": described(self.residual.norm),
        }


@keras.saving.register_keras_serializable(package="keras_tfmr")
class GatedFeedForward(FeedForward):
    """(act(xW₁) ∘ xV)W₂ at each position, with dropout, residual and normalisation.

    With "silu" it is SwiGLU, with "gelu" GEGLU. It has a third matrix V of the size of W₁, so with
    two thirds of the `dff` it has as many weights as a `FeedForward`.

    The arguments are those of `FeedForward`.

    Reference: Shazeer 2020, GLU Variants Improve Transformer (arXiv 2002.05202).

    >>> layer = GatedFeedForward(d_model=16, dff=64, activation="silu", use_bias=False)
    >>> layer(np.ones((2, 5, 16), "float32")).shape
    TensorShape([2, 5, 16])
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.gate_dense = self._dense(self.dff, "gate")

    def build(self, x_shape):
        super().build(x_shape)
        self.gate_dense.build(x_shape)

    def hidden(self, x):
        return ACTIVATIONS[self.activation](self.gate_dense(x)) * self.hidden_dense(x)
