"""The bases of the blocks of Figure 1: one layer with its sublayers, and a stack of layers."""

import dataclasses
from typing import Any

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.compat import keras_mask
from keras_tfmr.layers.base import (
    TransformerLayer,
    maybe_deserialize,
    serialize,
    serialize_shared,
)
from keras_tfmr.layers.cache import as_position
from keras_tfmr.layers.dropout import Dropout
from keras_tfmr.layers.embedding import PositionalEmbedding
from keras_tfmr.layers.feed_forward import FeedForward, GatedFeedForward, activation_name
from keras_tfmr.layers.normalization import norm_like
from keras_tfmr.layers.relative_positions import RotaryPositions


@dataclasses.dataclass(frozen=True)
class BlockOptions:
    """The options of a block, which a stack hands to each of its layers; see `EncoderLayer`."""

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

    @classmethod
    def of(cls, arguments):
        """The options among all arguments of a constructor, a dictionary."""
        options = {field.name: arguments[field.name] for field in dataclasses.fields(cls)}
        for name in ("qk_norm", "norm"):
            options[name] = maybe_deserialize(options[name])
        return cls(**options)

    def get_config(self):
        """The options in serialised form."""
        parts = {name: serialize(getattr(self, name)) for name in ("qk_norm", "norm")}
        return {**vars(self), **parts, "activation": activation_name(self.activation)}


class Block(TransformerLayer):
    """The base of encoder and decoder layers: options, self-attention, feed-forward sublayer."""

    self_attention_class = None
    feed_forward_class = FeedForward
    gated_feed_forward_class = GatedFeedForward

    def __init__(
        self,
        d_model,
        num_heads,
        dff,
        *,
        dropout_rate=0.1,
        attention_dropout_rate=None,
        key_dim=None,
        value_dim=None,
        num_kv_heads=None,
        norm_first=False,
        activation="relu",
        gated=False,
        use_bias=True,
        qk_norm=None,
        norm=None,
        **kwargs,
    ):
        options = BlockOptions.of(locals())
        super().__init__(use_bias=use_bias, **kwargs)
        self.options = options
        _checks.positive_int("d_model", d_model)
        self.make_attention()
        kind = self.gated_feed_forward_class if gated else self.feed_forward_class
        self.feed_forward = kind(
            d_model, dff, activation=activation, name="feed_forward", **self._shared_options()
        )

    def make_attention(self):
        """Makes the sublayers below the feed-forward one, in the order of Figure 1."""
        self.self_attention = self.attention(self.self_attention_class, "self_attention")

    def build(self, x_shape):
        self.self_attention.build(x_shape)
        self.feed_forward.build(x_shape)

    def run(self, x, **options):
        """The call of a layer of two sublayers; `options` are those of its self-attention."""
        x, *more = together(self.self_attention(x, **options))
        x = self.feed_forward(x, training=options["training"])
        return (x, *more) if more else x

    def attention(self, kind, name):
        """An attention sublayer of class `kind` with this layer's options."""
        options = self.options
        key_dim = options.key_dim
        if key_dim is None:
            key_dim = _checks.head_width(options.d_model, options.num_heads)
        return kind(
            options.num_heads,
            key_dim,
            value_dim=options.value_dim,
            num_kv_heads=options.num_kv_heads,
            attention_dropout_rate=options.attention_dropout_rate,
            qk_norm=options.qk_norm,
            name=name,
            **self._shared_options(),
        )

    def _shared_options(self):
        """The arguments that all sublayers take."""
        return {
            "dropout_rate": self.options.dropout_rate,
            "norm_first": self.options.norm_first,
            "norm": self.options.norm,
            "use_bias": self.use_bias,
            "dtype": self.dtype_policy,
            **self.weight_options,
        }

    def get_config(self):
        return {**super().get_config(), **self.options.get_config()}


def together(outputs):
    """What a call returned, always as a tuple."""
    return outputs if isinstance(outputs, tuple) else (outputs,)


class Stack(TransformerLayer):
    """The base of encoder and decoders: embedding, dropout, layers, and pre-norm's last norm."""

    layer_class = None

    def __init__(
        self,
        num_layers,
        d_model,
        num_heads,
        dff,
        vocab_size=None,
        *,
        dropout_rate=0.1,
        attention_dropout_rate=None,
        key_dim=None,
        value_dim=None,
        num_kv_heads=None,
        norm_first=False,
        activation="relu",
        gated=False,
        use_bias=True,
        qk_norm=None,
        norm=None,
        embedding=None,
        relative_positions=None,
        **kwargs,
    ):
        options = BlockOptions.of(locals())
        super().__init__(use_bias=use_bias, **kwargs)
        if (embedding is None) == (vocab_size is None):
            raise ValueError(
                "Give either `vocab_size` or `embedding`. "
                f"Received: vocab_size={vocab_size}, embedding={embedding}"
            )
        self.num_layers = _checks.positive_int("num_layers", num_layers)
        self.options = options
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
        self.dropout = Dropout(
            _checks.rate("dropout_rate", dropout_rate), dtype=self.dtype_policy, name="dropout"
        )
        self.layers = [
            self.layer_class(
                **vars(options), **self.weight_options, dtype=self.dtype_policy, name=f"layer_{i}"
            )
            for i in range(self.num_layers)
        ]
        # Post-norm layers end in a normalisation already.
        self.norm = norm_like(norm, self.dtype_policy) if norm_first else None

    def build(self, inputs_shape):
        self.build_parts(inputs_shape)

    def build_parts(self, inputs_shape, *context_shape):
        """Builds all parts, with a context or without."""
        if len(inputs_shape) not in (2, 3):
            raise ValueError(
                "`inputs` must have shape [batch, length], or [batch, length, width] for vectors. "
                f"Received: shape {tuple(inputs_shape)}"
            )
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
        self, inputs, mask, *, cache=None, cache_index=None, contexts=None, training=None, **options
    ):
        """The call of every stack.

        Args:
            inputs: int `[batch, length]`, or vectors `[batch, length, width]`.
            mask: Mask `[batch, length]` of valid positions, beside that of the padding, or None.
            cache: What the method `cache` or the previous call gave, or None.
            cache_index: A `CachePosition`, or the number of positions that the cache holds.
            contexts: A list over layers of further arguments of their calls, or None.
            training: Whether dropout is active.
            **options: Further arguments of the call of every layer.

        Returns:
            `x` `[batch, length, d_model]`; for each kind of scores, a list over layers; the new
            cache. Without scores and cache, `x` alone.
        """
        if cache is None:
            x = self.embedding(inputs)  # [batch, length, d_model]
            positions = places = ops.arange(ops.shape(x)[1], dtype="int32")
            mask = keras_mask(inputs) if mask is None else mask
            mask = self.compute_mask(inputs, _checks.sequence_mask("mask", mask, x))
            options = {"mask": mask, **options}
        elif cache_index is None:
            raise ValueError("Give both `cache` and `cache_index`. Received: cache_index=None")
        else:
            position = as_position(cache_index, inputs, cache[0])
            positions = position.positions
            places = position.key_positions(ops.shape(inputs)[1], ops.shape(cache[0][0])[2])
            x = self.embedding(inputs, positions=positions)
            options = {"cache_index": position, **options}
        options = {**options, **self.relate(positions, places), "training": training}
        x = self.dropout(x, training=training)
        scores, new_cache = [], []
        for i, layer in enumerate(self.layers):
            own = {} if contexts is None else contexts[i]
            own = own if cache is None else {**own, "cache": cache[i]}
            x, *more = together(layer(x, **own, **options))
            if cache is not None:
                new_cache.append(more.pop())
            scores.append(more)
        x = x if self.norm is None else self.norm(x)
        outputs = (
            x,
            *map(list, zip(*scores, strict=True)),
            *([] if cache is None else [new_cache]),
        )
        return outputs if len(outputs) > 1 else x

    def check_length(self, length):
        """Raises a ValueError if there are not so many positions."""
        self.embedding.compute_output_shape((None, length))

    def relate(self, query_positions, key_positions):
        """The arguments of attention that tell positions apart, of int32 `[query]` and `[key]`."""
        if self.relative_positions is None:
            return {}
        if isinstance(self.relative_positions, RotaryPositions):
            return {"rotation": self.relative_positions(query_positions)}
        return {"position_bias": self.relative_positions(query_positions, key_positions)}

    def compute_mask(self, inputs, previous_mask=None):
        return self.embedding.compute_mask(inputs, previous_mask)

    def compute_output_shape(self, inputs_shape, context_shape=None):
        return (*inputs_shape[:2], self.options.d_model)

    def get_config(self):
        return {
            **super().get_config(),
            **self.options.get_config(),
            "num_layers": self.num_layers,
            "embedding": serialize_shared(self.embedding),
            "relative_positions": serialize_shared(self.relative_positions),
        }
