"""The bases of the blocks of Figure 1: one layer with its sublayers, and a stack of layers."""

import dataclasses
from typing import Any

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.compat import keras_mask
from keras_tfmr.config import Nested, Shape, Tensor
from keras_tfmr.layers.base import (
    TransformerLayer,
    maybe_deserialize,
    serialize,
    serialize_shared,
)
from keras_tfmr.layers.cache import as_position
from keras_tfmr.layers.context import AttentionContext, gathered, together
from keras_tfmr.layers.dropout import Dropout
from keras_tfmr.layers.embedding import PositionalEmbedding
from keras_tfmr.layers.feed_forward import FeedForward, GatedFeedForward, activation_name
from keras_tfmr.layers.normalization import norm_like
from keras_tfmr.layers.relative_positions import RotaryPositions


@dataclasses.dataclass(frozen=True)
class BlockOptions:
    """The options of a block, passed on whole from a stack to its layers; see `EncoderLayer`."""

    d_model: int
    num_heads: int
    dff: int
    dropout_rate: float
    attention_dropout_rate: float | None
    key_dim: int | None
    value_dim: int | None
    num_kv_heads: int | None
    norm_first: bool
    activation: Any
    gated: bool
    use_bias: bool
    qk_norm: keras.layers.Layer | None
    norm: keras.layers.Layer | None

    def sublayer(self) -> dict[str, Any]:
        """The arguments of every sublayer."""
        return {
            "dropout_rate": self.dropout_rate, "norm_first": self.norm_first, "norm": self.norm,
        }  # fmt: skip

    def attention(self) -> dict[str, Any]:
        """The arguments of an attention sublayer, beside those of every one."""
        key_dim = self.key_dim
        if key_dim is None:
            key_dim = _checks.head_width(self.d_model, self.num_heads)
        return {
            "num_heads": self.num_heads,
            "key_dim": key_dim,
            "value_dim": self.value_dim,
            "num_kv_heads": self.num_kv_heads,
            "attention_dropout_rate": self.attention_dropout_rate,
            "qk_norm": self.qk_norm,
        }

    def get_config(self) -> dict[str, Any]:
        """The options in serialised form."""
        parts = {"qk_norm": serialize(self.qk_norm), "norm": serialize(self.norm)}
        return {**vars(self), **parts, "activation": activation_name(self.activation)}


class OfBlocks(TransformerLayer):
    """The base of the layers that are, or have, encoder or decoder layers: their options."""

    def __init__(
        self, d_model: int, num_heads: int, dff: int, *, dropout_rate: float = 0.1,
        attention_dropout_rate: float | None = None, key_dim: int | None = None,
        value_dim: int | None = None, num_kv_heads: int | None = None, norm_first: bool = False,
        activation: Any = "relu", gated: bool = False, use_bias: bool = True,
        qk_norm: keras.layers.Layer | None = None, norm: keras.layers.Layer | None = None,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(use_bias=use_bias, **kwargs)
        self.options = BlockOptions(
            _checks.positive_int("d_model", d_model), num_heads, dff, dropout_rate,
            attention_dropout_rate, key_dim, value_dim, num_kv_heads, norm_first, activation,
            gated, self.use_bias, maybe_deserialize(qk_norm), maybe_deserialize(norm),
        )  # fmt: skip
        self.make_sublayers()

    def make_sublayers(self) -> None:
        """Makes the sublayers of a layer; a stack has none of its own."""

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self.options.get_config()}


class Block(OfBlocks):
    """The base of encoder and decoder layers: self-attention and feed-forward sublayer."""

    self_attention_class = None
    feed_forward_class = FeedForward
    gated_feed_forward_class = GatedFeedForward

    def make_sublayers(self) -> None:
        self.make_attention()
        options = self.options
        kind = self.gated_feed_forward_class if options.gated else self.feed_forward_class
        self.feed_forward = kind(
            options.d_model,
            options.dff,
            activation=options.activation,
            name="feed_forward",
            **options.sublayer(),
            **self.shared_options(),
        )

    def make_attention(self) -> None:
        """Makes the sublayers below the feed-forward one, in the order of Figure 1."""
        self.self_attention = self.make_sublayer(self.self_attention_class, "self_attention")

    def make_sublayer(self, kind: Any, name: str) -> Any:
        """An attention sublayer of class `kind` with this layer's options."""
        options = {**self.options.attention(), **self.options.sublayer()}
        return kind(name=name, **options, **self.shared_options())

    def build(self, x_shape: Shape) -> None:
        # Before any weight is made, so that a layer that refuses an input takes the next one.
        _checks.sequence_of_vectors("x", x_shape, self.options.d_model)
        self.self_attention.build(x_shape)
        self.feed_forward.build(x_shape)


class Stack(OfBlocks):
    """The base of encoder and decoders: embedding, dropout, layers, and pre-norm's last norm."""

    layer_class = None

    def __init__(
        self, num_layers: int, d_model: int, num_heads: int, dff: int,
        vocab_size: int | None = None, *, embedding: keras.layers.Layer | None = None,
        relative_positions: keras.layers.Layer | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(d_model, num_heads, dff, **kwargs)
        if (embedding is None) == (vocab_size is None):
            raise ValueError(
                "Give either `vocab_size` or `embedding`. "
                f"Received: vocab_size={vocab_size}, embedding={embedding}"
            )
        self.num_layers = _checks.positive_int("num_layers", num_layers)
        self.embedding = maybe_deserialize(embedding) or PositionalEmbedding(
            vocab_size, d_model, dtype=self.dtype_policy, name="embedding"
        )
        if getattr(self.embedding, "d_model", None) != d_model:
            raise ValueError(
                f"`embedding` must be a PositionalEmbedding or AddPositions of d_model={d_model}. "
                f"Received: {self.embedding!r} of "
                f"d_model={getattr(self.embedding, 'd_model', None)}"
            )
        self.relative_positions = maybe_deserialize(relative_positions)
        if relative_positions is not None:
            _checks.instance("relative_positions", self.relative_positions, keras.layers.Layer)
        options = self.options
        self.dropout = Dropout(
            _checks.rate("dropout_rate", options.dropout_rate),
            dtype=self.dtype_policy,
            name="dropout",
        )
        self.layers = [
            self.layer_class(name=f"layer_{i}", **{**vars(options), **self.shared_options()})
            for i in range(self.num_layers)
        ]
        # Post-norm layers end in a normalisation already.
        self.norm = norm_like(options.norm, self.dtype_policy) if options.norm_first else None

    def build(self, inputs_shape: Shape, *context_shape: Any) -> None:
        _check_inputs(inputs_shape)
        if not self.embedding.built:
            self.embedding.build(inputs_shape)
        x_shape = (*inputs_shape[:2], self.options.d_model)
        self.dropout.build(x_shape)
        for part in (self.norm, self.relative_positions):
            if part is not None and not part.built:
                part.build(x_shape)
        for layer in self.layers:
            layer.build(x_shape, *context_shape)

    def run(
        self, inputs: Tensor, context: AttentionContext, sources: Nested | None = None, *,
        training: bool | None = None,
    ) -> Nested:  # fmt: skip
        """The call of every stack.

        Args:
            inputs: int `[batch, length]`, or vectors `[batch, length, width]`.
            context: The `AttentionContext` of the call: its cache is a list over layers, what the
                method `cache` or the previous call gave; its mask `[batch, length]` is beside that
                of the padding.
            sources: A list over layers of further arguments of their calls, or None.
            training: Whether dropout is active.

        Returns:
            `x` `[batch, length, d_model]`; for each kind of scores, a list over layers; the new
            cache. Without scores and cache, `x` alone.
        """
        _check_inputs(inputs.shape)
        context.check_cache()
        caches = context.cache
        if caches is None:
            x = self.embedding(inputs)  # [batch, length, d_model]
            positions = key_positions = ops.arange(ops.shape(x)[1], dtype="int32")
            mask = keras_mask(inputs) if context.mask is None else context.mask
            mask = self.compute_mask(inputs, _checks.sequence_mask("mask", mask, x))
            context = context._replace(mask=mask)
        elif context.cache_index is None:
            raise ValueError("Give both `cache` and `cache_index`. Received: cache_index=None")
        else:
            self._check_caches(caches)
            position = self.position(context.cache_index, inputs, caches[0])
            positions = position.positions
            key_positions = position.key_positions(ops.shape(inputs)[1], ops.shape(caches[0][0])[2])
            x = self.embedding(inputs, positions=positions)
            context = context._replace(mask=None, cache_index=position)
        context = self.with_positions(context, positions, key_positions)
        x = self.dropout(x, training=training)
        scores, new_caches = [], []
        for i, layer in enumerate(self.layers):
            source = {} if sources is None else sources[i]
            if caches is not None:
                context = context._replace(cache=caches[i])
            x, *more = together(layer(x, **source, **context.given(), training=training))
            if caches is not None:
                new_caches.append(more.pop())
            scores.append(more)
        x = x if self.norm is None else self.norm(x)
        new_caches = [] if caches is None else [new_caches]
        return gathered(x, *map(list, zip(*scores, strict=True)), *new_caches)

    position = staticmethod(as_position)

    def _check_caches(self, caches):
        if len(caches) != self.num_layers:
            raise ValueError(
                f"`cache` must be a list over the {self.num_layers} layers. "
                f"Received: {len(caches)} caches"
            )

    def check_length(self, length: int) -> None:
        """Raises a ValueError if there are not so many positions."""
        self.embedding.compute_output_shape((None, length))

    def with_positions(
        self, context: AttentionContext, query_positions: Tensor, key_positions: Tensor
    ) -> AttentionContext:
        """The context with what tells positions apart, int32 `[query]` and `[key]`."""
        if self.relative_positions is None:
            return context
        if isinstance(self.relative_positions, RotaryPositions):
            return context._replace(rotation=self.relative_positions(query_positions))
        bias = self.relative_positions(query_positions, key_positions)
        return context._replace(position_bias=bias)

    def compute_mask(self, inputs: Tensor, previous_mask: Tensor | None = None) -> Tensor | None:
        return self.embedding.compute_mask(inputs, previous_mask)

    def compute_output_shape(self, inputs_shape: Shape, context_shape: Shape | None = None) -> Any:
        return (*inputs_shape[:2], self.options.d_model)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_layers": self.num_layers,
            "embedding": serialize_shared(self.embedding),
            "relative_positions": serialize_shared(self.relative_positions),
        }


def _check_inputs(shape):
    if len(shape) not in (2, 3):
        raise ValueError(
            "`inputs` must have shape [batch, length], or [batch, length, width] for vectors. "
            f"Received: shape {tuple(shape)}"
        )
