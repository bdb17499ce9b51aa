"""The bases of the blocks of Figure 1: one layer with its sublayers, and a stack of layers."""

import types
from typing import Any

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.compat import keras_mask
from keras_tfmr.config import Nested, Shape, Tensor
from keras_tfmr.layers.base import (
    TransformerLayer,
    arguments_of,
    maybe_deserialize,
    serialize,
    serialize_shared,
)
from keras_tfmr.layers.cache import as_position
from keras_tfmr.layers.context import AttentionContext, InContext, SublayerOutput
from keras_tfmr.layers.dropout import Dropout
from keras_tfmr.layers.embedding import PositionalEmbedding
from keras_tfmr.layers.feed_forward import FeedForward, GatedFeedForward, activation_name
from keras_tfmr.layers.normalization import norm_like
from keras_tfmr.layers.relative_positions import RotaryPositions


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
        _checks.positive_int("d_model", d_model)
        # In a dictionary of a layer, Keras would take the norms for parts of it.
        self.options = types.SimpleNamespace(
            d_model=d_model, num_heads=num_heads, dff=dff, dropout_rate=dropout_rate,
            attention_dropout_rate=attention_dropout_rate, key_dim=key_dim, value_dim=value_dim,
            num_kv_heads=num_kv_heads, norm_first=norm_first, activation=activation, gated=gated,
            qk_norm=maybe_deserialize(qk_norm), norm=maybe_deserialize(norm),
        )  # fmt: skip
        self.make_sublayers()

    def make_sublayers(self) -> None:
        """Makes the sublayers of a layer; a stack has none of its own."""

    def get_config(self) -> dict[str, Any]:
        options = {**vars(self.options), "activation": activation_name(self.options.activation)}
        options |= {name: serialize(options[name]) for name in ("norm", "qk_norm")}
        return {**super().get_config(), **options}


class Block(InContext, OfBlocks):
    """The base of encoder and decoder layers: their sublayers, in the order of Figure 1."""

    self_attention_class: Any = None
    self_attention_name = "self_attention"  # of the attribute
    cross_attention_class: Any = None
    feed_forward_class = FeedForward
    gated_feed_forward_class = GatedFeedForward

    def make_sublayers(self) -> None:
        name = self.self_attention_name
        setattr(self, name, self.make_sublayer(self.self_attention_class, name))
        if self.cross_attention_class is not None:
            self.cross_attention = self.make_sublayer(self.cross_attention_class, "cross_attention")
        gated = self.options.gated
        kind = self.gated_feed_forward_class if gated else self.feed_forward_class
        self.feed_forward = self.make_sublayer(kind, "feed_forward")

    def make_sublayer(self, sublayer_class: Any, name: str) -> Any:
        """A sublayer with those of this layer's options that its constructor names."""
        options = arguments_of(sublayer_class, vars(self.options))
        if "key_dim" in options and self.options.key_dim is None:
            options["key_dim"] = _checks.head_width(self.options.d_model, self.options.num_heads)
        return sublayer_class(name=name, **options, **self.shared_options())

    def first(self) -> Any:
        """The sublayer over `x` alone."""
        return getattr(self, self.self_attention_name)

    def build(self, x_shape: Shape) -> None:
        # Before any weight is made, so that a layer that refuses an input takes the next one.
        _checks.sequence_of_vectors("x", x_shape, self.options.d_model)
        self.first().build(x_shape)
        self.feed_forward.build(x_shape)

    def run(self, x: Tensor, context: AttentionContext, *, training: bool | None) -> SublayerOutput:
        """`x` `[batch, length, d_model]` after all sublayers, with what the first gave beside."""
        output = self.first().run(x, context, training=training)
        return output._replace(x=self.feed_forward.run(output.x, training=training).x)


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
        rate = _checks.rate("dropout_rate", self.options.dropout_rate)
        self.dropout = Dropout(rate, dtype=self.dtype_policy, name="dropout")
        self.layers = [
            self.layer_class(name=f"layer_{i}", **vars(self.options), **self.shared_options())
            for i in range(self.num_layers)
        ]
        self.norm = None  # post-norm layers end in a normalisation already
        if self.options.norm_first:
            self.norm = norm_like(self.options.norm, self.dtype_policy)

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

    def call(
        self, inputs: Tensor, mask: Tensor | None = None, *, attention_mask: Tensor | None = None,
        return_attention_scores: bool = False, cache: Nested | None = None,
        cache_index: Nested | None = None, training: bool | None = None,
    ) -> Nested:  # fmt: skip
        context = AttentionContext(
            mask, attention_mask, None, None, cache, cache_index, return_attention_scores
        )
        return self.run(inputs, context, [{}] * len(self.layers), training=training)

    def run(
        self, inputs: Tensor, context: AttentionContext, sources: Nested, *, training: bool | None
    ) -> Nested:
        """The call of every stack.

        Args:
            inputs: int `[batch, length]`, or vectors `[batch, length, width]`.
            context: The `AttentionContext` of the call: its cache is a list over layers, what the
                method `cache` or the previous call gave; its mask `[batch, length]` is beside that
                of the padding.
            sources: A list over layers of further arguments of their calls.
            training: Whether dropout is active.

        Returns:
            The result of a `SublayerOutput` with lists over layers of scores and of new caches.
        """
        x, layer_context = self.embed(inputs, context)
        x = self.dropout(x, training=training)
        cached = context.cache is not None
        caches = context.cache if cached else [None] * len(self.layers)
        outputs = []
        for layer, source, cache in zip(self.layers, sources, caches, strict=True):
            arguments = {**layer_context._replace(cache=cache)._asdict(), **source}
            outputs.append(SublayerOutput.named(layer(x, **arguments, training=training), cached))
            x = outputs[-1].x  # [batch, length, d_model]
        x = x if self.norm is None else self.norm(x)
        scores = zip(*(output.scores for output in outputs), strict=True)
        new_caches = [output.cache for output in outputs] if cached else None
        return SublayerOutput(x, tuple(map(list, scores)), new_caches).result()

    def embed(self, inputs: Tensor, context: AttentionContext) -> tuple[Tensor, AttentionContext]:
        """Vectors `[batch, length, d_model]`, and the context of the layers: masks and places."""
        _check_inputs(inputs.shape)
        context.check_cache()
        if context.cache is None:
            x = self.embedding(inputs)  # [batch, length, d_model]
            mask = keras_mask(inputs) if context.mask is None else context.mask
            mask = self.compute_mask(inputs, _checks.sequence_mask("mask", mask, x))
            positions = ops.arange(ops.shape(x)[1], dtype="int32")
            return x, self.with_positions(context._replace(mask=mask), positions, positions)
        if context.cache_index is None:
            raise ValueError("Give both `cache` and `cache_index`. Received: cache_index=None")
        if len(context.cache) != self.num_layers:
            raise ValueError(
                f"`cache` must be a list over the {self.num_layers} layers. "
                f"Received: {len(context.cache)} caches"
            )
        first = context.cache[0]
        position = self.position(context.cache_index, inputs, first)
        x = self.embedding(inputs, positions=position.positions)  # [batch, length, d_model]
        keys = position.key_positions(ops.shape(inputs)[1], ops.shape(first[0])[2])
        context = context._replace(mask=None, cache_index=position)
        return x, self.with_positions(context, position.positions, keys)

    position = staticmethod(as_position)

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
    if _checks.rank(shape) not in (2, 3):
        raise ValueError(
            "`inputs` must have shape [batch, length], or [batch, length, width] for vectors. "
            f"Received: {_checks.in_words(shape)}"
        )
