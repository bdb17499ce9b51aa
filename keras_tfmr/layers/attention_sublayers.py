"""The three attention sublayers of the paper's Figure 1, each with its residual."""

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.layers.attention import MultiHeadAttention
from keras_tfmr.layers.residual import Sublayer


class AttentionSublayer(Sublayer):
    """What the three attention sublayers share: the attention and its residual."""

    def __init__(
        self, num_heads, key_dim, *, value_dim=None, dropout=0.0, norm_first=False, **kwargs
    ):
        super().__init__(**kwargs)
        self.dropout_rate = _checks.rate("dropout", dropout)
        self.norm_first = bool(norm_first)
        self.attention = MultiHeadAttention(
            num_heads,
            key_dim,
            value_dim=value_dim,
            dropout=dropout,
            dtype=self.dtype_policy,
            name="attention",
        )
        self.residual = self.make_residual(norm_first, dropout)
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

    def compute_output_spec(self, x, mask=None, return_attention_scores=False, training=None):
        self.check(x, "mask", mask, x)
        y = keras.KerasTensor(x.shape, self.compute_dtype)
        if not return_attention_scores:
            return y
        return y, self.attention.scores_spec(x.shape[0], x.shape[1], x.shape[1])

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.attention.num_heads,
            "key_dim": self.attention.key_dim,
            "value_dim": self.attention.value_dim,
            "dropout": self.dropout_rate,
            "norm_first": self.norm_first,
        }


@keras.saving.register_keras_serializable(package="keras_tfmr")
class GlobalSelfAttention(AttentionSublayer):
    """The encoder's attention sublayer: every position attends to every real one.

    Args:
        num_heads: Number of heads.
        key_dim: Width of a query and of a key in one head.
        value_dim: Width of a value in one head; `key_dim` by default.
        dropout: Share dropped in training, of the attention weights and of the sublayer's output.
        norm_first: Normalise the sublayer's input (pre-norm) instead of the sum (post-norm).

    Call arguments:
        x: Tensor `[batch, length, d_model]`.
        mask: bool tensor `[batch, length]`, True = valid; by default the Keras mask of `x`. No
            position attends to one that is not valid.
        return_attention_scores: Whether to return the scores too.

    Returns:
        Tensor `[batch, length, d_model]`; with scores, a pair of it and
        `[batch, heads, length, length]`.

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.2.3.

    >>> x = np.ones((3, 5, 16), "float32")
    >>> GlobalSelfAttention(num_heads=2, key_dim=8)(x).shape
    TensorShape([3, 5, 16])
    """

    def call(self, x, mask=None, return_attention_scores=False, training=None):
        self.check(x, "mask", mask, x)
        y, scores = self.attention(
            self.residual.prepare(x),
            mask=mask,
            return_attention_scores=True,
            training=training,
        )
        y = self.residual(x, y, training=training)
        return (y, scores) if return_attention_scores else y


@keras.saving.register_keras_serializable(package="keras_tfmr")
class CausalSelfAttention(AttentionSublayer):
    """The decoder's first sublayer: no position attends to a later one.

    Args:
        num_heads: Number of heads.
        key_dim: Width of a query and of a key in one head.
        value_dim: Width of a value in one head; `key_dim` by default.
        dropout: Share dropped in training, of the attention weights and of the sublayer's output.
        norm_first: Normalise the sublayer's input (pre-norm) instead of the sum (post-norm).

    Call arguments:
        x: Tensor `[batch, length, d_model]`.
        mask: bool tensor `[batch, length]`, True = valid; by default the Keras mask of `x`. No
            position attends to one that is not valid, nor to a later one.
        return_attention_scores: Whether to return the scores too.

    Returns:
        Tensor `[batch, length, d_model]`; with scores, a pair of it and
        `[batch, heads, length, length]`.

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.2.3.

    >>> x = np.ones((3, 5, 16), "float32")
    >>> y, scores = CausalSelfAttention(num_heads=2, key_dim=8)(x, return_attention_scores=True)
    >>> scores.numpy()[0, 0, 0].tolist()
    [1.0, 0.0, 0.0, 0.0, 0.0]
    """

    def call(self, x, mask=None, return_attention_scores=False, training=None):
        self.check(x, "mask", mask, x)
        length = ops.shape(x)[1]
        positions = ops.arange(length)
        earlier = positions[:, None] >= positions[None, :]  # [query, key]
        y, scores = self.attention(
            self.residual.prepare(x),
            mask=earlier[None],
            query_mask=mask,
            return_attention_scores=True,
            training=training,
        )
        y = self.residual(x, y, training=training)
        return (y, scores) if return_attention_scores else y

    def step(self, x, cache, index):
        """The sublayer for new positions only.

        Args:
            x: Tensor `[rows, new, d_model]`, positions index … index + new - 1.
            cache: Keys and values `[rows, heads, max_length, …]` of the positions before.
            index: int scalar, how many positions the cache holds.

        Returns:
            Tensor `[rows, new, d_model]` and the cache with the new positions written.
        """
        h = self.residual.prepare(x)
        new, max_length = ops.shape(x)[1], ops.shape(cache[0])[2]
        positions = ops.arange(max_length)
        cache = tuple(
            _write(old, updates, positions - index)
            for old, updates in zip(cache, self.attention.project(h), strict=True)
        )
        earlier = positions[None, :] <= index + ops.arange(new)[:, None]
        queries = self.attention.project_query(h)
        y, _ = self.attention.attend(queries, *cache, earlier[None, None])
        return self.residual(x, y), cache


def _write(cache, updates, offsets):
    """`updates` `[rows, heads, new, dim]` in their places of the cache `[rows, heads, key, dim]`.

    `offsets` `[key]` says which of the updates belongs where; the others stay as they are.
    `ops.slice_update` would do, but TensorFlow compiles it by XLA even outside of what is compiled,
    which a stock TensorFlow Serving refuses.
    """
    new = ops.shape(updates)[2]
    if new != 1:
        updates = ops.take(updates, ops.clip(offsets, 0, new - 1), axis=2)
    written = (offsets >= 0) & (offsets < new)  # [key]
    return ops.where(written[:, None], updates, cache)


@keras.saving.register_keras_serializable(package="keras_tfmr")
class CrossAttention(AttentionSublayer):
    """The decoder's second sublayer: queries from `x`, keys and values from `context`.

    Args:
        num_heads: Number of heads.
        key_dim: Width of a query and of a key in one head.
        value_dim: Width of a value in one head; `key_dim` by default.
        dropout: Share dropped in training, of the attention weights and of the sublayer's output.
        norm_first: Normalise the sublayer's input (pre-norm) instead of the sum (post-norm).

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
        y, scores = self.attention(
            self.residual.prepare(x),
            context,
            key_mask=context_mask,
            return_attention_scores=True,
            training=training,
        )
        y = self.residual(x, y, training=training)
        return (y, scores) if return_attention_scores else y

    def step(self, x, memory, context_mask=None):
        """The sublayer over keys and values that were projected before.

        The rows of one sentence (its beams) become further queries of that sentence, so that
        its keys and values are never copied.

        Args:
            x: Tensor `[rows, new, d_model]`, rows a multiple of batch.
            memory: `attention.project(context)`: keys `[batch, heads, source, key_dim]` and
                values `[batch, heads, source, value_dim]`.
            context_mask: bool tensor `[batch, source]`, True = valid.

        Returns:
            Tensor `[rows, new, d_model]`.
        """
        h = self.residual.prepare(x)
        rows, new, d_model = ops.shape(h)
        batch = ops.shape(memory[0])[0]
        per_sentence = rows * new // ops.maximum(batch, 1)
        if isinstance(rows, int) and isinstance(new, int) and isinstance(batch, int):
            per_sentence = rows * new // max(batch, 1)
        h = ops.reshape(h, (batch, per_sentence, d_model))
        may_attend = None if context_mask is None else context_mask[:, None, None, :]
        y, _ = self.attention.attend(self.attention.project_query(h), *memory, may_attend)
        return self.residual(x, ops.reshape(y, (rows, new, d_model)))

    def compute_output_spec(
        self, x, context, context_mask=None, return_attention_scores=False, training=None
    ):
        _checks.sequence_of_vectors("context", context.shape)
        self.check(x, "context_mask", context_mask, context)
        y = keras.KerasTensor(x.shape, self.compute_dtype)
        if not return_attention_scores:
            return y
        return y, self.attention.scores_spec(x.shape[0], x.shape[1], context.shape[1])
