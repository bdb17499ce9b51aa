"""Products and tables of integers, in the place of those of `products`; TensorFlow's alone.

TensorFlow's op `_QuantizedMatMul` multiplies integers with oneDNN and keeps the weights in oneDNN's
own layout. Builds of TensorFlow for Linux on x86-64 have it. Inputs are rounded to 0…255 and
weights to −63…63, one scale for each unit. A processor without VNNI adds two products in 16 bits,
and 2 · 255 · 63 still fits, so that every processor gives right answers. Kernels are transposed,
because a shortlist gathers whole rows; other products take as long. The range of a product's inputs
is found with examples, which leaves two operations for it.

Reference: Kim et al. 2019, From Research to Production and Back: Ludicrously Fast Neural Machine
Translation (aclanthology.org/D19-5632).
"""

import functools
import math
import platform

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_tfmr import compat
from keras_tfmr.finished.products import Kind, Part, Product, Table

INPUT_STEPS = 255
WEIGHT_STEPS = 63
LEAST_WEIGHTS = 2**15  # a product with fewer takes as long in float32


def rounded(ranges):
    """The `Kind` that stores tables and large products in int8, and the others in float32.

    Args:
        ranges: {place: the range of a product's inputs}, as `observing` finds it.
    """

    def product(place, kernel, bias, then=None, float32_sum=False):
        if not is_large(kernel):
            return Product(place, kernel, bias, then, float32_sum)
        return Int8Product(place, kernel, bias, then, ranges[place])

    return Kind("int8", "float32", product, Int8Table)


def observing(ranges):
    """The `Kind` in float32 whose large products note the range of their inputs in `ranges`."""

    def product(place, kernel, bias, then=None, float32_sum=False):
        if not is_large(kernel):
            return Product(place, kernel, bias, then, float32_sum)
        return ObservedProduct(ranges, place, kernel, bias, then, float32_sum)

    return Kind("float32", "float32", product, Table)


def is_large(weight):
    """Whether int8 makes a product with a weight faster, if it is a matrix or has more axes."""
    return len(weight.shape) > 1 and math.prod(weight.shape) >= LEAST_WEIGHTS


def share_of_int8(model):
    """The share of a finished model's weights that are integers, from 0 to 1."""
    sizes = [(weight.dtype, math.prod(weight.shape)) for weight in model.weights]
    return sum(size for dtype, size in sizes if dtype == "int8") / sum(size for _, size in sizes)


class ObservedProduct(Product):
    """A `Product` that notes the range of its inputs in `ranges`."""

    def __init__(self, ranges, place, *args):
        super().__init__(place, *args)
        self.note = functools.partial(widen, ranges, place)

    def call(self, x):
        if (
            not isinstance(x, keras.KerasTensor) and tf.executing_eagerly()
        ):  # not while Keras traces
            self.note(float(ops.min(x)), float(ops.max(x)))
        return super().call(x)


def widen(ranges, place, low, high):
    """Widens the range of a place; what the op takes contains 0."""
    least, greatest = ranges.get(place, (0.0, 0.0))
    ranges[place] = min(least, low), max(greatest, high)


class Int8Product(Part):
    """x W + b, and a function of the sum, in integers.

    Args:
        place, kernel, bias, then: As for `Product`.
        input_range: The smallest and the largest input; others are clipped.

    Call arguments:
        x: Tensor `[rows, width]`.
    """

    def __init__(self, place, kernel, bias, then, input_range):
        super().__init__()
        self.then = then
        low, high = input_range
        self.step = max(high - low, 1e-30) / INPUT_STEPS  # between two neighbouring inputs
        self.zero = round(-low / self.step)  # the integer that stands for the input 0
        kernel = np.asarray(ops.convert_to_numpy(kernel), "float64").T  # [units, width]
        scale = np.maximum(np.abs(kernel).max(axis=1), 1e-30) / WEIGHT_STEPS  # [units]
        kernel = np.round(kernel / scale[:, None])
        # What the integer for 0 adds to each unit is taken off again with the bias.
        offset = -self.step * self.zero * scale * kernel.sum(axis=1)
        offset = offset if bias is None else offset + ops.convert_to_numpy(bias)
        self.kernel = self.hold(kernel, "int8")
        self.unit_range = self.hold(scale * 127)  # as the op wants it: the value of 127
        self.offset = self.hold(offset)

    def call(self, x):
        # The op exists in graphs only.
        return self._in_graph(x) if tf.executing_eagerly() else self.multiplied(x)

    @functools.cached_property
    def _in_graph(self):
        return tf.function(self.multiplied, autograph=False, reduce_retracing=True)

    def multiplied(self, x):
        """The function of the sum, float32 `[rows, units]`, in a graph."""
        relu = self.then is keras.activations.relu
        units = map(tf.convert_to_tensor, (self.kernel, self.offset, self.unit_range))
        y = self.sums(x, *units, relu=relu)
        return y if relu or self.then is None else self.then(y)

    def sums(self, x, kernel, offset, unit_range, relu=False, constant=True):
        """The sums of these units, float32 `[rows, n]`, in a graph.

        Args:
            x: float32 `[rows, width]`.
            kernel, offset, unit_range: Some units of this product, `[n, width]` and `[n]`.
            relu: Whether to take 0 for what is negative.
            constant: Whether the units are the same at every run.
        """
        # The raw op, because tf.quantization.quantize warns of its own deprecation.
        integers, _, _ = tf.raw_ops.QuantizeV2(
            input=x,
            min_range=-self.zero * self.step,
            max_range=(INPUT_STEPS - self.zero) * self.step,
            T=tf.quint8,
        )
        kernel = tf.bitcast(kernel, tf.qint8)  # which no variable can have
        greatest = tf.constant(self.step * INPUT_STEPS, tf.float32)
        y = compat.quantized_matmul(integers, kernel, offset, greatest, unit_range, relu, constant)
        y.set_shape([None, kernel.shape[0]])
        return y


class Int8Table(Part):
    """Like `Table`, in int8 with one scale for each vector."""

    def __init__(self, vectors):
        super().__init__()
        scales = ops.max(ops.abs(vectors), axis=-1, keepdims=True)  # [vocab, 1]
        scales = ops.maximum(scales, 1e-30) / 127
        self.vectors = self.hold(ops.round(vectors / scales), "int8")
        self.scales = self.hold(scales)

    def call(self, ids):
        vectors = ops.cast(compat.take(self.vectors, ids), "float32")
        return vectors * compat.take(self.scales, ids)


@functools.cache
def check_int8():
    """Raises a RuntimeError if this TensorFlow does not multiply in int8."""
    product = Int8Product("", tf.ones([3, 2]), None, None, (0.0, 1.0))
    try:
        product(np.ones((1, 3), "float32"))
    except (ValueError, RuntimeError, tf.errors.OpError) as error:
        raise RuntimeError(
            "int8 needs a TensorFlow for Linux on x86-64, 2.20 or newer. Received: TensorFlow "
            f"{tf.__version__} on {platform.system()} {platform.machine()}, without the op "
            f"{compat.QUANTIZED_MATMUL}"
        ) from error
