"""The sublayers of a finished Transformer, made of the weights of its layers.

What the layers do in many small operations is done once, with their weights:
- Projections of the same input are one product.
- Where norms come first, gain and offset of a norm are part of the product that follows it. The
  mean is taken out of whatever is added to the residual, so that it need not be subtracted.
- Keys and values of earlier tokens grow by concatenation: there is no mask, no index and no empty
  room in them.

Vectors are float32 `[rows * length, d_model]` between the sublayers, in all precisions.
"""

import math

import numpy as np
import tensorflow as tf
from keras import ops

from keras_tfmr.faster.parts import Part, Product
from keras_tfmr.layers import LayerNormalization
from keras_tfmr.layers.feed_forward import GatedFeedForward
from keras_tfmr.layers.masking import masked_softmax
from keras_tfmr.layers.relative_positions import rotated
from keras_tfmr.layers.residual import PreNormResidual
from keras_tfmr.layers.ssru import recurrence


def array(weight):
    """A weight as a float64 array, in which products of weights are computed."""
    return np.asarray(ops.convert_to_numpy(ops.cast(weight, "float32")), "float64")


def matrix(dense):
    """The kernel `[width, units]` and the bias `[units]` of a `Dense` layer, with LoRA."""
    kernel = array(dense.kernel)
    return kernel, array(dense.bias) if dense.use_bias else np.zeros(kernel.shape[1])


class Norm(Part):
    """A normalisation.

    Args:
        layer: A `LayerNormalization` or `RMSNormalization`.
        folded: Whether gain and offset are part of the products that follow.
    """

    def __init__(self, layer, folded=False):
        self.epsilon, self.centers = layer.epsilon, type(layer) is LayerNormalization
        gain = array(layer.gamma if self.centers else layer.scale)
        offset = array(layer.beta) if self.centers else np.zeros_like(gain)
        self._following = gain, offset
        if not folded:
            self.gain = gain.astype("float32")
            self.offset = offset.astype("float32") if self.centers else None

    def fold(self, kernel, bias):
        """The kernel and bias of a product after this norm, of its `unit` alone."""
        gain, offset = self._following
        return kernel * gain[:, None], bias + offset @ kernel

    def unit(self, x):
        """Vectors of mean 0, or of any mean for a `RMSNormalization`, divided by their length."""
        squares = tf.reduce_mean(tf.square(x), axis=-1, keepdims=True)
        return x * tf.math.rsqrt(squares + self.epsilon)

    def __call__(self, x):
        """The normalised vectors of the dtype of `x` `[..., width]`."""
        dtype, x = x.dtype, tf.cast(x, tf.float32)
        if self.centers:
            x = centered(x)
        y = self.unit(x) * self.gain
        return tf.cast(y if self.offset is None else y + self.offset, dtype)


def centered(x):
    return x - tf.reduce_mean(x, axis=-1, keepdims=True)


class Residual(Part):
    """What is before and after a sublayer: see the layers of `residual`."""

    def __init__(self, residual):
        self.first = isinstance(residual, PreNormResidual)
        self.norm = Norm(residual.norm, folded=self.first)

    @property
    def centers(self):
        """Whether the vectors between sublayers have mean 0."""
        return self.first and self.norm.centers

    def reading(self, place, kernel, bias, then=None):
        """The product that reads what `before` gives."""
        if self.first:
            kernel, bias = self.norm.fold(kernel, bias)
        return Product(place, kernel, bias, then)

    def writing(self, dense):
        """The product that makes what `after` adds."""
        kernel, bias = matrix(dense)
        if self.centers:
            kernel, bias = kernel - kernel.mean(axis=1, keepdims=True), bias - bias.mean()
        return Product(dense.path, kernel, bias)

    def before(self, x):
        return self.norm.unit(x) if self.first else x

    def after(self, x, y):
        x = x + tf.cast(y, tf.float32)
        return x if self.first else self.norm(x)


class Heads(Part):
    """How vectors are cut into heads, and attention of heads.

    Each head of keys serves several heads of queries, which stand side by side.
    """

    def __init__(self, attention):
        self.heads, self.kv_heads = attention.num_heads, attention.num_kv_heads
        self.dim = attention.key_dim  # and value_dim
        self.scale = 1 / math.sqrt(self.dim)
        norms = attention.query_norm, attention.key_norm
        self.query_norm, self.key_norm = (norm and Norm(norm) for norm in norms)

    def packed(self, attention, *names):
        """The kernel and bias of several projections as one: "query", "key" and "value"."""
        weights = []
        for name in names:
            scale = self.scale if name == "key" and self.key_norm is None else 1.0
            weights.append([scale * w for w in matrix(getattr(attention, f"{name}_dense"))])
        return [np.concatenate(parts, axis=-1) for parts in zip(*weights, strict=True)]

    def cut(self, y, shape):
        """`[rows * length, n * dim]`, shape (rows, length) → `[rows, n, length, dim]`."""
        rows, length = shape
        n = y.shape[-1] // self.dim  # heads of queries, keys and values side by side
        if isinstance(length, int) and length == 1:
            return tf.reshape(y, [-1, n, 1, self.dim])
        return tf.transpose(tf.reshape(y, [rows, length, n, self.dim]), [0, 2, 1, 3])

    def queries(self, y, rotation=None):
        return rotated(y if self.query_norm is None else self.query_norm(y), rotation)

    def keys(self, y, rotation=None):
        return rotated(y if self.key_norm is None else self.key_norm(y) * self.scale, rotation)

    def attend(self, queries, keys, values, mask, shape):
        """`[rows * length, heads * dim]`, and the scores `[rows, heads, length, key]`."""
        rows, length = shape
        if self.heads != self.kv_heads:  # the queries of a group are further rows of its keys
            sizes, group, key = tf.shape(queries), self.heads // self.kv_heads, tf.shape(keys)[2]
            rows_of_keys = [sizes[0], self.kv_heads, sizes[2] * group]
            queries = tf.reshape(queries, [*rows_of_keys, self.dim])
            scores = tf.matmul(queries, keys, transpose_b=True)
            scores = masked_softmax(tf.reshape(scores, [sizes[0], self.heads, sizes[2], key]), mask)
            weights = tf.reshape(scores, [*rows_of_keys, key])
        else:
            weights = scores = masked_softmax(tf.matmul(queries, keys, transpose_b=True), mask)
        y = tf.matmul(tf.cast(weights, values.dtype), values)
        if isinstance(length, int) and length == 1:
            return tf.reshape(y, [-1, self.heads * self.dim]), scores
        y = tf.transpose(tf.reshape(y, [rows, self.heads, length, self.dim]), [0, 2, 1, 3])
        return tf.reshape(y, [-1, self.heads * self.dim]), scores


class SelfAttention(Part):
    """Self-attention with its residual, of a whole sequence or of one token after others."""

    def __init__(self, sublayer):
        attention = sublayer.attention
        self.heads, self.residual = Heads(attention), Residual(sublayer.residual)
        packed = self.heads.packed(attention, "query", "key", "value")
        self.inputs = self.residual.reading(f"{sublayer.path}/query_key_value", *packed)
        self.output = self.residual.writing(attention.output_dense)

    def __call__(self, x, shape, cache=None, mask=None, rotation=None):
        """The next `x`, the keys and values of all tokens so far, and the scores."""
        heads = self.heads
        y = heads.cut(self.inputs(self.residual.before(x)), shape)
        queries, keys, values = tf.split(y, [heads.heads, heads.kv_heads, heads.kv_heads], axis=1)
        queries, keys = heads.queries(queries, rotation), heads.keys(keys, rotation)
        if cache is not None:
            keys, values = (tf.concat(pair, 2) for pair in zip(cache, (keys, values), strict=True))
        y, scores = heads.attend(queries, keys, values, mask, shape)
        return self.residual.after(x, self.output(y)), (keys, values), scores

    def cache(self, rows, dtype):
        """Keys and values of no token."""
        heads, dim = self.heads.kv_heads, self.heads.dim
        none = tf.zeros([rows, heads, 0, dim], dtype)
        # TensorFlow does not know the size of axis 2, so that a loop may change it.
        none = tf.raw_ops.PlaceholderWithDefault(input=none, shape=[None, heads, None, dim])
        return none, none


class Recurrence(Part):
    """An `SSRU` with its residual."""

    def __init__(self, ssru):
        self.residual, self.width = Residual(ssru.residual), ssru.d_model
        (kernel, bias), (other, none) = matrix(ssru.forget_dense), matrix(ssru.candidate_dense)
        self.inputs = self.residual.reading(
            f"{ssru.path}/forget_candidate", np.concatenate([kernel, other], 1),
            np.concatenate([bias, none]),
        )  # fmt: skip

    def __call__(self, x, shape, cache=None, mask=None, rotation=None):
        """The next `x`, the state after the last token, and no scores."""
        y = tf.cast(self.inputs(self.residual.before(x)), tf.float32)
        forget, new = tf.split(y, 2, axis=-1)  # [rows * length, d_model]
        forget = tf.sigmoid(forget)
        new = (1 - forget) * new
        rows, length = shape
        if cache is not None:
            states = forget * cache[0] + new
            cache = (states,)
        else:
            forget, new = (tf.reshape(y, [rows, length, self.width]) for y in (forget, new))
            if mask is not None:
                forget, new = tf.where(mask, forget, 1), tf.where(mask, new, 0)
            states = recurrence(forget, new, tf.zeros([rows, self.width]))
            states = tf.reshape(states, [-1, self.width])
        y = tf.nn.relu(states)
        return self.residual.after(x, centered(y) if self.residual.centers else y), cache, None

    def cache(self, rows, dtype):
        return (tf.zeros([rows, self.width]),)


class CrossAttention(Part):
    """Attention to a source with its residual, whose keys and values are given."""

    def __init__(self, sublayer):
        attention = sublayer.attention
        self.heads, self.residual = Heads(attention), Residual(sublayer.residual)
        packed = self.heads.packed(attention, "query")
        self.inputs = self.residual.reading(attention.query_dense.path, *packed)
        self.output = self.residual.writing(attention.output_dense)

    def __call__(self, x, shape, source, mask):
        heads = self.heads
        y = self.inputs(self.residual.before(x))
        y, scores = heads.attend(heads.queries(heads.cut(y, shape)), *source, mask, shape)
        return self.residual.after(x, self.output(y)), scores


class FeedForward(Part):
    """The feed-forward sublayer with its residual."""

    def __init__(self, sublayer):
        self.residual = Residual(sublayer.residual)
        kernel, bias = matrix(sublayer.hidden_dense)
        then = sublayer.activation
        if type(sublayer) is GatedFeedForward:
            gate, gate_bias = matrix(sublayer.gate_dense)
            kernel, bias = np.concatenate([gate, kernel], 1), np.concatenate([gate_bias, bias])
            then = gated(sublayer.activation)
        self.inputs = self.residual.reading(sublayer.hidden_dense.path, kernel, bias, then)
        self.output = self.residual.writing(sublayer.output_dense)

    def __call__(self, x):
        return self.residual.after(x, self.output(self.inputs(self.residual.before(x))))


def gated(activation):
    def product(y):
        gate, hidden = tf.split(y, 2, axis=-1)
        return activation(gate) * hidden

    return product
