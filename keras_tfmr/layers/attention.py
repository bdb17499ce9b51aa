"""Multi-head attention: softmax(QKᵀ / √key_dim) V for each head."""

import math
from typing import Any, Unpack

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.compat import keras_mask
from keras_tfmr.config import Nested, Shape, Tensor
from keras_tfmr.layers.base import TransformerLayer, optional_layer, serialize
from keras_tfmr.layers.cache import Cache, empty_cache, extended, visible
from keras_tfmr.layers.dot_product import fused_attention, grouped_matmul
from keras_tfmr.layers.dropout import Dropout
from keras_tfmr.layers.masking import (
    any_key,
    biased_softmax,
    causal_mask,
    mask_bias,
    merge_masks,
    zero_rows,
)
from keras_tfmr.layers.normalization import norm_like
from keras_tfmr.layers.options import LayerOptions
from keras_tfmr.layers.relative_positions import rotated


@keras.saving.register_keras_serializable(package="keras_tfmr")
class MultiHeadAttention(TransformerLayer):
    """Scaled dot-product attention in several heads: softmax(QKᵀ / √key_dim) V for each head.

    The softmax is in float32. Heads are concatenated and projected to the query's width or to
    `output_shape`. The call arguments are those of `keras.layers.MultiHeadAttention`, and two more
    for positions. Masks mean the same, except `query_mask`.

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
        query_mask: Mask `[batch, query]`; by default the Keras mask of `query`. Used only where
            neither `value` nor `key` is given: the query is then the key.
        value_mask: Mask `[batch, key]`; by default the Keras mask of `value`.
        key_mask: Mask `[batch, key]`; by default the Keras mask of `key`.
        attention_mask: Mask `[query, key]`, `[batch, query, key]` or `[batch, heads, query, key]`,
            True = may attend. A query attends only to keys that all masks allow. If there are none,
            its output is the output projection's bias.
        return_attention_scores: Whether to return the scores too.
        training: Whether dropout is active.
        use_causal_mask: Whether a query may attend only to its own and earlier positions.
        position_bias: float32, broadcasts to `[batch, heads, query, key]` and is added to the
            scores: what `ALiBi` or `RelativePositionBias` gives.
        rotation: Output of `RotaryPositions` for the positions of the query.

    Returns:
        Tensor `[batch, query, output_shape]`; with scores, also the softmax of each head
        `[batch, heads, query, key]`.

    Raises:
        ValueError: If a size is not positive, or an input or mask has the wrong shape.

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
        self, num_heads: int, key_dim: int, *, value_dim: int | None = None,
        num_kv_heads: int | None = None, output_shape: int | None = None, dropout_rate: float = 0.0,
        use_bias: bool = True, qk_norm: keras.layers.Layer | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:  # fmt: skip
        super().__init__(use_bias=use_bias, **kwargs)
        self.num_heads = _checks.integer("num_heads", num_heads)
        self.key_dim = _checks.integer("key_dim", key_dim)
        self.value_dim = self.key_dim
        if value_dim is not None:
            self.value_dim = _checks.integer("value_dim", value_dim)
        self.num_kv_heads = self.num_heads
        if num_kv_heads is not None:
            self.num_kv_heads = _checks.divisor(
                "num_kv_heads", num_kv_heads, "num_heads", self.num_heads
            )
        if output_shape is not None:
            _checks.integer("output_shape", output_shape)
        self.input_spec = keras.layers.InputSpec(ndim=3, name="query")
        self.output_width = output_shape
        self.dropout_rate = _checks.rate("dropout_rate", dropout_rate)
        self.query_dense = self.make_dense(self.num_heads * self.key_dim, "query")
        self.key_dense = self.make_dense(self.num_kv_heads * self.key_dim, "key")
        self.value_dense = self.make_dense(self.num_kv_heads * self.value_dim, "value")
        # As wide as the query by default, which `build` sees.
        self.output_dense = self.make_dense(output_shape or 1, "output")
        self.query_norm = self.key_norm = None
        qk_norm = optional_layer("qk_norm", qk_norm, "RMSNormalization()")
        if qk_norm is not None:
            self.query_norm = norm_like(qk_norm, self.part_options(), "query_norm")
            self.key_norm = norm_like(qk_norm, self.part_options(), "key_norm")
        self.dropout = Dropout(self.dropout_rate, name="dropout", **self.part_options())

    def build(
        self, query_shape: Shape, value_shape: Shape | None = None, key_shape: Shape | None = None
    ) -> None:
        value_shape = query_shape if value_shape is None else value_shape
        key_shape = value_shape if key_shape is None else key_shape
        self.query_dense.build(query_shape)
        self.key_dense.build(key_shape)
        self.value_dense.build(value_shape)
        if self.query_norm is not None:
            self.query_norm.build((None, None, None, self.key_dim))
            self.key_norm.build((None, None, None, self.key_dim))
        self.output_dense.units = self.output_width or query_shape[-1]
        self.output_dense.build((*query_shape[:-1], self.num_heads * self.value_dim))

    def call(
        self, query: Tensor, value: Tensor | None = None, key: Tensor | None = None,
        query_mask: Tensor | None = None, value_mask: Tensor | None = None,
        key_mask: Tensor | None = None, attention_mask: Tensor | None = None,
        return_attention_scores: bool = False, training: bool | None = None,
        use_causal_mask: bool = False, *, position_bias: Tensor | None = None,
        rotation: Nested | None = None,
    ) -> Nested:  # fmt: skip
        if value is None and key is None:  # self-attention
            # With one tensor, Keras fills in only an argument called `mask`, which this call lacks.
            query_mask = keras_mask(query) if query_mask is None else query_mask
            key_mask = query_mask if key_mask is None else key_mask
        value = query if value is None else value
        key = value if key is None else key
        _checks.shaped("key", key, batch=query.shape[0], key=None, width=None)
        _checks.shaped("value", value, batch=query.shape[0], key=key.shape[1], width=None)

        queries = self.queries(query, rotation)
        keys, values = self.keys_and_values(key, value, rotation)
        sizes = (query.shape[0], self.num_heads, query.shape[1], key.shape[1])
        masks = self._masks(sizes, attention_mask, value_mask, key_mask)
        if position_bias is not None:
            _checks.broadcasts("position_bias", position_bias, sizes)
        # A causal mask alone is left to `_attend`, because a fused kernel needs no tensor for it.
        causal_alone = use_causal_mask and not masks and position_bias is None
        if use_causal_mask and not causal_alone:
            masks.append(causal_mask(ops.shape(query)[1], ops.shape(key)[1]))
        may_attend = merge_masks(masks)
        bias, attends = mask_bias(may_attend, position_bias), any_key(may_attend)
        if not return_attention_scores and self._fused(training):
            heads = fused_attention(queries, keys, values, bias, causal_alone)
            return self._output(zero_rows(heads, attends))
        heads, scores = self._attend(queries, keys, values, bias, causal_alone, training)
        # Zero in the outputs, which are smaller than the weights.
        y = self._output(zero_rows(heads, attends))  # [batch, query, output_shape]
        return (y, zero_rows(scores, attends)) if return_attention_scores else y

    def step(
        self, x: Tensor, cache: Cache, index: Tensor, context: Nested = None, num_beams: int = 1, *,
        position_bias: Tensor | None = None, rotation: Nested | None = None,
    ) -> tuple[Tensor, Cache]:  # fmt: skip
        """The output of `call` for further tokens, and the cache that then holds them.

        Without a context, it is that of causal self-attention, to the tokens in the cache and to
        themselves; with one, of attention to the context, and the cache stays as it is.

        Args:
            x: Tensor `[rows, length, width]`, the tokens; of a search, one of each hypothesis.
            cache: From `empty_cache` or another step.
            index: int32 scalar, the number of tokens before these.
            context: The output of `read_context` for `rows / num_beams` examples.
            num_beams: The number of hypotheses of an example, which stand side by side.
            position_bias, rotation: As for a call, of these queries and all keys; without a
                context.

        Returns:
            Tensor `[rows, length, output_shape]`, and the cache.
        """
        if context is not None:
            return self._of_context(x, context, num_beams), cache
        length = ops.shape(x)[1]
        bias = mask_bias(visible(cache, length), position_bias)
        cache = extended(cache, *self.keys_and_values(x, x, rotation, scaled=True))
        queries = self.queries(x, rotation, scaled=False)
        heads, _ = self._attend(queries, cache["keys"], cache["values"], bias, False, False)
        return self._output(heads), cache

    def empty_cache(self, rows: Any, room: Any = None) -> Cache:
        """The cache of `rows` before the first `step`: see `keras_tfmr.layers.cache`."""
        return empty_cache(
            rows, self.num_kv_heads, self.key_dim, self.value_dim, room, self.compute_dtype
        )

    def read_context(self, context: Tensor, context_mask: Tensor | None = None) -> Nested:
        """Keys and values of a context `[batch, key, width]` with a mask `[batch, key]`.

        Values of an example without valid positions are zero, and so is its attention.
        """
        keys, values = self.keys_and_values(context, context, scaled=True)
        if context_mask is None:
            return {"keys": keys, "values": values}
        batch, key, _ = context.shape
        mask = _checks.mask("context_mask", context_mask, batch=batch, key=key)[:, None, None]
        values = zero_rows(values, any_key(mask))
        return {"keys": keys, "values": values, "bias": mask_bias(mask)}

    def _of_context(self, x, context, num_beams):
        """`[rows, length, output_shape]` of queries `[rows, length, width]`, by `read_context`."""
        _, length, width = ops.shape(x)
        if num_beams > 1:  # the queries of an example
            x = ops.reshape(x, (-1, num_beams * length, width))
        queries, bias = self.queries(x, scaled=False), context.get("bias")
        heads, _ = self._attend(queries, context["keys"], context["values"], bias, False, False)
        y = self._output(heads)
        return ops.reshape(y, (-1, length, y.shape[-1])) if num_beams > 1 else y

    def queries(self, query: Tensor, rotation: Nested | None = None, scaled: bool = True) -> Tensor:
        """The queries of each head `[batch, heads, query, key_dim]`, divided by √key_dim."""
        queries = self._split_heads(self.query_dense(query), self.key_dim)
        if self.query_norm is not None:
            queries = self.query_norm(queries)
        return rotated(self._scaled(queries) if scaled else queries, rotation)

    def keys_and_values(
        self, key: Tensor, value: Tensor, rotation: Nested | None = None, scaled: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Keys and values `[batch, kv_heads, key, dim]`; a step divides the keys, not the queries.

        Where a loop of TensorFlow scales queries and adds a bias to the scores, its optimiser
        (2.21) makes a graph that gives empty tensors.
        """
        keys = self._split_heads(self.key_dense(key), self.key_dim)
        values = self._split_heads(self.value_dense(value), self.value_dim)
        if self.key_norm is not None:
            keys = self.key_norm(keys)
        return rotated(self._scaled(keys) if scaled else keys, rotation), values

    def _scaled(self, x):
        return x * (1 / math.sqrt(self.key_dim))

    def lora_layers(self) -> list[keras.layers.Layer]:
        return [self.query_dense, self.value_dense]

    def _attend(self, queries, keys, values, bias, causal, training):
        """Attention of projected heads.

        Args:
            queries: `[batch, heads, query, key_dim]`, divided by √key_dim.
            keys: `[batch, kv_heads, key, key_dim]`.
            values: `[batch, kv_heads, key, value_dim]`.
            bias: The output of `mask_bias`, which broadcasts to `[batch, heads, query, key]`.
            causal: Whether a query may attend only to its own and earlier positions; only without a
                bias.
            training: Whether dropout is active.

        Returns:
            `[batch, heads, query, value_dim]` and the scores `[batch, heads, query, key]`, both not
            yet zero for queries that may attend to nothing.
        """
        if causal:
            bias = mask_bias(causal_mask(ops.shape(queries)[2], ops.shape(keys)[2]))
        scores = grouped_matmul(queries, ops.transpose(keys, (0, 1, 3, 2)))
        scores = ops.cast(biased_softmax(scores, bias), self.compute_dtype)
        weights = scores  # [batch, heads, query, key]
        if training is not False:  # in a step on PyTorch, calls of layers cost more than products
            weights = self.dropout(scores, training=training)
        return grouped_matmul(weights, values), scores

    def _output(self, heads):
        """`[batch, heads, query, value_dim]` → `[batch, query, output_shape]`."""
        batch, _, length, _ = ops.shape(heads)
        heads = ops.transpose(heads, (0, 2, 1, 3))
        heads = ops.reshape(heads, (batch, length, self.num_heads * self.value_dim))
        return self.output_dense(heads)

    def _fused(self, training):
        """Whether the backend has a kernel for it, which creates no `[query, key]` tensor."""
        has_kernel = keras.backend.backend() == "torch"
        if keras.backend.backend() == "jax":  # on a CPU it has none, and its function is slow
            has_kernel = not keras.distribution.list_devices()[0].startswith("cpu")
        # JAX's kernel needs values as wide as keys; float16 cannot hold the bias of a mask.
        fits = self.key_dim == self.value_dim and self.compute_dtype != "float16"
        return has_kernel and fits and not (training and self.dropout_rate > 0)

    def _split_heads(self, y, dim):
        """`[batch, length, heads * dim]` → `[batch, heads, length, dim]`."""
        batch, length, width = ops.shape(y)
        return ops.transpose(ops.reshape(y, (batch, length, width // dim, dim)), (0, 2, 1, 3))

    def _masks(self, sizes, attention_mask, value_mask, key_mask):
        """The masks that are given, bool, which broadcast to the scores of these sizes."""
        batch, _, query, key = sizes
        masks = []
        if attention_mask is not None:
            mask = _checks.as_bool("attention_mask", ops.convert_to_tensor(attention_mask))
            of_all_heads = len(mask.shape) == 3
            _checks.broadcasts(
                "attention_mask", mask, (batch, query, key) if of_all_heads else sizes
            )
            masks.append(mask[:, None] if of_all_heads else mask)
        for name, mask in (("value_mask", value_mask), ("key_mask", key_mask)):
            if mask is not None:
                mask = _checks.mask(name, mask, batch=batch, key=key)
                masks.append(mask[:, None, None])
        return masks

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "num_kv_heads": self.num_kv_heads,
            "output_shape": self.output_width,
            "dropout_rate": self.dropout_rate,
            "qk_norm": serialize(self.query_norm),
        }
