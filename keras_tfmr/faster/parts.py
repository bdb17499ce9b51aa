"""The weights of a finished model, in the forms in which they decode fastest.

A `Part` is made of the weights of layers, as float32 tensors, and computes with them at once: in a
graph, it follows a model in training. `finish` puts its tensors into a precision, and for an
export, into variables of its own.

In int8, TensorFlow's op `_QuantizedMatMul` multiplies integers with oneDNN and keeps the weights in
oneDNN's own layout. Builds of TensorFlow for Linux on x86-64 have it. Inputs are rounded to 0…255
and weights to −63…63, one scale for each column. A processor without VNNI adds two products in 16
bits, and 2 · 255 · 63 still fits, so that every processor gives right answers. The range of a
product's inputs is found with examples, which leaves two operations for it. Without examples, each
row of inputs has a range of its own, in eight operations.

Reference: Kim et al. 2019, From Research to Production and Back: Ludicrously Fast Neural Machine
Translation (aclanthology.org/D19-5632).
"""

import copy
import functools
import platform

import keras
import numpy as np
from keras import ops

from keras_tfmr import compat
from keras_tfmr.faster import backend

INPUT_STEPS = 255
WEIGHT_STEPS = 63
MIDDLE = 128  # the integer for 0, if a row has a range of its own
LEAST_WEIGHTS = 2**15  # a product with fewer takes as long in float32


class Part:
    """Weights, and other parts, as attributes; a subclass computes with them.

    The tensors among the attributes are the weights of the part; they are float32 until `finish`.
    """

    def parts(self):
        """This part and all parts inside it; a shared one comes as often as it is used."""
        yield self
        for value in vars(self).values():
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, Part):
                    yield from part.parts()

    def finish(self, precision, as_variables=False):
        """Puts the weights into "float32", "bfloat16", another float dtype or "int8"; once.

        Args:
            precision: The dtype.
            as_variables: Whether they become variables, and copies of the model's, as an export
                needs them. int8 needs it.
        """
        for part in self.parts():
            part.finish_own(precision, as_variables)

    def finish_own(self, precision, as_variables):
        """As `finish`, for the tensors of this part alone; they stay in float32."""
        names = [name for name, value in vars(self).items() if ops.is_tensor(value)]
        self.hold("float32", as_variables, *names)

    def hold(self, dtype, as_variables, *names):
        """Puts the tensors of these names into a dtype; there may be none."""
        for name in names:
            if (value := getattr(self, name)) is not None:
                value = ops.cast(value, dtype)
                if as_variables:
                    value = keras.Variable(value, dtype=dtype, trainable=False)
                setattr(self, name, value)

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

    def read(self):
        """A copy with tensors for variables, so that a loop reads these once, before it begins."""
        bound = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, keras.Variable):
                setattr(bound, name, backend.tensor_of(value))
            elif isinstance(value, Part):
                setattr(bound, name, value.read())
            elif isinstance(value, list) and value and isinstance(value[0], Part):
                setattr(bound, name, [part.read() for part in value])
        return bound


class Product(Part):
    """x W + b, and a function of the sum.

    Args:
        place: The path of the layer in its model.
        kernel: Tensor `[width, units]`.
        bias: Tensor `[units]`, or None.
        then: A function of the sum, or None.
        exact_bias: Whether the sum is in float32 in every precision, as it is for logits.

    Call arguments:
        x: Tensor `[rows, width]`.

    Attributes:
        sees: Whether it finds the range of its inputs, for int8.
        input_range: The least and the greatest input that the product saw. Those beyond are cut in
            int8. None gives each row a range of its own.
        rounded: The copy in int8 that computes in place of this product, if there is one.
    """

    def __init__(self, place, kernel, bias, then=None, exact_bias=False):
        self.place, self.then, self.exact_bias = place, then, exact_bias
        self.kernel, self.bias, self.units = kernel, bias, kernel.shape[1]
        self.sees = False
        self.input_range = self.rounded = self.column_range = self.offset = None

    @property
    def large(self):
        """Whether int8 makes it faster."""
        return self.kernel.shape[0] * self.units >= LEAST_WEIGHTS

    @property
    def dtype(self):
        """The dtype of the sums."""
        if self.column_range is not None or self.exact_bias:
            return "float32"
        return keras.backend.standardize_dtype(self.kernel.dtype)

    def __call__(self, x):
        if self.rounded is not None:
            return self.rounded(x)
        if self.column_range is not None:
            return self._multiply_integers(x)
        if self.sees:
            low, high = self.input_range or (0.0, 0.0)  # what the op takes contains 0
            self.input_range = min(low, float(ops.min(x))), max(high, float(ops.max(x)))
        y = ops.matmul(ops.cast(x, self.kernel.dtype), self.kernel)
        if self.exact_bias:
            y = ops.cast(y, "float32")
        y = y if self.bias is None else ops.add(y, self.bias)
        return y if self.then is None else self.then(y)

    def read(self):
        return self if self.sees else super().read()  # a copy would keep what it sees to itself

    def finish_own(self, precision, as_variables):
        if precision == "int8" and self.large:
            return self.round()
        dtype = "float32" if precision == "int8" else precision
        self.hold(dtype, as_variables, "kernel")
        self.hold("float32" if self.exact_bias else dtype, as_variables, "bias")

    def round(self):
        """Rounds the kernel to integers."""
        kernel = np.asarray(ops.convert_to_numpy(self.kernel), "float64")
        scale = np.maximum(np.abs(kernel).max(axis=0), 1e-30) / WEIGHT_STEPS  # [units]
        kernel = np.round(kernel / scale)
        # What the integer for 0 adds to each column is taken off again with the bias.
        offset = -self.input_step * self.input_zero * scale * kernel.sum(axis=0)
        if self.input_range is not None and self.bias is not None:
            offset, self.bias = offset + ops.convert_to_numpy(self.bias), None
        self.kernel, self.offset = kernel, offset
        self.column_range = scale * 127  # what the op takes: the value of the integer 127
        self.hold("int8", True, "kernel")
        self.hold("float32", True, "column_range", "offset", "bias")

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
        import tensorflow as tf  # int8 is TensorFlow's alone

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
        import tensorflow as tf

        return tf.function(
            lambda x: self.read()._multiply_integers(x), autograph=False, reduce_retracing=True
        )

    def _quantized_matmul(self, x, relu=False):
        """quint8 `[rows, width]` → float32 `[rows, units]`, with the offset, of what was read."""
        import tensorflow as tf

        greatest = tf.constant(self.input_step * INPUT_STEPS, tf.float32)
        kernel = tf.bitcast(self.kernel, tf.qint8)  # a type that loops do not carry
        y = compat.quantized_matmul(x, kernel, self.offset, greatest, self.column_range, relu)
        y.set_shape([None, self.units])
        return y


class Table(Part):
    """Vectors by integer, in int8 with one scale for each.

    Args:
        vectors: Tensor `[vocab, width]`.

    Call arguments:
        ids: int32 tensor of any shape.

    Returns:
        float32 tensor `[..., width]`.
    """

    def __init__(self, vectors):
        self.vectors, self.scales = vectors, None

    def __call__(self, ids):
        vectors = ops.cast(compat.take(self.vectors, ids), "float32")
        return vectors if self.scales is None else vectors * compat.take(self.scales, ids)

    def finish_own(self, precision, as_variables):
        if isinstance(self.vectors, keras.Variable):  # a shared one, finished already
            return
        if precision == "int8":
            scales = ops.max(ops.abs(self.vectors), axis=-1, keepdims=True)  # [vocab, 1]
            self.scales = ops.maximum(scales, 1e-30) / 127
            self.vectors = ops.round(self.vectors / self.scales)
            self.hold("float32", as_variables, "scales")
        self.hold(precision, as_variables, "vectors")


@functools.cache
def check_int8():
    """Raises a RuntimeError if this TensorFlow does not multiply in int8."""
    import tensorflow as tf

    product = Product("", tf.ones([3, 2]), None)
    product.round()
    try:
        product(np.ones((1, 3), "float32"))
    except (ValueError, RuntimeError, tf.errors.OpError) as error:
        raise RuntimeError(
            "int8 needs a TensorFlow for Linux on x86-64, 2.20 or newer. Received: TensorFlow "
            f"{tf.__version__} on {platform.system()} {platform.machine()}, without the op "
            f"{compat.QUANTIZED_MATMUL}"
        ) from error
