"""From vectors to logits: the linear layer at the top of the paper's Figure 1."""

from typing import Any, Unpack

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.config import Nested, Shape, Tensor
from keras_tfmr.layers.base import TransformerLayer
from keras_tfmr.layers.options import LayerOptions


@keras.saving.register_keras_serializable(package="keras_tfmr")
class LMHead(TransformerLayer):
    """A linear layer to one logit per token ID or class, in float32 under every dtype policy.

    For logits that share the table of an embedding, see `PositionalEmbedding`.

    Args:
        units: Number of classes or token IDs.
        use_bias: Whether to add a bias.
        **kwargs: As for `MultiHeadAttention`.

    Call arguments:
        x: Tensor `[batch, length, d_model]` or `[batch, d_model]`; its mask is passed on.

    Returns:
        float32 tensor `[..., units]`.

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.4.

    >>> LMHead(100)(np.ones((2, 3, 16), "float32")).shape
    TensorShape([2, 3, 100])
    """

    position_wise = True

    def __init__(
        self, units: int, *, use_bias: bool = True, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(use_bias=use_bias, **kwargs)
        self.units = _checks.integer("units", units)
        self.dense = self.make_dense(self.units, "dense")

    def build(self, x_shape: Shape) -> None:
        self.dense.build(x_shape)

    def call(self, x: Tensor) -> Nested:
        return ops.cast(self.dense(x), "float32")

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "units": self.units}
