"""The position-wise feed-forward sublayer, plain and gated."""

from typing import Any, Unpack

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.config import Nested, Shape, Tensor
from keras_tfmr.layers.base import TransformerLayer, serialize
from keras_tfmr.layers.options import FeedForwardOptions, LayerOptions
from keras_tfmr.layers.residual import make_residual


def gelu_tanh(x):
    """GELU by its approximation with tanh, as in GPT-2."""
    return ops.gelu(x, approximate=True)


def activation_of(activation):
    """An activation's function: "gelu_tanh", or what `keras.activations.get` takes.

    Raises:
        ValueError: If it is unknown.
    """
    return gelu_tanh if activation == "gelu_tanh" else keras.activations.get(activation)


def activation_name(activation):
    """The serialised form of an activation, its name where it has one."""
    activation = activation_of(activation)
    return "gelu_tanh" if activation is gelu_tanh else keras.activations.serialize(activation)


@keras.saving.register_keras_serializable(package="keras_tfmr")
class FeedForward(TransformerLayer):
    """max(0, xW₁ + b₁)W₂ + b₂ at each position, with dropout, residual and normalisation.

    Args:
        d_model: Width of input and output.
        dff: Width of the hidden layer.
        dropout_rate: Fraction of the sublayer's output that is dropped in training.
        norm_first: Normalise the sublayer's input (pre-norm) instead of the sum (post-norm).
        activation: A name or function as Keras takes it, such as "relu", "gelu" or "silu"; or
            "gelu_tanh", the approximation of "gelu".
        use_bias: Whether the projections add a bias.
        norm: A normalisation layer, copied; `LayerNormalization()` by default.
        **kwargs: As for `MultiHeadAttention`.

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

    position_wise = True

    def __init__(
        self, d_model: int, dff: int, *, dropout_rate: float = 0.1, norm_first: bool = False,
        activation: Any = "relu", use_bias: bool = True, norm: keras.layers.Layer | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:  # fmt: skip
        super().__init__(use_bias=use_bias, **kwargs)
        self.d_model = _checks.integer("d_model", d_model)
        self.dff = _checks.integer("dff", dff)
        self.input_spec = keras.layers.InputSpec(ndim=3, axes={-1: self.d_model}, name="x")
        self.dropout_rate, self.norm_first = dropout_rate, bool(norm_first)
        self.activation = activation_of(activation)
        self.hidden_dense = self.make_dense(self.dff, "hidden")
        self.output_dense = self.make_dense(self.d_model, "output")
        self.residual = make_residual(norm_first, dropout_rate, norm, self.part_options())

    def build(self, x_shape: Shape) -> None:
        self.hidden_dense.build(x_shape)
        self.output_dense.build((*x_shape[:-1], self.dff))
        self.residual.build(x_shape)

    def call(self, x: Tensor, training: bool | None = None) -> Nested:
        y = self.hidden(self.residual.pre_norm(x))  # [batch, length, dff]
        y = self.output_dense(y)  # [batch, length, d_model]
        return self.residual(x, y, training=training)

    def hidden(self, x: Tensor) -> Tensor:
        """The hidden layer `[batch, length, dff]` of `x` `[batch, length, d_model]`."""
        return self.activation(self.hidden_dense(x))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "dff": self.dff,
            "dropout_rate": self.dropout_rate,
            "norm_first": self.norm_first,
            "activation": activation_name(self.activation),
            "norm": serialize(self.residual.norm),
        }


@keras.saving.register_keras_serializable(package="keras_tfmr")
class GatedFeedForward(FeedForward):
    """(act(xW₁) ∘ xV)W₂ at each position, with dropout, residual and normalisation.

    With "silu" it is SwiGLU, with "gelu" GEGLU. It has a third matrix V of the size of W₁, so with
    two thirds of the `dff` it has as many weights as a `FeedForward`.

    Args:
        d_model: Width of input and output.
        dff: Width of the hidden layer.
        dropout_rate: Fraction of the sublayer's output that is dropped in training.
        norm_first: Normalise the sublayer's input (pre-norm) instead of the sum (post-norm).
        activation: As for `FeedForward`.
        use_bias: Whether the projections add a bias.
        norm: A normalisation layer, copied; `LayerNormalization()` by default.
        **kwargs: As for `MultiHeadAttention`.

    Call arguments:
        x: Tensor `[batch, length, d_model]`; its mask is passed on.

    Returns:
        Tensor `[batch, length, d_model]`.

    Reference: Shazeer 2020, GLU Variants Improve Transformer (arXiv 2002.05202).

    >>> layer = GatedFeedForward(d_model=16, dff=64, activation="silu", use_bias=False)
    >>> layer(np.ones((2, 5, 16), "float32")).shape
    TensorShape([2, 5, 16])
    """

    def __init__(self, d_model: int, dff: int, **options: Unpack[FeedForwardOptions]) -> None:
        super().__init__(d_model, dff, **options)
        self.gate_dense = self.make_dense(self.dff, "gate")

    def build(self, x_shape: Shape) -> None:
        self.gate_dense.build(x_shape)
        super().build(x_shape)

    def hidden(self, x: Tensor) -> Tensor:
        return self.activation(self.gate_dense(x)) * self.hidden_dense(x)
