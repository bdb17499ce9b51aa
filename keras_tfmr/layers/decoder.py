"""The decoder, the right half of the paper's Figure 1, with a context and without.

All of them take whole sequences, or with caches only the new tokens of a step of decoding.
"""

from typing import Any

import keras

from keras_tfmr import _checks
from keras_tfmr.config import Nested, Shape, Tensor
from keras_tfmr.layers.attention_sublayers import CausalSelfAttention, CrossAttention, check_context
from keras_tfmr.layers.block import Block, Stack
from keras_tfmr.layers.context import AttentionContext, SublayerOutput


@keras.saving.register_keras_serializable(package="keras_tfmr")
class CausalDecoderLayer(Block):
    """Causal self-attention, then the feed-forward sublayer: a decoder layer with no context.

    The arguments are those of `EncoderLayer`; it is called like a `CausalSelfAttention`, with the
    same returns.

    Reference: Liu et al. 2018, Generating Wikipedia by Summarizing Long Sequences
    (arXiv 1801.10198), section 4.2.3.

    >>> layer = CausalDecoderLayer(d_model=16, num_heads=2, dff=64)
    >>> layer(np.ones((3, 5, 16), "float32")).shape
    TensorShape([3, 5, 16])
    """

    self_attention_class = CausalSelfAttention


@keras.saving.register_keras_serializable(package="keras_tfmr")
class DecoderLayer(Block):
    """Causal self-attention, attention to the context, then the feed-forward sublayer.

    The arguments are those of `EncoderLayer`.

    Call arguments:
        x: Tensor `[batch, target, d_model]`.
        context: Tensor `[batch, source, width]`, the encoder's output.
        mask: Mask `[batch, target]`, True = valid; by default the Keras mask of `x`.
        context_mask: Mask `[batch, source]`, True = valid; by default the Keras mask of `context`.
            No position attends to one that is not valid, nor to a later one of `x`.
        attention_mask, position_bias, rotation, return_attention_scores, cache, cache_index: As for
            `MultiHeadAttention`, for the self-attention.
        context_cache: Result of `CrossAttention.cache` for a context and its mask, instead of
            them.

    Returns:
        Tensor `[batch, target, d_model]`; with scores, also those of the self-attention
        `[batch, heads, target, key]` and of the cross-attention `[batch, heads, target, source]`;
        with a cache, last, the cache with the keys and values of `x`.

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.1.

    >>> layer = DecoderLayer(d_model=16, num_heads=2, dff=64)
    >>> x, context = np.ones((3, 5, 16), "float32"), np.ones((3, 7, 16), "float32")
    >>> layer(x, context).shape
    TensorShape([3, 5, 16])
    """

    self_attention_class = CausalSelfAttention
    cross_attention_class = CrossAttention

    def build(self, x_shape: Shape, context_shape: Shape | None = None) -> None:
        _checks.sequence_of_vectors("x", x_shape, self.options.d_model)
        check_context(context_shape)
        self.first().build(x_shape)
        self.cross_attention.build(x_shape, context_shape)
        self.feed_forward.build(x_shape)

    def call(
        self, x: Tensor, context: Tensor | None = None, mask: Tensor | None = None,
        context_mask: Tensor | None = None, *, attention_mask: Tensor | None = None,
        return_attention_scores: bool = False, position_bias: Tensor | None = None,
        rotation: Nested | None = None, cache: Nested | None = None,
        cache_index: Nested | None = None, context_cache: Nested | None = None,
        training: bool | None = None,
    ) -> Nested:  # fmt: skip
        target = AttentionContext(
            mask, attention_mask, position_bias, rotation, cache, cache_index,
            return_attention_scores,
        ).of(x)  # fmt: skip
        cross = self.cross_attention
        source = cross.source(x, context, context_mask, context_cache)
        output = self.first().run(x, target, training=training)
        attended = cross.run(output.x, source, return_attention_scores, training=training)
        x = self.feed_forward.run(attended.x, training=training).x
        return SublayerOutput(x, output.scores + attended.scores, output.cache).result()


@keras.saving.register_keras_serializable(package="keras_tfmr")
class CausalDecoder(Stack):
    """From token ids to vectors that depend on no later token: the stack of a language model.

    The arguments are those of `Encoder`.

    Call arguments:
        inputs, mask, attention_mask, return_attention_scores: As for `Encoder`. With a cache, the
            mask is not used.
        cache: What the method `cache` or the previous call gave; `inputs` are then the new tokens.
        cache_index: As for `MultiHeadAttention`.

    Returns:
        Tensor `[batch, length, d_model]` with the mask of its valid positions; with scores, also a
        list over layers of `[batch, heads, length, key]`; with a cache, last, the cache with the
        keys and values of `inputs`.

    Reference: Liu et al. 2018 (arXiv 1801.10198), section 4.2.3.

    >>> stack = CausalDecoder(num_layers=2, d_model=16, num_heads=2, dff=64, vocab_size=100)
    >>> stack(np.array([[5, 7, 0]])).shape
    TensorShape([1, 3, 16])
    """

    layer_class = CausalDecoderLayer

    def cache(self, batch: Any, cache_length: Any) -> Nested:
        """Empty caches of self-attention, a list over layers: see `MultiHeadAttention.cache`.

        Args:
            batch: Number of examples.
            cache_length: Number of positions times beams.
        """
        return [layer.self_attention.attention.cache(batch, cache_length) for layer in self.layers]


@keras.saving.register_keras_serializable(package="keras_tfmr")
class Decoder(CausalDecoder):
    """From token ids and a context to vectors: embedding, dropout, a stack of decoder layers.

    The arguments are those of `Encoder`; `relative_positions` are for the self-attention.

    Call arguments:
        inputs, mask, attention_mask, return_attention_scores, cache, cache_index: As for
            `CausalDecoder`; the attention mask is for the self-attention.
        context: Tensor `[batch, source, width]`, the encoder's output.
        context_mask: Mask `[batch, source]`, True = valid; by default the Keras mask of `context`.
        context_cache: What the method `context_cache` gives for a context and its mask, instead of
            them.

    Returns:
        Tensor `[batch, target, d_model]` with the mask of its valid positions; with scores, also
        two lists over layers: self-attention `[batch, heads, target, key]` and cross-attention
        `[batch, heads, target, source]`; with a cache, last, the cache with the keys and values of
        `inputs`.

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.1.

    >>> decoder = Decoder(num_layers=2, d_model=16, num_heads=2, dff=64, vocab_size=100)
    >>> decoder(np.array([[5, 7, 0]]), np.ones((1, 4, 16), "float32")).shape
    TensorShape([1, 3, 16])
    """

    layer_class = DecoderLayer

    def build(self, inputs_shape: Shape, context_shape: Shape | None = None) -> None:
        super().build(inputs_shape, context_shape)

    def call(
        self, inputs: Tensor, context: Tensor | None = None, mask: Tensor | None = None,
        context_mask: Tensor | None = None, *, attention_mask: Tensor | None = None,
        return_attention_scores: bool = False, cache: Nested | None = None,
        cache_index: Nested | None = None, context_cache: Nested | None = None,
        training: bool | None = None,
    ) -> Nested:  # fmt: skip
        target = AttentionContext(
            mask, attention_mask, None, None, cache, cache_index, return_attention_scores
        )
        if context_cache is None:
            sources = [{"context": context, "context_mask": context_mask}] * self.num_layers
        else:
            sources = [{"context_cache": of_layer} for of_layer in context_cache]
        return self.run(inputs, target, sources, training=training)

    def context_cache(self, context: Tensor, context_mask: Tensor | None = None) -> Nested:
        """The keys, values and mask of a context, computed once for many calls.

        Args:
            context: Tensor `[batch, source, width]`.
            context_mask: Mask `[batch, source]`, True = valid.

        Returns:
            List with the result of `CrossAttention.cache` for each layer.
        """
        return [layer.cross_attention.cache(context, context_mask) for layer in self.layers]
