"""Token embedding plus positions: the bottom of the paper's Figure 1; and the same for vectors."""

import math

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.layers._parts import described, unbuilt
from keras_tfmr.layers.normalization import norm_like
from keras_tfmr.layers.positions import SinusoidalPositions


class Embedding(keras.layers.Layer):
    """What the two embeddings share: position vectors and a normalisation that may follow."""

    def __init__(self, d_model, positions=None, norm=None, **kwargs):
        super().__init__(**kwargs)
        self.d_model = _checks.positive_int("d_model", d_model)
        self.positions = positions or SinusoidalPositions(
            d_model, dtype=self.dtype_policy, name="positions"
        )
        self.norm = None if norm is None else norm_like(norm, self.dtype_policy)
        self.supports_masking = True

    def build(self, input_shape=None):
        self.positions.build((None,))
        if self.norm is not None:
            self.norm.build((None, None, self.d_model))
        self.built = True

    def place(self, x, positions):
        """`x` `[..., d_model]` at position vectors that broadcast to it, normalised."""
        x = x + ops.cast(positions, x.dtype)
        return x if self.norm is None else self.norm(x)

    def get_config(self):
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "positions": keras.saving.serialize_keras_object(self.positions),
            "norm": described(self.norm),
        }

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "positions": unbuilt(config["positions"])})


@keras.saving.register_keras_serializable(package="keras_tfmr")
class PositionalEmbedding(Embedding):
    """Token embedding times √d_model, plus positions.

    Padding is id 0: it makes the Keras mask (True = a real token) that the layers after this
    one read.

    Args:
        vocab_size: Number of token ids.
        d_model: Width of a vector.
        positions: The layer that makes position vectors, e.g. `LearnedPositions(512, d_model)` or
            `NoPositions()`. Sinusoids by default.
        norm: A normalisation layer to copy, which then follows the sum.
        scaled: Whether the token embedding is multiplied by √d_model.

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

    def __init__(self, vocab_size, d_model, positions=None, norm=None, scaled=True, **kwargs):
        super().__init__(d_model, positions, norm, **kwargs)
        self.vocab_size = _checks.positive_int("vocab_size", vocab_size)
        self.scaled = bool(scaled)
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

    def build(self, input_shape=None):
        self.tokens.build()
        super().build()

    def call(self, token_ids):
        _checks.sequence_of_ids("token_ids", token_ids)
        return self.at(token_ids, self.positions(ops.arange(ops.shape(token_ids)[1])))

    def at(self, token_ids, positions):
        """Embeds ids of any shape at position vectors `[..., d_model]` that broadcast to them."""
        x = self.tokens(token_ids)  # [..., d_model]
        if self.scaled:
            x = x * ops.cast(math.sqrt(self.d_model), x.dtype)
        return self.place(x, positions)

    def compute_mask(self, token_ids, previous_mask=None):
        return ops.not_equal(token_ids, 0)

    def compute_output_spec(self, token_ids):
        _checks.sequence_of_ids("token_ids", token_ids)
        self.positions.compute_output_shape((token_ids.shape[1],))  # may be too long for it
        return keras.KerasTensor((*token_ids.shape, self.d_model), dtype=self.compute_dtype)

    def get_config(self):
        return {**super().get_config(), "vocab_size": self.vocab_size, "scaled": self.scaled}


@keras.saving.register_keras_serializable(package="keras_tfmr")
class VectorEmbedding(Embedding):
    """Vectors plus positions, for a stack whose input is no text: patches of pixels, frames.

    Args:
        d_model: Width of a vector.
        positions: As for `PositionalEmbedding`.
        norm: A normalisation layer to copy, which then follows the sum.

    Call arguments:
        x: Tensor `[batch, length, d_model]`; its mask is passed on.

    Returns:
        Tensor `[batch, length, d_model]`.

    Raises:
        ValueError: If `x` has another rank or width.

    Reference: Dosovitskiy et al. 2021, An Image is Worth 16x16 Words (arXiv 2010.11929).

    >>> from keras_tfmr.layers import Encoder
    >>> frames = np.ones((2, 5, 16), "float32")
    >>> encoder = Encoder(num_layers=1, d_model=16, num_heads=2, dff=32,
    ...     embedding=VectorEmbedding(16))
    >>> encoder(frames).shape
    TensorShape([2, 5, 16])
    """

    def call(self, x):
        self._check(x)
        return self.at(x, self.positions(ops.arange(ops.shape(x)[1])))

    def at(self, x, positions):
        """Vectors of any shape `[..., d_model]` at position vectors that broadcast to them."""
        return self.place(ops.cast(x, self.compute_dtype), positions)

    def compute_mask(self, x, previous_mask=None):
        return previous_mask

    def compute_output_spec(self, x):
        self._check(x)
        self.positions.compute_output_shape((x.shape[1],))
        return keras.KerasTensor(x.shape, dtype=self.compute_dtype)

    def _check(self, x):
        _checks.sequence_of_vectors("x", x.shape)
        if x.shape[-1] != self.d_model:
            raise ValueError(
                f"`x` must have width d_model={self.d_model}. Received: shape {tuple(x.shape)}"
            )
