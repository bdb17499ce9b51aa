"""Multi-head attention: softmax(QKᵀ / √key_dim) V for each head."""

import math

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.layers.dropout import Dropout

# Added to the scores of positions that may not be attended to. Scores are float32 whatever the
# policy, where this leaves exp() exactly zero beside any real score.
MASKED = -1e9


def softmax(scores):
    """Softmax over the last axis, of which Keras warns where it holds a single position."""
    if scores.shape[-1] == 1:
        return 0.0 * scores + 1.0  # a gradient of zero, not none
    return ops.softmax(scores, axis=-1)


def masked_softmax(scores, may_attend=None):
    """Softmax in float32 over the last axis, zero where nothing may be attended to.

    Args:
        scores: Tensor `[..., key]`.
        may_attend: bool, broadcasts to the scores; True = may be attended to.

    Returns:
        float32 weights `[..., key]`.
    """
    scores = ops.cast(scores, "float32")
    if may_attend is None:
        return softmax(scores)
    weights = softmax(scores + ops.where(may_attend, 0.0, MASKED))
    # Where nothing may be attended to, softmax is uniform over what is masked.
    return weights * ops.cast(ops.any(may_attend, axis=-1, keepdims=True), "float32")


@keras.saving.register_keras_serializable(package="keras_tfmr")
class MultiHeadAttention(keras.layers.Layer):
    """Scaled dot-product attention per head: softmax(QKᵀ / √key_dim) V, in float32 softmax.

    Heads are concatenated and projected back to the query's width or to `output_dim`.

    Args:
        num_heads: Number of heads.
        key_dim: Width of a query and of a key in one head.
        value_dim: Width of a value in one head; `key_dim` by default.
        output_dim: Width of the output; the query's by default.
        dropout: Share of the attention weights that is dropped in training.
        use_bias: Whether the four projections add a bias.

    Call arguments:
        query: Tensor `[batch, query, width]`.
        key: Tensor `[batch, key, width]`; `query` by default (self-attention).
        value: Tensor `[batch, key, width]`; `key` by default.
        mask: bool tensor `[batch, key]`, `[batch, query, key]` or `[batch, heads, query, key]`,
            True = may attend.
        query_mask: bool tensor `[batch, query]`, filled in from the query's Keras mask. Matters
            only in self-attention, where the query is the key.
        key_mask: bool tensor `[batch, key]`, filled in from the key's Keras mask. Every mask
            that is given must allow a position. A query that may attend to nothing gets the
            output projection of zero.
        return_attention_scores: Whether to return the scores too.

    Returns:
        Tensor `[batch, query, output_dim]`; with scores, a pair of it and the softmax of each
        head `[batch, heads, query, key]`.

    Raises:
        ValueError: If a size is not positive, or an input or mask has the wrong shape.
        TypeError: If a mask is not bool.

    Reference: Vaswani et al. 2017, Attention Is All You Need (arXiv 1706.03762), section 3.2.

    >>> attention = MultiHeadAttention(num_heads=2, key_dim=8)
    >>> x = np.ones((3, 5, 16), "float32")
    >>> y, scores = attention(x, return_attention_scores=True)
    >>> y.shape, scores.shape
    (TensorShape([3, 5, 16]), TensorShape([3, 2, 5, 5]))
    """

    def __init__(
        self,
        num_heads,
        key_dim,
        *,
        value_dim=None,
        output_dim=None,
        dropout=0.0,
        use_bias=True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = _checks.positive_int("num_heads", num_heads)
        self.key_dim = _checks.positive_int("key_dim", key_dim)
        self.value_dim = key_dim if value_dim is None else value_dim
        _checks.positive_int("value_dim", self.value_dim)
        if output_dim is not None:
            _checks.positive_int("output_dim", output_dim)
        self.output_dim = output_dim
        self.dropout_rate = _checks.rate("dropout", dropout)
        self.use_bias = bool(use_bias)
        self.query_dense = self._dense(num_heads * key_dim, "query")
        self.key_dense = self._dense(num_heads * key_dim, "key")
        self.value_dense = self._dense(num_heads * self.value_dim, "value")
        self.dropout = Dropout(dropout, dtype=self.dtype_policy, name="dropout")
        self.supports_masking = True

    def _dense(self, units, name):
        return keras.layers.Dense(units, use_bias=self.use_bias, dtype=self.dtype_policy, name=name)

    def build(self, query_shape, key_shape=None, value_shape=None):
        key_shape = query_shape if key_shape is None else key_shape
        value_shape = key_shape if value_shape is None else value_shape
        for name, shape in zip(
            ("query", "key", "value"), (query_shape, key_shape, value_shape), strict=True
        ):
            _checks.sequence_of_vectors(name, shape)
        self.query_dense.build(query_shape)
        self.key_dense.build(key_shape)
        self.value_dense.build(value_shape)
        self.output_dense = self._dense(self.output_dim or query_shape[-1], "output")
        self.output_dense.build((*query_shape[:-1], self.num_heads * self.value_dim))
        self.built = True

    def call(
        self,
        query,
        key=None,
        value=None,
        *,
        mask=None,
        query_mask=None,
        key_mask=None,
        return_attention_scores=False,
        training=None,
    ):
        if key is None:
            key, key_mask = query, query_mask if key_mask is None else key_mask
        self._check(query.shape, key.shape, value, mask, key_mask)
        queries = self.project_query(query)
        keys, values = self.project(key, value)
        may_attend = self._combine(mask, key_mask)
        y, scores = self.attend(queries, keys, values, may_attend, training)
        return (y, scores) if return_attention_scores else y

    def project_query(self, query):
        """`[batch, query, width]` → `[batch, heads, query, key_dim]`, divided by √key_dim."""
        queries = self.query_dense(query)
        return self._split_heads(queries * (1 / math.sqrt(self.key_dim)), self.key_dim)

    def project(self, key, value=None):
        """Keys `[batch, heads, key, key_dim]` and values `[batch, heads, key, value_dim]`."""
        keys = self.key_dense(key)
        values = self.value_dense(key if value is None else value)
        return self._split_heads(keys, self.key_dim), self._split_heads(values, self.value_dim)

    def attend(self, queries, keys, values, may_attend=None, training=None):
        """Attention of projected heads, and the output projection.

        Args:
            queries: `[batch, heads, query, key_dim]`, already divided by √key_dim.
            keys: `[batch, heads, key, key_dim]`.
            values: `[batch, heads, key, value_dim]`.
            may_attend: bool, broadcasts to `[batch, heads, query, key]`.

        Returns:
            `[batch, query, output_dim]` and the scores `[batch, heads, query, key]`.
        """
        scores = ops.matmul(queries, ops.transpose(keys, (0, 1, 3, 2)))
        scores = ops.cast(scores, "float32")  # [batch, heads, query, key]
        if may_attend is not None:
            scores = scores + ops.where(may_attend, 0.0, MASKED)
        scores = ops.cast(softmax(scores), self.compute_dtype)
        weights = self.dropout(scores, training=training)
        heads = ops.matmul(weights, values)  # [batch, heads, query, value_dim]
        if may_attend is not None:
            # Where nothing may be attended to, softmax is uniform over what is masked.
            some = ops.cast(ops.any(may_attend, axis=-1, keepdims=True), heads.dtype)
            heads, scores = heads * some, scores * some
        return self.output_dense(self._join_heads(heads)), scores

    def cache(self, rows, max_length):
        """Empty keys and values of `max_length` positions, to be filled one by one.

        Returns:
            Zeros `[rows, heads, max_length, key_dim]` and `[rows, heads, max_length, value_dim]`.
        """
        shape = (rows, self.num_heads, max_length)
        return (
            ops.zeros((*shape, self.key_dim), self.compute_dtype),
            ops.zeros((*shape, self.value_dim), self.compute_dtype),
        )

    def _split_heads(self, x, width):
        length = ops.shape(x)[1]
        x = ops.reshape(x, (-1, length, self.num_heads, width))
        return ops.transpose(x, (0, 2, 1, 3))  # [batch, heads, length, width]

    def _join_heads(self, x):
        length = ops.shape(x)[2]
        x = ops.transpose(x, (0, 2, 1, 3))
        return ops.reshape(x, (-1, length, self.num_heads * self.value_dim))

    def _check(self, query_shape, key_shape, value, mask, key_mask):
        _checks.sequence_of_vectors("query", query_shape)
        _checks.sequence_of_vectors("key", key_shape)
        batch, length = query_shape[:2]
        keys = key_shape[1]
        if value is not None:
            _checks.sequence_of_vectors("value", value.shape)
            if None not in (keys, value.shape[1]) and keys != value.shape[1]:
                raise ValueError(
                    "`key` and `value` must have the same length. Received: shapes "
                    f"{tuple(key_shape)} and {tuple(value.shape)}"
                )
        if mask is not None:
            sizes = {"batch": batch, "query": length, "heads": self.num_heads}
            _checks.mask("mask", mask, (2, 3, 4), keys, **sizes)
        if key_mask is not None:
            _checks.mask("key_mask", key_mask, (2,), keys, batch=batch)

    def _combine(self, mask, key_mask):
        """The masks that are given as one of rank 4, or None."""
        may_attend = None
        for given in (mask, key_mask):
            if given is None:
                continue
            rank = len(given.shape)
            if rank == 2:
                given = given[:, None, None, :]  # [batch, 1, 1, key]
            elif rank == 3:
                given = given[:, None, :, :]  # [batch, 1, query, key]
            may_attend = given if may_attend is None else ops.logical_and(may_attend, given)
        return may_attend

    def compute_mask(self, query, previous_mask=None):
        # `previous_mask` may be the call's own `mask`, which is about keys: the output is as
        # valid as the query is.
        return getattr(query, "_keras_mask", None)

    def compute_output_spec(
        self,
        query,
        key=None,
        value=None,
        *,
        mask=None,
        query_mask=None,
        key_mask=None,
        return_attention_scores=False,
        training=None,
    ):
        key_shape = (query if key is None else key).shape
        self._check(query.shape, key_shape, value, mask, key_mask)
        batch, length, width = query.shape
        y = keras.KerasTensor((batch, length, self.output_dim or width), self.compute_dtype)
        if not return_attention_scores:
            return y
        return y, self.scores_spec(batch, length, key_shape[1])

    def scores_spec(self, batch, query_length, key_length):
        """The symbolic scores `[batch, heads, query, key]`."""
        shape = (batch, self.num_heads, query_length, key_length)
        return keras.KerasTensor(shape, self.compute_dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "output_dim": self.output_dim,
            "dropout": self.dropout_rate,
            "use_bias": self.use_bias,
        }
