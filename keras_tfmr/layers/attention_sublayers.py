"""The three attention sublayers of the paper's Figure 1, each with its residual."""

from typing import Any, NamedTuple

import keras

from keras_tfmr import _checks
from keras_tfmr.compat import keras_mask
from keras_tfmr.layers.attention import MultiHeadAttention
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
    """What the three attention sublayers share: the attention and its residual.

    A subclass may set another `attention_class`, a subclass of `MultiHeadAttention`.
    """

    config_fields = ("attention_dropout_rate",)
    attention_class = MultiHeadAttention

    def __init__(
        self,
        num_heads,
        key_dim,
        *,
        value_dim=None,
        num_kv_heads=None,
        dropout_rate=0.1,
        attention_dropout_rate=None,
        norm_first=False,
        use_bias=True,
        qk_norm=None,
        norm=None,
        **kwargs,
    ):
        super().__init__(
            dropout_rate=dropout_rate,
            norm_first=norm_first,
            use_bias=use_bias,
            **kwargs,
        )
        self.attention_dropout_rate = attention_dropout_rate
        self.attention = self.attention_class(
            num_heads,
            key_dim,
            value_dim=value_dim,
            num_kv_heads=num_kv_heads,
            dropout_rate=dropout_rate if attention_dropout_rate is None else attention_dropout_rate,
            use_bias=use_bias,
            qk_norm=qk_norm,
            dtype=self.dtype_policy,
            name="attention",
            **self.weight_options,
        )
        self.residual = self.make_residual(norm)

    def build(self, x_shape):
        self.attention.build(x_shape)
        self.residual.build(x_shape)

    def attend(self, x, *context, training=None, **options):
        """Attention with its residual; what attention returns beside its output is kept."""
        y = self.attention(self.residual.pre_norm(x), *context, training=training, **options)
        y, *more = y if isinstance(y, tuple) else (y,)
        y = self.residual(x, y, training=training)
        return (y, *more) if more else y

    def attend_self(self, x, mask, **options):
        """Attention of the positions of `x` to each other."""
        _checks.sequence_of_vectors("x", x.shape)
        # Read here: not every norm that may follow passes it on.
        mask = keras_mask(x) if mask is None else mask
        return self.attend(x, query_mask=_checks.sequence_mask("mask", mask, x), **options)

    def get_config(self):
        attention = self.attention.get_config()
        names = ("num_heads", "key_dim", "value_dim", "num_kv_heads", "qk_norm")
        return {**super().get_config(), **{name: attention[name] for name in names}}


@keras.saving.register_keras_serializable(package="keras_tfmr")
class GlobalSelfAttention(AttentionSublayer):
    """The encoder's attention sublayer: every position attends to every real one.

    Args:
        num_heads, key_dim, value_dim, num_kv_heads, use_bias, qk_norm: As for `MultiHeadAttention`.
        dropout_rate: Share of the sublayer's output that is dropped in training.
        attention_dropout_rate: Share of the attention weights; `dropout_rate` by default.
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

    def call(
        self,
        x,
        mask=None,
        *,
        attention_mask=None,
        return_attention_scores=False,
        position_bias=None,
        rotation=None,
        training=None,
    ):
        return self.attend_self(
            x,
            mask,
            attention_mask=attention_mask,
            return_attention_scores=return_attention_scores,
            position_bias=position_bias,
            rotation=rotation,
            training=training,
        )


@keras.saving.register_keras_serializable(package="keras_tfmr")
class CausalSelfAttention(AttentionSublayer):
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

    def call(
        self,
        x,
        mask=None,
        *,
        attention_mask=None,
        return_attention_scores=False,
        position_bias=None,
        rotation=None,
        cache=None,
        cache_index=None,
        training=None,
    ):
        return self.attend_self(
            x,
            mask,
            use_causal_mask=True,
            attention_mask=attention_mask,
            return_attention_scores=return_attention_scores,
            position_bias=position_bias,
            rotation=rotation,
            cache=cache,
            cache_index=cache_index,
            training=training,
        )


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
        cache: What `cache` gives for a context and its mask, instead of them.

    Returns:
        Tensor `[batch, target, d_model]`; with scores, a pair of it and
        `[batch, heads, target, source]`.

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.2.3.

    >>> x, context = np.ones((3, 5, 16), "float32"), np.ones((3, 7, 16), "float32")
    >>> CrossAttention(num_heads=2, key_dim=8)(x, context).shape
    TensorShape([3, 5, 16])
    """

    def build(self, x_shape, context_shape):
        self.attention.build(x_shape, context_shape)
        self.residual.build(x_shape)

    def call(
        self,
        x,
        context=None,
        context_mask=None,
        *,
        return_attention_scores=False,
        cache=None,
        training=None,
    ):
        _checks.sequence_of_vectors("x", x.shape)
        options = {"return_attention_scores": return_attention_scores, "training": training}
        if cache is not None:
            keys, values, mask, bias = cache
            # The scores of an example without valid positions need the mask to be zero.
            masked = {"value_mask": mask} if return_attention_scores else {"position_bias": bias}
            return self.attend(x, cache=(keys, values), **masked, **options)
        _checks.sequence_of_vectors("context", context.shape)
        context_mask = _checks.sequence_mask("context_mask", context_mask, context)
        return self.attend(x, context, value_mask=context_mask, **options)

    def cache(self, context, context_mask=None):
        """The `ContextCache` of a context `[batch, source, width]` and its mask."""
        mask = _checks.sequence_mask("context_mask", context_mask, context)
        keys, values = self.attention.project(context)
        if mask is None:
            return ContextCache(keys, values)
        scores_mask = merge_masks([mask[:, None, None]])
        # Zero values once, instead of zero outputs in every call.
        return ContextCache(keys, zero_masked_rows(values, scores_mask), mask, scores_mask.bias)
