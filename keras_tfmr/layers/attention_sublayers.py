"""The three attention sublayers of the paper's Figure 1, each with its residual."""

import keras

from keras_tfmr import _checks
from keras_tfmr.layers._parts import described
from keras_tfmr.layers.attention import MultiHeadAttention
from keras_tfmr.layers.residual import Sublayer


class AttentionSublayer(Sublayer):
    """What the three attention sublayers share: the attention and its residual.

    A subclass may set another `attention_class`, a subclass of `MultiHeadAttention`.
    """

    attention_class = MultiHeadAttention

    def __init__(
        self,
        num_heads,
        key_dim,
        *,
        value_dim=None,
        num_kv_heads=None,
        dropout_rate=0.0,
        attention_dropout_rate=None,
        norm_first=False,
        use_bias=True,
        qk_norm=None,
        norm=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.dropout_rate = _checks.rate("dropout_rate", dropout_rate)
        self.norm_first = bool(norm_first)
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
        )
        self.residual = self.make_residual(norm_first, dropout_rate, norm)
        self.supports_masking = True

    def build(self, x_shape):
        self.attention.build(x_shape)
        self.residual.build(x_shape)
        self.built = True

    def check(self, x, name, mask, of):
        """Raises unless `x` and the mask `[batch, length]` of the tensor `of` fit each other."""
        _checks.sequence_of_vectors("x", x.shape)
        if mask is not None:
            _checks.mask(name, mask, (2,), of.shape[1], batch=of.shape[0])

    def add(self, x, y, return_attention_scores, training):
        """Applies the residual to what attention returned; keeps the scores if there are any."""
        if not return_attention_scores:
            return self.residual(x, y, training=training)
        y, scores = y
        return self.residual(x, y, training=training), scores

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.attention.num_heads,
            "key_dim": self.attention.key_dim,
            "value_dim": self.attention.value_dim,
            "num_kv_heads": self.attention.num_kv_heads,
            "dropout_rate": self.dropout_rate,
            "attention_dropout_rate": self.attention.dropout_rate,
            "norm_first": self.norm_first,
            "use_bias": self.attention.use_bias,
            "qk_norm": described(self.attention.query_norm),
            "norm": described(self.residual.norm),
        }


@keras.saving.register_keras_serializable(package="keras_tfmr")
class GlobalSelfAttention(AttentionSublayer):
    """The encoder's attention sublayer: every position attends to every real one.

    Args:
        num_heads: Number of heads.
        key_dim: Width of a query and of a key in one head.
        value_dim: Width of a value in one head; `key_dim` by default.
        num_kv_heads: Number of heads of keys and values; `num_heads` by default.
        dropout_rate: Share of the sublayer's output that is dropped in training.
        attention_dropout_rate: Share of the attention weights; `dropout_rate` by default.
        norm_first: Normalise the sublayer's input (pre-norm) instead of the sum (post-norm).
        use_bias: Whether the projections add a bias.
        qk_norm: A normalisation layer, copied for the queries and for the keys of each head.
        norm: A normalisation layer to copy for the residual; `LayerNormalization()` by default.

    Call arguments:
        x: Tensor `[batch, length, d_model]`.
        mask: bool tensor `[batch, length]`, True = valid; by default the Keras mask of `x`. No
            position attends to one that is not valid.
        return_attention_scores: Whether to return the scores too.
        relations: The `Relations` of the positions, for rotary positions and biases by position.

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
        return_attention_scores=False,
        relations=None,
        training=None,
    ):
        self.check(x, "mask", mask, x)
        y = self.attention(
            self.residual.prepare(x),
            query_mask=mask,
            return_attention_scores=return_attention_scores,
            relations=relations,
            training=training,
        )
        return self.add(x, y, return_attention_scores, training)


@keras.saving.register_keras_serializable(package="keras_tfmr")
class CausalSelfAttention(AttentionSublayer):
    """The decoder's first sublayer: no position attends to a later one.

    Args:
        num_heads: Number of heads.
        key_dim: Width of a query and of a key in one head.
        value_dim: Width of a value in one head; `key_dim` by default.
        num_kv_heads: Number of heads of keys and values; `num_heads` by default.
        dropout_rate: Share of the sublayer's output that is dropped in training.
        attention_dropout_rate: Share of the attention weights; `dropout_rate` by default.
        norm_first: Normalise the sublayer's input (pre-norm) instead of the sum (post-norm).
        use_bias: Whether the projections add a bias.
        qk_norm: A normalisation layer, copied for the queries and for the keys of each head.
        norm: A normalisation layer to copy for the residual; `LayerNormalization()` by default.

    Call arguments:
        x: Tensor `[batch, length, d_model]`.
        mask: bool tensor `[batch, length]`, True = valid; by default the Keras mask of `x`. No
            position attends to one that is not valid, nor to a later one.
        return_attention_scores: Whether to return the scores too.
        relations: The `Relations` of the positions, for rotary positions and biases by position.

    Returns:
        Tensor `[batch, length, d_model]`; with scores, a pair of it and
        `[batch, heads, length, length]`.

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
        return_attention_scores=False,
        relations=None,
        training=None,
    ):
        self.check(x, "mask", mask, x)
        y = self.attention(
            self.residual.prepare(x),
            query_mask=mask,
            use_causal_mask=True,
            return_attention_scores=return_attention_scores,
            relations=relations,
            training=training,
        )
        return self.add(x, y, return_attention_scores, training)

    def step(self, x, cache, at, packed=None):
        """The sublayer for new tokens only; the arguments are those of `MultiHeadAttention.step`.

        Returns:
            Tensor `[rows, d_model]` and the cache with the new positions written.
        """
        y, cache = self.attention.step(self.residual.prepare(x), cache, at, packed)
        return self.residual(x, y), cache


@keras.saving.register_keras_serializable(package="keras_tfmr")
class CrossAttention(AttentionSublayer):
    """The decoder's second sublayer: queries from `x`, keys and values from `context`.

    Args:
        num_heads: Number of heads.
        key_dim: Width of a query and of a key in one head.
        value_dim: Width of a value in one head; `key_dim` by default.
        num_kv_heads: Number of heads of keys and values; `num_heads` by default.
        dropout_rate: Share of the sublayer's output that is dropped in training.
        attention_dropout_rate: Share of the attention weights; `dropout_rate` by default.
        norm_first: Normalise the sublayer's input (pre-norm) instead of the sum (post-norm).
        use_bias: Whether the projections add a bias.
        qk_norm: A normalisation layer, copied for the queries and for the keys of each head.
        norm: A normalisation layer to copy for the residual; `LayerNormalization()` by default.

    Call arguments:
        x: Tensor `[batch, target, d_model]`; its mask is passed on.
        context: Tensor `[batch, source, width]`.
        context_mask: bool tensor `[batch, source]`, True = valid; by default the Keras mask of
            `context`. No position attends to one that is not valid.
        return_attention_scores: Whether to return the scores too.

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
        self.built = True

    def call(self, x, context, context_mask=None, return_attention_scores=False, training=None):
        _checks.sequence_of_vectors("context", context.shape)
        self.check(x, "context_mask", context_mask, context)
        y = self.attention(
            self.residual.prepare(x),
            context,
            value_mask=context_mask,
            return_attention_scores=return_attention_scores,
            training=training,
        )
        return self.add(x, y, return_attention_scores, training)

    def step(self, x, query, memory):
        """The sublayer for new tokens, over a context that was projected before.

        Args:
            x: Tensor `[rows, d_model]`, the new tokens of an example side by side.
            query: int, how many they are: the beams of an example attend to one memory.
            memory: What `attention.memory` gives.

        Returns:
            Tensor `[rows, d_model]`.
        """
        return self.residual(x, self.attention.memory_step(self.residual.prepare(x), query, memory))
