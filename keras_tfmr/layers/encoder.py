"""The encoder: the left half of the paper's Figure 1."""

import keras

from keras_tfmr.layers.attention_sublayers import GlobalSelfAttention
from keras_tfmr.layers.block import Block, Stack


@keras.saving.register_keras_serializable(package="keras_tfmr")
class EncoderLayer(Block):
    """Self-attention over all real positions, then the feed-forward sublayer.

    Args:
        d_model: Width of input and output.
        num_heads: Number of heads.
        dff: Width of the feed-forward hidden layer.
        dropout_rate: Share dropped in training, in both sublayers.
        attention_dropout_rate: Fraction of the attention weights; `dropout_rate` by default.
        key_dim: Width of a query and of a key in one head; `d_model // num_heads` by default.
        value_dim: Width of a value in one head; `key_dim` by default.
        num_kv_heads: Number of heads of keys and values; `num_heads` by default.
        norm_first: Normalise the sublayers' inputs (pre-norm) instead of the sums (post-norm).
        activation: Of the feed-forward sublayer, as for `FeedForward`.
        gated: Whether the feed-forward sublayer is a `GatedFeedForward`.
        use_bias: Whether projections add a bias.
        qk_norm: A normalisation layer, copied for the queries and for the keys of each head.
        norm: A normalisation layer to copy; `LayerNormalization()` by default.
        **kwargs: Options of the weights of all projections, such as `kernel_initializer`, as
            `keras.layers.Dense` takes them; those of `keras.layers.Layer`.

    Call arguments:
        x: Tensor `[batch, length, d_model]`.
        mask: Mask `[batch, length]`, True = valid; by default the Keras mask of `x`. No position
            attends to one that is not valid.
        attention_mask, position_bias, rotation, return_attention_scores: As for
            `MultiHeadAttention`.

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

    self_attention_class = GlobalSelfAttention


@keras.saving.register_keras_serializable(package="keras_tfmr")
class Encoder(Stack):
    """From token ids to vectors: embedding, dropout, a stack of encoder layers.

    Args:
        num_layers: Number of layers.
        d_model, num_heads, dff: As for `EncoderLayer`, like the other arguments not named here.
        vocab_size: Number of token ids, for an embedding of its own.
        embedding: A `PositionalEmbedding` to use instead, e.g. one shared with a decoder, or an
            `AddPositions` for an encoder of vectors.
        relative_positions: A layer such as `RotaryPositions`, for all layers of the stack.

    Call arguments:
        inputs: int tensor `[batch, length]` of token ids, padded with 0, which makes a mask;
            vectors `[batch, length, width]` where the embedding takes vectors.
        mask: Mask `[batch, length]`, True = valid, beside that of the padding; by default the Keras
            mask of vectors.
        attention_mask, return_attention_scores: As for `MultiHeadAttention`.

    Returns:
        Tensor `[batch, length, d_model]` with the mask of its valid positions; with scores, a pair
        of it and a list over layers of `[batch, heads, length, length]`.

    Raises:
        ValueError: If not exactly one of `vocab_size` and `embedding` is given.

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.1.

    >>> encoder = Encoder(num_layers=2, d_model=16, num_heads=2, dff=64, vocab_size=100)
    >>> encoder(np.array([[5, 7, 0]])).shape
    TensorShape([1, 3, 16])
    """

    layer_class = EncoderLayer
