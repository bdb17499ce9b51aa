"""The options of layers that take them as `**options`, for editors and type checkers (PEP 692).

The constructors that use them hold the defaults, and refuse others.
"""

from typing import Any, TypedDict

import keras


class KerasOptions(TypedDict, total=False):
    """Options of `keras.layers.Layer`."""

    name: str | None
    dtype: Any
    trainable: bool
    activity_regularizer: Any


class WeightOptions(TypedDict, total=False):
    """Options of `keras.layers.Dense` for weights, handed to every projection in a layer."""

    kernel_initializer: Any
    bias_initializer: Any
    kernel_regularizer: Any
    bias_regularizer: Any
    kernel_constraint: Any
    bias_constraint: Any


class LayerOptions(WeightOptions, KerasOptions, total=False):
    """Options of layers that project."""


class FeedForwardOptions(LayerOptions, total=False):
    """Also the options of feed-forward sublayers."""

    dropout_rate: float
    norm_first: bool
    activation: Any
    use_bias: bool
    norm: keras.layers.Layer | None


class BlockOptions(FeedForwardOptions, total=False):
    """Also the options that encoder and decoder layers share with stacks of them."""

    attention_dropout_rate: float | None
    key_dim: int | None
    num_kv_heads: int | None
    gated: bool
    qk_norm: keras.layers.Layer | None
