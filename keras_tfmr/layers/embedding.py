"""Embeddings with positions, at the bottom of the paper's Figure 1: of tokens and of vectors."""

import math
from typing import Any

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.config import Nested, Shape, Tensor
from keras_tfmr.layers.base import maybe_deserialize, serialize, serialize_shared
from keras_tfmr.layers.normalization import norm_like
from keras_tfmr.layers.positions import SinusoidalPositions


class Embedding(keras.layers.Layer):
    """The base of the embeddings: position vectors, and an optional normalisation."""

    def __init__(
        self, d_model: int, positions: keras.layers.Layer | None = None,
        norm: keras.layers.Layer | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(autocast=False, **kwargs)  # ids that come as floats must not be rounded
        self.d_model = _checks.positive_int("d_model", d_model)
        self.positions = maybe_deserialize(positions) or SinusoidalPositions(
            d_model, dtype=self.dtype_policy, name="positions"
        )
        self.norm = None if norm is None else norm_like(norm, self.dtype_policy)
        self.supports_masking = True

    def build(self, inputs_shape: Shape | None = None) -> None:
        self.positions.build((None,))
        if self.norm is not None:
            self.norm.build((None, None, self.d_model))

    def add_positions(self, x: Tensor, positions: Tensor) -> Tensor:
        """`x` `[batch, length, d_model]` plus the vectors of int32 `[length]`, normalised.

        Positions `[1]` are those of the whole length; None are those from 0.
        """
        if positions is None:
            positions = ops.arange(ops.shape(x)[1], dtype="int32")
        else:
            positions = _checks.positions(positions)
            _checks.one_for_each("positions", positions.shape[0], x.shape[1])
        x = x + ops.cast(self.positions(positions), x.dtype)
        return x if self.norm is None else self.norm(x)

    def compute_output_shape(self, inputs_shape: Shape) -> Any:
        # Raises if the length is known, and too long.
        self.positions.compute_output_spec(keras.KerasTensor((inputs_shape[1],), "int32"))
        return (*inputs_shape[:2], self.d_model)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "positions": serialize_shared(self.positions),
            "norm": serialize(self.norm),
        }


@keras.saving.register_keras_serializable(package="keras_tfmr")
class PositionalEmbedding(Embedding):
    """Token embedding times √d_model, plus positions.

    Padding is id 0. The layer gives its output the Keras mask (True = a real token) that later
    layers read.

    Args:
        vocab_size: Number of token ids.
        d_model: Width of a vector.
        positions: The layer that makes position vectors, such as `LearnedPositions(512, d_model)`
            or `NoPositions()`; `SinusoidalPositions(d_model)` by default.
        norm: A normalisation layer, copied to follow the sum; none by default.
        scaled: Whether the token embedding is multiplied by √d_model.
        mask_zero: Whether id 0 is padding; if not, there is no mask.

    Call arguments:
        token_ids: int tensor `[batch, length]`.
        positions: int32 tensor `[length]`, or `[1]` for one position; from 0 by default.

    Returns:
        Tensor `[batch, length, d_model]` in the compute dtype, with the mask `token_ids != 0`.

    Raises:
        ValueError: If `token_ids` does not have rank 2, holds an id that is negative or not below
            `vocab_size`, or has more positions than are learned.

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), sections 3.4 and 3.5.

    >>> embedding = PositionalEmbedding(vocab_size=100, d_model=16)
    >>> embedding(np.array([[5, 7, 0]])).shape
    TensorShape([1, 3, 16])
    """

    def __init__(
        self, vocab_size: int, d_model: int, positions: keras.layers.Layer | None = None,
        norm: keras.layers.Layer | None = None, scaled: bool = True, mask_zero: bool = True,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(d_model, positions, norm, **kwargs)
        self.vocab_size = _checks.positive_int("vocab_size", vocab_size)
        self.scaled, self.mask_zero = bool(scaled), bool(mask_zero)
        # Reversible, so that the same table can make the logits (see TiedLogits). This standard
        # deviation gives unit variance to its rows times √d_model, and to those logits.
        self.tokens = keras.layers.ReversibleEmbedding(
            self.vocab_size,
            self.d_model,
            embeddings_initializer=keras.initializers.RandomNormal(stddev=self.d_model**-0.5),
            dtype=self.dtype_policy,
            name="tokens",
        )
        # Otherwise Keras warns that the logits drop the mask, which they do not need.
        self.tokens.supports_masking = True

    def build(self, inputs_shape: Shape | None = None) -> None:
        self.tokens.build()
        super().build()

    def call(self, token_ids: Tensor, positions: Tensor | None = None) -> Nested:
        x = self.tokens(_checks.sequence_of_ids("token_ids", token_ids, self.vocab_size))
        if self.scaled:
            x = x * ops.cast(math.sqrt(self.d_model), x.dtype)
        return self.add_positions(x, positions)

    def compute_mask(self, token_ids: Tensor, previous_mask: Tensor | None = None) -> Tensor | None:
        if not self.mask_zero:
            return previous_mask
        mask = ops.not_equal(token_ids, 0)
        return mask if previous_mask is None else ops.logical_and(mask, previous_mask)

    def get_config(self) -> dict[str, Any]:
        names = ("vocab_size", "scaled", "mask_zero")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


@keras.saving.register_keras_serializable(package="keras_tfmr")
class AddPositions(Embedding):
    """Vectors plus positions, for a stack whose input is not text, such as image patches or frames.

    Args:
        d_model: Width of a vector.
        positions: As for `PositionalEmbedding`.
        norm: A normalisation layer, copied to follow the sum; none by default.

    Call arguments:
        x: Tensor `[batch, length, d_model]`; its mask is passed on.
        positions: As for `PositionalEmbedding`.

    Returns:
        Tensor `[batch, length, d_model]`.

    Raises:
        ValueError: If `x` does not have rank 3 and width `d_model`.

    Reference: Dosovitskiy et al. 2021, An Image is Worth 16x16 Words (arXiv 2010.11929).

    >>> from keras_tfmr.layers import Encoder
    >>> frames = np.ones((2, 5, 16), "float32")
    >>> encoder = Encoder(num_layers=1, d_model=16, num_heads=2, dff=32,
    ...     embedding=AddPositions(16))
    >>> encoder(frames).shape
    TensorShape([2, 5, 16])
    """

    def build(self, x_shape: Shape) -> None:
        _checks.sequence_of_vectors("x", x_shape, self.d_model)
        super().build()

    def call(self, x: Tensor, positions: Tensor | None = None) -> Nested:
        _checks.sequence_of_vectors("x", x.shape, self.d_model)
        return self.add_positions(ops.cast(x, self.compute_dtype), positions)
