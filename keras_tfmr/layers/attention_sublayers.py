"""The three attention sublayers of the paper's Figure 1, each with its residual."""

from typing import Any, NamedTuple

import keras

from keras_tfmr import _checks
from keras_tfmr.compat import keras_mask
from keras_tfmr.config import Nested, Shape, Tensor
from keras_tfmr.layers.attention import MultiHeadAttention
from keras_tfmr.layers.base import arguments_of
from keras_tfmr.layers.context import AttentionContext, InContext, SublayerOutput
from keras_tfmr.layers.masking import merge_masks, zero_masked_rows
from keras_tfmr.layers.residual import Sublayer


class ContextCache(NamedTuple):
    """A context as cross-attention uses it, computed once for many calls.

    Fields:
        keys: `[batch, kv_heads, source, key_dim]`.
        values: `[batch, kv_heads, source, value_dim]`, zero for examples without a valid position.
        mask: bool `[batch, source]`, True = valid, or None.
        bias: float32 `[batch, 1, 1, source]`, the mask as it is added to scores, or None.
    """

    keys: Any
    values: Any
    mask: Any = None
    bias: Any = None


class AttentionSublayer(Sublayer):
    """The base of the three: the attention and its residual.

    A subclass may set another `attention_class`, a subclass of `MultiHeadAttention`.
    """

    config_fields = ("attention_dropout_rate",)
    attention_class = MultiHeadAttention

    def __init__(
        self, num_heads: int, key_dim: int, *, value_dim: int | None = None,
        num_kv_heads: int | None = None, dropout_rate: float = 0.1,
        attention_dropout_rate: float | None = None, norm_first: bool = False,
        use_bias: bool = True, qk_norm: keras.layers.Layer | None = None,
        norm: keras.layers.Layer | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(
            dropout_rate=dropout_rate, norm_first=norm_first, use_bias=use_bias, **kwargs
        )
        self.attention_dropout_rate = attention_dropout_rate
        self.attention = self.attention_class(
            num_heads,
            key_dim,
            value_dim=value_dim,
            num_kv_heads=num_kv_heads,
            dropout_rate=dropout_rate if attention_dropout_rate is None else attention_dropout_rate,
            qk_norm=qk_norm,
            name="attention",
            **self.shared_options(),
        )
        self.residual = self.make_residual(norm)

    def build(self, x_shape: Shape) -> None:
        self.attention.build(x_shape)
        self.residual.build(x_shape)

    def get_config(self) -> dict[str, Any]:
        return arguments_of(type(self), self.attention.get_config()) | super().get_config()


class SelfAttention(InContext, AttentionSublayer):
    """The base of the two sublayers whose positions attend to each other."""

    use_causal_mask = False

    def branch(
        self, x: Tensor, context: AttentionContext, *, training: bool | None
    ) -> SublayerOutput:
        cached = context.cache is not None
        if cached and not self.use_causal_mask:
            raise ValueError("Only causal self-attention has a cache. Received: a `cache`")
        if cached and context.cache_index is None:
            raise ValueError("Give both `cache` and `cache_index`. Received: cache_index=None")
        arguments = context._asdict()
        arguments["query_mask"] = arguments.pop("mask")
        causal = {"use_causal_mask": self.use_causal_mask}
        result = self.attention(x, training=training, **causal, **arguments)
        return SublayerOutput.named(result, cached)


@keras.saving.register_keras_serializable(package="keras_tfmr")
class GlobalSelfAttention(SelfAttention):
    """The encoder's attention sublayer: every position attends to every real one.

    Args:
        num_heads, key_dim, value_dim, num_kv_heads, use_bias, qk_norm: As for `MultiHeadAttention`.
        dropout_rate: Fraction of the sublayer's output that is dropped in training.
        attention_dropout_rate: Fraction of the attention weights; `dropout_rate` by default.
        norm_first: Normalise the sublayer's input (pre-norm) instead of the sum (post-norm).
        norm: A normalisation layer to copy for the residual; `LayerNormalization()` by default.
        **kwargs: As for `MultiHeadAttention`.

    Call arguments:
        x: Tensor `[batch, length, d_model]`.
        mask: Mask `[batch, length]`, True = valid; by default the Keras mask of `x`. No position
            attends to one that is not valid.
        attention_mask, position_bias, rotation, return_attention_scores: As for
            `MultiHeadAttention`.

    Returns:
        Tensor `[batch, length, d_model]`; with scores, a pair of it and
        `[batch, heads, length, length]`.

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.2.3.

    >>> x = np.ones((3, 5, 16), "float32")
    >>> GlobalSelfAttention(num_heads=2, key_dim=8)(x).shape
    TensorShape([3, 5, 16])
    """


@keras.saving.register_keras_serializable(package="keras_tfmr")
class CausalSelfAttention(SelfAttention):
    """The decoder's first sublayer: no position attends to a later one.

    The arguments are those of `GlobalSelfAttention`.

    Call arguments:
        x: Tensor `[batch, length, d_model]`.
        mask: Mask `[batch, length]`, True = valid; by default the Keras mask of `x`. No position
            attends to one that is not valid, nor to a later one. Not used with a cache.
        attention_mask, position_bias, rotation, return_attention_scores, cache, cache_index: As for
            `MultiHeadAttention`.

    Returns:
        Tensor `[batch, length, d_model]`; with scores, also `[batch, heads, length, key]`; with a
        cache, last, the cache with the keys and values of `x`.

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.2.3.

    >>> x = np.ones((3, 5, 16), "float32")
    >>> y, scores = CausalSelfAttention(num_heads=2, key_dim=8)(x, return_attention_scores=True)
    >>> scores.numpy()[0, 0, 0].round(6).tolist()
    [1.0, 0.0, 0.0, 0.0, 0.0]
    """

    use_causal_mask = True


@keras.saving.register_keras_serializable(package="keras_tfmr")
class CrossAttention(AttentionSublayer):
    """The decoder's second sublayer: queries from `x`, keys and values from `context`.

    The arguments are those of `GlobalSelfAttention`.

    Call arguments:
        x: Tensor `[batch, target, d_model]`; its mask is passed on.
        context: Tensor `[batch, source, width]`.
        context_mask: Mask `[batch, source]`, True = valid; by default the Keras mask of `context`.
            No position attends to one that is not valid.
        return_attention_scores: Whether to return the scores too.
        cache: Result of `cache` for a context and its mask, instead of them.

    Returns:
        Tensor `[batch, target, d_model]`; with scores, a pair of it and
        `[batch, heads, target, source]`.

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.2.3.

    >>> x, context = np.ones((3, 5, 16), "float32"), np.ones((3, 7, 16), "float32")
    >>> CrossAttention(num_heads=2, key_dim=8)(x, context).shape
    TensorShape([3, 5, 16])
    """

    def build(self, x_shape: Shape, context_shape: Shape | None = None) -> None:
        check_context(context_shape)
        self.attention.build(x_shape, context_shape)
        self.residual.build(x_shape)

    def call(
        self, x: Tensor, context: Tensor | None = None, context_mask: Tensor | None = None, *,
        return_attention_scores: bool = False, cache: Nested | None = None,
        training: bool | None = None,
    ) -> Nested:  # fmt: skip
        _checks.sequence_of_vectors("x", x.shape)
        source = self.source(x, context, context_mask, cache)
        return self.run(x, source, return_attention_scores, training=training).result()

    def source(
        self, x: Tensor, context: Tensor | None, context_mask: Tensor | None, cache: Nested | None
    ) -> ContextCache:
        """The `ContextCache` of a call for `x`: the given one, or that of the context."""
        if (context is None) == (cache is None):
            received = "neither" if cache is None else "both"
            raise ValueError(f"Give either a `context` or the cache of one. Received: {received}")
        if cache is not None:
            return cache
        _checks.sequence_of_vectors("context", context.shape)
        _checks.same_batch(x=x.shape, context=context.shape)
        return self.cache(context, keras_mask(context) if context_mask is None else context_mask)

    def branch(
        self, x: Tensor, source: ContextCache, return_attention_scores: bool, *,
        training: bool | None,
    ) -> SublayerOutput:  # fmt: skip
        keys, values, mask, bias = source
        # The scores of an example without valid positions need the mask to be zero.
        masked = {"value_mask": mask} if return_attention_scores else {"position_bias": bias}
        scored = {"return_attention_scores": return_attention_scores}
        result = self.attention(x, cache=(keys, values), training=training, **masked, **scored)
        return SublayerOutput.named(result, cached=False)

    def cache(self, context: Tensor, context_mask: Tensor | None = None) -> Nested:
        """The `ContextCache` of a context `[batch, source, width]` and its mask."""
        _checks.sequence_of_vectors("context", context.shape)
        mask = _checks.sequence_mask("context_mask", context_mask, context)
        keys, values = self.attention.project(context)
        if mask is None:
            return ContextCache(keys, values)
        scores_mask = merge_masks([mask[:, None, None]])
        # Zero values once, instead of zero outputs in every call.
        return ContextCache(keys, zero_masked_rows(values, scores_mask), mask, scores_mask.bias)


def check_context(context_shape):
    """Raises a ValueError unless it is the shape of a context: before any weight is made."""
    if context_shape is None:
        raise ValueError("The first call needs a `context`. Received: context=None")
    _checks.sequence_of_vectors("context", context_shape)
