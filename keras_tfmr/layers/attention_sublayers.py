"""The three attention sublayers of the paper's Figure 1, each with its residual."""

from typing import Any, Unpack

import keras

from keras_tfmr.compat import keras_mask
from keras_tfmr.config import Nested, Shape, Tensor
from keras_tfmr.layers.attention import MultiHeadAttention
from keras_tfmr.layers.base import TransformerLayer, serialize
from keras_tfmr.layers.cache import Cache
from keras_tfmr.layers.options import LayerOptions
from keras_tfmr.layers.residual import make_residual


class AttentionSublayer(TransformerLayer):
    """The base of the three: the attention and its residual."""

    def __init__(
        self, num_heads: int, key_dim: int, *, num_kv_heads: int | None = None,
        dropout_rate: float = 0.1, attention_dropout_rate: float | None = None,
        norm_first: bool = False, use_bias: bool = True, qk_norm: keras.layers.Layer | None = None,
        norm: keras.layers.Layer | None = None, **kwargs: Unpack[LayerOptions],
    ) -> None:  # fmt: skip
        super().__init__(use_bias=use_bias, **kwargs)
        self.num_heads, self.key_dim, self.num_kv_heads = num_heads, key_dim, num_kv_heads
        self.dropout_rate = dropout_rate
        self.attention_dropout_rate = attention_dropout_rate
        self.norm_first = bool(norm_first)
        self.attention = MultiHeadAttention(
            num_heads,
            key_dim,
            num_kv_heads=num_kv_heads,
            dropout_rate=dropout_rate if attention_dropout_rate is None else attention_dropout_rate,
            qk_norm=qk_norm,
            name="attention",
            **self.shared_options(),
        )
        self.residual = make_residual(norm_first, dropout_rate, norm, self.part_options())
        self.input_spec = keras.layers.InputSpec(ndim=3, name="x")

    def build(self, x_shape: Shape) -> None:
        self.attention.build(x_shape)
        self.residual.build(x_shape)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "num_kv_heads": self.num_kv_heads,
            "dropout_rate": self.dropout_rate,
            "attention_dropout_rate": self.attention_dropout_rate,
            "norm_first": self.norm_first,
            "qk_norm": serialize(self.attention.query_norm),
            "norm": serialize(self.residual.norm),
        }


class SelfAttention(AttentionSublayer):
    """The base of the two whose queries, keys and values come from one sequence."""

    causal: bool  # whether no position attends to a later one

    def call(
        self, x: Tensor, mask: Tensor | None = None, *, attention_mask: Tensor | None = None,
        position_bias: Tensor | None = None, rotation: Nested | None = None,
        return_attention_scores: bool = False, training: bool | None = None,
    ) -> Nested:  # fmt: skip
        mask = keras_mask(x) if mask is None else mask  # before a norm, which may not pass it on
        y = self.attention(
            self.residual.pre_norm(x), query_mask=mask, attention_mask=attention_mask,
            position_bias=position_bias, rotation=rotation, use_causal_mask=self.causal,
            return_attention_scores=return_attention_scores, training=training,
        )  # fmt: skip
        if return_attention_scores:
            y, scores = y
        x = self.residual(x, y, training=training)  # [batch, length, d_model]
        return (x, scores) if return_attention_scores else x


@keras.saving.register_keras_serializable(package="keras_tfmr")
class GlobalSelfAttention(SelfAttention):
    """The encoder's attention sublayer: every position attends to every real one.

    Args:
        num_heads: Number of heads.
        key_dim: Width of a query, a key and a value in one head.
        num_kv_heads: Number of heads of keys and values, each shared by the same number of query
            heads; `num_heads` by default.
        dropout_rate: Fraction of the sublayer's output that is dropped in training.
        attention_dropout_rate: Fraction of the attention weights; `dropout_rate` by default.
        norm_first: Normalise the sublayer's input (pre-norm) instead of the sum (post-norm).
        use_bias: Whether the projections add a bias.
        qk_norm: A normalisation layer, copied for the queries and for the keys of each head.
        norm: A normalisation layer, copied for the residual; `LayerNormalization()` by default.
        **kwargs: Options of the weights, such as `kernel_initializer`, as `keras.layers.Dense`
            takes them; those of `keras.layers.Layer`.

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

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.2.3.

    >>> x = np.ones((3, 5, 16), "float32")
    >>> GlobalSelfAttention(num_heads=2, key_dim=8)(x).shape
    TensorShape([3, 5, 16])
    """

    causal = False
    attention_scores = ("encoder",)  # what `return_attention_scores` adds to the output


@keras.saving.register_keras_serializable(package="keras_tfmr")
class CausalSelfAttention(SelfAttention):
    """The decoder's first sublayer: no position attends to a later one.

    Args:
        num_heads: Number of heads.
        key_dim: Width of a query, a key and a value in one head.
        num_kv_heads: Number of heads of keys and values, each shared by the same number of query
            heads; `num_heads` by default.
        dropout_rate: Fraction of the sublayer's output that is dropped in training.
        attention_dropout_rate: Fraction of the attention weights; `dropout_rate` by default.
        norm_first: Normalise the sublayer's input (pre-norm) instead of the sum (post-norm).
        use_bias: Whether the projections add a bias.
        qk_norm: A normalisation layer, copied for the queries and for the keys of each head.
        norm: A normalisation layer, copied for the residual; `LayerNormalization()` by default.
        **kwargs: Options of the weights, such as `kernel_initializer`, as `keras.layers.Dense`
            takes them; those of `keras.layers.Layer`.

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

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.2.3.

    >>> x = np.ones((3, 5, 16), "float32")
    >>> y, scores = CausalSelfAttention(num_heads=2, key_dim=8)(x, return_attention_scores=True)
    >>> scores.numpy()[0, 0, 0].round(6).tolist()
    [1.0, 0.0, 0.0, 0.0, 0.0]
    """

    causal = True
    attention_scores = ("decoder",)  # what `return_attention_scores` adds to the output

    def empty_cache(self, rows: Any, room: Any = None) -> Cache:
        """The cache before the first `step`; see `keras_tfmr.layers.cache`."""
        return self.attention.empty_cache(rows, room)

    def step(
        self, x: Tensor, cache: Cache, index: Tensor, *, position_bias: Tensor | None = None,
        rotation: Nested | None = None,
    ) -> tuple[Tensor, Cache]:  # fmt: skip
        """The output of `call` for further tokens, and the cache that then holds them.

        Args:
            x: Tensor `[rows, length, d_model]`, the tokens after those in the cache.
            cache: From `empty_cache` or the step before.
            index: int32 scalar, the number of tokens in the cache.
            position_bias, rotation: As for `call`, of these queries and all keys.
        """
        y, cache = self.attention.step(
            self.residual.pre_norm(x), cache, index, position_bias=position_bias, rotation=rotation
        )
        return self.residual(x, y, training=False), cache


@keras.saving.register_keras_serializable(package="keras_tfmr")
class CrossAttention(AttentionSublayer):
    """The decoder's second sublayer: queries from `x`, keys and values from `context`.

    Args:
        num_heads: Number of heads.
        key_dim: Width of a query, a key and a value in one head.
        num_kv_heads: Number of heads of keys and values, each shared by the same number of query
            heads; `num_heads` by default.
        dropout_rate: Fraction of the sublayer's output that is dropped in training.
        attention_dropout_rate: Fraction of the attention weights; `dropout_rate` by default.
        norm_first: Normalise the sublayer's input (pre-norm) instead of the sum (post-norm).
        use_bias: Whether the projections add a bias.
        qk_norm: A normalisation layer, copied for the queries and for the keys of each head.
        norm: A normalisation layer, copied for the residual; `LayerNormalization()` by default.
        **kwargs: Options of the weights, such as `kernel_initializer`, as `keras.layers.Dense`
            takes them; those of `keras.layers.Layer`.

    Call arguments:
        x: Tensor `[batch, target, d_model]`; its mask is passed on.
        context: Tensor `[batch, source, width]`.
        context_mask: Mask `[batch, source]`, True = valid; by default the Keras mask of `context`.
            No position attends to one that is not valid.
        return_attention_scores: Whether to return the scores too.
        training: Whether dropout is active.

    Returns:
        Tensor `[batch, target, d_model]`; with scores, a pair of it and
        `[batch, heads, target, source]`.

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.2.3.

    >>> x, context = np.ones((3, 5, 16), "float32"), np.ones((3, 7, 16), "float32")
    >>> CrossAttention(num_heads=2, key_dim=8)(x, context).shape
    TensorShape([3, 5, 16])
    """

    attention_scores = ("cross",)  # what `return_attention_scores` adds to the output

    def build(self, x_shape: Shape, context_shape: Shape) -> None:
        self.attention.build(x_shape, context_shape)
        self.residual.build(x_shape)

    def call(
        self, x: Tensor, context: Tensor, context_mask: Tensor | None = None, *,
        return_attention_scores: bool = False, training: bool | None = None,
    ) -> Nested:  # fmt: skip
        mask = keras_mask(context) if context_mask is None else context_mask
        y = self.attention(
            self.residual.pre_norm(x), context, value_mask=mask,
            return_attention_scores=return_attention_scores, training=training,
        )  # fmt: skip
        if return_attention_scores:
            y, scores = y
        x = self.residual(x, y, training=training)  # [batch, target, d_model]
        return (x, scores) if return_attention_scores else x

    def read_context(self, context: Tensor, context_mask: Tensor | None = None) -> Nested:
        """Keys and values of a context for `step`, made once for all tokens."""
        mask = keras_mask(context) if context_mask is None else context_mask
        return self.attention.read_context(context, mask)

    def empty_cache(self, rows: Any, room: Any = None) -> tuple[()]:
        """Nothing, since tokens do not depend on each other."""
        return ()

    def step(
        self, x: Tensor, cache: tuple[()], index: Tensor, context: Nested, num_beams: int = 1
    ) -> tuple[Tensor, tuple[()]]:
        """The output of `call` for further tokens.

        Args:
            x: Tensor `[rows, length, d_model]`.
            cache, index: As for the other sublayers.
            context: The output of `read_context` for `rows / num_beams` examples.
            num_beams: The number of hypotheses of an example, which stand side by side.
        """
        y, _ = self.attention.step(self.residual.pre_norm(x), cache, index, context, num_beams)
        return self.residual(x, y, training=False), cache
