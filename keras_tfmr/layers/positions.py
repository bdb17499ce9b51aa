"""Token embedding plus positions: the bottom of the paper's Figure 1."""

import math

import keras
import numpy as np
from keras import ops

from keras_tfmr import _checks

MAX_WAVELENGTH = 10_000


def positional_encoding(length, depth):
    """The sinusoidal position table of the Transformer, as a NumPy array.

    PE[p, 2i] = sin(p / 10000^(2i/depth)), PE[p, 2i+1] = cos(p / 10000^(2i/depth)), computed in
    float64 and rounded once.

    Args:
        length: Number of positions.
        depth: Width of a position vector.

    Returns:
        float32 array `[length, depth]`.

    Raises:
        ValueError: If `length` or `depth` is not a positive integer.

    Reference: Vaswani et al. 2017, Attention Is All You Need (arXiv 1706.03762), section 3.5.

    >>> positional_encoding(50, 16).shape
    (50, 16)
    """
    _checks.positive_int("length", length)
    _checks.positive_int("depth", depth)
    angles = np.arange(length)[:, np.newaxis] * _rates(depth)  # [length, ceil(depth / 2)]
    table = np.stack([np.sin(angles), np.cos(angles)], axis=-1)
    return table.reshape(length, -1)[:, :depth].astype("float32")  # [length, depth]


def _rates(depth):
    """Radians per position of each sine/cosine pair, float64 `[ceil(depth / 2)]`."""
    return MAX_WAVELENGTH ** (-np.arange(0, depth, 2) / depth)


def unbuilt(config):
    """The layer that was serialised to `config`, still to be built by the layer that uses it.

    Built on its own, its weights would be named without that layer, unlike the ones saved.
    """
    return keras.saving.deserialize_keras_object({**config, "build_config": None})


@keras.saving.register_keras_serializable(package="keras_tfmr")
class SinusoidalPositions(keras.layers.Layer):
    """Position vectors of sines and cosines, for sequences of any length. No weights.

    Computed in float32 under every dtype policy, whatever the length, and only then rounded:
    positions themselves are not exact in bfloat16.

    Args:
        d_model: Width of a position vector.

    Call arguments:
        positions: int tensor `[length]`, counted from 0.

    Returns:
        float32 tensor `[length, d_model]`.

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.5.

    >>> SinusoidalPositions(16)(np.arange(5)).shape
    TensorShape([5, 16])
    """

    def __init__(self, d_model, **kwargs):
        super().__init__(**kwargs)
        self.d_model = _checks.positive_int("d_model", d_model)
        # Angles in whole turns, split so that position * coarse is exact in float32: the turns
        # that are dropped before sine and cosine then cost no precision at far positions.
        turns = _rates(d_model) / (2 * math.pi)
        mantissa, exponent = np.frexp(turns)
        coarse = np.ldexp(np.round(mantissa * 2**11) / 2**11, exponent)
        self._coarse = coarse.astype("float32")
        self._fine = (turns - coarse).astype("float32")

    def build(self, input_shape=None):
        self.built = True

    def call(self, positions):
        positions = ops.cast(positions, "float32")[:, None]
        turns = ops.multiply(positions, self._coarse)
        turns = (turns - ops.floor(turns)) + ops.multiply(positions, self._fine)
        angles = turns * (2 * math.pi)  # [length, ceil(d_model / 2)]
        table = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)
        table = ops.reshape(table, (-1, 2 * self._coarse.size))
        return table[:, : self.d_model]  # [length, d_model]

    def compute_output_shape(self, positions_shape):
        return (positions_shape[0], self.d_model)

    def get_config(self):
        return {**super().get_config(), "d_model": self.d_model}


@keras.saving.register_keras_serializable(package="keras_tfmr")
class LearnedPositions(keras.layers.Layer):
    """Position vectors that are learned, for sequences up to `max_length`.

    Args:
        max_length: Number of positions that have a vector.
        d_model: Width of a position vector.

    Call arguments:
        positions: int tensor `[length]`, counted from 0, each below `max_length`.

    Returns:
        Tensor `[length, d_model]` in the compute dtype.

    Raises:
        ValueError: If more than `max_length` positions are asked for.

    Reference: Gehring et al. 2017, Convolutional Sequence to Sequence Learning
    (arXiv 1705.03122), section 3.1.

    >>> LearnedPositions(max_length=10, d_model=16)(np.arange(5)).shape
    TensorShape([5, 16])
    """

    def __init__(self, max_length, d_model, **kwargs):
        super().__init__(**kwargs)
        self.max_length = _checks.positive_int("max_length", max_length)
        self.d_model = _checks.positive_int("d_model", d_model)
        self.embedding = keras.layers.Embedding(
            max_length, d_model, "random_normal", dtype=self.dtype_policy, name="embedding"
        )

    def build(self, input_shape=None):
        self.embedding.build()
        self.built = True

    def call(self, positions):
        self._check_length(_checks.static_length(positions, axis=0))
        return self.embedding(positions)

    def compute_output_shape(self, positions_shape):
        self._check_length(positions_shape[0])
        return (positions_shape[0], self.d_model)

    def _check_length(self, length):
        if length is not None and length > self.max_length:
            raise ValueError(
                f"Learned positions end at max_length={self.max_length}. "
                f"Received: a sequence of length {length}"
            )

    def get_config(self):
        return {
            **super().get_config(),
            "max_length": self.max_length,
            "d_model": self.d_model,
        }


@keras.saving.register_keras_serializable(package="keras_tfmr")
class PositionalEmbedding(keras.layers.Layer):
    """Token embedding times √d_model, plus positions.

    Padding is id 0: it makes the Keras mask (True = a real token) that the layers after this
    one read.

    Args:
        vocab_size: Number of token ids.
        d_model: Width of a vector.
        positions: The layer that makes position vectors, e.g. `LearnedPositions(512, d_model)`.
            Sinusoids by default.

    Call arguments:
        token_ids: int tensor `[batch, length]`.

    Returns:
        Tensor `[batch, length, d_model]` in the compute dtype, with the mask `token_ids != 0`.

    Raises:
        ValueError: If `token_ids` has another rank, or is longer than learned positions go.
        TypeError: If `token_ids` are not integers.

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), sections 3.4 and 3.5.

    >>> embedding = PositionalEmbedding(vocab_size=100, d_model=16)
    >>> embedding(np.array([[5, 7, 0]])).shape
    TensorShape([1, 3, 16])
    """

    def __init__(self, vocab_size, d_model, positions=None, **kwargs):
        super().__init__(**kwargs)
        self.vocab_size = _checks.positive_int("vocab_size", vocab_size)
        self.d_model = _checks.positive_int("d_model", d_model)
        self.positions = positions or SinusoidalPositions(
            d_model, dtype=self.dtype_policy, name="positions"
        )
        # Of the reversible kind, so that the same table can give the logits (see TiedLogits);
        # this deviation makes both its rows times √d_model and those logits of unit variance.
        self.tokens = keras.layers.ReversibleEmbedding(
            vocab_size,
            d_model,
            embeddings_initializer=keras.initializers.RandomNormal(stddev=d_model**-0.5),
            dtype=self.dtype_policy,
            name="tokens",
        )
        # Keras warns of a mask that ends in the logits, where it has done its work.
        self.tokens.supports_masking = True
        self.supports_masking = True

    def build(self, input_shape=None):
        self.tokens.build()
        self.positions.build((None,))
        self.built = True

    def call(self, token_ids):
        _checks.sequence_of_ids("token_ids", token_ids)
        return self.at(token_ids, self.positions(ops.arange(ops.shape(token_ids)[1])))

    def at(self, token_ids, positions):
        """Embeds `token_ids` `[batch, length]` at position vectors `[length, d_model]`."""
        x = self.tokens(token_ids)  # [batch, length, d_model]
        scale = ops.cast(math.sqrt(self.d_model), x.dtype)
        return x * scale + ops.cast(positions, x.dtype)

    def compute_mask(self, token_ids, previous_mask=None):
        return ops.not_equal(token_ids, 0)

    def compute_output_spec(self, token_ids):
        _checks.sequence_of_ids("token_ids", token_ids)
        self.positions.compute_output_shape((token_ids.shape[1],))  # may be too long for it
        return keras.KerasTensor((*token_ids.shape, self.d_model), dtype=self.compute_dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "vocab_size": self.vocab_size,
            "d_model": self.d_model,
            "positions": keras.saving.serialize_keras_object(self.positions),
        }

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "positions": unbuilt(config["positions"])})
