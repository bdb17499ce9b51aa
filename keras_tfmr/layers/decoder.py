"""The decoder: the right half of the paper's Figure 1, with a context and without."""

from typing import Any, Unpack

import keras
from keras import ops

from keras_tfmr.compat import keras_mask
from keras_tfmr.config import Nested, Shape, Tensor
from keras_tfmr.layers.attention_sublayers import CausalSelfAttention, CrossAttention
from keras_tfmr.layers.block import Block, SelfAttentionLayer, SelfAttentionStack, Stack
from keras_tfmr.layers.cache import Cache
from keras_tfmr.layers.options import BlockOptions
from keras_tfmr.layers.relative_positions import rotation_and_bias_after


@keras.saving.register_keras_serializable(package="keras_tfmr")
class CausalDecoderLayer(SelfAttentionLayer):
    """Causal self-attention, then the feed-forward sublayer: a decoder layer with no context.

    Args:
        d_model: Width of input and output.
        num_heads: Number of heads.
        dff: Width of the feed-forward hidden layer.
        dropout_rate: Fraction dropped in training, in all sublayers.
        attention_dropout_rate: Fraction of the attention weights; `dropout_rate` by default.
        key_dim: Width of a head; `d_model // num_heads` by default.
        num_kv_heads: Number of heads of keys and values; `num_heads` by default.
        norm_first: Normalise the sublayers' inputs (pre-norm) instead of the sums (post-norm).
        activation: The activation of the feed-forward sublayer, as for `FeedForward`.
        gated: Whether the feed-forward sublayer is a `GatedFeedForward`.
        use_bias: Whether projections add a bias.
        qk_norm: A normalisation layer, copied for the queries and for the keys of each head.
        norm: A normalisation layer, copied; `LayerNormalization()` by default.
        **kwargs: Options of the weights of all projections, such as `kernel_initializer`, as
            `keras.layers.Dense` takes them; those of `keras.layers.Layer`.

    Call arguments:
        x: Tensor `[batch, length, d_model]`.
        mask: Mask `[batch, length]`, True = valid; by default the Keras mask of `x`. No position
            attends to one that is not valid, nor to a later one.
        attention_mask: Mask `[query, key]`, `[batch, query, key]` or `[batch, heads, query, key]`,
            True = may attend; beside the causal one.
        position_bias: float32, broadcasts to `[batch, heads, query, key]`, added to the scores.
        rotation: Output of `RotaryPositions` for the positions.
        return_attention_scores: Whether to return the scores too.
        training: Whether dropout is active.

    Returns:
        Tensor `[batch, length, d_model]`; with scores, a pair of it and
        `[batch, heads, length, length]`.

    Reference: Liu et al. 2018, Generating Wikipedia by Summarizing Long Sequences
    (arXiv 1801.10198), section 4.2.3.

    >>> layer = CausalDecoderLayer(d_model=16, num_heads=2, dff=64)
    >>> layer(np.ones((3, 5, 16), "float32")).shape
    TensorShape([3, 5, 16])
    """

    causal = True
    attention_scores = ("decoder",)  # what `return_attention_scores` adds to the output

    def empty_cache(self, rows: Any, room: Any = None) -> Cache:
        """The cache before the first `step`, that of the self-attention."""
        return self.self_attention.empty_cache(rows, room)

    def step(
        self, x: Tensor, cache: Cache, index: Tensor, *, position_bias: Tensor | None = None,
        rotation: Nested | None = None,
    ) -> tuple[Tensor, Cache]:  # fmt: skip
        """The output of `call` for further tokens: see `CausalSelfAttention.step`."""
        x, cache = self.self_attention.step(
            x, cache, index, position_bias=position_bias, rotation=rotation
        )
        return self.feed_forward(x, training=False), cache


@keras.saving.register_keras_serializable(package="keras_tfmr")
class DecoderLayer(Block):
    """Causal self-attention, attention to the context, then the feed-forward sublayer.

    Args:
        d_model: Width of input and output.
        num_heads: Number of heads.
        dff: Width of the feed-forward hidden layer.
        dropout_rate: Fraction dropped in training, in all sublayers.
        attention_dropout_rate: Fraction of the attention weights; `dropout_rate` by default.
        key_dim: Width of a head; `d_model // num_heads` by default.
        num_kv_heads: Number of heads of keys and values; `num_heads` by default.
        norm_first: Normalise the sublayers' inputs (pre-norm) instead of the sums (post-norm).
        activation: The activation of the feed-forward sublayer, as for `FeedForward`.
        gated: Whether the feed-forward sublayer is a `GatedFeedForward`.
        use_bias: Whether projections add a bias.
        qk_norm: A normalisation layer, copied for the queries and for the keys of each head.
        norm: A normalisation layer, copied; `LayerNormalization()` by default.
        **kwargs: Options of the weights of all projections, such as `kernel_initializer`, as
            `keras.layers.Dense` takes them; those of `keras.layers.Layer`.

    Call arguments:
        x: Tensor `[batch, target, d_model]`.
        context: Tensor `[batch, source, width]`, the encoder's output.
        mask: Mask `[batch, target]`, True = valid; by default the Keras mask of `x`. No position
            attends to one that is not valid, nor to a later one.
        context_mask: Mask `[batch, source]`, True = valid; by default the Keras mask of `context`.
            No position attends to one that is not valid.
        attention_mask: Mask `[query, key]`, `[batch, query, key]` or `[batch, heads, query, key]`,
            True = may attend, for the self-attention.
        position_bias: float32, broadcasts to `[batch, heads, query, key]`, added to the scores of
            the self-attention.
        rotation: Output of `RotaryPositions` for the positions.
        return_attention_scores: Whether to return the scores too.
        training: Whether dropout is active.

    Returns:
        Tensor `[batch, target, d_model]`; with scores, also those of the self-attention
        `[batch, heads, target, target]` and of the cross-attention
        `[batch, heads, target, source]`.

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.1.

    >>> layer = DecoderLayer(d_model=16, num_heads=2, dff=64)
    >>> x, context = np.ones((3, 5, 16), "float32"), np.ones((3, 7, 16), "float32")
    >>> layer(x, context).shape
    TensorShape([3, 5, 16])
    """

    attention_scores = ("decoder", "cross")  # what `return_attention_scores` adds to the output

    def __init__(
        self, d_model: int, num_heads: int, dff: int, **options: Unpack[BlockOptions]
    ) -> None:
        super().__init__(d_model, num_heads, dff, **options)
        of_attention = self.attention_options()
        self.self_attention = CausalSelfAttention(name="self_attention", **of_attention)
        self.cross_attention = CrossAttention(name="cross_attention", **of_attention)
        self.feed_forward = self.make_feed_forward()

    def build(self, x_shape: Shape, context_shape: Shape) -> None:
        self.self_attention.build(x_shape)
        self.cross_attention.build(x_shape, context_shape)
        self.feed_forward.build(x_shape)

    def call(
        self, x: Tensor, context: Tensor, mask: Tensor | None = None,
        context_mask: Tensor | None = None, *, attention_mask: Tensor | None = None,
        position_bias: Tensor | None = None, rotation: Nested | None = None,
        return_attention_scores: bool = False, training: bool | None = None,
    ) -> Nested:  # fmt: skip
        x = self.self_attention(
            x, mask=mask, attention_mask=attention_mask, position_bias=position_bias,
            rotation=rotation, return_attention_scores=return_attention_scores, training=training,
        )  # fmt: skip
        if return_attention_scores:
            x, self_scores = x
        x = self.cross_attention(
            x, context, context_mask=context_mask,
            return_attention_scores=return_attention_scores, training=training,
        )  # fmt: skip
        if return_attention_scores:
            x, cross_scores = x
        x = self.feed_forward(x, training=training)  # [batch, target, d_model]
        return (x, self_scores, cross_scores) if return_attention_scores else x

    def read_context(self, context: Tensor, context_mask: Tensor | None = None) -> Nested:
        """Keys and values of a context: see `CrossAttention.read_context`."""
        return self.cross_attention.read_context(context, context_mask)

    def empty_cache(self, rows: Any, room: Any = None) -> Cache:
        """The cache before the first `step`, that of the self-attention."""
        return self.self_attention.empty_cache(rows, room)

    def step(
        self, x: Tensor, cache: Cache, index: Tensor, context: Nested, num_beams: int = 1, *,
        position_bias: Tensor | None = None, rotation: Nested | None = None,
    ) -> tuple[Tensor, Cache]:  # fmt: skip
        """The output of `call` for further tokens: see the steps of both attention sublayers."""
        x, cache = self.self_attention.step(
            x, cache, index, position_bias=position_bias, rotation=rotation
        )
        x, _ = self.cross_attention.step(x, (), index, context, num_beams)
        return self.feed_forward(x, training=False), cache


@keras.saving.register_keras_serializable(package="keras_tfmr")
class CausalDecoder(SelfAttentionStack):
    """Dropout, then a stack of causal layers: a vector depends on no later token.

    It is the stack of a language model.

    Args:
        num_layers: Number of layers.
        d_model: Width of input and output.
        num_heads: Number of heads.
        dff: Width of the feed-forward hidden layers.
        relative_positions: A layer such as `RotaryPositions`, shared by all layers of the stack.
        dropout_rate: Fraction dropped in training, in all sublayers.
        attention_dropout_rate: Fraction of the attention weights; `dropout_rate` by default.
        key_dim: Width of a head; `d_model // num_heads` by default.
        num_kv_heads: Number of heads of keys and values; `num_heads` by default.
        norm_first: Normalise the sublayers' inputs (pre-norm) instead of the sums (post-norm).
        activation: The activation of the feed-forward sublayer, as for `FeedForward`.
        gated: Whether the feed-forward sublayer is a `GatedFeedForward`.
        use_bias: Whether projections add a bias.
        qk_norm: A normalisation layer, copied for the queries and for the keys of each head.
        norm: A normalisation layer, copied; `LayerNormalization()` by default.
        **kwargs: Options of the weights of all projections, such as `kernel_initializer`, as
            `keras.layers.Dense` takes them; those of `keras.layers.Layer`.

    Call arguments:
        x: Tensor `[batch, length, d_model]`, such as the output of a `PositionalEmbedding`.
        mask: Mask `[batch, length]`, True = valid; by default the Keras mask of `x`.
        attention_mask: Mask `[query, key]`, `[batch, query, key]` or `[batch, heads, query, key]`,
            True = may attend; beside the causal one.
        return_attention_scores: Whether to return the scores too.
        training: Whether dropout is active.

    Returns:
        Tensor `[batch, length, d_model]` with the mask of `x`; with scores, a pair of it and a list
        over layers of `[batch, heads, length, length]`.

    Reference: Liu et al. 2018 (arXiv 1801.10198), section 4.2.3.

    >>> from keras_tfmr.layers import PositionalEmbedding
    >>> stack = CausalDecoder(num_layers=2, d_model=16, num_heads=2, dff=64)
    >>> stack(PositionalEmbedding(vocab_size=100, d_model=16)(np.array([[5, 7, 0]]))).shape
    TensorShape([1, 3, 16])
    """

    layer_class = CausalDecoderLayer
    attention_scores = ("decoder",)  # what `return_attention_scores` adds to the output

    def empty_cache(self, rows: Any, room: Any = None) -> list[Cache]:
        """The caches of the layers before the first `step`."""
        return [layer.empty_cache(rows, room) for layer in self.layers]

    def step(self, x: Tensor, cache: list[Cache], index: Tensor) -> tuple[Tensor, list[Cache]]:
        """The output of `call` for further tokens: see `CausalSelfAttention.step`."""
        rotation, position_bias = rotation_and_bias_after(
            self.relative_positions, cache[0], index, ops.shape(x)[1]
        )
        caches = []
        for layer, earlier in zip(self.layers, cache, strict=True):
            x, now = layer.step(x, earlier, index, position_bias=position_bias, rotation=rotation)
            caches.append(now)
        return x if self.norm is None else self.norm(x), caches  # [rows, length, d_model]


@keras.saving.register_keras_serializable(package="keras_tfmr")
class Decoder(Stack):
    """Dropout, then a stack of decoder layers, over embedded tokens and a context.

    Args:
        num_layers: Number of layers.
        d_model: Width of input and output.
        num_heads: Number of heads.
        dff: Width of the feed-forward hidden layers.
        relative_positions: A layer such as `RotaryPositions`, shared by all layers, for the
            self-attention.
        dropout_rate: Fraction dropped in training, in all sublayers.
        attention_dropout_rate: Fraction of the attention weights; `dropout_rate` by default.
        key_dim: Width of a head; `d_model // num_heads` by default.
        num_kv_heads: Number of heads of keys and values; `num_heads` by default.
        norm_first: Normalise the sublayers' inputs (pre-norm) instead of the sums (post-norm).
        activation: The activation of the feed-forward sublayer, as for `FeedForward`.
        gated: Whether the feed-forward sublayer is a `GatedFeedForward`.
        use_bias: Whether projections add a bias.
        qk_norm: A normalisation layer, copied for the queries and for the keys of each head.
        norm: A normalisation layer, copied; `LayerNormalization()` by default.
        **kwargs: Options of the weights of all projections, such as `kernel_initializer`, as
            `keras.layers.Dense` takes them; those of `keras.layers.Layer`.

    Call arguments:
        x: Tensor `[batch, target, d_model]`, the output of a `PositionalEmbedding`.
        context: Tensor `[batch, source, width]`, the encoder's output.
        mask: Mask `[batch, target]`, True = valid; by default the Keras mask of `x`.
        context_mask: Mask `[batch, source]`, True = valid; by default the Keras mask of `context`.
        attention_mask: Mask `[query, key]`, `[batch, query, key]` or `[batch, heads, query, key]`,
            True = may attend, for the self-attention.
        return_attention_scores: Whether to return the scores too.
        training: Whether dropout is active.

    Returns:
        Tensor `[batch, target, d_model]` with the mask of `x`; with scores, also two lists over
        layers: self-attention `[batch, heads, target, target]` and cross-attention
        `[batch, heads, target, source]`.

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.1.

    >>> from keras_tfmr.layers import PositionalEmbedding
    >>> x = PositionalEmbedding(vocab_size=100, d_model=16)(np.array([[5, 7, 0]]))
    >>> decoder = Decoder(num_layers=2, d_model=16, num_heads=2, dff=64)
    >>> decoder(x, np.ones((1, 4, 16), "float32")).shape
    TensorShape([1, 3, 16])
    """

    layer_class = DecoderLayer
    attention_scores = ("decoder", "cross")  # what `return_attention_scores` adds to the output

    def build(self, x_shape: Shape, context_shape: Shape) -> None:
        super().build(x_shape, context_shape)

    def call(
        self, x: Tensor, context: Tensor, mask: Tensor | None = None,
        context_mask: Tensor | None = None, *, attention_mask: Tensor | None = None,
        return_attention_scores: bool = False, training: bool | None = None,
    ) -> Nested:  # fmt: skip
        mask = keras_mask(x) if mask is None else mask
        (rotation, position_bias), self_scores, cross_scores = self.relations(x), [], []
        x = self.dropout(x, training=training)
        for layer in self.layers:
            x = layer(
                x, context, mask=mask, context_mask=context_mask,
                attention_mask=attention_mask, position_bias=position_bias, rotation=rotation,
                return_attention_scores=return_attention_scores, training=training,
            )  # fmt: skip
            if return_attention_scores:
                x, of_self, of_cross = x
                self_scores.append(of_self)
                cross_scores.append(of_cross)
        x = x if self.norm is None else self.norm(x)  # [batch, target, d_model]
        return (x, self_scores, cross_scores) if return_attention_scores else x

    def read_context(self, context: Tensor, context_mask: Tensor | None = None) -> list[Nested]:
        """Keys and values of a context for the `step` of each layer."""
        return [layer.read_context(context, context_mask) for layer in self.layers]

    def empty_cache(self, rows: Any, room: Any = None) -> list[Cache]:
        """The caches of the layers before the first `step`."""
        return [layer.empty_cache(rows, room) for layer in self.layers]

    def step(
        self, x: Tensor, cache: list[Cache], index: Tensor, context: list[Nested],
        num_beams: int = 1,
    ) -> tuple[Tensor, list[Cache]]:  # fmt: skip
        """The output of `call` for further tokens: see the steps of the attention sublayers."""
        rotation, position_bias = rotation_and_bias_after(
            self.relative_positions, cache[0], index, ops.shape(x)[1]
        )
        caches = []
        for layer, earlier, read in zip(self.layers, cache, context, strict=True):
            x, now = layer.step(
                x, earlier, index, read, num_beams, position_bias=position_bias, rotation=rotation
            )
            caches.append(now)
        return x if self.norm is None else self.norm(x), caches  # [rows, length, d_model]
