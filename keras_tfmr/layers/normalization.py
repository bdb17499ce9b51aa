"""Layer normalisation with an explicit derivative, and RMS normalisation."""

from typing import Any, Unpack

import keras
from keras import backend, ops

from keras_tfmr import _checks
from keras_tfmr.config import Nested, Shape, Tensor
from keras_tfmr.layers.base import MaskingLayer, optional_layer
from keras_tfmr.layers.options import KerasOptions


@keras.saving.register_keras_serializable(package="keras_tfmr")
class LayerNormalization(MaskingLayer):
    """(x - mean) / √(variance + ε) · γ + β over the last axis, in float32 under every policy.

    On TensorFlow, the derivative in training is computed explicitly, with two sums over the last
    axis. On a CPU this takes half the time of the automatic derivative of mean and variance, which
    `keras.layers.LayerNormalization` uses.

    Args:
        epsilon: Added to the variance.
        axis: -1, as for Keras's layer; no other axis is normalised.

    Call arguments:
        x: Tensor `[..., d_model]`; its mask is passed on.

    Returns:
        Tensor of the same shape.

    Raises:
        ValueError: If `epsilon` is not positive, or the axis is not the last one.

    Reference: Ba, Kiros and Hinton 2016, Layer Normalization (arXiv 1607.06450).

    >>> LayerNormalization()(np.ones((2, 3, 8), "float32")).shape
    TensorShape([2, 3, 8])
    """

    position_wise = True

    def __init__(
        self, epsilon: float = 1e-6, *, axis: Any = -1, **kwargs: Unpack[KerasOptions]
    ) -> None:
        super().__init__(autocast=False, **kwargs)  # x must not be rounded
        self.epsilon = _checks.number("epsilon", epsilon, positive=True)
        self.axis = _last_axis(axis)

    def build(self, x_shape: Shape) -> None:
        width = x_shape[-1]
        self.input_spec = keras.layers.InputSpec(axes={-1: width})
        # Nor the weights: Keras heeds the layer's own `autocast` only inside another layer.
        exact = {"shape": (width,), "autocast": False}
        self.gamma = self.add_weight(initializer="ones", name="gamma", **exact)
        self.beta = self.add_weight(initializer="zeros", name="beta", **exact)

    def call(self, x: Tensor, training: bool | None = None) -> Nested:
        dtype = backend.result_type(x.dtype, "float32")
        inputs = [ops.cast(tensor, dtype) for tensor in (x, self.gamma, self.beta)]
        # On JAX, a jvp needs the automatic derivative; torch has a kernel of its own.
        if keras.backend.backend() == "torch":
            y = ops.layer_normalization(*inputs, axis=-1, epsilon=self.epsilon)
        elif training and keras.backend.backend() == "tensorflow":
            y = ops.custom_gradient(self._normalized)(*inputs)
        else:
            y, _ = self._normalized(*inputs)
        return ops.cast(y, self.compute_dtype)

    def _normalized(self, x, gamma, beta):
        """The output, and a function from its derivative to those of the three inputs."""
        centered = x - ops.mean(x, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)
        scale = ops.rsqrt(variance + self.epsilon)  # [..., 1]
        unit = centered * scale

        def gradient(upstream):
            along = upstream * unit
            rows = list(range(len(x.shape) - 1))
            by_gamma, by_beta = ops.sum(along, axis=rows), ops.sum(upstream, axis=rows)
            by_unit = upstream * gamma
            mean = ops.mean(by_unit, axis=-1, keepdims=True)
            mean_along = ops.mean(along * gamma, axis=-1, keepdims=True)
            return (by_unit - mean - unit * mean_along) * scale, by_gamma, by_beta

        return unit * gamma + beta, gradient

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "epsilon": self.epsilon, "axis": self.axis}


@keras.saving.register_keras_serializable(package="keras_tfmr")
class RMSNormalization(keras.layers.RMSNormalization):
    """x / √(mean(x²) + ε) · γ over the last axis: Keras's layer, but it passes masks on.

    Args:
        epsilon: Added to the mean of squares.
        axis: -1, as for `LayerNormalization`.

    Call arguments:
        x: Tensor `[..., d_model]`; its mask is passed on.

    Returns:
        Tensor of the same shape.

    Reference: Zhang and Sennrich 2019, Root Mean Square Layer Normalization (arXiv 1910.07467).

    >>> RMSNormalization()(np.ones((2, 3, 8), "float32")).shape
    TensorShape([2, 3, 8])
    """

    position_wise = True

    def __init__(
        self, epsilon: float = 1e-6, *, axis: Any = -1, **kwargs: Unpack[KerasOptions]
    ) -> None:
        super().__init__(
            _last_axis(axis), _checks.number("epsilon", epsilon, positive=True), **kwargs
        )
        self.supports_masking = True

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        self.input_spec = keras.layers.InputSpec(axes={-1: input_shape[-1]})


def _last_axis(axis):
    if axis not in (-1, [-1], (-1,)):  # Keras keeps a list after building
        raise ValueError(f"`axis` must be -1, the last one. Received: axis={axis!r}")
    return -1


def norm_like(norm, options, name="norm"):
    """A copy of a normalisation layer; a `LayerNormalization` for None.

    Args:
        norm: The layer, or its serialised form.
        options: The `part_options` of the layer that it is for.
        name: Its name there.

    Raises:
        TypeError: If `norm` is not a layer.
    """
    norm = optional_layer(name, norm, "RMSNormalization()") or LayerNormalization()
    options = {**options, "trainable": options["trainable"] and norm.trainable, "name": name}
    if type(norm) in (LayerNormalization, RMSNormalization):
        return type(norm)(norm.epsilon, **options)
    # Not for ours, because a config names its dtype policy by a function that imports TensorFlow.
    return type(norm).from_config({**norm.get_config(), **options})
