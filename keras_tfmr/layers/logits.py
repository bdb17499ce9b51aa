"""From vectors to logits: the linear layer at the top of the paper's Figure 1."""

import warnings
from typing import Any, Self

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.config import Nested, Shape, Tensor
from keras_tfmr.layers.base import (
    TransformerLayer,
    maybe_deserialize,
    serialize_shared,
)
from keras_tfmr.layers.dot_product import by_rows


class Head(TransformerLayer):
    """The base of the layers that make logits, in float32 under every dtype policy."""

    def compute_output_shape(self, x_shape: Shape) -> Any:
        return (*x_shape[:-1], self.units)


@keras.saving.register_keras_serializable(package="keras_tfmr")
class LMHead(Head):
    """A linear layer to one logit per token id or class, in float32 under every dtype policy.

    Args:
        units: Number of classes or token ids.
        use_bias: Whether to add a bias.
        **kwargs: As for `MultiHeadAttention`.

    Call arguments:
        x: Tensor `[batch, length, d_model]` or `[batch, d_model]`; its mask is passed on.

    Returns:
        float32 tensor `[..., units]`.

    >>> LMHead(100)(np.ones((2, 3, 16), "float32")).shape
    TensorShape([2, 3, 100])
    """

    config_fields = ("units",)

    def __init__(self, units: int, use_bias: bool = True, **kwargs: Any) -> None:
        super().__init__(use_bias=use_bias, **kwargs)
        self.units = _checks.positive_int("units", units)
        self.dense = self.make_dense(self.units, "dense")

    def build(self, x_shape: Shape) -> None:
        self.dense.build(x_shape)

    def call(self, x: Tensor) -> Nested:
        return ops.cast(by_rows(self.dense, x), "float32")


@keras.saving.register_keras_serializable(package="keras_tfmr")
class TiedLogits(Head):
    """Logits made with the table of the token embedding, in float32 under every dtype policy.

    Args:
        embedding: The `PositionalEmbedding` whose table is used; it owns the weights.
        use_bias: Whether to add a bias, a weight of this layer.
        **kwargs: `bias_initializer`, `bias_regularizer` and `bias_constraint` as for
            `keras.layers.Dense`; those of `keras.layers.Layer`.

    Call arguments:
        x: Tensor `[batch, length, d_model]`; its mask is passed on.

    Returns:
        float32 tensor `[batch, length, vocab]`.

    Raises:
        ValueError: If an option of a kernel is given; the kernel is the embedding's.

    Reference: Press and Wolf 2017, Using the Output Embedding to Improve Language Models
    (arXiv 1608.05859).

    >>> from keras_tfmr.layers import PositionalEmbedding
    >>> logits = TiedLogits(PositionalEmbedding(vocab_size=100, d_model=16))
    >>> logits(np.ones((2, 3, 16), "float32")).shape
    TensorShape([2, 3, 100])
    """

    def __init__(
        self, embedding: keras.layers.Layer, use_bias: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(use_bias=use_bias, **kwargs)
        of_kernel = [name for name in self.weight_options if name.startswith("kernel")]
        if of_kernel:
            raise ValueError(f"TiedLogits has no kernel of its own. Received: {of_kernel}")
        self.embedding = maybe_deserialize(embedding)
        self.input_spec = keras.layers.InputSpec(axes={-1: self.embedding.d_model})

    @property
    def units(self) -> int:
        """Number of token ids."""
        return self.embedding.vocab_size

    def build(self, x_shape: Shape) -> None:
        if not self.embedding.built:
            self.embedding.build((None, None))
        if self.use_bias:
            options = {n.removeprefix("bias_"): o for n, o in self.weight_options.items()}
            options = {"initializer": "zeros", **options}
            self.bias = self.add_weight(shape=(self.units,), name="bias", autocast=False, **options)

    def call(self, x: Tensor) -> Nested:
        y = by_rows(lambda rows: self.embedding.tokens(rows, reverse=True), x)
        y = ops.cast(y, "float32")
        return y + ops.cast(self.bias, "float32") if self.use_bias else y

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "embedding": serialize_shared(self.embedding)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        if "shared_object_id" not in config["embedding"]:
            warnings.warn(
                "Only a saved model keeps TiedLogits tied to another layer's embedding. This copy "
                "from a config has a table of its own; copy with `save` and `load_model` instead.",
                stacklevel=2,
            )
        return super().from_config(config)
