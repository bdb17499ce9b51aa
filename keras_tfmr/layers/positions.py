"""Position vectors: sinusoidal, learned, or none."""

import math
from typing import Any, Unpack

import keras
import numpy as np
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.config import Nested, Shape, Tensor
from keras_tfmr.layers.base import MaskingLayer
from keras_tfmr.layers.options import KerasOptions

MAX_WAVELENGTH = 10_000


def positional_encoding(
    length: int, depth: int, max_wavelength: float = MAX_WAVELENGTH
) -> np.ndarray:
    """The sinusoidal position table of the Transformer, as a NumPy array.

    PE[p, 2i] = sin(p / 10000^(2i/depth)), PE[p, 2i+1] = cos(p / 10000^(2i/depth)), computed in
    float64 and rounded once.

    Args:
        length: Number of positions.
        depth: Width of a position vector.
        max_wavelength: The 10000 of the formula; the longest wavelength is below 2π times this.

    Returns:
        float32 array `[length, depth]`.

    Raises:
        ValueError: If `length` or `depth` is not a positive integer.

    Reference: Vaswani et al. 2017, Attention Is All You Need (arXiv 1706.03762), section 3.5.

    >>> positional_encoding(50, 16).shape
    (50, 16)
    """
    _checks.integer("length", length)
    _checks.integer("depth", depth)
    _checks.number("max_wavelength", max_wavelength, positive=True)
    rates = _rates(depth, max_wavelength)  # [ceil(depth / 2)]
    angles = np.arange(length)[:, np.newaxis] * rates  # [length, ceil(depth / 2)]
    table = np.stack([np.sin(angles), np.cos(angles)], axis=-1)
    return table.reshape(length, -1)[:, :depth].astype("float32")  # [length, depth]


def as_positions(name, positions):
    """Positions `[length]` as int32, or a ValueError."""
    return _checks.tensor(name, positions, "int32", 0, _checks.LARGEST, length=None)


def _rates(depth, max_wavelength):
    """Radians per position of each sine/cosine pair, float64 `[ceil(depth / 2)]`."""
    return float(max_wavelength) ** (-np.arange(0, depth, 2) / depth)


class Angles:
    """The angle of each pair at each position, to 1e-6 radians however far the position is.

    Args:
        depth: Width of the vectors, two for each pair.
        max_wavelength: As for `positional_encoding`.
    """

    def __init__(self, depth: int, max_wavelength: float) -> None:
        turns = _rates(depth, max_wavelength) / (2 * math.pi)  # per position
        turns = turns - np.round(turns)
        # As integers, 2^32 to a turn: products that overflow lose whole turns, and nothing else.
        whole = np.round(turns * 2.0**32)
        self.whole = whole.astype("int32")
        self.rest = (turns - whole / 2.0**32).astype("float32")

    def __call__(self, positions: Tensor) -> Tensor:
        """int `[length]` → radians between about -π and π, float32 `[length, ceil(depth / 2)]`."""
        positions = as_positions("positions", positions)[:, None]
        turns = ops.cast(ops.multiply(positions, self.whole), "float32") * 2.0**-32
        turns = turns + ops.multiply(ops.cast(positions, "float32"), self.rest)
        return turns * (2 * math.pi)


@keras.saving.register_keras_serializable(package="keras_tfmr")
class SinusoidalPositions(MaskingLayer):
    """Position vectors of sines and cosines, for sequences of any length; it has no weights.

    They are computed in float32 under every dtype policy, because positions are not exact in
    bfloat16.

    Args:
        d_model: Width of a position vector.
        max_wavelength: The 10000 of the paper's formula.

    Call arguments:
        positions: int tensor `[length]`, counted from 0.

    Returns:
        float32 tensor `[length, d_model]`.

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.5.

    >>> SinusoidalPositions(16)(np.arange(5)).shape
    TensorShape([5, 16])
    """

    position_wise = True

    def __init__(
        self, d_model: int, max_wavelength: float = MAX_WAVELENGTH, **kwargs: Unpack[KerasOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.d_model = _checks.integer("d_model", d_model)
        self.max_wavelength = _checks.number("max_wavelength", max_wavelength, positive=True)
        self._angles = Angles(self.d_model, self.max_wavelength)

    def call(self, positions: Tensor) -> Nested:
        angles = self._angles(positions)  # [length, ceil(d_model / 2)]
        table = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)
        table = ops.reshape(table, (-1, 2 * angles.shape[-1]))
        return table[:, : self.d_model]  # [length, d_model]

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "max_wavelength": self.max_wavelength,
        }


@keras.saving.register_keras_serializable(package="keras_tfmr")
class LearnedPositions(MaskingLayer):
    """Learned position vectors, for sequences of up to `max_length`.

    Args:
        max_length: Number of positions that have a vector.
        d_model: Width of a position vector.

    Call arguments:
        positions: int tensor `[length]`, counted from 0, each below `max_length`.

    Returns:
        Tensor `[length, d_model]` in the compute dtype. Of a position out of its range, whatever
        cannot raise an error, such as XLA, makes NaN.

    Raises:
        ValueError: If there are more than `max_length` positions, or one is out of its range.

    Reference: Gehring et al. 2017, Convolutional Sequence to Sequence Learning
    (arXiv 1705.03122), section 3.1.

    >>> LearnedPositions(max_length=10, d_model=16)(np.arange(5)).shape
    TensorShape([5, 16])
    """

    position_wise = True

    def __init__(self, max_length: int, d_model: int, **kwargs: Unpack[KerasOptions]) -> None:
        super().__init__(**kwargs)
        self.max_length = _checks.integer("max_length", max_length)
        self.d_model = _checks.integer("d_model", d_model)
        self.embedding = keras.layers.Embedding(
            max_length, d_model, "random_normal", name="embedding", **self.part_options()
        )

    def build(self, positions_shape: Shape | None = None) -> None:
        _checks.not_built(self, "an embedding")
        self.embedding.build()

    def call(self, positions: Tensor) -> Nested:
        positions = as_positions("positions", positions)
        # While Keras traces an unknown length on torch, it is 83, on the device "meta".
        if not getattr(positions, "is_meta", False):
            self.check_length(positions.shape[0])
        _checks.in_range("positions", positions, 0, self.max_length - 1)
        vectors = self.embedding(positions)
        # XLA would take the last position for all that come after it, and for -1.
        known = ops.equal(positions, ops.clip(positions, 0, self.max_length - 1))
        return ops.where(known[:, None], vectors, float("nan"))

    def check_length(self, length: Any) -> None:
        """Raises a ValueError if fewer positions are learned, where the length is known."""
        # While JAX traces an unknown length, it is a symbol that cannot be compared.
        if isinstance(length, int) and length > self.max_length:
            raise ValueError(
                f"Learned positions end at max_length={self.max_length}. "
                f"Received: a sequence of length {length}"
            )

    def compute_output_spec(self, positions: Tensor) -> Any:
        self.check_length(positions.shape[0])
        return keras.KerasTensor((positions.shape[0], self.d_model), self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "max_length": self.max_length, "d_model": self.d_model}


@keras.saving.register_keras_serializable(package="keras_tfmr")
class NoPositions(MaskingLayer):
    """Position vectors of zero, for models whose attention uses positions; it has no weights.

    Call arguments:
        positions: int tensor `[length]`.

    Returns:
        float32 zeros `[length, 1]`, which broadcast to any width.

    >>> NoPositions()(np.arange(5)).shape
    TensorShape([5, 1])
    """

    position_wise = True

    def call(self, positions: Tensor) -> Nested:
        return ops.zeros((ops.shape(as_positions("positions", positions))[0], 1), "float32")
