"""The encoder: the left half of the paper's Figure 1."""

import keras

from keras_tfmr.layers.block import SelfAttentionLayer, SelfAttentionStack


@keras.saving.register_keras_serializable(package="keras_tfmr")
class EncoderLayer(SelfAttentionLayer):
    """Self-attention over all real positions, then the feed-forward sublayer.

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
            attends to one that is not valid.
        attention_mask: Mask `[query, key]`, `[batch, query, key]` or `[batch, heads, query, key]`,
            True = may attend.
        position_bias: float32, broadcasts to `[batch, heads, query, key]`, added to the scores.
        rotation: Output of `RotaryPositions` for the positions.
        return_attention_scores: Whether to return the scores too.
        training: Whether dropout is active.

    Returns:
        Tensor `[batch, length, d_model]`; with scores, a pair of it and
        `[batch, heads, length, length]`.

    Raises:
        ValueError: If `key_dim` is not given and `num_heads` does not divide `d_model`.

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.1.

    >>> layer = EncoderLayer(d_model=16, num_heads=2, dff=64)
    >>> layer(np.ones((3, 5, 16), "float32")).shape
    TensorShape([3, 5, 16])
    """

    causal = False
    attention_scores = ("encoder",)  # what `return_attention_scores` adds to the output


@keras.saving.register_keras_serializable(package="keras_tfmr")
class Encoder(SelfAttentionStack):
    """Dropout, then a stack of encoder layers, over embedded tokens or any other vectors.

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
        mask: Mask `[batch, length]`, True = valid; by default the Keras mask of `x`. No position
            attends to one that is not valid.
        attention_mask: Mask `[query, key]`, `[batch, query, key]` or `[batch, heads, query, key]`,
            True = may attend.
        return_attention_scores: Whether to return the scores too.
        training: Whether dropout is active.

    Returns:
        Tensor `[batch, length, d_model]` with the mask of `x`; with scores, a pair of it and a list
        over layers of `[batch, heads, length, length]`.

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.1.

    >>> from keras_tfmr.layers import PositionalEmbedding
    >>> encoder = Encoder(num_layers=2, d_model=16, num_heads=2, dff=64)
    >>> encoder(PositionalEmbedding(vocab_size=100, d_model=16)(np.array([[5, 7, 0]]))).shape
    TensorShape([1, 3, 16])
    """

    layer_class = EncoderLayer
    attention_scores = ("encoder",)  # what `return_attention_scores` adds to the output
