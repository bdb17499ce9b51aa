"""The decoder: the right half of the paper's Figure 1, for whole sequences and single tokens."""

import keras

from keras_tfmr import _checks
from keras_tfmr.layers.attention_sublayers import CausalSelfAttention, CrossAttention
from keras_tfmr.layers.block import Block
from keras_tfmr.layers.stack import CausalStack


@keras.saving.register_keras_serializable(package="keras_tfmr")
class DecoderLayer(Block):
    """Causal self-attention, attention to the context, then the feed-forward sublayer.

    Args:
        d_model: Width of input and output.
        num_heads: Number of heads.
        dff: Width of the feed-forward hidden layer.
        dropout_rate: Share dropped in training, in the three sublayers.
        attention_dropout_rate: Share of the attention weights; `dropout_rate` by default.
        key_dim: Width of a query and of a key in one head; `d_model // num_heads` by default.
        value_dim: Width of a value in one head; `key_dim` by default.
        num_kv_heads: Number of heads of keys and values; `num_heads` by default.
        norm_first: Normalise the sublayers' inputs (pre-norm) instead of the sums (post-norm).
        activation: Of the feed-forward sublayer: "relu", "gelu", "gelu_tanh" or "silu".
        gated: Whether the feed-forward sublayer is a `GatedFeedForward`.
        use_bias: Whether projections add a bias.
        qk_norm: A normalisation layer, copied for the queries and for the keys of each head.
        norm: A normalisation layer to copy; `LayerNormalization()` by default.

    Call arguments:
        x: Tensor `[batch, target, d_model]`.
        context: Tensor `[batch, source, width]`, the encoder's output.
        x_mask: bool tensor `[batch, target]`, True = valid; by default the Keras mask of `x`.
        context_mask: bool tensor `[batch, source]`, True = valid; by default the Keras mask of
            `context`. No position attends to one that is not valid, nor to a later one of `x`.
        return_attention_scores: Whether to return the scores too.
        relations: The `Relations` of the target's positions, for rotary positions and biases.

    Returns:
        Tensor `[batch, target, d_model]`; with scores, a triple of it, the self-attention's
        `[batch, heads, target, target]` and the cross-attention's
        `[batch, heads, target, source]`.

    Raises:
        ValueError: If `key_dim` is not given and `num_heads` does not divide `d_model`.

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.1.

    >>> layer = DecoderLayer(d_model=16, num_heads=2, dff=64)
    >>> x, context = np.ones((3, 5, 16), "float32"), np.ones((3, 7, 16), "float32")
    >>> layer(x, context).shape
    TensorShape([3, 5, 16])
    """

    self_attention_class = CausalSelfAttention
    cross_attention_class = CrossAttention

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.cross_attention = self.make_attention(self.cross_attention_class, "cross_attention")
        self.feed_forward = self.make_feed_forward()

    def build(self, x_shape, context_shape):
        self.self_attention.build(x_shape)
        self.cross_attention.build(x_shape, context_shape)
        self.feed_forward.build(x_shape)
        self.built = True

    def call(
        self,
        x,
        context,
        x_mask=None,
        context_mask=None,
        return_attention_scores=False,
        relations=None,
        training=None,
    ):
        x, self_scores = _pair(
            self.self_attention(
                x,
                mask=x_mask,
                return_attention_scores=return_attention_scores,
                relations=relations,
                training=training,
            )
        )
        x, cross_scores = _pair(
            self.cross_attention(
                x,
                context,
                context_mask=context_mask,
                return_attention_scores=return_attention_scores,
                training=training,
            )
        )
        x = self.feed_forward(x, training=training)
        return (x, self_scores, cross_scores) if return_attention_scores else x

    def step(self, x, cache, at, packed=None, memory=None):
        """The layer for new tokens only: see `CausalStack.step`.

        Args:
            x: Tensor `[rows, d_model]`, the new tokens of an example side by side.
            cache: Keys and values of earlier positions: see `MultiHeadAttention.cache`.
            at: The `StepPosition`.
            packed: What `packed_projections` of the self-attention gives.
            memory: What `MultiHeadAttention.memory` of the cross-attention gives.

        Returns:
            Tensor `[rows, d_model]` and the cache with the new positions written.
        """
        x, cache = self.self_attention.step(x, cache, at, packed)
        x = self.cross_attention.step(x, at.query, memory)
        return self.feed_forward(x), cache


def _pair(y):
    """An output and its scores; None for the scores if there are none."""
    return y if isinstance(y, tuple) else (y, None)


@keras.saving.register_keras_serializable(package="keras_tfmr")
class Decoder(CausalStack):
    """From token ids and a context to vectors: embedding, dropout, a stack of decoder layers.

    Args:
        num_layers: Number of layers.
        d_model: Width of input and output.
        num_heads: Number of heads.
        dff: Width of the feed-forward hidden layer.
        dropout_rate: Share dropped in training, in the three sublayers.
        attention_dropout_rate: Share of the attention weights; `dropout_rate` by default.
        key_dim: Width of a query and of a key in one head; `d_model // num_heads` by default.
        value_dim: Width of a value in one head; `key_dim` by default.
        num_kv_heads: Number of heads of keys and values; `num_heads` by default.
        norm_first: Normalise the sublayers' inputs (pre-norm) instead of the sums (post-norm).
        activation: Of the feed-forward sublayer: "relu", "gelu", "gelu_tanh" or "silu".
        gated: Whether the feed-forward sublayer is a `GatedFeedForward`.
        use_bias: Whether projections add a bias.
        qk_norm: A normalisation layer, copied for the queries and for the keys of each head.
        norm: A normalisation layer to copy; `LayerNormalization()` by default.
        vocab_size: Number of token ids, for an embedding of its own.
        embedding: A `PositionalEmbedding` to use instead, e.g. one shared with an encoder, or a
            `VectorEmbedding` for a decoder of vectors.
        relative_positions: A layer such as `RotaryPositions`, for the self-attention of all layers.

    Call arguments:
        inputs: int tensor `[batch, target]` of token ids, padded with 0, which makes the mask;
            vectors `[batch, target, width]` where the embedding takes vectors.
        context: Tensor `[batch, source, width]`, the encoder's output.
        context_mask: bool tensor `[batch, source]`, True = valid; by default the Keras mask of
            `context`.
        mask: bool tensor `[batch, target]`, True = valid; by default the Keras mask of vectors.
        return_attention_scores: Whether to return the scores too.

    Returns:
        Tensor `[batch, target, d_model]` with the mask `inputs != 0`; with scores, a triple
        of it and two lists over layers: self-attention `[batch, heads, target, target]` and
        cross-attention `[batch, heads, target, source]`.

    Raises:
        ValueError: If not exactly one of `vocab_size` and `embedding` is given.

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.1.

    >>> decoder = Decoder(num_layers=2, d_model=16, num_heads=2, dff=64, vocab_size=100)
    >>> decoder(np.array([[5, 7, 0]]), np.ones((1, 4, 16), "float32")).shape
    TensorShape([1, 3, 16])
    """

    layer_class = DecoderLayer

    def build(self, inputs_shape, context_shape):
        self.build_around(inputs_shape)
        for layer in self.layers:
            layer.build((*inputs_shape[:2], self.embedding.d_model), context_shape)
        self.built = True

    def call(
        self,
        inputs,
        context,
        mask=None,
        context_mask=None,
        return_attention_scores=False,
        training=None,
    ):
        x = self.embed(inputs, training)  # [batch, target, d_model]
        mask = self.compute_mask(inputs, mask)
        relations = self.relate_all(x)
        all_scores = []
        for layer in self.layers:
            y = layer(
                x,
                context,
                x_mask=mask,
                context_mask=context_mask,
                return_attention_scores=return_attention_scores,
                relations=relations,
                training=training,
            )
            x, *scores = y if return_attention_scores else (y,)
            all_scores.append(scores)
        x = self.finish(x)
        if not return_attention_scores:
            return x
        return x, [own for own, _ in all_scores], [cross for _, cross in all_scores]

    def memory(self, context, context_mask=None):
        """The keys, values and mask of the context for every step, computed once.

        Args:
            context: Tensor `[batch, source, width]`.
            context_mask: bool tensor `[batch, source]`, True = valid.

        Returns:
            A list over layers of what `MultiHeadAttention.memory` gives.
        """
        return [
            layer.cross_attention.attention.memory(context, context_mask) for layer in self.layers
        ]

    def compute_output_spec(
        self, inputs, context, mask=None, context_mask=None, return_attention_scores=False,
        training=None,
    ):  # fmt: skip
        _checks.sequence_of_vectors("context", context.shape)
        if return_attention_scores:
            trace = keras.layers.Layer.compute_output_spec
            return trace(self, inputs, context, return_attention_scores=True)
        return super().compute_output_spec(inputs)
