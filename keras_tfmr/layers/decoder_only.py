"""The decoder without an encoder: causal self-attention and feed-forward, for language models."""

import keras

from keras_tfmr.layers.attention_sublayers import CausalSelfAttention
from keras_tfmr.layers.block import SelfAttentionBlock
from keras_tfmr.layers.stack import CausalStack


@keras.saving.register_keras_serializable(package="keras_tfmr")
class DecoderOnlyLayer(SelfAttentionBlock):
    """Causal self-attention, then the feed-forward sublayer: a decoder layer with no context.

    Args:
        d_model: Width of input and output.
        num_heads: Number of heads.
        dff: Width of the feed-forward hidden layer.
        dropout_rate: Share dropped in training, in both sublayers.
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
        x: Tensor `[batch, length, d_model]`.
        mask: bool tensor `[batch, length]`, True = valid; by default the Keras mask of `x`. No
            position attends to one that is not valid, nor to a later one.
        return_attention_scores: Whether to return the scores too.
        relations: The `Relations` of the positions, for rotary positions and biases by position.

    Returns:
        Tensor `[batch, length, d_model]`; with scores, a pair of it and
        `[batch, heads, length, length]`.

    Reference: Liu et al. 2018, Generating Wikipedia by Summarizing Long Sequences
    (arXiv 1801.10198), section 4.2.3.

    >>> layer = DecoderOnlyLayer(d_model=16, num_heads=2, dff=64)
    >>> layer(np.ones((3, 5, 16), "float32")).shape
    TensorShape([3, 5, 16])
    """

    self_attention_class = CausalSelfAttention

    def step(self, x, cache, at, packed=None, memory=None):
        """The layer for new tokens only: see `CausalStack.step`. There is no memory."""
        x, cache = self.self_attention.step(x, cache, at, packed)
        return self.feed_forward(x), cache


@keras.saving.register_keras_serializable(package="keras_tfmr")
class DecoderOnly(CausalStack):
    """From token ids to vectors that depend on no later token: the stack of a language model.

    Args:
        num_layers: Number of layers.
        d_model: Width of input and output.
        num_heads: Number of heads.
        dff: Width of the feed-forward hidden layer.
        dropout_rate: Share dropped in training, in both sublayers.
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
        embedding: A `PositionalEmbedding` or `VectorEmbedding` to use instead.
        relative_positions: A layer such as `RotaryPositions`, for all layers of the stack.

    Call arguments:
        inputs: int tensor `[batch, length]` of token ids, padded with 0, which makes the mask;
            vectors `[batch, length, width]` where the embedding takes vectors.
        mask: bool tensor `[batch, length]`, True = valid; by default the Keras mask of vectors.
        return_attention_scores: Whether to return the scores too.

    Returns:
        Tensor `[batch, length, d_model]` with the mask `inputs != 0`; with scores, a pair of
        it and a list over layers of `[batch, heads, length, length]`.

    Reference: Liu et al. 2018 (arXiv 1801.10198), section 4.2.3.

    >>> stack = DecoderOnly(num_layers=2, d_model=16, num_heads=2, dff=64, vocab_size=100)
    >>> stack(np.array([[5, 7, 0]])).shape
    TensorShape([1, 3, 16])
    """

    layer_class = DecoderOnlyLayer
