"""The bases of encoder and decoder layers, and of the stacks made of them: options and calls."""

from typing import Any, Unpack

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.compat import keras_mask
from keras_tfmr.config import Nested, Shape, Tensor
from keras_tfmr.layers.attention_sublayers import CausalSelfAttention, GlobalSelfAttention
from keras_tfmr.layers.base import TransformerLayer, optional_layer, serialize
from keras_tfmr.layers.dropout import Dropout
from keras_tfmr.layers.feed_forward import FeedForward, GatedFeedForward, activation_name
from keras_tfmr.layers.normalization import norm_like
from keras_tfmr.layers.options import BlockOptions, LayerOptions
from keras_tfmr.layers.relative_positions import rotation_and_bias


class Block(TransformerLayer):
    """The base of encoder and decoder layers, and of stacks of them: their options.

    Each of these layers lists and explains the options. They are handed on from here: to layers by
    `layer_options`, to attention by `attention_options`, to the feed-forward sublayer by
    `make_feed_forward`.
    """

    def __init__(
        self, d_model: int, num_heads: int, dff: int, *, dropout_rate: float = 0.1,
        attention_dropout_rate: float | None = None, key_dim: int | None = None,
        num_kv_heads: int | None = None, norm_first: bool = False, activation: Any = "relu",
        gated: bool = False, use_bias: bool = True, qk_norm: keras.layers.Layer | None = None,
        norm: keras.layers.Layer | None = None, **kwargs: Unpack[LayerOptions],
    ) -> None:  # fmt: skip
        super().__init__(use_bias=use_bias, **kwargs)
        self.d_model = _checks.integer("d_model", d_model)
        self.input_spec = keras.layers.InputSpec(ndim=3, axes={-1: self.d_model}, name="x")
        self.num_heads, self.dff, self.key_dim = num_heads, dff, key_dim
        self.num_kv_heads = num_kv_heads
        self.dropout_rate = _checks.rate("dropout_rate", dropout_rate)
        self.attention_dropout_rate = attention_dropout_rate
        self.norm_first, self.gated = bool(norm_first), bool(gated)
        self.activation = activation_name(activation)
        # Serialised, because as layers they would be parts of this one; they are copied.
        self.qk_norm_config = serialize(optional_layer("qk_norm", qk_norm, "RMSNormalization()"))
        self.norm_config = serialize(optional_layer("norm", norm, "RMSNormalization()"))

    def block_options(self) -> dict[str, Any]:
        """The options of a layer, but those of `shared_options`."""
        return {
            "d_model": self.d_model,
            "num_heads": self.num_heads,
            "dff": self.dff,
            "dropout_rate": self.dropout_rate,
            "attention_dropout_rate": self.attention_dropout_rate,
            "key_dim": self.key_dim,
            "num_kv_heads": self.num_kv_heads,
            "norm_first": self.norm_first,
            "activation": self.activation,
            "gated": self.gated,
            "qk_norm": self.qk_norm_config,
            "norm": self.norm_config,
        }

    def layer_options(self) -> dict[str, Any]:
        """The options of each layer of a stack."""
        return {**self.block_options(), **self.shared_options()}

    def attention_options(self) -> dict[str, Any]:
        """The options of an attention sublayer."""
        key_dim = self.key_dim
        if key_dim is None:
            heads = _checks.divisor("num_heads", self.num_heads, "d_model", self.d_model)
            key_dim = self.d_model // heads
        return {
            "num_heads": self.num_heads,
            "key_dim": key_dim,
            "num_kv_heads": self.num_kv_heads,
            "dropout_rate": self.dropout_rate,
            "attention_dropout_rate": self.attention_dropout_rate,
            "norm_first": self.norm_first,
            "qk_norm": self.qk_norm_config,
            "norm": self.norm_config,
            **self.shared_options(),
        }

    def make_feed_forward(self) -> FeedForward:
        """The feed-forward sublayer of a layer."""
        kind = GatedFeedForward if self.gated else FeedForward
        return kind(
            self.d_model, self.dff, dropout_rate=self.dropout_rate, norm_first=self.norm_first,
            activation=self.activation, norm=self.norm_config, name="feed_forward",
            **self.shared_options(),
        )  # fmt: skip

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self.block_options()}


class SelfAttentionLayer(Block):
    """The base of encoder layers and causal decoder layers: self-attention, then feed-forward."""

    causal: bool  # whether no position attends to a later one

    def __init__(
        self, d_model: int, num_heads: int, dff: int, **options: Unpack[BlockOptions]
    ) -> None:
        super().__init__(d_model, num_heads, dff, **options)
        kind = CausalSelfAttention if self.causal else GlobalSelfAttention
        self.self_attention = kind(name="self_attention", **self.attention_options())
        self.feed_forward = self.make_feed_forward()

    def build(self, x_shape: Shape) -> None:
        self.self_attention.build(x_shape)
        self.feed_forward.build(x_shape)

    def call(
        self, x: Tensor, mask: Tensor | None = None, *, attention_mask: Tensor | None = None,
        position_bias: Tensor | None = None, rotation: Nested | None = None,
        return_attention_scores: bool = False, training: bool | None = None,
    ) -> Nested:  # fmt: skip
        x = self.self_attention(
            x, mask=mask, attention_mask=attention_mask, position_bias=position_bias,
            rotation=rotation, return_attention_scores=return_attention_scores, training=training,
        )  # fmt: skip
        if return_attention_scores:
            x, scores = x
        x = self.feed_forward(x, training=training)  # [batch, length, d_model]
        return (x, scores) if return_attention_scores else x


class Stack(Block):
    """The base of encoders and decoders: dropout, layers, and pre-norm's last norm."""

    layer_class: type[Block]

    def __init__(
        self, num_layers: int, d_model: int, num_heads: int, dff: int, *,
        relative_positions: keras.layers.Layer | None = None,
        **options: Unpack[BlockOptions],
    ) -> None:  # fmt: skip
        super().__init__(d_model, num_heads, dff, **options)
        self.num_layers = _checks.integer("num_layers", num_layers)
        self.dropout = Dropout(self.dropout_rate, name="dropout", **self.part_options())
        self.relative_positions = self.given_layer(
            "relative_positions", relative_positions, "RotaryPositions(key_dim=64)"
        )
        self.norm = None  # post-norm layers end in a normalisation already
        if self.norm_first:
            self.norm = norm_like(self.norm_config, self.part_options())
        self.layers = [
            self.layer_class(name=f"layer_{i}", **self.layer_options()) for i in range(num_layers)
        ]

    def build(self, x_shape: Shape, *context_shape: Any) -> None:
        self.dropout.build(x_shape)
        if self.relative_positions is not None:
            self.relative_positions.build((None,))
        for layer in self.layers:
            layer.build(x_shape, *context_shape)
        if self.norm is not None:
            self.norm.build(x_shape)

    def relations(self, x: Tensor) -> tuple[Nested, Tensor | None]:
        """`rotation` and `position_bias` of the layers, for `x` `[batch, length, d_model]`."""
        positions = ops.arange(ops.shape(x)[1], dtype="int32")
        return rotation_and_bias(self.relative_positions, positions)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_layers": self.num_layers,
            "relative_positions": serialize(self.relative_positions),
        }


class SelfAttentionStack(Stack):
    """The base of encoders and causal decoders."""

    def call(
        self, x: Tensor, mask: Tensor | None = None, *, attention_mask: Tensor | None = None,
        return_attention_scores: bool = False, training: bool | None = None,
    ) -> Nested:  # fmt: skip
        mask = keras_mask(x) if mask is None else mask
        (rotation, position_bias), scores = self.relations(x), []
        x = self.dropout(x, training=training)
        for layer in self.layers:
            x = layer(
                x, mask=mask, attention_mask=attention_mask, position_bias=position_bias,
                rotation=rotation, return_attention_scores=return_attention_scores,
                training=training,
            )  # fmt: skip
            if return_attention_scores:
                x, of_layer = x
                scores.append(of_layer)
        x = x if self.norm is None else self.norm(x)  # [batch, length, d_model]
        return (x, scores) if return_attention_scores else x
