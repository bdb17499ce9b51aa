"""The sublayers of a Transformer, made of the weights of its layers.

What the layers do in many small operations is done once, with their weights:
- Projections of the same input are one product.
- Where norms come first, gain and offset of a norm are part of the product that follows it.
- In a stack that ends in a norm, the mean is taken out of whatever is added to the residual, so
  that no norm needs to subtract it.

Vectors are float32 `[rows * length, d_model]` between the sublayers, in all precisions, or
`[tokens, d_model]` where padding is left out. `shape` is a `Shape`.
"""

import math
from typing import NamedTuple

import tensorflow as tf
from keras import ops

from keras_tfmr.compat import take
from keras_tfmr.finished.products import Norm, Part, centered, matrix, side_by_side
from keras_tfmr.layers.cache import empty_cache, extended
from keras_tfmr.layers.dot_product import grouped_matmul
from keras_tfmr.layers.feed_forward import GatedFeedForward
from keras_tfmr.layers.masking import biased_softmax, zero_rows
from keras_tfmr.layers.relative_positions import rotated
from keras_tfmr.layers.residual import PreNormResidual


class Shape(NamedTuple):
    """The positions that vectors are of.

    Fields:
        rows, length: The number of sequences, and of positions of each.
        tokens: int32 `[tokens]`, the places in `[rows * length]` that are no padding, ascending;
            None for all. Products then leave padding out.
        places: int32 `[rows * length]`, the place of each position among the tokens, from 1 on; 0
            for padding; None for all.
    """

    rows: int | tf.Tensor
    length: int | tf.Tensor
    tokens: tf.Tensor | None = None
    places: tf.Tensor | None = None

    @classmethod
    def of_tokens(cls, rows, length, mask):
        """The shape of the positions at which a mask bool `[rows, length]`, or None, is True."""
        if mask is None:
            return cls(rows, length)
        mask = tf.reshape(ops.cast(mask, "int32"), [-1])
        tokens = tf.cast(tf.where(mask)[:, 0], tf.int32)
        return cls(rows, length, tokens, mask * tf.cumsum(mask))

    def packed(self, x):
        """`[rows * length, width]` → `[tokens, width]`."""
        return x if self.tokens is None else take(x, self.tokens)

    def padded(self, x):
        """`[tokens, width]` → `[rows * length, width]`, zero where there is padding."""
        if self.places is None:
            return x
        # A gather is faster than a scatter.
        return take(tf.pad(x, [[1, 0], [0, 0]]), self.places)


class FinishedResidual(Part):
    """The residual around a sublayer: see `keras_tfmr.layers.residual`.

    Args:
        residual: A `PreNormResidual` or `PostNormResidual`.
        centers: Whether the vectors between sublayers have mean 0.
    """

    def __init__(self, residual, centers):
        super().__init__()
        self.norm_first = isinstance(residual, PreNormResidual)
        self.norm = Norm(residual.norm, folded=self.norm_first)
        self.centers = centers

    def reading(self, kind, place, kernel, bias, then=None):
        """The product that reads the output of `before`."""
        if self.norm_first:
            kernel, bias = self.norm.fold(kernel, bias)
        return kind.product(place, kernel, bias, then)

    def writing(self, kind, dense):
        """The product whose output `after` adds."""
        kernel, bias = matrix(dense)
        if self.centers:
            kernel = centered(kernel)
            bias = None if bias is None else centered(bias)
        return kind.product(dense.path, kernel, bias)

    def before(self, x):
        if not self.norm_first:
            return x
        return self.norm.unit(centered(x) if self.norm.layer_norm and not self.centers else x)

    def after(self, x, y):
        x = x + ops.cast(y, "float32")
        return x if self.norm_first else self.norm(x)


class Heads(Part):
    """Splits vectors into heads, and computes the attention of heads.

    Each head of keys serves several heads of queries, which stand side by side.
    """

    def __init__(self, attention):
        super().__init__()
        self.heads, self.kv_heads = attention.num_heads, attention.num_kv_heads
        self.dim = attention.key_dim  # values are as wide
        self.scale = 1 / math.sqrt(self.dim)
        self.query_norm = self.key_norm = None
        if attention.query_norm is not None:
            self.query_norm, self.key_norm = Norm(attention.query_norm), Norm(attention.key_norm)

    def key_matrix(self, attention):
        """The projection of keys, which divides them by √dim unless a norm follows it."""
        kernel, bias = matrix(attention.key_dense)
        if self.key_norm is not None:
            return kernel, bias
        return kernel * self.scale, None if bias is None else bias * self.scale

    def cut(self, y, shape):
        """`[tokens, n * dim]` → `[rows, n, length, dim]`."""
        rows, length = shape.rows, shape.length
        y = shape.padded(y)
        n = y.shape[-1] // self.dim  # heads of queries, keys and values side by side
        if isinstance(length, int) and length == 1:
            return ops.reshape(y, (-1, n, 1, self.dim))
        return ops.transpose(ops.reshape(y, (rows, length, n, self.dim)), (0, 2, 1, 3))

    def queries(self, y, rotation=None):
        return rotated(y if self.query_norm is None else self.query_norm(y), rotation)

    def keys(self, y, rotation=None):
        return rotated(y if self.key_norm is None else self.key_norm(y) * self.scale, rotation)

    def attend(self, queries, keys, values, shape, bias, attends=None):
        """`[tokens, heads * dim]`, and the scores `[rows, heads, length, key]`.

        Args:
            bias: The output of `mask_bias`.
            attends: The output of `any_key`, if rows of neither scores nor values are zero already.
        """
        rows, length = shape.rows, shape.length
        if self.heads == self.kv_heads:
            scores = tf.matmul(queries, keys, transpose_b=True)  # an operation less
        else:
            scores = grouped_matmul(queries, ops.transpose(keys, (0, 1, 3, 2)))
        scores = zero_rows(biased_softmax(scores, bias), attends)
        y = grouped_matmul(ops.cast(scores, values.dtype), values)
        if not isinstance(length, int) or length > 1:
            y = ops.reshape(y, (rows, self.heads, length, self.dim))
            y = ops.transpose(y, (0, 2, 1, 3))
        return shape.packed(ops.reshape(y, (-1, self.heads * self.dim))), scores


class FinishedSelfAttention(Part):
    """Self-attention with its residual, of a whole sequence or of tokens after others."""

    def __init__(self, kind, sublayer, centers=False):
        super().__init__()
        attention = sublayer.attention
        self.heads, self.cache_dtype = Heads(attention), kind.dtype
        self.residual = FinishedResidual(sublayer.residual, centers)
        kernel, bias = side_by_side(
            matrix(attention.query_dense),
            self.heads.key_matrix(attention),
            matrix(attention.value_dense),
        )
        place = f"{sublayer.path}/query_key_value"
        self.inputs = self.residual.reading(kind, place, kernel, bias)
        self.output_product = self.residual.writing(kind, attention.output_dense)

    def whole(self, x, shape, bias, attends, rotation):
        """All positions at once: the next `x`, and the scores."""
        queries, keys, values = self._projected(x, shape, rotation)
        y, scores = self.heads.attend(queries, keys, values, shape, bias, attends)
        return self.residual.after(x, self.output_product(y)), scores

    def after(self, x, shape, cache, bias, rotation):
        """Tokens after those in a cache: the next `x`, and the next cache."""
        queries, keys, values = self._projected(x, shape, rotation)
        cache = extended(cache, keys, values)
        y, _ = self.heads.attend(queries, cache["keys"], cache["values"], shape, bias)
        return self.residual.after(x, self.output_product(y)), cache

    def _projected(self, x, shape, rotation):
        heads = self.heads
        y = heads.cut(self.inputs(self.residual.before(x)), shape)
        sizes = [heads.heads, heads.kv_heads, heads.kv_heads]
        # `ops.split` takes places, of which TensorFlow makes these sizes in seven operations.
        queries, keys, values = tf.split(y, sizes, axis=1)
        return heads.queries(queries, rotation), heads.keys(keys, rotation), values

    def empty_cache(self, rows, room):
        """As `CausalSelfAttention.empty_cache`."""
        heads = self.heads
        return empty_cache(rows, heads.kv_heads, heads.dim, heads.dim, room, self.cache_dtype)


class FinishedCrossAttention(Part):
    """Attention to a context with its residual, whose keys and values are given."""

    def __init__(self, kind, sublayer, centers=False):
        super().__init__()
        attention = sublayer.attention
        self.heads = Heads(attention)
        self.residual = FinishedResidual(sublayer.residual, centers)
        kernel, bias = matrix(attention.query_dense)
        self.inputs = self.residual.reading(kind, attention.query_dense.path, kernel, bias)
        self.output_product = self.residual.writing(kind, attention.output_dense)

    def attend(self, x, shape, context, bias):
        """The next `x`, and the scores.

        Args:
            shape: The `Shape` of the examples' queries.
            context: Keys and values.
            bias: The output of `mask_bias`.
        """
        heads = self.heads
        queries = heads.queries(heads.cut(self.inputs(self.residual.before(x)), shape))
        y, scores = heads.attend(queries, *context, shape, bias)
        return self.residual.after(x, self.output_product(y)), scores


class FinishedFeedForward(Part):
    """The feed-forward sublayer with its residual."""

    def __init__(self, kind, sublayer, centers=False):
        super().__init__()
        self.residual = FinishedResidual(sublayer.residual, centers)
        kernel, bias = matrix(sublayer.hidden_dense)
        then = sublayer.activation
        if type(sublayer) is GatedFeedForward:
            kernel, bias = side_by_side(matrix(sublayer.gate_dense), (kernel, bias))
            then = gated(sublayer.activation)
        place = sublayer.hidden_dense.path
        self.inputs = self.residual.reading(kind, place, kernel, bias, then)
        self.output_product = self.residual.writing(kind, sublayer.output_dense)

    def of_rows(self, x):
        """The next `x`."""
        y = self.output_product(self.inputs(self.residual.before(x)))
        return self.residual.after(x, y)


def gated(activation):
    """The function of a gate and a hidden layer side by side."""

    def product(y):
        gate, hidden = ops.split(y, 2, axis=-1)
        return activation(gate) * hidden

    return product
