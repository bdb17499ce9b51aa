"""Encoders and decoders of models, made of few operations: whole sequences, and one step."""

import math

from keras import ops

from keras_tfmr import compat
from keras_tfmr.faster import backend
from keras_tfmr.faster.sublayers import (
    CrossAttention,
    FeedForward,
    Heads,
    Norm,
    SelfAttention,
    centered,
    matrix,
    side_by_side,
)
from keras_tfmr.layers import NoPositions, PositionalEmbedding
from keras_tfmr.layers.masking import any_key, causal_mask, mask_bias, merge_masks, zero_rows
from keras_tfmr.layers.relative_positions import RotaryPositions


class Layer:
    """One layer of an encoder or decoder."""

    def __init__(self, weights, layer, cross):
        self.self_attention = SelfAttention(weights, layer.self_attention)
        self.cross_attention = CrossAttention(weights, layer.cross_attention) if cross else None
        self.feed_forward = FeedForward(weights, layer.feed_forward)


class Embedding:
    """Token vectors and position vectors, added up.

    Args:
        weights: The `Weights` to hold the table.
        layer: A `PositionalEmbedding`.
        centers: Whether the sum shall have mean 0.
    """

    def __init__(self, weights, layer, centers):
        self.vocab_size = layer.vocab_size
        self.norm = None if layer.norm is None else Norm(weights, layer.norm)
        self.centers, plain = centers, layer.norm is None
        key = id(layer), centers and plain
        if key not in weights.tables:
            vectors = ops.cast(layer.tokens.embeddings, "float32")
            vectors = vectors * math.sqrt(layer.d_model) if layer.scaled else vectors
            vectors = centered(vectors) if centers and plain else vectors
            weights.tables[key] = weights.table(vectors)
        self.tokens, self.positions = weights.tables[key], None
        if not isinstance(layer.positions, NoPositions):
            self.positions = weights.positions(layer.positions)

    def position_vectors(self, count):
        """float32 `[count, d_model]`, or None."""
        if self.positions is None:
            return None
        vectors = ops.cast(self.positions(ops.arange(count, dtype="int32")), "float32")
        return centered(vectors) if self.centers and self.norm is None else vectors

    def __call__(self, ids, vectors):
        """int32 `[...]` and their position vectors → float32 `[..., d_model]`."""
        x = self.tokens(ids)
        x = x if vectors is None else x + vectors
        if self.norm is None:
            return x
        x = self.norm(x)
        return centered(x) if self.centers else x


class Stack:
    """An encoder or decoder with its embedding.

    Args:
        weights: The `Weights` to make it with.
        stack: An `Encoder`, `Decoder` or `CausalDecoder`.
        embedding: The `PositionalEmbedding` before it.
        cross: Whether its layers attend to a source.
        folded: Whether the last norm is part of the products that follow, by `fold`.
    """

    def __init__(self, weights, stack, embedding, *, cross, folded):
        self.layers = [Layer(weights, layer, cross) for layer in stack.layers]
        centers = self.layers[0].feed_forward.residual.centers
        self.embedding = Embedding(weights, embedding, centers)
        self.norm = None if stack.norm is None else Norm(weights, stack.norm, folded=folded)
        self.d_model, self.folded = stack.d_model, folded
        self.relative = None
        if stack.relative_positions is not None:
            self.relative = weights.positions(stack.relative_positions)

    @property
    def last_norm(self):
        """The norm that nothing but what follows the stack follows."""
        return self.norm or self.layers[-1].feed_forward.residual.norm

    def fold(self, kernel, bias):
        """The kernel and bias of a product of what this stack gives."""
        return self.norm.fold(kernel, bias) if self.norm and self.folded else (kernel, bias)

    def last(self, x):
        """What the stack gives, of what its last layer gives."""
        if self.norm is None:
            return x
        return self.norm.unit(x) if self.folded else self.norm(x)

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
            ids: int32 tensor `[rows, length]`.
            causal: Whether a position attends to none that comes after it.
            mask: bool `[rows, length]`, which positions may be attended to; None for all.
            source: What `Source` gave.
            source_mask: bool `[rows, source]`, or None.

        Returns:
            float32 `[rows * length, d_model]`; lists over layers of keys and values, of the scores
            of self-attention and of cross-attention.
        """
        _, length = shape = ops.shape(ids)
        x = self.embedding(ids, self.embedding.position_vectors(length))
        x = ops.reshape(x, (-1, self.d_model))
        positions = ops.arange(length, dtype="int32")
        rotation, bias = self.relations(positions, positions)
        mask = None if mask is None else mask[:, None, None]
        earlier = causal_mask(length, length)[None, None] if causal else None
        may_attend = merge_masks([mask, earlier])
        bias, attends = mask_bias(may_attend, bias), any_key(may_attend)
        source_mask = None if source_mask is None else source_mask[:, None, None]
        source_bias, source_attends = mask_bias(source_mask), any_key(source_mask)
        caches, scores, cross_scores = [], [], []
        for i, layer in enumerate(self.layers):
            x, cache, own = layer.self_attention.whole(x, shape, bias, attends, rotation)
            caches.append(cache)
            scores.append(own)
            if layer.cross_attention is not None:
                x, own = layer.cross_attention(x, shape, source[i], source_bias, source_attends)
                cross_scores.append(own)
            x = layer.feed_forward(x)
        return self.last(x), caches, scores, cross_scores

    def step(self, tokens, index, caches, vectors, room, beams=1, source=None, source_bias=None):
        """One token after those in the caches.

        Args:
            tokens: int32 `[rows]`.
            index: int32 scalar, the position.
            caches: A list over layers.
            vectors: What `position_vectors` gave.
            room: The number of tokens that a cache has room for where shapes are fixed.
            beams: The rows of an example of the source.
            source: What `Source` gave.
            source_bias: What `mask_bias` gives for the source.

        Returns:
            float32 `[rows, d_model]`, and the caches with these tokens.
        """
        x = self.embedding(tokens, None if vectors is None else compat.take(vectors, index))
        rotation = bias = None
        if self.relative is not None or backend.fixed_shapes():
            keys = ops.arange(room if backend.fixed_shapes() else index + 1, dtype="int32")
            rotation, bias = self.relations(ops.reshape(index, (1,)), keys)
        if backend.fixed_shapes():  # the room behind the token is empty
            bias = mask_bias((keys <= index)[None, None, None], bias)
        new_caches = []
        for i, (layer, cache) in enumerate(zip(self.layers, caches, strict=True)):
            x, cache = layer.self_attention.step(x, cache, index, bias, rotation)
            new_caches.append(cache)
            if layer.cross_attention is not None:
                x, _ = layer.cross_attention(x, (-1, beams), source[i], source_bias)
            x = layer.feed_forward(x)
        return self.last(x), new_caches


class Source:
    """The keys and values of a source for all layers of a decoder, in one product.

    Args:
        weights: The `Weights` to hold the product.
        decoder: A `Decoder`.
        encoder: The `Stack` that makes the context, with its last norm folded; None if the context
            is what the model's own layers give.
    """

    def __init__(self, weights, decoder, encoder=None):
        attentions = [layer.cross_attention.attention for layer in decoder.layers]
        self.heads = [Heads(weights, attention) for attention in attentions]
        matrices = []
        for heads, attention in zip(self.heads, attentions, strict=True):
            matrices += [heads.key_matrix(attention), matrix(attention.value_dense)]
        kernel, bias = side_by_side(*matrices)
        if encoder is not None:
            kernel, bias = encoder.fold(kernel, bias)
        self.product = weights.product(f"{decoder.path}/source", kernel, bias)

    def __call__(self, x, shape, mask):
        """Keys and values of each layer; values are 0 where there is no source.

        Args:
            x: Tensor `[rows * source, width]`, the context.
            shape: (rows, source).
            mask: bool `[rows, source]`, or None.
        """
        sources = []
        parts = ops.split(self.heads[0].cut(self.product(x), shape), 2 * len(self.heads), axis=1)
        attends = None if mask is None else any_key(mask[:, None, None])
        for heads, keys, values in zip(self.heads, parts[::2], parts[1::2], strict=True):
            sources.append((heads.keys(keys), zero_rows(values, attends)))
        return sources


LEAST_OVERFLOW = 64.0  # of a logit whose exp() could overflow in a sum over a vocabulary


class Head:
    """The logits of what a decoder gives, by an `LMHead` or a `PositionalEmbedding` in reverse.

    Attributes:
        bounded: Whether no input of the decoder leads to a logit whose exp() overflows, so that
            their sum needs no maximum. A norm gives no vector longer than √width. It is known only
            of variables, which do not follow a model in training.
    """

    def __init__(self, weights, layer, stack):
        if isinstance(layer, PositionalEmbedding):
            kernel = ops.transpose(ops.cast(layer.tokens.embeddings, "float32"))
            bias, place = None, layer.path
            if layer.logits_bias:
                bias = ops.cast(layer.bias, "float32")
        else:
            (kernel, bias), place = matrix(layer.dense), layer.dense.path
        self.product = weights.product(place, *stack.fold(kernel, bias), float32_sum=True)
        self.bounded = False
        if weights.as_variables:
            greatest = greatest_logit(*stack.last_norm.fold(kernel, bias))
            self.bounded = float(greatest) < LEAST_OVERFLOW

    def __call__(self, x):
        """float32 `[rows, vocab]` of `x` `[rows, d_model]`."""
        return self.product(x)

    def normalised(self, x):
        """Logits float32 `[rows, vocab]`; the logarithm of the sum of their exp() `[rows, 1]`."""
        logits = self.product(x)
        if not self.bounded:
            return logits, ops.logsumexp(logits, axis=-1, keepdims=True)
        return logits, ops.log(ops.sum(ops.exp(logits), axis=-1, keepdims=True))


def greatest_logit(kernel, bias):
    """The greatest logit of a vector of length √width: a float32 scalar."""
    lengths = ops.sqrt(ops.sum(ops.square(kernel), axis=0))  # [vocab]
    greatest = math.sqrt(kernel.shape[0]) * lengths
    return ops.max(greatest if bias is None else greatest + ops.abs(bias))


class OwnHead:
    """The logits of what a decoder gives, by layers of the model's own, called as they are.

    Args:
        model: A `keras.Model` from `[rows, length, d_model]` to logits `[rows, length, vocab]`.
    """

    def __init__(self, model):
        self.model = model

    def __call__(self, x):
        return ops.cast(self.model(x[:, None])[:, 0], "float32")

    def normalised(self, x):
        logits = self(x)
        return logits, ops.logsumexp(logits, axis=-1, keepdims=True)
