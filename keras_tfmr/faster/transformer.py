"""A finished Transformer as a graph function of few operations: encoder, decoder and one step."""

import math

import numpy as np
import tensorflow as tf

from keras_tfmr.faster.parts import Part, Product, Table
from keras_tfmr.faster.sublayers import (
    CrossAttention,
    FeedForward,
    Heads,
    Norm,
    Recurrence,
    SelfAttention,
    array,
    centered,
    matrix,
)
from keras_tfmr.layers import NoPositions, TiedLogits
from keras_tfmr.layers.masking import AttentionMask, causal_mask, merge_masks, zero_masked_rows
from keras_tfmr.layers.relative_positions import RotaryPositions


def copied(layer):
    """A layer of positions with weights of its own."""
    copy = type(layer).from_config(layer.get_config())
    copy.build((None,))
    copy.set_weights(layer.get_weights())
    return copy


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
        self.tokens, self.positions = tables[key], None
        if not isinstance(layer.positions, NoPositions):
            self.positions = copied(layer.positions)

    def position_vectors(self, count):
        """float32 `[count, d_model]`, or None."""
        if self.positions is None:
            return None
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
        if stack.relative_positions is not None:
            self.relative = copied(stack.relative_positions)

    @property
    def last_norm(self):
        """The norm that nothing but products follows."""
        return self.norm or self.layers[-1].feed_forward.residual.norm

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
        parts = tf.split(self.heads[0].cut(self.product(x), shape), 2 * len(self.heads), axis=1)
        mask = merge_masks([mask[:, None, None]])
        for heads, keys, values in zip(self.heads, parts[::2], parts[1::2], strict=True):
            sources.append((heads.keys(keys), zero_masked_rows(values, mask)))
        return sources, mask


LEAST_OVERFLOW = 64.0  # of a logit whose exp() could overflow in a sum over a vocabulary


class Head(Part):
    """The logits of what a decoder gives.

    Attributes:
        bounded: Whether no input of the decoder leads to a logit whose exp() overflows, so that
            their sum needs no maximum. A norm gives no vector longer than √width.
    """

    def __init__(self, layer, stack):
        if isinstance(layer, TiedLogits):
            kernel = array(layer.embedding.tokens.embeddings).T
            bias = array(layer.bias) if layer.use_bias else np.zeros(layer.units)
            place = layer.path
        else:
            (kernel, bias), place = matrix(layer.dense), layer.dense.path
        self.product = Product(place, *stack.fold(kernel, bias), exact_bias=True)
        kernel, bias = stack.last_norm.fold(kernel, bias)
        greatest = np.abs(bias) + math.sqrt(len(kernel)) * np.linalg.norm(kernel, axis=0)
        self.bounded = bool(greatest.max() < LEAST_OVERFLOW)

    def __call__(self, x):
        return self.product(x)

    def normalised(self, x):
        """Logits float32 `[rows, vocab]`; the logarithm of the sum of their exp() `[rows, 1]`."""
        logits = self.product(x)
        if not self.bounded:
            return logits, tf.reduce_logsumexp(logits, axis=-1, keepdims=True)
        return logits, tf.math.log(tf.reduce_sum(tf.exp(logits), axis=-1, keepdims=True))
