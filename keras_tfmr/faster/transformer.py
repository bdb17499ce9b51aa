"""A finished Transformer as a graph function of few operations: encoder, decoder and one step.

What the layers do in many small operations is done once, with their weights:
- Projections of the same input are one product; those of the source, one for all layers.
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

from keras_tfmr.faster.parts import Part, Product, Table
from keras_tfmr.layers import LayerNormalization, LearnedPositions, NoPositions, TiedLogits
from keras_tfmr.layers.feed_forward import GatedFeedForward
from keras_tfmr.layers.masking import (
    AttentionMask,
    causal_mask,
    masked_softmax,
    merge_masks,
    zero_masked_rows,
)  # fmt: skip
from keras_tfmr.layers.relative_positions import RotaryPositions, rotated
from keras_tfmr.layers.residual import PreNormResidual
from keras_tfmr.layers.ssru import recurrence


def array(weight):
    """A weight as a float64 array, in which products of weights are computed."""
    return np.asarray(ops.convert_to_numpy(ops.cast(weight, "float32")), "float64")


def matrix(dense):
    """The kernel `[width, units]` and the bias `[units]` of a `Dense` layer, with LoRA."""
    kernel = array(dense.kernel)
    return kernel, array(dense.bias) if dense.use_bias else np.zeros(kernel.shape[1])


SELF = ("query", "key", "value")  # the projections of self-attention


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
        self.key_dim, self.value_dim = attention.key_dim, attention.value_dim
        self.scale = 1 / math.sqrt(self.key_dim)
        norms = attention.query_norm, attention.key_norm
        self.query_norm, self.key_norm = (norm and Norm(norm) for norm in norms)

    def packed(self, attention, *names):
        """The kernel and bias of several projections as one: "query", "key" and "value"."""
        weights = []
        for name in names:
            scale = self.scale if name == "key" and self.key_norm is None else 1.0
            weights.append([scale * w for w in matrix(getattr(attention, f"{name}_dense"))])
        return [np.concatenate(parts, axis=-1) for parts in zip(*weights, strict=True)]

    def cut(self, y, dim, shape):
        """`[rows * length, heads * dim]`, shape (rows, length) → `[rows, heads, length, dim]`."""
        rows, length = shape
        heads = y.shape[-1] // dim
        if isinstance(length, int) and length == 1:
            return tf.reshape(y, [-1, heads, 1, dim])
        return tf.transpose(tf.reshape(y, [rows, length, heads, dim]), [0, 2, 1, 3])

    def queries(self, y, shape, rotation=None):
        y = self.cut(y, self.key_dim, shape)
        return rotated(y if self.query_norm is None else self.query_norm(y), rotation)

    def keys(self, y, shape, rotation=None):
        y = self.cut(y, self.key_dim, shape)
        return rotated(y if self.key_norm is None else self.key_norm(y) * self.scale, rotation)

    def values(self, y, shape):
        return self.cut(y, self.value_dim, shape)

    def attend(self, queries, keys, values, mask, shape):
        """`[rows * length, heads * value_dim]`, and the scores `[rows, heads, length, key]`."""
        rows, length = shape
        if self.heads != self.kv_heads:  # the queries of a group are further rows of its keys
            sizes, group, key = tf.shape(queries), self.heads // self.kv_heads, tf.shape(keys)[2]
            rows_of_keys = [sizes[0], self.kv_heads, sizes[2] * group]
            queries = tf.reshape(queries, [*rows_of_keys, self.key_dim])
            scores = tf.matmul(queries, keys, transpose_b=True)
            scores = masked_softmax(tf.reshape(scores, [sizes[0], self.heads, sizes[2], key]), mask)
            weights = tf.reshape(scores, [*rows_of_keys, key])
        else:
            weights = scores = masked_softmax(tf.matmul(queries, keys, transpose_b=True), mask)
        y = tf.matmul(tf.cast(weights, values.dtype), values)
        if isinstance(length, int) and length == 1:
            return tf.reshape(y, [-1, self.heads * self.value_dim]), scores
        y = tf.transpose(tf.reshape(y, [rows, self.heads, length, self.value_dim]), [0, 2, 1, 3])
        return tf.reshape(y, [-1, self.heads * self.value_dim]), scores


class SelfAttention(Part):
    """Self-attention with its residual, of a whole sequence or of one token after others."""

    def __init__(self, sublayer):
        attention = sublayer.attention
        self.heads, self.residual = Heads(attention), Residual(sublayer.residual)
        self.sizes = [getattr(attention, f"{name}_dense").units for name in SELF]
        self.inputs = self.residual.reading(
            f"{sublayer.path}/query_key_value",
            *self.heads.packed(attention, *SELF),
        )
        self.output = self.residual.writing(attention.output_dense)

    def __call__(self, x, shape, cache=None, mask=None, rotation=None):
        """The next `x`, the keys and values of all tokens so far, and the scores."""
        heads = self.heads
        y = self.inputs(self.residual.before(x))
        queries, keys, values = tf.split(y, self.sizes, axis=1)
        queries, keys = heads.queries(queries, shape, rotation), heads.keys(keys, shape, rotation)
        values = heads.values(values, shape)
        if cache is not None:
            keys, values = (tf.concat(pair, 2) for pair in zip(cache, (keys, values), strict=True))
        y, scores = heads.attend(queries, keys, values, mask, shape)
        return self.residual.after(x, self.output(y)), (keys, values), scores

    def cache(self, rows, dtype):
        """Keys and values of no token."""
        heads = self.heads
        return tuple(
            growing(tf.zeros([rows, heads.kv_heads, 0, dim], dtype))
            for dim in (heads.key_dim, heads.value_dim)
        )


def growing(x):
    """The tensor, but TensorFlow does not know the size of axis 2, so that a loop may change it."""
    shape = [None, x.shape[1], None, x.shape[3]]
    return tf.raw_ops.PlaceholderWithDefault(input=x, shape=shape)


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
        y, scores = heads.attend(heads.queries(y, shape), *source, mask, shape)
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


class Layer(Part):
    """One layer of an encoder or decoder."""

    def __init__(self, layer):
        ssru = getattr(layer, "ssru", None)
        self.first = SelfAttention(layer.self_attention) if ssru is None else Recurrence(ssru)
        cross = getattr(layer, "cross_attention", None)
        self.cross = None if cross is None else CrossAttention(cross)
        self.feed_forward = FeedForward(layer.feed_forward)


class Embedding(Part):
    """Token vectors and position vectors, added up."""

    def __init__(self, layer, centers, tables):
        self.norm = None if layer.norm is None else Norm(layer.norm)
        self.centers, plain = centers, layer.norm is None
        key = id(layer.tokens), layer.scaled, centers and plain
        if key not in tables:  # else it is shared by source and target
            vectors = array(layer.tokens.embeddings)
            vectors = vectors * (math.sqrt(layer.d_model) if layer.scaled else 1.0)
            tables[key] = Table(centered(vectors).numpy() if centers and plain else vectors)
        self.tokens, self.positions = tables[key], layer.positions
        if isinstance(layer.positions, LearnedPositions):
            self.positions = Table(array(layer.positions.embedding.embeddings))
        elif isinstance(layer.positions, NoPositions):
            self.positions = None

    def position_vectors(self, count):
        """float32 `[count, d_model]`, or None."""
        if self.positions is None:
            return None
        if isinstance(self.positions, Table) and isinstance(count, int):
            learned = self.positions.vectors.shape[0]
            if count > learned:
                raise ValueError(f"The model has learned {learned} positions. Received: {count}")
        vectors = tf.cast(self.positions(tf.range(count)), tf.float32)
        return centered(vectors) if self.centers and self.norm is None else vectors

    def __call__(self, ids, vectors):
        """int32 `[...]` and their position vectors → float32 `[..., d_model]`."""
        x = self.tokens(ids)
        x = x if vectors is None else x + vectors
        if self.norm is None:
            return x
        x = self.norm(x)
        return centered(x) if self.centers else x


class Stack(Part):
    """An encoder or decoder, up to its last norm, which is part of the products that follow."""

    def __init__(self, stack, tables):
        self.layers = [Layer(layer) for layer in stack.layers]
        self.embedding = Embedding(
            stack.embedding, self.layers[0].feed_forward.residual.centers, tables
        )
        self.norm = None if stack.norm is None else Norm(stack.norm, folded=True)
        self.d_model, self.relative = stack.options.d_model, None
        if (relative := stack.relative_positions) is not None:
            self.relative = type(relative).from_config(relative.get_config())
            self.relative.build((None,))
            self.relative.set_weights(relative.get_weights())

    def fold(self, kernel, bias):
        """The kernel and bias of a product of what this stack gives."""
        return (kernel, bias) if self.norm is None else self.norm.fold(kernel, bias)

    def finish(self, x):
        return x if self.norm is None else self.norm.unit(x)

    def relations(self, queries, keys):
        """The rotation and the bias of scores by positions int32 `[query]`, `[key]`, or None."""
        if self.relative is None:
            return None, None
        if isinstance(self.relative, RotaryPositions):
            return self.relative(queries), None
        return None, self.relative(queries, keys)

    def whole(self, ids, causal, mask=None, source=None, source_mask=None):
        """All positions of ids int32 `[rows, length]` at once.

        Args:
            causal: Whether a position attends to none that comes after it.
            mask: bool `[rows, length]`, which positions may be attended to; None for all.
            source, source_mask: As `Transformer.source` gives them.

        Returns:
            float32 `[rows * length, d_model]`; lists over layers of caches, of the scores of
            self-attention and of cross-attention.
        """
        _, length = shape = tf.unstack(tf.shape(ids))
        x = self.embedding(ids, self.embedding.position_vectors(length))
        x = tf.reshape(x, [-1, self.d_model])
        positions = tf.range(length)
        rotation, bias = self.relations(positions, positions)
        masks = [None if mask is None else mask[:, None, None]]
        masks += [causal_mask(length, length)[None, None]] * causal
        merged = merge_masks(masks, bias)
        caches, scores, cross_scores = [], [], []
        for i, layer in enumerate(self.layers):
            recurrent = isinstance(layer.first, Recurrence)
            of_layer = (None if mask is None else mask[:, :, None]) if recurrent else merged
            x, cache, own = layer.first(x, shape, mask=of_layer, rotation=rotation)
            caches.append(cache)
            scores += [] if recurrent else [own]
            if layer.cross is not None:
                x, own = layer.cross(x, shape, source[i], source_mask)
                cross_scores.append(own)
            x = layer.feed_forward(x)
        return self.finish(x), caches, scores, cross_scores

    def step(self, tokens, index, caches, vectors, beams=1, source=None, source_mask=None):
        """One token after those in the caches.

        Args:
            tokens: int32 `[rows]`.
            index: int32 scalar, the position.
            caches: A list over layers.
            vectors: What `position_vectors` gave.
            beams: The rows of an example of the source.

        Returns:
            float32 `[rows, d_model]`, and the caches with these tokens.
        """
        x = self.embedding(tokens, None if vectors is None else tf.gather(vectors, index))
        mask = rotation = None
        if self.relative is not None:
            rotation, bias = self.relations(index[None], tf.range(index + 1))
            mask = None if bias is None else AttentionMask(bias)
        new_caches = []
        for i, (layer, cache) in enumerate(zip(self.layers, caches, strict=True)):
            x, cache, _ = layer.first(x, (-1, 1), cache, mask, rotation)
            new_caches.append(cache)
            if layer.cross is not None:
                x, _ = layer.cross(x, (-1, beams), source[i], source_mask)
            x = layer.feed_forward(x)
        return self.finish(x), new_caches


class Source(Part):
    """The keys and values of a source for all layers of a decoder."""

    def __init__(self, encoder, decoder):
        attentions = [layer.cross_attention.attention for layer in decoder.layers]
        self.heads = [Heads(attention) for attention in attentions]
        both = list(zip(self.heads, attentions, strict=True))
        packed = [heads.packed(attention, "key", "value") for heads, attention in both]
        self.sizes = [n for _, a in both for n in (a.key_dense.units, a.value_dense.units)]
        kernel, bias = (np.concatenate(parts, -1) for parts in zip(*packed, strict=True))
        self.product = Product(f"{decoder.path}/source", *encoder.fold(kernel, bias))

    def __call__(self, x, shape, mask):
        """Keys and values of each layer, and the `AttentionMask` of the source.

        Args:
            x: float32 `[rows * source, d_model]`, what the encoder gave.
            shape: (rows, source).
            mask: bool `[rows, source]`.
        """
        sources = []
        parts = tf.split(self.product(x), self.sizes, axis=1)
        mask = merge_masks([mask[:, None, None]])
        for heads, keys, values in zip(self.heads, parts[::2], parts[1::2], strict=True):
            values = zero_masked_rows(heads.values(values, shape), mask)
            sources.append((heads.keys(keys, shape), values))
        return sources, mask


class Head(Part):
    """The logits of what a decoder gives."""

    def __init__(self, layer, stack):
        if isinstance(layer, TiedLogits):
            kernel = array(layer.embedding.tokens.embeddings).T
            bias = array(layer.bias) if layer.use_bias else np.zeros(layer.units)
            place = layer.path
        else:
            (kernel, bias), place = matrix(layer.dense), layer.dense.path
        self.product = Product(place, *stack.fold(kernel, bias), exact_bias=True)

    def __call__(self, x):
        return self.product(x)
