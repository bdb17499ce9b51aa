"""The base of encoder and decoder layers: arguments, self-attention, feed-forward sublayer."""

import types

import keras

from keras_tfmr import _checks
from keras_tfmr.layers._parts import described, given
from keras_tfmr.layers.feed_forward import FeedForward, GatedFeedForward


class Block(keras.layers.Layer):
    """The base of encoder and decoder layers: arguments, self-attention, feed-forward sublayer."""

    self_attention_class = None
    feed_forward_class = FeedForward
    gated_feed_forward_class = GatedFeedForward

    def __init__(
        self,
        *,
        d_model,
        num_heads,
        dff,
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
        super().__init__(**kwargs)
        self.d_model = _checks.positive_int("d_model", d_model)
        self.num_heads, self.dff, self.gated = num_heads, dff, bool(gated)
        self.dropout_rate, self.attention_dropout_rate = dropout_rate, attention_dropout_rate
        self.activation = activation
        self.value_dim, self.num_kv_heads = value_dim, num_kv_heads
        self.norm_first, self.use_bias = bool(norm_first), bool(use_bias)
        # In a namespace, so that Keras does not track them: only their copies are sublayers.
        self.parts = types.SimpleNamespace(qk_norm=given(qk_norm), norm=given(norm))
        self.key_dim = _checks.head_width(d_model, num_heads) if key_dim is None else key_dim
        self.self_attention = self.make_attention(self.self_attention_class, "self_attention")
        self.supports_masking = True

    def make_attention(self, kind, name):
        """An attention sublayer of class `kind` with this layer's sizes."""
        return kind(
            self.num_heads,
            self.key_dim,
            value_dim=self.value_dim,
            num_kv_heads=self.num_kv_heads,
            dropout_rate=self.dropout_rate,
            attention_dropout_rate=self.attention_dropout_rate,
            norm_first=self.norm_first,
            use_bias=self.use_bias,
            qk_norm=self.parts.qk_norm,
            norm=self.parts.norm,
            dtype=self.dtype_policy,
            name=name,
        )

    def make_feed_forward(self):
        """The feed-forward sublayer with this layer's sizes."""
        kind = self.gated_feed_forward_class if self.gated else self.feed_forward_class
        return kind(
            self.d_model,
            self.dff,
            self.dropout_rate,
            self.norm_first,
            activation=self.activation,
            use_bias=self.use_bias,
            norm=self.parts.norm,
            dtype=self.dtype_policy,
            name="feed_forward",
        )

    def arguments(self):
        """The arguments this layer was made with."""
        names = (
            "d_model", "num_heads", "dff", "dropout_rate", "attention_dropout_rate", "key_dim",
            "value_dim", "num_kv_heads", "norm_first", "activation", "gated", "use_bias",
        )  # fmt: skip
        parts = {name: described(part) for name, part in vars(self.parts).items()}
        return {**{name: getattr(self, name) for name in names}, **parts}

    def get_config(self):
        return {**super().get_config(), **self.arguments()}


class SelfAttentionBlock(Block):
    """A layer without a context: self-attention, then feed-forward."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.feed_forward = self.make_feed_forward()

    def build(self, x_shape):
        self.self_attention.build(x_shape)
        self.feed_forward.build(x_shape)
        self.built = True

    def call(self, x, mask=None, return_attention_scores=False, relations=None, training=None):
        y = self.self_attention(
            x,
            mask=mask,
            return_attention_scores=return_attention_scores,
            relations=relations,
            training=training,
        )
        x, scores = y if return_attention_scores else (y, None)
        x = self.feed_forward(x, training=training)
        return (x, scores) if return_attention_scores else x
