"""The encoder: the left half of the paper's Figure 1."""

from typing import Unpack

import keras

from keras_tfmr import _checks
from keras_tfmr.compat import keras_mask
from keras_tfmr.config import Nested, Shape, Tensor
from keras_tfmr.layers.attention_sublayers import GlobalSelfAttention
from keras_tfmr.layers.block import Block, Stack
from keras_tfmr.layers.options import BlockOptions, StackOptions


@keras.saving.register_keras_serializable(package="keras_tfmr")
class EncoderLayer(Block):
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

    attention_scores = ("encoder",)  # what `return_attention_scores` adds to the output

    def __init__(
        self, d_model: int, num_heads: int, dff: int, **options: Unpack[BlockOptions]
    ) -> None:
        super().__init__(d_model, num_heads, dff, **options)
        of_attention = self.attention_options()
        self.self_attention = GlobalSelfAttention(name="self_attention", **of_attention)
        self.feed_forward = self.make_feed_forward()

    def build(self, x_shape: Shape) -> None:
        _checks.sequence_of_vectors("x", x_shape, self.d_model)
        self.self_attention.build(x_shape)
        self.feed_forward.build(x_shape)

    def call(
        self, x: Tensor, mask: Tensor | None = None, *, attention_mask: Tensor | None = None,
        position_bias: Tensor | None = None, rotation: Nested | None = None,
        return_attention_scores: bool = False, training: bool | None = None,
    ) -> Nested:  # fmt: skip
        x = self.self_attention(
            x, mask=mask, attention_mask=attention_mask, position_bias=position_bias,
            rotation=rotation, return_attention_scores=return_attention_scores, training=training,
        )  # fmt: skip
        if return_attention_scores:
            x, scores = x
        x = self.feed_forward(x, training=training)  # [batch, length, d_model]
        return (x, scores) if return_attention_scores else x


@keras.saving.register_keras_serializable(package="keras_tfmr")
class Encoder(Stack):
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

    attention_scores = ("encoder",)  # what `return_attention_scores` adds to the output

    def __init__(
        self, num_layers: int, d_model: int, num_heads: int, dff: int,
        **options: Unpack[StackOptions],
    ) -> None:  # fmt: skip
        super().__init__(num_layers, d_model, num_heads, dff, **options)
        self.layers = [
            EncoderLayer(name=f"layer_{i}", **self.layer_options()) for i in range(num_layers)
        ]

    def call(
        self, x: Tensor, mask: Tensor | None = None, *, attention_mask: Tensor | None = None,
        return_attention_scores: bool = False, training: bool | None = None,
    ) -> Nested:  # fmt: skip
        _checks.sequence_of_vectors("x", x.shape, self.d_model)
        mask = keras_mask(x) if mask is None else mask
        (rotation, position_bias), scores = self.relations(x), []
        x = self.dropout(x, training=training)
        for layer in self.layers:
            x = layer(
                x, mask=mask, attention_mask=attention_mask, position_bias=position_bias,
                rotation=rotation, return_attention_scores=return_attention_scores,
                training=training,
            )  # fmt: skip
            if return_attention_scores:
                x, of_layer = x
                scores.append(of_layer)
        x = x if self.norm is None else self.norm(x)  # [batch, length, d_model]
        return (x, scores) if return_attention_scores else x
