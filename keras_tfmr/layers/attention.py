"""Multi-head attention: softmax(QKᵀ / √key_dim) V for each head."""

import math
from typing import Any

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.compat import keras_mask
from keras_tfmr.config import Nested, Shape, Tensor
from keras_tfmr.layers.base import TransformerLayer, serialize
from keras_tfmr.layers.cache import as_position, check_cache, write
from keras_tfmr.layers.dot_product import flat, fused_attention, grouped_matmul, leading_sizes
from keras_tfmr.layers.dropout import Dropout
from keras_tfmr.layers.masking import (
    additive_mask,
    causal_mask,
    masked_softmax,
    merge_masks,
    zero_masked_rows,
)
from keras_tfmr.layers.normalization import norm_like
from keras_tfmr.layers.relative_positions import rotated


@keras.saving.register_keras_serializable(package="keras_tfmr")
class MultiHeadAttention(TransformerLayer):
    """Scaled dot-product attention in several heads: softmax(QKᵀ / √key_dim) V for each head.

    The softmax is in float32. Heads are concatenated and projected to the query's width or to
    `output_shape`. The first call arguments are those of `keras.layers.MultiHeadAttention`, in the
    same order; masks mean the same.

    A subclass may override `project_query`, `project`, `project_self`, `attend` and
    `project_output`.

    Args:
        num_heads: Number of heads.
        key_dim: Width of a query and of a key in one head.
        value_dim: Width of a value in one head; `key_dim` by default.
        num_kv_heads: Number of heads of keys and values, each shared by the same number of query
            heads; it must divide `num_heads`, its default. 1 is multi-query attention.
        output_shape: Width of the output; the query's by default.
        dropout_rate: Fraction of the attention weights dropped in training.
        use_bias: Whether the four projections add a bias.
        qk_norm: A normalisation layer, copied for the queries and for the keys of each head.
        **kwargs: Options of the weights, such as `kernel_initializer`, as `keras.layers.Dense`
            takes them; those of `keras.layers.Layer`.

    Call arguments:
        query: Tensor `[batch, query, width]`.
        value: Tensor `[batch, key, width]`; `query` by default (self-attention).
        key: Tensor `[batch, key, width]`; `value` by default.
        query_mask: Mask `[batch, query]`; by default the Keras mask of `query`. Used only in
            self-attention, where the query is the key.
        value_mask: Mask `[batch, key]`; by default the Keras mask of `value`.
        key_mask: Mask `[batch, key]`; by default the Keras mask of `key`.
        attention_mask: Mask `[query, key]`, `[batch, query, key]` or `[batch, heads, query, key]`,
            True = may attend. A query attends only to keys that all masks allow. If there are none,
            its output is the output projection of zero.
        use_causal_mask: Whether a query may attend only to its own and earlier positions.
        return_attention_scores: Whether to return the scores too.
        position_bias: float32, broadcasts to `[batch, heads, query, key]` and is added to the
            scores: what `ALiBi` or `RelativePositionBias` gives.
        rotation: Output of `RotaryPositions` for the positions of the query.
        cache: Keys `[batch, kv_heads, key, key_dim]` and values `[batch, kv_heads, key, value_dim]`
            that were projected before; they replace `value` and `key`.
        cache_index: Makes it self-attention, whose keys and values are first written into the
            cache: the int32 number of positions that it holds, after which the query follows
            causally, or a `CachePosition`.

    Returns:
        Tensor `[batch, query, output_shape]`; with scores, also the softmax of each head
        `[batch, heads, query, key]`; with a `cache_index`, last, the new cache.

    Raises:
        ValueError: If a size is not positive, an input, mask or cache has the wrong shape, or
            the cache has no room. In a graph, which cannot raise an error, keys that a cache
            has no room for are NaN.

    Reference: Vaswani et al. 2017, Attention Is All You Need (arXiv 1706.03762), section 3.2;
    Ainslie et al. 2023 (arXiv 2305.13245) for `num_kv_heads`; Henry et al. 2020
    (arXiv 2010.04245) for `qk_norm`.

    >>> attention = MultiHeadAttention(num_heads=2, key_dim=8)
    >>> x = np.ones((3, 5, 16), "float32")
    >>> y, scores = attention(x, return_attention_scores=True)
    >>> y.shape, scores.shape
    (TensorShape([3, 5, 16]), TensorShape([3, 2, 5, 5]))
    """

    config_fields = ("num_heads", "key_dim", "dropout_rate")

    def __init__(
        self, num_heads: int, key_dim: int, *, value_dim: int | None = None,
        num_kv_heads: int | None = None, output_shape: int | None = None, dropout_rate: float = 0.1,
        use_bias: bool = True, qk_norm: keras.layers.Layer | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(use_bias=use_bias, **kwargs)
        self.num_heads = _checks.positive_int("num_heads", num_heads)
        self.key_dim = _checks.positive_int("key_dim", key_dim)
        # For the config, in which None follows other sizes; below, as they are.
        self.optional_sizes = {
            "value_dim": _checks.optional_int("value_dim", value_dim),
            "num_kv_heads": _checks.optional_int("num_kv_heads", num_kv_heads),
            "output_shape": _checks.optional_int("output_shape", output_shape),
        }
        self.value_dim = self.optional_sizes["value_dim"] or self.key_dim
        self.num_kv_heads = _checks.divisor(
            "num_kv_heads", num_kv_heads, "num_heads", self.num_heads
        )
        self.dropout_rate = _checks.rate("dropout_rate", dropout_rate)
        self.query_dense = self.make_dense(self.num_heads * self.key_dim, "query")
        self.key_dense = self.make_dense(self.num_kv_heads * self.key_dim, "key")
        self.value_dense = self.make_dense(self.num_kv_heads * self.value_dim, "value")
        self.query_norm = self.key_norm = None
        if qk_norm is not None:
            self.query_norm = norm_like(qk_norm, self.dtype_policy, "query_norm")
            self.key_norm = norm_like(qk_norm, self.dtype_policy, "key_norm")
        self.dropout = Dropout(self.dropout_rate, dtype=self.dtype_policy, name="dropout")

    def build(
        self, query_shape: Shape, value_shape: Shape | None = None, key_shape: Shape | None = None
    ) -> None:
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
        width = self.compute_output_shape(query_shape)[-1]
        self.output_dense = self.make_dense(width, "output")
        self.output_dense.build((*query_shape[:-1], self.num_heads * self.value_dim))

    def call(
        self, query: Tensor, value: Tensor | None = None, key: Tensor | None = None, *,
        query_mask: Tensor | None = None, value_mask: Tensor | None = None,
        key_mask: Tensor | None = None, attention_mask: Tensor | None = None,
        use_causal_mask: bool = False, return_attention_scores: bool = False,
        position_bias: Tensor | None = None, rotation: Nested | None = None,
        cache: Nested | None = None, cache_index: Nested | None = None,
        training: bool | None = None,
    ) -> Nested:  # fmt: skip
        self._check_inputs(query, value, key, cache, cache_index)
        if value is None and key is None and cache is None:  # it attends to itself
            # Keras fills the mask in only beside other tensors.
            query_mask = keras_mask(query) if query_mask is None else query_mask
            key_mask = query_mask if key_mask is None else key_mask

        position = None
        if cache is not None and cache_index is None:
            queries, (keys, values) = self.project_query(query, rotation), cache
        elif value is None and key is None:
            queries, keys, values = self.project_self(query, rotation)
        else:
            value = query if value is None else value
            key = value if key is None else key
            queries = self.project_query(query, rotation)
            keys, values = self.project(key, value, rotation)
        if cache_index is not None:
            position = as_position(cache_index, query, cache)
            cache = keys, values = [
                write(old, new, position) for old, new in zip(cache, (keys, values), strict=True)
            ]

        masks = self._masks(query, keys, attention_mask, value_mask, key_mask)
        itself = position is not None and not masks  # each new token attends at least to itself
        # A causal mask alone is left to `attend`, because a fused kernel needs no tensor for it.
        causal = use_causal_mask and position is None
        causal_alone = causal and not masks and position_bias is None
        if causal and not causal_alone:
            masks.append(causal_mask(ops.shape(query)[1], ops.shape(keys)[2]))
        if position is not None:
            masks.append(position.mask)
        if position_bias is not None:
            sizes = (query.shape[0], self.num_heads, query.shape[1], keys.shape[2])
            _checks.broadcasts("position_bias", position_bias.shape, sizes)
        mask = merge_masks(masks, position_bias)
        if itself:
            mask = mask._replace(attends=None)
        heads, scores = self.attend(
            queries,
            keys,
            values,
            mask,
            causal=causal_alone,
            return_attention_scores=return_attention_scores,
            training=training,
        )
        y = self.project_output(heads, ops.shape(query)[1])
        outputs = (y, *([scores] * return_attention_scores), *([tuple(cache)] if position else []))
        return outputs if len(outputs) > 1 else y

    def _check_inputs(self, query, value, key, cache, cache_index):
        """Raises a ValueError unless the shapes of the tensors fit each other and the layer."""
        _checks.sequence_of_vectors("query", query.shape)
        if cache is None:
            if cache_index is not None:
                raise ValueError("`cache_index` needs a `cache`. Received: cache=None")
            value = query if value is None else value
            key = value if key is None else key
            _checks.same_length(value, key)
            _checks.same_batch(query=query.shape, value=value.shape, key=key.shape)
            return
        if value is not None or key is not None:
            raise ValueError("Give either `value` and `key` or a `cache`. Received: both")
        heads = self.num_kv_heads
        check_cache(cache, query.shape[0], (heads, self.key_dim), (heads, self.value_dim))

    def cache(self, batch: Any, cache_length: Any) -> Nested:
        """An empty cache: zeros `[batch, kv_heads, cache_length, key_dim]` and `[…, value_dim]`."""
        shape = (batch, self.num_kv_heads, cache_length)
        return tuple(
            ops.zeros((*shape, dim), self.compute_dtype) for dim in (self.key_dim, self.value_dim)
        )

    def project_query(self, x: Tensor, rotation: Nested | None = None) -> Tensor:
        """Tensor `[batch, query, width]` → queries `[batch, heads, query, key_dim]`."""
        return self.finish_queries(
            self._split_heads(self.query_dense(flat(x)), x, self.key_dim), rotation
        )

    def project(
        self, key: Tensor, value: Tensor | None = None, rotation: Nested | None = None
    ) -> Nested:
        """Keys and values.

        Args:
            key: Tensor `[batch, key, width]`.
            value: Tensor `[batch, key, width]`; `key` by default.
            rotation: Output of `RotaryPositions` for the positions, or None.

        Returns:
            Keys `[batch, kv_heads, key, key_dim]`, divided by √key_dim, and values
            `[batch, kv_heads, key, value_dim]`.
        """
        value = key if value is None else value
        key_rows = flat(key)  # [batch * key, width]
        value_rows = key_rows if value is key else flat(value)
        keys = self._split_heads(self.key_dense(key_rows), key, self.key_dim)
        if self.key_norm is None:
            keys = keys * (1 / math.sqrt(self.key_dim))
        values = self._split_heads(self.value_dense(value_rows), value, self.value_dim)
        return self.finish_keys(keys, rotation), values

    def project_self(self, x: Tensor, rotation: Nested | None = None) -> Nested:
        """Queries, keys and values of the same `x` `[batch, length, width]`."""
        return self.project_query(x, rotation), *self.project(x, x, rotation)

    def finish_queries(self, queries: Tensor, rotation: Nested) -> Tensor:
        """Queries `[batch, heads, query, key_dim]`, normalised and rotated as configured."""
        queries = queries if self.query_norm is None else self.query_norm(queries)
        return rotated(queries, rotation)

    def finish_keys(self, keys: Tensor, rotation: Nested) -> Tensor:
        """Keys `[batch, kv_heads, key, key_dim]`, normalised and rotated as configured."""
        if self.key_norm is not None:
            keys = self.key_norm(keys) * (1 / math.sqrt(self.key_dim))
        return rotated(keys, rotation)

    def attend(
        self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None, *,
        causal: bool = False, return_attention_scores: bool = False, training: bool | None = None,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """Attention of projected heads.

        Args:
            queries: `[batch, heads, query, key_dim]`.
            keys: `[batch, kv_heads, key, key_dim]`, already divided by √key_dim.
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
            return zero_masked_rows(
                fused_attention(queries, keys, values, mask, causal), mask
            ), None
        if causal:
            may_attend = causal_mask(ops.shape(queries)[2], ops.shape(keys)[2])
            mask = additive_mask(may_attend)._replace(attends=None)
        keys = ops.transpose(keys, (0, 1, 3, 2))  # [batch, kv_heads, key_dim, key]
        scores = grouped_matmul(queries, keys)  # [batch, heads, query, key]
        # The rows of queries without keys are set to zero in the outputs, which are smaller.
        bias = None if mask is None else mask._replace(attends=None)
        scores = ops.cast(masked_softmax(scores, bias), self.compute_dtype)
        weights = self.dropout(scores, training=training)
        heads = grouped_matmul(weights, values)  # [batch, heads, query, value_dim]
        scores = zero_masked_rows(scores, mask) if return_attention_scores else None
        return zero_masked_rows(heads, mask), scores

    def project_output(self, heads: Tensor, length: int) -> Tensor:
        """`[batch, heads, query, value_dim]` → `[batch, query, output_shape]`; length = query."""
        batch = -1 if isinstance(length, int) and length > 0 else ops.shape(heads)[0]
        if heads.shape[2] != 1:
            heads = ops.transpose(heads, (0, 2, 1, 3))
        y = self.output_dense(ops.reshape(heads, (-1, self.num_heads * self.value_dim)))
        return ops.reshape(y, (batch, length, y.shape[-1]))

    def _fused(self, training):
        """Whether the backend has a kernel for it, which creates no `[query, key]` tensor."""
        has_kernel = keras.backend.backend() == "torch"
        if keras.backend.backend() == "jax":  # on a CPU it has none, and its function is slow
            has_kernel = not keras.distribution.list_devices()[0].startswith("cpu")
        # JAX's kernel needs values as wide as keys; float16 cannot hold the bias of a mask.
        fits = self.key_dim == self.value_dim and self.compute_dtype != "float16"
        return has_kernel and fits and not (training and self.dropout_rate > 0)

    def _split_heads(self, y, x, dim):
        """`[batch * length, n * dim]`, of `x` `[batch, length, …]` → `[batch, n, length, dim]`."""
        heads, (batch, length) = y.shape[-1] // dim, leading_sizes(x)
        if isinstance(length, int) and length == 1:
            return ops.reshape(y, (-1, heads, 1, dim))
        return ops.transpose(ops.reshape(y, (batch, length, heads, dim)), (0, 2, 1, 3))

    def _masks(self, query, keys, attention_mask, value_mask, key_mask):
        """The masks that are given, bool and of rank 4, or of rank 2 for queries and keys."""
        sizes = {
            "batch": query.shape[0],
            "heads": self.num_heads,
            "query": query.shape[1],
            "key": keys.shape[2],
        }
        masks = []
        if attention_mask is not None:
            layouts = (
                ("query", "key"),
                ("batch", "query", "key"),
                ("batch", "heads", "query", "key"),
            )
            mask = _checks.mask("attention_mask", attention_mask, *layouts, **sizes)
            masks.append(mask[:, None] if len(mask.shape) == 3 else mask)
        for name, mask in (("value_mask", value_mask), ("key_mask", key_mask)):
            if mask is not None:
                mask = _checks.mask(name, mask, ("batch", "key"), **sizes)
                masks.append(mask[:, None, None])
        return masks

    def compute_output_shape(
        self, query_shape: Shape, value_shape: Shape | None = None, key_shape: Shape | None = None
    ) -> Any:
        return (*query_shape[:-1], self.optional_sizes["output_shape"] or query_shape[-1])

    def get_config(self) -> dict[str, Any]:
        parts = {"qk_norm": serialize(self.query_norm)}
        return {**super().get_config(), **self.optional_sizes, **parts}
