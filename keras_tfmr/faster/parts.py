"""The weights of a finished model, in the forms in which they decode fastest.

A `Part` is made of a model's arrays, computes with them at once, and is then frozen: its arrays
become variables in a precision. What is multiplied is a `Product`, in float32, bfloat16 or int8.

TensorFlow's op `_QuantizedMatMul` multiplies integers with oneDNN and keeps the weights in oneDNN's
own layout. Builds of TensorFlow for Linux on x86-64 have it. Inputs are rounded to 0…255 and
weights to −63…63, one scale for each column. A processor without VNNI adds two products in 16 bits,
and 2 · 255 · 63 still fits, so that every processor gives right answers. The range of a product's
inputs is found with examples, which leaves two operations for it. Without examples, each row of
inputs has a range of its own, in eight operations.

Reference: Kim et al. 2019, From Research to Production and Back: Ludicrously Fast Neural Machine
Translation (aclanthology.org/D19-5632).
"""

import copy
import functools
import platform

import keras
import numpy as np
import tensorflow as tf

from keras_tfmr import compat

INPUT_STEPS = 255
WEIGHT_STEPS = 63
MIDDLE = 128  # the integer for 0, if a row has a range of its own
LEAST_WEIGHTS = 2**15  # a product with fewer takes as long in float32


class Part:
    """Weights, and other parts, as attributes; a subclass computes with them.

    The arrays among the attributes are the weights of the part.
    """

    def parts(self):
        """This part and all parts inside it; a shared one comes as often as it is used."""
        yield self
        for part in _parts_among(vars(self).values()):
            yield from part.parts()

    def variables(self):
        """The variables of all parts, and of the Keras layers that they use, each once."""
        found = {}
        for part in self.parts():
            for value in vars(part).values():
                if isinstance(value, keras.layers.Layer):
                    found |= {id(weight): weight for weight in value.weights}
                elif isinstance(value, keras.Variable):
                    found[id(value)] = value
        return list(found.values())

    def freeze(self, precision):
        """Makes variables of the arrays, in "float32", "bfloat16" or "int8"; once."""
        for part in self.parts():
            part.freeze_own(precision)

    def freeze_own(self, precision):
        """As `freeze`, for the arrays of this part alone; they stay in float32."""
        arrays = [name for name, value in vars(self).items() if isinstance(value, np.ndarray)]
        self.hold("float32", *arrays)

    def hold(self, dtype, *names):
        """Makes variables of a dtype of the arrays of these names; there may be none."""
        for name in names:
            if (array := getattr(self, name)) is not None:
                variable = keras.Variable(tf.cast(array, dtype), dtype=dtype, trainable=False)
                setattr(self, name, variable)

    def read(self):
        """A copy with tensors for variables, so that a loop reads these once, before it begins."""
        bound = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, keras.Variable):
                setattr(bound, name, tf.convert_to_tensor(value.value))
            elif isinstance(value, Part):
                setattr(bound, name, value.read())
            elif isinstance(value, list) and value and isinstance(value[0], Part):
                setattr(bound, name, [part.read() for part in value])
        return bound


def _parts_among(values):
    for value in values:
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, Part):
                yield part


class Product(Part):
    """x W + b, and a function of the sum.

    Args:
        place: The path of the layer in its model.
        kernel: Array `[width, units]`.
        bias: Array `[units]`.
        then: A function of the sum, or None.
        exact_bias: Whether the sum is in float32 in every precision, as it is for logits.

    Call arguments:
        x: float32 tensor `[rows, width]`, or in the precision of the weights.

    Attributes:
        input_range: The least and the greatest input that the product received before it was
            frozen. Those beyond are cut in int8. None gives each row a range of its own.
        rounded: The copy in int8 that computes in place of this product, if there is one.
    """

    def __init__(self, place, kernel, bias, then=None, exact_bias=False):
        self.place, self.then, self.exact_bias = place, then, exact_bias
        self.kernel, self.units = np.asarray(kernel, "float32"), kernel.shape[1]
        self.bias = np.asarray(bias, "float32") if np.any(bias) else None
        self.input_range = self.rounded = self.column_range = None

    def read(self):
        return self if isinstance(self.kernel, np.ndarray) else super().read()

    @property
    def large(self):
        """Whether int8 makes it faster."""
        return np.prod(self.kernel.shape) >= LEAST_WEIGHTS

    def __call__(self, x):
        if self.rounded is not None:
            return self.rounded(x)
        if self.column_range is not None:
            return self._multiply_integers(x)
        if isinstance(self.kernel, np.ndarray):  # not frozen: it sees examples
            low, high = self.input_range or (0.0, 0.0)  # what the op takes contains 0
            least, greatest = float(tf.reduce_min(x)), float(tf.reduce_max(x))
            self.input_range = min(low, least), max(high, greatest)
        y = tf.matmul(tf.cast(x, self.kernel.dtype), self.kernel)
        if self.exact_bias:
            y = tf.cast(y, tf.float32)
        y = y if self.bias is None else tf.nn.bias_add(y, self.bias)
        return y if self.then is None else self.then(y)

    def freeze_own(self, precision):
        if precision == "int8" and self.large:
            return self._round()
        dtype = "float32" if precision == "int8" else precision
        self.hold(dtype, "kernel")
        self.hold("float32" if self.exact_bias else dtype, "bias")

    def _round(self):
        scale = np.maximum(np.abs(self.kernel).max(axis=0), 1e-30) / WEIGHT_STEPS  # [units]
        self.kernel = np.round(self.kernel / scale)
        self.column_range = scale * 127  # what the op takes: the value of the integer 127
        # What the integer for 0 adds to each column is taken off again with the bias.
        self.offset = -self.input_step * self.input_zero * scale * self.kernel.sum(axis=0)
        if self.input_range is not None and self.bias is not None:
            self.offset, self.bias = self.offset + self.bias, None
        self.hold("int8", "kernel")
        self.hold("float32", "column_range", "offset", "bias")

    @property
    def input_step(self):
        """The difference between two neighbouring inputs; 1 if rows have their own."""
        if self.input_range is None:
            return 1.0
        return max(self.input_range[1] - self.input_range[0], 1e-30) / INPUT_STEPS

    @property
    def input_zero(self):
        """The integer that stands for 0."""
        return MIDDLE if self.input_range is None else round(-self.input_range[0] / self.input_step)

    def _multiply_integers(self, x):
        if tf.executing_eagerly():  # the op exists in graphs only
            return self._in_graph(x)
        relu = self.then is keras.activations.relu and self.input_range is not None
        if self.input_range is None:  # a range for each row
            greatest = tf.reduce_max(tf.abs(x), axis=-1, keepdims=True)
            step = tf.maximum(greatest, 1e-30) * (1 / (MIDDLE - 1))  # [rows, 1]
            integers = tf.cast(x / step + (MIDDLE + 0.5), tf.uint8)  # cuts what is behind the point
            y = self._quantized_matmul(tf.bitcast(integers, tf.quint8)) * step
            y = y if self.bias is None else y + self.bias
        else:
            step, zero = self.input_step, self.input_zero
            # The raw op, because tf.quantization.quantize warns of its own deprecation.
            integers, _, _ = tf.raw_ops.QuantizeV2(
                input=x,
                min_range=-zero * step,
                max_range=(INPUT_STEPS - zero) * step,
                T=tf.quint8,
            )
            y = self._quantized_matmul(integers, relu)
        return y if self.then is None or relu else self.then(y)

    @functools.cached_property
    def _in_graph(self):
        return tf.function(
            lambda x: self.read()._multiply_integers(x), autograph=False, reduce_retracing=True
        )

    def _quantized_matmul(self, x, relu=False):
        """quint8 `[rows, width]` → float32 `[rows, units]`, with the offset, of what was read."""
        greatest = tf.constant(self.input_step * INPUT_STEPS, tf.float32)
        kernel = tf.bitcast(self.kernel, tf.qint8)  # a type that loops do not carry
        y = compat.quantized_matmul(x, kernel, self.offset, greatest, self.column_range, relu)
        y.set_shape([None, self.units])
        return y


class Table(Part):
    """Vectors by integer, in int8 with one scale for each.

    Args:
        vectors: Array `[vocab, width]`.

    Call arguments:
        ids: int32 tensor of any shape.

    Returns:
        float32 tensor `[..., width]`.
    """

    def __init__(self, vectors):
        self.vectors, self.scales = np.asarray(vectors, "float32"), None

    def __call__(self, ids):
        vectors = tf.cast(tf.gather(self.vectors, ids), tf.float32)
        return vectors if self.scales is None else vectors * tf.gather(self.scales, ids)

    def freeze_own(self, precision):
        if isinstance(self.vectors, keras.Variable):  # a shared one, frozen already
            return
        if precision == "int8":
            scales = np.abs(self.vectors).max(axis=-1, keepdims=True)  # [vocab, 1]
            self.scales = np.maximum(scales, 1e-30) / 127
            self.vectors = np.round(self.vectors / self.scales)
            self.hold("float32", "scales")
        self.hold(precision, "vectors")


@functools.cache
def check_int8():
    """Raises a RuntimeError if this TensorFlow does not multiply in int8."""
    product = Product("", np.ones((3, 2)), np.zeros(2))
    product._round()
    try:
        product(np.ones((1, 3), "float32"))
    except (ValueError, RuntimeError, tf.errors.OpError) as error:
        raise RuntimeError(
            "int8 needs a TensorFlow for Linux on x86-64, 2.20 or newer. Received: TensorFlow "
            f"{tf.__version__} on {platform.system()} {platform.machine()}, without the op "
            f"{compat.QUANTIZED_MATMUL}"
        ) from error
