"""From vectors to logits: the linear layer at the top of the paper's Figure 1."""

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.layers._parts import shared, unbuilt


class SomeLogits(NamedTuple):
    """The weights for the logits of some ids, to be used in many steps."""

    kernel: Any  # [d_model, places]
    bias: Any  # [places], or None

    def __call__(self, x):
        """Tensor `[rows, d_model]` to float32 logits `[rows, places]`."""
        y = ops.cast(ops.matmul(x, self.kernel), "float32")
        return y if self.bias is None else y + ops.cast(self.bias, "float32")


@keras.saving.register_keras_serializable(package="keras_tfmr")
class Logits(keras.layers.Layer):
    """A linear layer to one logit per class, in float32 under every dtype policy.

    Args:
        units: Number of classes or token ids.
        use_bias: Whether to add a bias.

    Call arguments:
        x: Tensor `[..., d_model]`; its mask is passed on.

    Returns:
        float32 tensor `[..., units]`.

    >>> Logits(100)(np.ones((2, 3, 16), "float32")).shape
    TensorShape([2, 3, 100])
    """

    def __init__(self, units, use_bias=True, **kwargs):
        super().__init__(**kwargs)
        self.units = _checks.positive_int("units", units)
        self.use_bias = bool(use_bias)
        self.dense = keras.layers.Dense(
            units, use_bias=self.use_bias, dtype=self.dtype_policy, name="dense"
        )
        self.supports_masking = True

    def build(self, x_shape):
        self.dense.build(x_shape)
        self.built = True

    def call(self, x, packed=None):
        return ops.cast(self.dense(x), "float32") if packed is None else packed(x)

    def pack(self, rows, ids=None):
        """None: the kernel is used as it is; or `SomeLogits`. See `TiedLogits.pack`."""
        if ids is None or self.dense.dtype_policy.quantization_mode is not None:
            return None
        kernel = ops.take(self.dense.kernel, ids, axis=1)  # [d_model, places]
        bias = ops.take(self.dense.bias, ids) if self.use_bias else None
        return SomeLogits(ops.cast(kernel, self.compute_dtype), bias)

    def compute_output_spec(self, x, packed=None):
        return keras.KerasTensor((*x.shape[:-1], self.units), dtype="float32")

    def get_config(self):
        return {**super().get_config(), "units": self.units, "use_bias": self.use_bias}


@keras.saving.register_keras_serializable(package="keras_tfmr")
class TiedLogits(keras.layers.Layer):
    """Logits made with the table of the token embedding, in float32 under every dtype policy.

    Args:
        embedding: The `PositionalEmbedding` whose table is used; it owns the weights.
        use_bias: Whether to add a bias, a weight of this layer.

    Call arguments:
        x: Tensor `[..., d_model]`; its mask is passed on.

    Returns:
        float32 tensor `[..., vocab]`.

    Reference: Press and Wolf 2017, Using the Output Embedding to Improve Language Models
    (arXiv 1608.05859).

    >>> from keras_tfmr.layers import PositionalEmbedding
    >>> logits = TiedLogits(PositionalEmbedding(vocab_size=100, d_model=16))
    >>> logits(np.ones((2, 3, 16), "float32")).shape
    TensorShape([2, 3, 100])
    """

    def __init__(self, embedding, use_bias=False, **kwargs):
        super().__init__(**kwargs)
        self.embedding = embedding
        self.use_bias = bool(use_bias)
        self.supports_masking = True

    def build(self, x_shape):
        if not self.embedding.built:
            self.embedding.build((None, None))
        if self.use_bias:
            shape = (self.embedding.vocab_size,)
            self.bias = self.add_weight(shape=shape, initializer="zeros", name="bias")
        self.built = True

    def call(self, x, packed=None):
        if isinstance(packed, SomeLogits):
            return packed(x)
        y = self.embedding.tokens(x, reverse=True) if packed is None else self._packed(x, packed)
        y = ops.cast(y, "float32")
        return y + ops.cast(self.bias, "float32") if self.use_bias else y

    def pack(self, rows, ids=None):
        """The transposed table `[d_model, vocab]`, to be used in many steps; None if quantised.

        Without it, several rows are multiplied by the table 1.5 to 3 times as slowly, but one row
        as fast. One row therefore gets the table under another shape, which `call` does not read.

        Args:
            rows: The most rows of a step, an int or an int32 scalar.
            ids: int32 `[places]`; if given, the logits of these ids only, as `SomeLogits`.
        """
        tokens = self.embedding.tokens
        if tokens.dtype_policy.quantization_mode is not None:
            return None
        table = ops.cast(tokens.embeddings, self.compute_dtype)  # [vocab, d_model]
        if ids is not None:
            bias = ops.take(self.bias, ids) if self.use_bias else None
            return SomeLogits(ops.transpose(ops.take(table, ids, axis=0)), bias)
        return ops.cond(
            rows > 1, lambda: ops.transpose(table), lambda: ops.reshape(table, table.shape[::-1])
        )

    def _packed(self, x, packed):
        return ops.cond(
            ops.shape(x)[0] > 1,
            lambda: ops.cast(ops.matmul(x, packed), self.compute_dtype),
            lambda: self.embedding.tokens(x, reverse=True),
        )

    def compute_output_spec(self, x, packed=None):
        shape = (*x.shape[:-1], self.embedding.vocab_size)
        return keras.KerasTensor(shape, dtype="float32")

    def get_config(self):
        config = {"embedding": shared(self.embedding), "use_bias": self.use_bias}
        return {**super().get_config(), **config}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "embedding": unbuilt(config["embedding"])})
