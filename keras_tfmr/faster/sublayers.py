"""The sublayers of a Transformer, made of the weights of its layers.

What the layers do in many small operations is done once, with their weights:
- Projections of the same input are one product.
- Where norms come first, gain and offset of a norm are part of the product that follows it. The
  mean is taken out of whatever is added to the residual, so that it need not be subtracted.
- Keys and values of earlier tokens grow by concatenation: there is no mask, no index and no empty
  room in them. On JAX, whose shapes are fixed, they are written into room for all tokens.

Vectors are float32 `[rows * length, d_model]` between the sublayers, in all precisions.
"""

import math

from keras import ops

from keras_tfmr.faster import backend
from keras_tfmr.layers import LayerNormalization
from keras_tfmr.layers.feed_forward import GatedFeedForward
from keras_tfmr.layers.masking import biased_softmax, zero_rows
from keras_tfmr.layers.relative_positions import rotated
from keras_tfmr.layers.residual import PreNormResidual


def matrix(dense):
    """The kernel `[width, units]` and the bias `[units]` or None of a `Dense` layer, with LoRA."""
    bias = ops.cast(dense.bias, "float32") if dense.use_bias else None
    return ops.cast(dense.kernel, "float32"), bias


def side_by_side(*matrices):
    """Several kernels and their biases, all or none, as one kernel and bias."""
    kernels, biases = zip(*matrices, strict=True)
    bias = None if biases[0] is None else ops.concatenate(biases, axis=-1)
    return ops.concatenate(kernels, axis=-1), bias


class Norm:
    """A normalisation.

    Args:
        weights: The `Weights` to hold gain and offset.
        layer: A `LayerNormalization` or `RMSNormalization`.
        folded: Whether gain and offset are part of the products that follow.
    """

    def __init__(self, weights, layer, folded=False):
        self.layer_norm = type(layer) is LayerNormalization
        self.epsilon = layer.epsilon
        self.gain = ops.cast(layer.gamma if self.layer_norm else layer.scale, "float32")
        self.offset = ops.cast(layer.beta, "float32") if self.layer_norm else None
        if not folded:
            self.gain, self.offset = weights.hold(self.gain), weights.hold(self.offset)

    def fold(self, kernel, bias):
        """The kernel and bias of a product after this norm, of its `unit` alone."""
        if self.offset is not None:
            offset = ops.matmul(self.offset, kernel)
            bias = offset if bias is None else bias + offset
        return kernel * self.gain[:, None], bias

    def unit(self, x):
        """Vectors of mean 0, or of any mean for a `RMSNormalization`, divided by their length."""
        squares = ops.mean(ops.square(x), axis=-1, keepdims=True)
        return x * ops.rsqrt(squares + self.epsilon)

    def __call__(self, x):
        """The normalised vectors of the dtype of `x` `[..., width]`."""
        dtype, x = x.dtype, ops.cast(x, "float32")
        if self.layer_norm:
            x = centered(x)
        y = self.unit(x) * self.gain
        return ops.cast(y if self.offset is None else y + self.offset, dtype)


def centered(x):
    """`x` `[..., width]` without its mean."""
    return x - ops.mean(x, axis=-1, keepdims=True)


class Residual:
    """What is before and after a sublayer: see the layers of `residual`."""

    def __init__(self, weights, residual):
        self.norm_first = isinstance(residual, PreNormResidual)
        self.norm = Norm(weights, residual.norm, folded=self.norm_first)

    @property
    def centers(self):
        """Whether the vectors between sublayers have mean 0."""
        return self.norm_first and self.norm.layer_norm

    def reading(self, weights, place, kernel, bias, then=None):
        """The product that reads what `before` gives."""
        if self.norm_first:
            kernel, bias = self.norm.fold(kernel, bias)
        return weights.product(place, kernel, bias, then)

    def writing(self, weights, dense):
        """The product that makes what `after` adds."""
        kernel, bias = matrix(dense)
        if self.centers:
            kernel = centered(kernel)
            bias = None if bias is None else centered(bias)
        return weights.product(dense.path, kernel, bias)

    def before(self, x):
        return self.norm.unit(x) if self.norm_first else x

    def after(self, x, y):
        x = x + ops.cast(y, "float32")
        return x if self.norm_first else self.norm(x)


class Heads:
    """How vectors are cut into heads, and attention of heads.

    Each head of keys serves several heads of queries, which stand side by side.
    """

    def __init__(self, weights, attention):
        self.heads, self.kv_heads = attention.num_heads, attention.num_kv_heads
        self.dim = attention.key_dim  # values are as wide
        self.scale = 1 / math.sqrt(self.dim)
        self.query_norm = self.key_norm = None
        if attention.query_norm is not None:
            self.query_norm = Norm(weights, attention.query_norm)
            self.key_norm = Norm(weights, attention.key_norm)

    def key_matrix(self, attention):
        """The projection of keys, which divides them by √dim unless a norm follows it."""
        kernel, bias = matrix(attention.key_dense)
        if self.key_norm is not None:
            return kernel, bias
        return kernel * self.scale, None if bias is None else bias * self.scale

    def cut(self, y, shape):
        """`[rows * length, n * dim]`, shape (rows, length) → `[rows, n, length, dim]`."""
        rows, length = shape
        n = y.shape[-1] // self.dim  # heads of queries, keys and values side by side
        if isinstance(length, int) and length == 1:
            return ops.reshape(y, (-1, n, 1, self.dim))
        return ops.transpose(ops.reshape(y, (rows, length, n, self.dim)), (0, 2, 1, 3))

    def queries(self, y, rotation=None):
        return rotated(y if self.query_norm is None else self.query_norm(y), rotation)

    def keys(self, y, rotation=None):
        return rotated(y if self.key_norm is None else self.key_norm(y) * self.scale, rotation)

    def attend(self, queries, keys, values, shape, bias, attends=None):
        """`[rows * length, heads * dim]`, and the scores `[rows, heads, length, key]`.

        Args:
            bias: What `mask_bias` gives.
            attends: What `any_key` gives, if rows of neither scores nor values are zero already.
        """
        rows, length = shape
        if self.heads != self.kv_heads:  # the queries of a group are further rows of its keys
            (many, _, each, _), key = ops.shape(queries), ops.shape(keys)[2]
            group = self.heads // self.kv_heads
            queries = ops.reshape(queries, (many, self.kv_heads, each * group, self.dim))
            scores = backend.matmul_transposed(queries, keys)
            scores = biased_softmax(ops.reshape(scores, (many, self.heads, each, key)), bias)
            scores = zero_rows(scores, attends)
            weights = ops.reshape(scores, (many, self.kv_heads, each * group, key))
        else:
            scores = biased_softmax(backend.matmul_transposed(queries, keys), bias)
            weights = scores = zero_rows(scores, attends)
        y = ops.matmul(ops.cast(weights, values.dtype), values)
        if isinstance(length, int) and length == 1:
            return ops.reshape(y, (-1, self.heads * self.dim)), scores
        y = ops.transpose(ops.reshape(y, (rows, self.heads, length, self.dim)), (0, 2, 1, 3))
        return ops.reshape(y, (-1, self.heads * self.dim)), scores


class SelfAttention:
    """Self-attention with its residual, of a whole sequence or of one token after others."""

    def __init__(self, weights, sublayer):
        attention = sublayer.attention
        self.heads = Heads(weights, attention)
        self.residual = Residual(weights, sublayer.residual)
        kernel, bias = side_by_side(
            matrix(attention.query_dense),
            self.heads.key_matrix(attention),
            matrix(attention.value_dense),
        )
        self.inputs = self.residual.reading(
            weights, f"{sublayer.path}/query_key_value", kernel, bias
        )
        self.output = self.residual.writing(weights, attention.output_dense)

    def whole(self, x, shape, bias, attends, rotation):
        """All positions at once: the next `x`, their keys and values, and the scores."""
        queries, keys, values = self._projected(x, shape, rotation)
        y, scores = self.heads.attend(queries, keys, values, shape, bias, attends)
        return self.residual.after(x, self.output(y)), (keys, values), scores

    def step(self, x, cache, index, bias, rotation):
        """One token after those in the cache: the next `x` `[rows, d_model]`, and the next cache.

        Args:
            cache: Keys and values `[rows, kv_heads, tokens, dim]` each.
            index: int32 scalar, the number of earlier tokens.
            bias: What `mask_bias` gives for the token.
            rotation: Output of `RotaryPositions` for the position, or None.
        """
        queries, key, value = self._projected(x, (-1, 1), rotation)
        keys, values = (
            backend.append(old, new, index) for old, new in zip(cache, (key, value), strict=True)
        )
        y, _ = self.heads.attend(queries, keys, values, (-1, 1), bias)
        return self.residual.after(x, self.output(y)), (keys, values)

    def _projected(self, x, shape, rotation):
        heads = self.heads
        y = heads.cut(self.inputs(self.residual.before(x)), shape)
        sizes = [heads.heads, heads.kv_heads, heads.kv_heads]
        queries, keys, values = backend.split(y, sizes, axis=1)
        return heads.queries(queries, rotation), heads.keys(keys, rotation), values

    def cache(self, rows, room):
        """Keys and values of no token, with room for so many where shapes are fixed."""
        shape = (rows, self.heads.kv_heads, room, self.heads.dim)
        empty = backend.empty_cache(shape, self.inputs.dtype)
        return empty, empty


class CrossAttention:
    """Attention to a source with its residual, whose keys and values are given."""

    def __init__(self, weights, sublayer):
        attention = sublayer.attention
        self.heads = Heads(weights, attention)
        self.residual = Residual(weights, sublayer.residual)
        kernel, bias = matrix(attention.query_dense)
        self.inputs = self.residual.reading(weights, attention.query_dense.path, kernel, bias)
        self.output = self.residual.writing(weights, attention.output_dense)

    def __call__(self, x, shape, source, bias, attends=None):
        """The next `x`, and the scores."""
        heads = self.heads
        queries = heads.queries(heads.cut(self.inputs(self.residual.before(x)), shape))
        y, scores = heads.attend(queries, *source, shape, bias, attends)
        return self.residual.after(x, self.output(y)), scores


class FeedForward:
    """The feed-forward sublayer with its residual."""

    def __init__(self, weights, sublayer):
        self.residual = Residual(weights, sublayer.residual)
        kernel, bias = matrix(sublayer.hidden_dense)
        then = sublayer.activation
        if type(sublayer) is GatedFeedForward:
            kernel, bias = side_by_side(matrix(sublayer.gate_dense), (kernel, bias))
            then = gated(sublayer.activation)
        self.inputs = self.residual.reading(weights, sublayer.hidden_dense.path, kernel, bias, then)
        self.output = self.residual.writing(weights, sublayer.output_dense)

    def __call__(self, x):
        return self.residual.after(x, self.output(self.inputs(self.residual.before(x))))


def gated(activation):
    """The function of a gate and a hidden layer side by side."""

    def product(y):
        gate, hidden = ops.split(y, 2, axis=-1)
        return activation(gate) * hidden

    return product
