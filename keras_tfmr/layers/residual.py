"""Residual connection, dropout and normalisation: the "Add & Norm" of Figure 1.

Every sublayer gives

    residual(x, f(residual.pre_norm(x)))

The class of its `residual` makes it post-norm or pre-norm.
"""

from typing import Any, Unpack

import keras

from keras_tfmr import _checks
from keras_tfmr.config import Nested, Shape, Tensor
from keras_tfmr.layers.base import MaskingLayer, serialize
from keras_tfmr.layers.dropout import Dropout
from keras_tfmr.layers.normalization import norm_like
from keras_tfmr.layers.options import KerasOptions


class Residual(MaskingLayer):
    """The base of the residual layers: dropout and a normalisation."""

    def __init__(
        self,
        dropout_rate: float = 0.1,
        norm: keras.layers.Layer | None = None,
        **kwargs: Unpack[KerasOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.dropout_rate = _checks.rate("dropout_rate", dropout_rate)
        self.dropout = Dropout(self.dropout_rate, **self.part_options(), name="dropout")
        self.norm = norm_like(norm, self.part_options())

    def build(self, x_shape: Shape, y_shape: Shape | None = None) -> None:
        self.dropout.build(x_shape)
        self.norm.build(x_shape)

    def dropped(self, y: Tensor, training: bool | None) -> Tensor:
        """The dropout of `y`; without a call of the layer, which costs time, if there is none."""
        return y if training is False else self.dropout(y, training=training)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "dropout_rate": self.dropout_rate,
            "norm": serialize(self.norm),
        }


@keras.saving.register_keras_serializable(package="keras_tfmr")
class PostNormResidual(Residual):
    """LayerNorm(x + Dropout(f(x))): post-norm, the paper's order.

    Args:
        dropout_rate: Fraction of f(x) dropped in training.
        norm: A normalisation layer, copied; `LayerNormalization()` by default.

    Call arguments:
        x: Tensor `[batch, length, d_model]`, the sublayer's input; its mask is passed on.
        y: Tensor `[batch, length, d_model]`, what the sublayer made of `pre_norm(x)`.

    Returns:
        Tensor `[batch, length, d_model]`.

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), sections 3.1 and 5.4.

    >>> residual = PostNormResidual(dropout_rate=0.1)
    >>> x = np.ones((2, 3, 8), "float32")
    >>> residual(x, 2 * x).shape
    TensorShape([2, 3, 8])
    """

    position_wise = True

    def pre_norm(self, x: Tensor) -> Tensor:
        """The sublayer's input: `x` `[batch, length, d_model]` itself."""
        return x

    def call(self, x: Tensor, y: Tensor, training: bool | None = None) -> Nested:
        _checks.same_shape("y", y, x.shape)
        return self.norm(x + self.dropped(y, training))


@keras.saving.register_keras_serializable(package="keras_tfmr")
class PreNormResidual(Residual):
    """x + Dropout(f(LayerNorm(x))): pre-norm, which trains deep stacks without a long warm-up.

    A stack of such sublayers needs one more normalisation at its end.

    Args:
        dropout_rate: Fraction of f(LayerNorm(x)) dropped in training.
        norm: A normalisation layer, copied; `LayerNormalization()` by default.

    Call arguments:
        x: Tensor `[batch, length, d_model]`, the sublayer's input; its mask is passed on.
        y: Tensor `[batch, length, d_model]`, what the sublayer made of `pre_norm(x)`.

    Returns:
        Tensor `[batch, length, d_model]`.

    Reference: Xiong et al. 2020, On Layer Normalization in the Transformer Architecture
    (arXiv 2002.04745).

    >>> residual = PreNormResidual(dropout_rate=0.1)
    >>> x = np.ones((2, 3, 8), "float32")
    >>> residual.build(x.shape)
    >>> residual(x, residual.pre_norm(x)).shape
    TensorShape([2, 3, 8])
    """

    position_wise = True

    def pre_norm(self, x: Tensor) -> Tensor:
        """The sublayer's input: LayerNorm(x) `[batch, length, d_model]`."""
        return self.norm(x)

    def call(self, x: Tensor, y: Tensor, training: bool | None = None) -> Nested:
        _checks.same_shape("y", y, x.shape)
        return x + self.dropped(y, training)


def make_residual(norm_first, dropout_rate, norm, options):
    """The residual of a sublayer, which makes it after what it wraps, with its `part_options`."""
    kind = PreNormResidual if norm_first else PostNormResidual
    return kind(dropout_rate, norm, name="residual", **options)
