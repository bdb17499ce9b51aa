"""Positions in attention: rotations of queries and keys, and biases of the scores."""

import math
from typing import Any, Unpack

import keras
import numpy as np
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.config import Nested, Shape, Tensor
from keras_tfmr.layers.base import MaskingLayer
from keras_tfmr.layers.cache import key_positions, new_positions
from keras_tfmr.layers.options import KerasOptions
from keras_tfmr.layers.positions import MAX_WAVELENGTH, Angles, as_positions


@keras.saving.register_keras_serializable(package="keras_tfmr")
class RotaryPositions(MaskingLayer):
    """Rotates queries and keys by angles that grow with their position; it has no weights.

    Number i of the first half of a head and number i of its second half form a plane, which is
    rotated by position / max_wavelength^(2i/key_dim) radians. The score of a query and a key then
    depends only on the distance between them.

    Args:
        key_dim: Width of a query and of a key in one head; even.
        max_wavelength: The base of the angles.

    Call arguments:
        positions: int tensor `[length]`, counted from 0.

    Returns:
        Cosines and sines, float32 `[length, key_dim / 2]` each: the `rotation` of attention, which
        has that `key_dim`.

    Raises:
        ValueError: If `key_dim` is odd, a number is not positive, or `positions` has another rank.

    Reference: Su et al. 2021, RoFormer (arXiv 2104.09864); the pairing of halves is that of
    Llama (arXiv 2302.13971).

    >>> cos, sin = RotaryPositions(key_dim=8)(np.arange(5))
    >>> tuple(cos.shape)
    (5, 4)
    """

    position_wise = True

    def __init__(
        self, key_dim: int, max_wavelength: float = MAX_WAVELENGTH, **kwargs: Unpack[KerasOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.key_dim = _checks.integer("key_dim", key_dim)
        self.max_wavelength = _checks.number("max_wavelength", max_wavelength, positive=True)
        if key_dim % 2:
            raise ValueError(f"Rotary positions need an even `key_dim`. Received: {key_dim}")
        self._angles = Angles(self.key_dim, self.max_wavelength)

    def call(self, positions: Tensor) -> Nested:
        angles = self._angles(positions)  # [length, key_dim / 2]
        return ops.cos(angles), ops.sin(angles)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "key_dim": self.key_dim,
            "max_wavelength": self.max_wavelength,
        }


def rotation_and_bias(relative_positions, queries, keys=None):
    """What attention takes of a layer of relative positions: `rotation` and `position_bias`.

    Args:
        relative_positions: The layer, or None.
        queries: int tensor `[query]` of positions.
        keys: int tensor `[key]`; the same as `queries` by default.
    """
    if relative_positions is None:
        return None, None
    if isinstance(relative_positions, RotaryPositions):
        return relative_positions(queries), None
    return None, relative_positions(queries, keys)


def rotation_and_bias_after(relative_positions, cache, index, length):
    """As `rotation_and_bias`, for `length` tokens after the `index` tokens of a cache."""
    if relative_positions is None:
        return None, None
    queries, keys = new_positions(index, length), key_positions(cache, length)
    return rotation_and_bias(relative_positions, queries, keys)


def rotated(x, rotation):
    """`x` `[batch, heads, length, key_dim]` rotated by what `RotaryPositions` gave, or itself."""
    if rotation is None:
        return x
    for part in rotation:
        pairs = part.shape[-1]
        if 2 * pairs != x.shape[-1]:
            raise ValueError(
                f"`rotation` must turn heads of width {x.shape[-1]}, as RotaryPositions"
                f"({x.shape[-1]}) does. Received: one for width {2 * pairs}"
            )
        _checks.broadcasts("rotation", part, (x.shape[2], pairs))
    cos, sin = (ops.cast(part, "float32") for part in rotation)
    first, second = ops.split(ops.cast(x, "float32"), 2, axis=-1)
    turned = ops.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return ops.cast(turned, x.dtype)


class PositionBias(MaskingLayer):
    """The base of biases of attention's scores by position; a subclass implements `bias`."""

    position_wise = True

    def __init__(self, num_heads: int, **kwargs: Unpack[KerasOptions]) -> None:
        super().__init__(**kwargs)
        self.num_heads = _checks.integer("num_heads", num_heads)

    def build(
        self, query_positions_shape: Shape | None = None, key_positions_shape: Shape | None = None
    ) -> None:
        pass  # without weights

    def call(self, query_positions: Tensor, key_positions: Tensor | None = None) -> Nested:
        queries = keys = as_positions("query_positions", query_positions)
        if key_positions is not None:
            keys = as_positions("key_positions", key_positions)
        return self.bias(queries[:, None] - keys[None, :])

    def bias(self, distances: Tensor) -> Tensor:
        """The bias float32 `[1, heads, query, key]` of distances (query minus key)."""
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "num_heads": self.num_heads}


@keras.saving.register_keras_serializable(package="keras_tfmr")
class RelativePositionBias(PositionBias):
    """A learned bias for each head and each bucket of distances, as in T5.

    Each short distance has its own bucket; longer ones share buckets of logarithmic size.

    Args:
        num_heads: Number of heads.
        bidirectional: Whether keys may come after the query: True for an encoder.
        num_buckets: Number of buckets, over both directions.
        max_distance: All distances from this one on share the last bucket.

    Call arguments:
        query_positions: int tensor `[query]`.
        key_positions: int tensor `[key]`; `query_positions` by default.

    Returns:
        float32 tensor `[1, heads, query, key]`: the `position_bias` of attention.

    Raises:
        ValueError: If a number is not positive, or the buckets do not fit `max_distance`.

    Reference: Raffel et al. 2020, Exploring the Limits of Transfer Learning (arXiv 1910.10683),
    section 2.1.

    >>> bias = RelativePositionBias(num_heads=2, bidirectional=False)
    >>> tuple(bias(np.arange(5)).shape)
    (1, 2, 5, 5)
    """

    def __init__(
        self, num_heads: int, *, bidirectional: bool, num_buckets: int = 32,
        max_distance: int = 128, **kwargs: Unpack[KerasOptions],
    ) -> None:  # fmt: skip
        super().__init__(num_heads, **kwargs)
        self.bidirectional = bool(bidirectional)
        self.num_buckets = _checks.integer("num_buckets", num_buckets)
        self.max_distance = _checks.integer("max_distance", max_distance)
        near = (num_buckets // 2 if bidirectional else num_buckets) // 2
        if not 0 < near < max_distance:
            raise ValueError(
                "Half of the buckets of a direction hold one distance each: there must be at least "
                "one such bucket, and `max_distance` must be greater than their number. Received: "
                f"num_buckets={num_buckets}, max_distance={max_distance}"
            )

    def build(
        self, query_positions_shape: Shape | None = None, key_positions_shape: Shape | None = None
    ) -> None:
        _checks.not_built(self, "a stack")
        self.table = self.add_weight(
            shape=(self.num_buckets, self.num_heads),
            initializer="zeros",
            name="table",
            autocast=False,  # float32 under every policy
        )

    def bias(self, distances: Tensor) -> Tensor:
        bias = ops.take(ops.cast(self.table, "float32"), self.buckets(distances), axis=0)
        return ops.transpose(bias, (2, 0, 1))[None]  # [1, heads, query, key]

    def buckets(self, distances: Tensor) -> Tensor:
        """The bucket of each distance (query minus key), int32 of any shape."""
        buckets, first = self.num_buckets, 0
        if self.bidirectional:
            buckets = buckets // 2
            first = ops.where(distances < 0, buckets, 0)
            distances = ops.abs(distances)
        distances = ops.maximum(distances, 0)
        near = buckets // 2
        growth = (buckets - near) / math.log(self.max_distance / near)
        far = ops.log(ops.cast(ops.maximum(distances, 1), "float32") / near) * growth
        far = ops.minimum(near + ops.cast(far, "int32"), buckets - 1)
        return first + ops.where(distances < near, ops.cast(distances, "int32"), far)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "bidirectional": self.bidirectional,
            "num_buckets": self.num_buckets,
            "max_distance": self.max_distance,
        }


@keras.saving.register_keras_serializable(package="keras_tfmr")
class ALiBi(PositionBias):
    """Subtracts from each score the distance between query and key times the slope of the head.

    The slopes are 2^(-8i/heads) for i = 1 … heads. If the number of heads is not a power of two,
    they are, as in the paper, the slopes for the next smaller power, then every second slope for
    twice that power.

    Args:
        num_heads: Number of heads.

    Call arguments:
        query_positions: int tensor `[query]`.
        key_positions: int tensor `[key]`; `query_positions` by default.

    Returns:
        float32 tensor `[1, heads, query, key]`: the `position_bias` of attention.

    Reference: Press, Smith and Lewis 2022, Train Short, Test Long (arXiv 2108.12409).

    >>> tuple(ALiBi(num_heads=2)(np.arange(5)).shape)
    (1, 2, 5, 5)
    """

    def __init__(self, num_heads: int, **kwargs: Unpack[KerasOptions]) -> None:
        super().__init__(num_heads, **kwargs)
        power = 2 ** int(math.log2(num_heads))
        slopes = _slopes(power) + _slopes(2 * power)[::2][: num_heads - power]
        self._slopes = np.array(slopes, "float32")[:, None, None]

    def bias(self, distances: Tensor) -> Tensor:
        return ops.multiply(-ops.cast(ops.abs(distances), "float32"), self._slopes)[None]


def _slopes(heads):
    return [2 ** (-8 * i / heads) for i in range(1, heads + 1)]
