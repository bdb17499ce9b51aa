"""Products and tables of integers, in the place of those of `parts`; TensorFlow's alone.

TensorFlow's op `_QuantizedMatMul` multiplies integers with oneDNN and keeps the weights in oneDNN's
own layout. Builds of TensorFlow for Linux on x86-64 have it. Inputs are rounded to 0…255 and
weights to −63…63, one scale for each column. A processor without VNNI adds two products in 16 bits,
and 2 · 255 · 63 still fits, so that every processor gives right answers. The range of a product's
inputs is found with examples, which leaves two operations for it. Without examples, each row of
inputs has a range of its own, in eight operations.

Reference: Kim et al. 2019, From Research to Production and Back: Ludicrously Fast Neural Machine
Translation (aclanthology.org/D19-5632).
"""

import functools
import platform

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_tfmr import compat
from keras_tfmr.faster.parts import Product, Weights

INPUT_STEPS = 255
WEIGHT_STEPS = 63
MIDDLE = 128  # the integer for 0, if a row has a range of its own
LEAST_WEIGHTS = 2**15  # a product with fewer takes as long in float32


class Int8Weights(Weights):
    """`Weights` of large products and of tables in int8; the others stay in float32.

    Args:
        ranges: {place: the range of a product's inputs}, as `ObservingWeights` finds it.
    """

    def __init__(self, ranges):
        super().__init__("float32", as_variables=True)
        self.precision, self.ranges = "int8", ranges

    def product(self, place, kernel, bias, then=None, float32_sum=False):
        if not is_large(kernel):
            return super().product(place, kernel, bias, then, float32_sum)
        if place in self.ranges:
            return Int8Product(self, kernel, bias, then, self.ranges[place])
        return RowInt8Product(self, kernel, bias, then)

    def table(self, vectors):
        return Int8Table(self, vectors)


class OneInt8Product(Weights):
    """`Weights` in float32 but for one product, to find out how far that moves a model."""

    def __init__(self, place, input_range):
        super().__init__("float32", as_variables=True)
        self.place, self.input_range = place, input_range

    def product(self, place, kernel, bias, then=None, float32_sum=False):
        if place == self.place:
            return Int8Product(self, kernel, bias, then, self.input_range)
        return super().product(place, kernel, bias, then, float32_sum)


class ObservingWeights(Weights):
    """`Weights` in float32 of large products that note the range of their inputs.

    Attributes:
        ranges: {place: the least and the greatest input so far, or 0}.
    """

    def __init__(self):
        super().__init__("float32", as_variables=True)
        self.ranges = {}

    def product(self, place, kernel, bias, then=None, float32_sum=False):
        if not is_large(kernel):
            return super().product(place, kernel, bias, then, float32_sum)
        return ObservedProduct(self, place, kernel, bias, then, float32_sum)


def is_large(kernel):
    """Whether int8 makes a product faster."""
    return kernel.shape[0] * kernel.shape[1] >= LEAST_WEIGHTS


class ObservedProduct(Product):
    """A `Product` that notes the range of its inputs in `ObservingWeights`."""

    def __init__(self, weights, place, kernel, bias, then, float32_sum):
        super().__init__(weights, kernel, bias, then, float32_sum)
        self.place, self.ranges = place, weights.ranges

    def __call__(self, x):
        low, high = self.ranges.get(self.place, (0.0, 0.0))  # what the op takes contains 0
        self.ranges[self.place] = min(low, float(ops.min(x))), max(high, float(ops.max(x)))
        return super().__call__(x)


class IntegerProduct:
    """The base of products of integers, which differ in how inputs are rounded.

    Args:
        weights: The `Weights` to hold kernel and offset.
        kernel: Tensor `[width, units]`.
        then: A function of the sum, or None.
        step: The difference between two neighbouring inputs.
        zero: The integer that stands for the input 0.
        bias: Array `[units]`.

    Call arguments:
        x: Tensor `[rows, width]`.
    """

    dtype = "float32"  # of the sums

    def __init__(self, weights, kernel, then, step, zero, bias=0.0):
        self.then, self.step, self.zero = then, step, zero
        kernel = np.asarray(ops.convert_to_numpy(kernel), "float64")
        scale = np.maximum(np.abs(kernel).max(axis=0), 1e-30) / WEIGHT_STEPS  # [units]
        kernel = np.round(kernel / scale)
        # What the integer for 0 adds to each column is taken off again with the bias.
        offset = -step * zero * scale * kernel.sum(axis=0) + bias
        self.kernel = weights.hold(kernel, "int8")
        self.column_range = weights.hold(scale * 127)  # as the op wants it: the value of 127
        self.offset = weights.hold(offset)

    def __call__(self, x):
        # The op exists in graphs only.
        return self._in_graph(x) if tf.executing_eagerly() else self.multiplied(x)

    @functools.cached_property
    def _in_graph(self):
        return tf.function(self.multiplied, autograph=False, reduce_retracing=True)

    def multiplied(self, x):
        """The function of the sum, float32 `[rows, units]`, in a graph."""
        raise NotImplementedError

    def sums(self, x, relu=False):
        """quint8 `[rows, width]` → float32 `[rows, units]`, with the offset."""
        kernel = tf.bitcast(
            tf.convert_to_tensor(self.kernel), tf.qint8
        )  # which no variable can have
        greatest = tf.constant(self.step * INPUT_STEPS, tf.float32)
        offset, column_range = map(tf.convert_to_tensor, (self.offset, self.column_range))
        y = compat.quantized_matmul(x, kernel, offset, greatest, column_range, relu)
        y.set_shape([None, self.kernel.shape[1]])
        return y


class Int8Product(IntegerProduct):
    """x W + b, and a function of the sum, in integers; x within a range that is known.

    Args:
        weights, kernel, bias, then: As for `Product`.
        input_range: The least and the greatest input; what is beyond is cut.
    """

    def __init__(self, weights, kernel, bias, then, input_range):
        low, high = input_range
        step = max(high - low, 1e-30) / INPUT_STEPS
        bias = 0.0 if bias is None else ops.convert_to_numpy(bias)
        super().__init__(weights, kernel, then, step, round(-low / step), bias)

    def multiplied(self, x):
        # The raw op, because tf.quantization.quantize warns of its own deprecation.
        integers, _, _ = tf.raw_ops.QuantizeV2(
            input=x,
            min_range=-self.zero * self.step,
            max_range=(INPUT_STEPS - self.zero) * self.step,
            T=tf.quint8,
        )
        if self.then is keras.activations.relu:
            return self.sums(integers, relu=True)
        y = self.sums(integers)
        return y if self.then is None else self.then(y)


class RowInt8Product(IntegerProduct):
    """As `Int8Product`, but each row of x has a range of its own.

    Args:
        weights, kernel, bias, then: As for `Product`.
    """

    def __init__(self, weights, kernel, bias, then):
        super().__init__(weights, kernel, then, step=1.0, zero=MIDDLE)
        self.bias = weights.hold(bias)

    def multiplied(self, x):
        greatest = tf.reduce_max(tf.abs(x), axis=-1, keepdims=True)
        step = tf.maximum(greatest, 1e-30) * (1 / (MIDDLE - 1))  # [rows, 1]
        integers = tf.cast(x / step + (MIDDLE + 0.5), tf.uint8)  # truncates the fraction
        y = self.sums(tf.bitcast(integers, tf.quint8)) * step
        y = y if self.bias is None else y + self.bias
        return y if self.then is None else self.then(y)


class Int8Table:
    """As `Table`, in int8 with one scale for each vector."""

    def __init__(self, weights, vectors):
        scales = ops.max(ops.abs(vectors), axis=-1, keepdims=True)  # [vocab, 1]
        scales = ops.maximum(scales, 1e-30) / 127
        self.vectors = weights.hold(ops.round(vectors / scales), "int8")
        self.scales = weights.hold(scales)

    def __call__(self, ids):
        vectors = ops.cast(compat.take(self.vectors, ids), "float32")
        return vectors * compat.take(self.scales, ids)


@functools.cache
def check_int8():
    """Raises a RuntimeError if this TensorFlow does not multiply in int8."""
    product = RowInt8Product(Weights("float32", as_variables=True), tf.ones([3, 2]), None, None)
    try:
        product(np.ones((1, 3), "float32"))
    except (ValueError, RuntimeError, tf.errors.OpError) as error:
        raise RuntimeError(
            "int8 needs a TensorFlow for Linux on x86-64, 2.20 or newer. Received: TensorFlow "
            f"{tf.__version__} on {platform.system()} {platform.machine()}, without the op "
            f"{compat.QUANTIZED_MATMUL}"
        ) from error
