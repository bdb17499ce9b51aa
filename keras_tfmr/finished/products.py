"""The parts of finished layers: products, tables and norms, with variables of their own."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import keras
from keras import ops

from keras_tfmr import compat
from keras_tfmr.layers import LayerNormalization, RMSNormalization


class Kind(NamedTuple):
    """A precision's way to store and multiply.

    Fields:
        precision: Its name.
        dtype: The dtype of keys, of values and of the outputs of products.
        product: Makes a product from the arguments of `Product`, except `dtype`.
        table: Makes a table from the arguments of `Table`, except `dtype`.
    """

    precision: str
    dtype: str
    product: Callable
    table: Callable


def exact(dtype):
    """The `Kind` that computes in a float dtype."""
    product, table = (functools.partial(part, dtype=dtype) for part in (Product, Table))
    return Kind(dtype, dtype, product, table)


class Part(keras.layers.Layer):
    """The base of finished layers and of what is in them: built when made, and never trained."""

    def __init__(self, name=None):
        super().__init__(name=name, dtype="float32", autocast=False, trainable=False)
        self.supports_masking = True
        self.built = True

    def hold(self, value, dtype="float32"):
        """A variable of a value, or None."""
        if value is None:
            return None
        value = ops.cast(value, dtype)
        return keras.Variable(value, dtype=dtype, trainable=False, autocast=False)


class Product(Part):
    """x W + b, and a function of the sum.

    Args:
        place: The path of its layer in the model, by which int8 knows the range of its inputs.
        kernel: Tensor `[width, units]`.
        bias: Tensor `[units]`, or None.
        then: A function of the sum, or None.
        float32_sum: Whether the sum is float32 in every precision, as it is for logits.
        dtype: The dtype of the product, and of the sum unless `float32_sum`.

    Call arguments:
        x: Tensor `[rows, width]`.
    """

    def __init__(self, place, kernel, bias, then=None, float32_sum=False, *, dtype="float32"):
        super().__init__()
        self.then = then
        self.sum_dtype = "float32" if float32_sum else dtype
        self.kernel, self.bias = self.hold(kernel, dtype), self.hold(bias, self.sum_dtype)

    def call(self, x):
        y = ops.matmul(ops.cast(x, self.kernel.dtype), self.kernel)
        y = ops.cast(y, self.sum_dtype)
        y = y if self.bias is None else ops.add(y, self.bias)
        return y if self.then is None else self.then(y)


class Table(Part):
    """Vectors by integer.

    Args:
        vectors: Tensor `[vocab, width]`.
        dtype: That in which they are stored.

    Call arguments:
        ids: int32 tensor of any shape.

    Returns:
        float32 tensor `[..., width]`.
    """

    def __init__(self, vectors, *, dtype="float32"):
        super().__init__()
        self.vectors = self.hold(vectors, dtype)

    def call(self, ids):
        return ops.cast(compat.take(self.vectors, ids), "float32")


class Norm(Part):
    """A normalisation.

    Args:
        layer: A `LayerNormalization` or `RMSNormalization`.
        folded: Whether gain and offset are part of the products that follow.
    """

    def __init__(self, layer, folded=False):
        super().__init__()
        self.layer_norm = type(layer) is LayerNormalization
        self.epsilon = layer.epsilon
        self.gain = ops.cast(layer.gamma if self.layer_norm else layer.scale, "float32")
        self.offset = ops.cast(layer.beta, "float32") if self.layer_norm else None
        if not folded:
            self.gain, self.offset = self.hold(self.gain), self.hold(self.offset)

    def fold(self, kernel, bias):
        """The kernel and bias of a product after this norm, of its `unit` alone."""
        if self.offset is not None:
            offset = ops.matmul(self.offset, kernel)
            bias = offset if bias is None else bias + offset
        return kernel * self.gain[:, None], bias

    def unit(self, x):
        """Vectors of mean 0, or of any mean for a `RMSNormalization`, divided by their length."""
        squares = ops.mean(ops.square(x), axis=-1, keepdims=True)
        return x * ops.rsqrt(squares + self.epsilon)

    def call(self, x):
        """The normalised vectors of the dtype of `x` `[..., width]`."""
        dtype, x = x.dtype, ops.cast(x, "float32")
        return ops.cast(self.scaled(centered(x) if self.layer_norm else x), dtype)

    def scaled(self, x):
        """The normalised vectors of vectors of mean 0."""
        y = self.unit(x) * self.gain
        return y if self.offset is None else y + self.offset


KNOWN_NORMS = LayerNormalization, RMSNormalization


def centered(x):
    """`x` `[..., width]` without its mean."""
    return x - ops.mean(x, axis=-1, keepdims=True)


def matrix(dense):
    """The kernel `[width, units]` and the bias `[units]` or None of a `Dense` layer, with LoRA."""
    bias = ops.cast(dense.bias, "float32") if dense.use_bias else None
    return ops.cast(dense.kernel, "float32"), bias


def side_by_side(*matrices):
    """Several kernels and their biases, all or none, as one kernel and bias."""
    kernels, biases = zip(*matrices, strict=True)
    bias = None if biases[0] is None else ops.concatenate(biases, axis=-1)
    return ops.concatenate(kernels, axis=-1), bias
