"""Embeddings with positions, at the bottom of the paper's Figure 1: of tokens and of vectors."""

import math
from typing import Any, Unpack

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.compat import take
from keras_tfmr.config import Nested, Shape, Tensor
from keras_tfmr.layers.base import MaskingLayer, serialize
from keras_tfmr.layers.cache import new_positions
from keras_tfmr.layers.normalization import norm_like
from keras_tfmr.layers.options import KerasOptions
from keras_tfmr.layers.positions import SinusoidalPositions


class Embedding(MaskingLayer):
    """The base of the embeddings: position vectors, and an optional normalisation."""

    def __init__(
        self, d_model: int, *, positions: keras.layers.Layer | None = None,
        norm: keras.layers.Layer | None = None, **kwargs: Unpack[KerasOptions],
    ) -> None:  # fmt: skip
        super().__init__(autocast=False, **kwargs)  # ids that come as floats must not be rounded
        self.d_model = _checks.integer("d_model", d_model)
        self.positions = self.given_layer(
            "positions", positions, f"LearnedPositions(512, {d_model})"
        ) or SinusoidalPositions(d_model, name="positions", **self.part_options())
        self.norm = None if norm is None else norm_like(norm, self.part_options())

    def build(self, inputs_shape: Shape | None = None) -> None:
        self.positions.build((None,))
        if self.norm is not None:
            self.norm.build((None, None, self.d_model))

    def add_positions(self, x: Tensor) -> Tensor:
        """`x` `[batch, length, d_model]` plus the vectors of the positions, normalised."""
        return self.add_vectors(
            x, self.position_vectors(ops.arange(ops.shape(x)[1], dtype="int32"))
        )

    def position_vectors(self, positions: Tensor) -> Tensor:
        """The vectors of positions int32 `[length]`, `[length, d_model]` or `[length, 1]`."""
        return self.positions(positions)

    def add_vectors(self, x: Tensor, vectors: Tensor) -> Tensor:
        """`x` `[batch, length, d_model]` plus these vectors, normalised."""
        x = x + ops.cast(vectors, x.dtype)
        return x if self.norm is None else self.norm(x)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "positions": serialize(self.positions),
            "norm": serialize(self.norm),
        }


@keras.saving.register_keras_serializable(package="keras_tfmr")
class PositionalEmbedding(Embedding):
    """Token embedding times √d_model, plus positions; and the other way, from vectors to logits.

    Padding is ID 0. The layer gives its output the Keras mask (True = a real token) that later
    layers read.

    Called with `reverse=True`, it multiplies vectors with the same table and gives the logits of
    all tokens ("tied" logits), in float32 under every dtype policy.

    Args:
        vocab_size: Number of token IDs.
        d_model: Width of a vector.
        positions: The layer that makes position vectors, such as `LearnedPositions(512, d_model)`
            or `NoPositions()`, not copied; `SinusoidalPositions(d_model)` by default.
        norm: A normalisation layer, copied to follow the sum; none by default.
        scaled: Whether the token embedding is multiplied by √d_model.
        mask_zero: Whether ID 0 is padding; if not, there is no mask.
        logits_bias: Whether the logits have a bias, a weight of this layer.

    Call arguments:
        inputs: int tensor `[batch, length]` of token IDs; with `reverse`, vectors
            `[batch, length, d_model]`.
        reverse: Whether to make logits of vectors.

    Returns:
        Tensor `[batch, length, d_model]` in the compute dtype, with the mask `inputs != 0`; with
        `reverse`, float32 logits `[batch, length, vocab_size]`.

    Raises:
        ValueError: If `inputs` does not have rank 2, holds an ID that is negative or not below
            `vocab_size`, or has more positions than are learned; with `reverse`, if it does not
            have rank 3 and width `d_model`.

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), sections 3.4 and 3.5; Press and Wolf 2017,
    Using the Output Embedding to Improve Language Models (arXiv 1608.05859), for `reverse`.

    >>> embedding = PositionalEmbedding(vocab_size=100, d_model=16)
    >>> x = embedding(np.array([[5, 7, 0]]))
    >>> x.shape, embedding(x, reverse=True).shape
    (TensorShape([1, 3, 16]), TensorShape([1, 3, 100]))
    """

    def __init__(
        self, vocab_size: int, d_model: int, *, positions: keras.layers.Layer | None = None,
        norm: keras.layers.Layer | None = None, scaled: bool = True, mask_zero: bool = True,
        logits_bias: bool = False, **kwargs: Unpack[KerasOptions],
    ) -> None:  # fmt: skip
        super().__init__(d_model, positions=positions, norm=norm, **kwargs)
        self.vocab_size = _checks.integer("vocab_size", vocab_size)
        self.scaled, self.mask_zero = bool(scaled), bool(mask_zero)
        self.logits_bias = bool(logits_bias)
        # This standard deviation gives unit variance to the rows of the table times √d_model, and
        # to the logits.
        self.tokens = keras.layers.ReversibleEmbedding(
            self.vocab_size,
            self.d_model,
            embeddings_initializer=keras.initializers.RandomNormal(stddev=self.d_model**-0.5),
            name="tokens",
            **self.part_options(),
        )
        # Otherwise Keras warns that the logits drop the mask, which they do not need.
        self.tokens.supports_masking = True

    def build(self, inputs_shape: Shape | None = None) -> None:
        self.tokens.build()
        super().build()
        if self.logits_bias:
            self.bias = self.add_weight(
                shape=(self.vocab_size,), initializer="zeros", name="bias", autocast=False
            )

    def call(self, inputs: Tensor, reverse: bool = False) -> Nested:
        if reverse:
            return self._logits(inputs)
        return self.add_positions(self.vectors_of(inputs))  # [batch, length, d_model]

    def step(self, inputs: Tensor, vectors: Tensor, index: Tensor) -> Tensor:
        """The output of `call` for further token IDs.

        Args:
            inputs: As for `call`, after `index` others.
            vectors: The output of `position_vectors` for all positions of the sequence.
            index: int32 scalar.
        """
        here = vectors_at(vectors, index, inputs)
        return self.add_vectors(self.vectors_of(inputs), here)  # [batch, length, d_model]

    def vectors_of(self, inputs: Tensor) -> Tensor:
        """The vectors `[batch, length, d_model]` of token IDs, without their positions."""
        last = self.vocab_size - 1
        ids = _checks.tensor("inputs", inputs, "int32", 0, last, batch=None, length=None)
        x = self.tokens(ids)
        return x * ops.cast(math.sqrt(self.d_model), x.dtype) if self.scaled else x

    def _logits(self, x):
        _checks.shaped("inputs", x, batch=None, length=None, d_model=self.d_model)
        batch, length, width = ops.shape(x)
        rows = ops.reshape(x, (-1, width))  # one product: see `Dense`
        logits = ops.cast(self.tokens(rows, reverse=True), "float32")
        if self.logits_bias:
            logits = logits + ops.cast(self.bias, "float32")
        return ops.reshape(logits, (batch, length, self.vocab_size))

    def compute_mask(self, inputs: Tensor, previous_mask: Tensor | None = None) -> Tensor | None:
        if len(inputs.shape) == 3 or not self.mask_zero:  # vectors, in reverse
            return previous_mask
        mask = ops.not_equal(inputs, 0)
        return mask if previous_mask is None else ops.logical_and(mask, previous_mask)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "vocab_size": self.vocab_size,
            "scaled": self.scaled,
            "mask_zero": self.mask_zero,
            "logits_bias": self.logits_bias,
        }


@keras.saving.register_keras_serializable(package="keras_tfmr")
class AddPositions(Embedding):
    """Vectors plus positions, for a stack whose input is not text, such as image patches or frames.

    Args:
        d_model: Width of a vector.
        positions: As for `PositionalEmbedding`.
        norm: A normalisation layer, copied to follow the sum; none by default.

    Call arguments:
        x: Tensor `[batch, length, d_model]`; its mask is passed on.

    Returns:
        Tensor `[batch, length, d_model]`.

    Raises:
        ValueError: If `x` does not have rank 3 and width `d_model`.

    Reference: Dosovitskiy et al. 2021, An Image is Worth 16x16 Words (arXiv 2010.11929).

    >>> AddPositions(16)(np.ones((2, 5, 16), "float32")).shape
    TensorShape([2, 5, 16])
    """

    def call(self, x: Tensor) -> Nested:
        return self.add_positions(self.vectors_of(x))  # [batch, length, d_model]

    def step(self, x: Tensor, vectors: Tensor, index: Tensor) -> Tensor:
        """The output of `call` for further vectors.

        Args:
            x: As for `call`, after `index` others.
            vectors: The output of `position_vectors` for all positions of the sequence.
            index: int32 scalar.
        """
        here = vectors_at(vectors, index, x)
        return self.add_vectors(self.vectors_of(x), here)  # [batch, length, d_model]

    def vectors_of(self, x: Tensor) -> Tensor:
        """`x` `[batch, length, d_model]` in the compute dtype."""
        _checks.shaped("x", x, batch=None, length=None, d_model=self.d_model)
        return ops.cast(x, self.compute_dtype)


def vectors_at(vectors, index, inputs):
    """The position vectors of `inputs` `[batch, length]` after `index` others."""
    if inputs.shape[1] == 1:  # fewer operations where it is known
        return take(vectors, index)  # [d_model]
    return take(vectors, new_positions(index, ops.shape(inputs)[1]))  # [length, d_model]
