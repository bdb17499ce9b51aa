"""Multi-head attention: softmax(QKᵀ / √key_dim) V for each head."""

import math

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.layers._parts import described
from keras_tfmr.layers.cache import write
from keras_tfmr.layers.dot_product import (
    flat,
    fused_attention,
    grouped_matmul,
    has_fused_attention,
    transposed,
)
from keras_tfmr.layers.dropout import Dropout
from keras_tfmr.layers.masking import (
    attention_mask,
    causal_mask,
    joined,
    masked_softmax,
    silenced,
)
from keras_tfmr.layers.normalization import norm_like
from keras_tfmr.layers.relative_positions import Relations, rotated


@keras.saving.register_keras_serializable(package="keras_tfmr")
class MultiHeadAttention(keras.layers.Layer):
    """Scaled dot-product attention in several heads: softmax(QKᵀ / √key_dim) V for each head.

    The softmax is in float32. Heads are concatenated and projected to the query's width or to
    `output_shape`. The first call arguments are those of `keras.layers.MultiHeadAttention`, in the
    same order.

    A subclass may override `project_query`, `project`, `project_self`, `attend` and
    `project_output`: the full pass and the steps of cached decoding run the same methods.

    Args:
        num_heads: Number of heads.
        key_dim: Width of a query and of a key in one head.
        value_dim: Width of a value in one head; `key_dim` by default.
        num_kv_heads: Number of heads of keys and values, each shared by the same number of query
            heads; it must divide `num_heads`, its default. 1 is multi-query attention.
        output_shape: Width of the output; the query's by default.
        dropout_rate: Share of the attention weights that is dropped in training.
        use_bias: Whether the four projections add a bias.
        qk_norm: A normalisation layer, copied for the queries and for the keys of each head.

    Call arguments:
        query: Tensor `[batch, query, width]`.
        value: Tensor `[batch, key, width]`; `query` by default (self-attention).
        key: Tensor `[batch, key, width]`; `value` by default.
        query_mask: bool tensor `[batch, query]`; by default the Keras mask of `query`. Used only in
            self-attention, where the query is the key.
        value_mask: bool tensor `[batch, key]`; by default the Keras mask of `value`.
        key_mask: bool tensor `[batch, key]`; by default the Keras mask of `key`.
        attention_mask: bool tensor `[batch, key]`, `[batch, query, key]` or
            `[batch, heads, query, key]`, True = may attend. A query attends only to keys that all
            masks allow. If there are none, its output is the output projection of zero.
        use_causal_mask: Whether a query may attend only to its own and earlier positions.
        return_attention_scores: Whether to return the scores too.
        relations: The `Relations` of the positions, for rotary positions and biases by position.

    Returns:
        Tensor `[batch, query, output_shape]`; with scores, a pair of it and the softmax of each
        head `[batch, heads, query, key]`.

    Raises:
        ValueError: If a size is not positive, or an input or mask has the wrong shape.
        TypeError: If a mask is not bool.

    Reference: Vaswani et al. 2017, Attention Is All You Need (arXiv 1706.03762), section 3.2;
    Ainslie et al. 2023 (arXiv 2305.13245) for `num_kv_heads`; Henry et al. 2020
    (arXiv 2010.04245) for `qk_norm`.

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
        num_kv_heads=None,
        output_shape=None,
        dropout_rate=0.0,
        use_bias=True,
        qk_norm=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = _checks.positive_int("num_heads", num_heads)
        self.key_dim = _checks.positive_int("key_dim", key_dim)
        self.value_dim = key_dim if value_dim is None else value_dim
        _checks.positive_int("value_dim", self.value_dim)
        self.num_kv_heads = _checks.kv_heads(num_heads, num_kv_heads)
        if output_shape is not None:
            _checks.positive_int("output_shape", output_shape)
        self.output_width = output_shape
        self.dropout_rate = _checks.rate("dropout_rate", dropout_rate)
        self.use_bias = bool(use_bias)
        self.query_dense = self._dense(num_heads * key_dim, "query")
        self.key_dense = self._dense(self.num_kv_heads * key_dim, "key")
        self.value_dense = self._dense(self.num_kv_heads * self.value_dim, "value")
        self.query_norm = self.key_norm = None
        if qk_norm is not None:
            self.query_norm = norm_like(qk_norm, self.dtype_policy, "query_norm")
            self.key_norm = norm_like(qk_norm, self.dtype_policy, "key_norm")
        self.dropout = Dropout(dropout_rate, dtype=self.dtype_policy, name="dropout")
        self.supports_masking = True

    def _dense(self, units, name):
        return keras.layers.Dense(units, use_bias=self.use_bias, dtype=self.dtype_policy, name=name)

    def build(self, query_shape, value_shape=None, key_shape=None):
        value_shape = query_shape if value_shape is None else value_shape
        key_shape = value_shape if key_shape is None else key_shape
        for name, shape in (("query", query_shape), ("key", key_shape), ("value", value_shape)):
            _checks.sequence_of_vectors(name, shape)
        self.query_dense.build(query_shape)
        self.key_dense.build(key_shape)
        self.value_dense.build(value_shape)
        if self.query_norm is not None:
            for norm in (self.query_norm, self.key_norm):
                norm.build((None, None, None, self.key_dim))
        self.output_dense = self._dense(self.output_width or query_shape[-1], "output")
        self.output_dense.build((*query_shape[:-1], self.num_heads * self.value_dim))
        self.built = True

    def call(
        self,
        query,
        value=None,
        key=None,
        *,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        use_causal_mask=False,
        return_attention_scores=False,
        relations=None,
        training=None,
    ):
        masks = [attention_mask, value_mask, key_mask]
        if value is None and key is None:
            # Keras fills in the masks of several inputs; of a single one, only a `mask`.
            query_mask = getattr(query, "_keras_mask", None) if query_mask is None else query_mask
            masks = [attention_mask, query_mask if key_mask is None else key_mask]
        # A causal mask alone is left to `attend`, because a fused kernel needs no tensor for it.
        relations = relations or Relations()
        causal = use_causal_mask and all(m is None for m in (*masks, relations.bias))
        if use_causal_mask and not causal:
            keys = query if value is None else value
            masks.append(causal_mask(ops.shape(query)[1], ops.shape(keys)[1]))
        self._check(query, value, key, attention_mask, value_mask, key_mask)
        length = ops.shape(query)[1]
        if value is None and key is None:
            x = flat(query)
            queries, keys, values = self.project_self(x, length, rotation=relations.rotation)
        else:
            value = query if value is None else value
            queries = self.project_query(flat(query), length, relations.rotation)
            key = value if key is None else key
            keys, values = self.project(
                flat(key), flat(value), ops.shape(key)[1], relations.rotation
            )
        heads, scores = self.attend(
            queries,
            transposed(keys),
            values,
            joined(masks, relations.bias),
            causal=causal,
            return_attention_scores=return_attention_scores,
            training=training,
        )
        y = self.project_output(heads)  # [batch * query, output_shape]
        y = ops.reshape(y, (-1, length, y.shape[-1]))
        return (y, scores) if return_attention_scores else y

    def step(self, x, cache, at, packed=None):
        """Self-attention of new tokens, to themselves and to the positions in the cache.

        Args:
            x: Tensor `[rows, width]`, the new tokens of an example side by side.
            cache: Keys `[batch, kv_heads, room * beams, key_dim]` and values
                `[batch, kv_heads, room * beams, value_dim]` of earlier positions.
            at: The `StepPosition`.
            packed: What `packing.packed_projections` gives, computed before the loop.

        Returns:
            Tensor `[rows, output_shape]` and the cache with the new positions written.
        """
        queries, *new = self.project_self(x, at.query, packed, at.rotation)
        keys, values = (write(old, one, at) for old, one in zip(cache, new, strict=True))
        heads, _ = self.attend(queries, transposed(keys), values, at.mask)
        return self.project_output(heads), (keys, values)

    def memory_step(self, x, query, memory):
        """Attention of new tokens to a context that `memory` projected.

        Args:
            x: Tensor `[rows, width]`, the new tokens of an example side by side.
            query: int, the number of new tokens of an example.
            memory: What `memory` gives.

        Returns:
            Tensor `[rows, output_shape]`.
        """
        keys, values, mask = memory
        heads, _ = self.attend(self.project_query(x, query), keys, values, mask)
        return self.project_output(heads)

    def memory(self, context, mask=None):
        """The keys, values and `AttentionMask` of a context, which every step reads.

        Args:
            context: Tensor `[batch, key, width]`.
            mask: bool tensor `[batch, key]`, True = valid.
        """
        mask = joined([mask], None)
        keys, values = self.project(flat(context), length=ops.shape(context)[1])
        if mask is not None:
            # Sets values to zero once, instead of outputs in every step.
            values, mask = silenced(values, mask), mask._replace(attends=None)
        return transposed(keys), values, mask

    def cache(self, batch, size):
        """An empty cache of keys and values with `size` places.

        Returns:
            Zeros `[batch, kv_heads, size, key_dim]` and `[batch, kv_heads, size, value_dim]`.
        """
        shape = (batch, self.num_kv_heads, size)
        return (
            ops.zeros((*shape, self.key_dim), self.compute_dtype),
            ops.zeros((*shape, self.value_dim), self.compute_dtype),
        )

    def project_query(self, x, length=None, rotation=None):
        """Queries `[batch, heads, length, key_dim]`.

        Args:
            x: Tensor `[batch, length, width]`, or the same flat, `[batch * length, width]`.
            length: Number of queries of an example; by default the second axis of `x`.
            rotation: What `RotaryPositions.rotation` gives for the positions, or None.
        """
        length = ops.shape(x)[1] if length is None else length
        return self._query(self._split_heads(self.query_dense(x), length, self.key_dim), rotation)

    def project(self, key, value=None, length=None, rotation=None):
        """Keys and values.

        Args:
            key: Tensor `[batch, length, width]`, or the same flat, `[batch * length, width]`.
            value: The same for the values; `key` by default.
            length: Number of keys of an example; by default the second axis of `key`.
            rotation: What `RotaryPositions.rotation` gives for the positions, or None.

        Returns:
            Keys `[batch, kv_heads, length, key_dim]`, divided by √key_dim, and values
            `[batch, kv_heads, length, value_dim]`.
        """
        length = ops.shape(key)[1] if length is None else length
        keys = self.key_dense(key)
        if self.key_norm is None:
            keys = keys * (1 / math.sqrt(self.key_dim))
        values = self.value_dense(key if value is None else value)
        keys = self._key(self._split_heads(keys, length, self.key_dim), rotation)
        return keys, self._split_heads(values, length, self.value_dim)

    def project_self(self, x, length, packed=None, rotation=None):
        """Queries, keys and values of the same `x`, in one product if `packed` is given.

        Args:
            x: Tensor `[batch, length, width]`, or the same flat, `[batch * length, width]`.
            length: Number of positions of an example.
            packed: What `packed_projections` gives, or None.
            rotation: What `RotaryPositions.rotation` gives for the positions, or None.

        Returns:
            What `project_query` and `project` give.
        """
        if packed is None:
            return self.project_query(x, length, rotation), *self.project(x, x, length, rotation)
        kernel, bias = packed
        y = ops.matmul(x, kernel)
        if bias is not None:
            y = y + bias
        heads, kv_heads = self.num_heads, self.num_kv_heads
        if self.key_dim == self.value_dim:
            parts = [heads, heads + kv_heads] if heads != kv_heads else 3
            queries, keys, values = ops.split(self._split_heads(y, length, self.key_dim), parts, 1)
        else:
            ends = [heads * self.key_dim, (heads + kv_heads) * self.key_dim]
            queries, keys, values = (
                self._split_heads(part, length, dim)
                for part, dim in zip(
                    (y[..., : ends[0]], y[..., ends[0] : ends[1]], y[..., ends[1] :]),
                    (self.key_dim, self.key_dim, self.value_dim),
                    strict=True,
                )
            )
        return self._query(queries, rotation), self._key(keys, rotation), values

    def attend(
        self,
        queries,
        keys,
        values,
        mask=None,
        *,
        causal=False,
        return_attention_scores=False,
        training=None,
    ):
        """Attention of projected heads.

        Args:
            queries: `[batch, heads, query, key_dim]`.
            keys: `[batch, kv_heads, key_dim, key]`, transposed and already divided by √key_dim.
            values: `[batch, kv_heads, key, value_dim]`.
            mask: An `AttentionMask` that broadcasts to `[batch, heads, query, key]`, or None.
            causal: Whether a query may attend only to its own and earlier positions; only without a
                mask.
            return_attention_scores: Whether to return the scores. Without them, a fused kernel of
                the backend may be used.

        Returns:
            `[batch, heads, query, value_dim]` and the scores `[batch, heads, query, key]` or None.
        """
        if not return_attention_scores and self._fused(training):
            return silenced(fused_attention(queries, keys, values, mask, causal), mask), None
        if causal:
            may_attend = causal_mask(ops.shape(queries)[2], ops.shape(keys)[3])
            mask = attention_mask(may_attend)._replace(attends=None)
        scores = grouped_matmul(queries, keys)  # [batch, heads, query, key]
        # The rows of queries without keys are set to zero in the outputs, which are smaller.
        bias = None if mask is None else mask._replace(attends=None)
        scores = ops.cast(masked_softmax(scores, bias), self.compute_dtype)
        weights = self.dropout(scores, training=training)
        heads = grouped_matmul(weights, values)  # [batch, heads, query, value_dim]
        return silenced(heads, mask), silenced(scores, mask)

    def project_output(self, heads):
        """`[batch, heads, query, value_dim]` → `[batch * query, output_shape]`."""
        if heads.shape[2] != 1:
            heads = ops.transpose(heads, (0, 2, 1, 3))
        return self.output_dense(ops.reshape(heads, (-1, self.num_heads * self.value_dim)))

    def _fused(self, training):
        # JAX's kernel needs values as wide as keys; float16 cannot hold the bias of a mask.
        fits = self.key_dim == self.value_dim and self.compute_dtype != "float16"
        return has_fused_attention() and fits and not (training and self.dropout_rate > 0)

    def _query(self, queries, rotation):
        queries = queries if self.query_norm is None else self.query_norm(queries)
        return rotated(queries, rotation)

    def _key(self, keys, rotation):
        if self.key_norm is not None:
            keys = self.key_norm(keys) * (1 / math.sqrt(self.key_dim))
        return rotated(keys, rotation)

    def _split_heads(self, x, length, dim):
        """`[batch * length, n * dim]` or `[batch, length, n * dim]` → `[batch, n, length, dim]`."""
        heads = x.shape[-1] // dim
        if isinstance(length, int) and length == 1:
            return ops.reshape(x, (-1, heads, 1, dim))
        x = ops.reshape(x, (-1, length, heads, dim))
        return ops.transpose(x, (0, 2, 1, 3))

    def _check(self, query, value, key, attention_mask, value_mask, key_mask):
        value = query if value is None else value
        _checks.sequence_of_vectors("query", query.shape)
        _checks.sequence_of_vectors("value", value.shape)
        batch, length = query.shape[:2]
        keys = value.shape[1]
        if key is not None:
            _checks.sequence_of_vectors("key", key.shape)
            if None not in (keys, key.shape[1]) and keys != key.shape[1]:
                raise ValueError(
                    "`value` and `key` must have the same length. Received: shapes "
                    f"{tuple(value.shape)} and {tuple(key.shape)}"
                )
        if attention_mask is not None:
            sizes = {"batch": batch, "query": length, "heads": self.num_heads}
            _checks.mask("attention_mask", attention_mask, (2, 3, 4), keys, **sizes)
        for name, mask in (("value_mask", value_mask), ("key_mask", key_mask)):
            if mask is not None:
                _checks.mask(name, mask, (2,), keys, batch=batch)

    def compute_mask(self, query, previous_mask=None):
        # Not `previous_mask`, which may be the call's `attention_mask` over keys. An output is
        # valid if its query is.
        return getattr(query, "_keras_mask", None)

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "num_kv_heads": self.num_kv_heads,
            "output_shape": self.output_width,
            "dropout_rate": self.dropout_rate,
            "use_bias": self.use_bias,
            "qk_norm": described(self.query_norm),
        }
