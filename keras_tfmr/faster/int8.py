"""Dense layers that multiply in int8: a quarter of the memory, up to four times as fast.

TensorFlow's op `_QuantizedMatMul` multiplies with oneDNN and keeps the weights in oneDNN's own
layout. Builds of TensorFlow for Linux on x86-64 have it. Keras's own int8 layers, made by
`quantize("int8")`, multiply without oneDNN, which takes longer than in float32.

Inputs are rounded to 0…255 and weights to −63…63, one scale for each column. A processor without
VNNI adds two products in 16 bits, and 2 · 255 · 63 still fits, so that every processor gives right
answers. The range of each layer's inputs is found with examples, which leaves two operations for a
product. Without examples, each row of inputs has a range of its own, in eight operations.

Reference: Kim et al. 2019, From Research to Production and Back: Ludicrously Fast Neural Machine
Translation (aclanthology.org/D19-5632).
"""

import functools
import math
import platform

import keras
import numpy as np
from keras import ops

from keras_tfmr import compat

INPUT_STEPS = 255
WEIGHT_STEPS = 63
MIDDLE = 128  # the integer for 0, if a row has a range of its own
LEAST_WEIGHTS = 2**15  # a product with fewer takes as long in float32


@keras.saving.register_keras_serializable(package="keras_tfmr")
class Int8Dense(keras.layers.Layer):
    """A `Dense` layer with int8 weights that multiplies in int8, for decoding on TensorFlow.

    Args:
        units: Width of the output.
        input_range: The least and the greatest input, as `ObservedDense` finds them; inputs beyond
            are cut. None gives each row a range of its own.

    Call arguments:
        x: float tensor `[..., width]`.

    Returns:
        float32 tensor `[..., units]`.

    >>> dense = keras.layers.Dense(8)
    >>> x = np.linspace(-1, 1, 32, dtype="float32").reshape(2, 16)
    >>> y = dense(x)
    >>> bool(np.allclose(Int8Dense.like(dense)(x), y, atol=0.05))
    True
    """

    def __init__(self, units, input_range=None, **kwargs):
        super().__init__(**{**kwargs, "trainable": False, "dtype": "float32"})
        self.units = units
        if input_range is not None:  # what the op takes contains 0
            input_range = (min(0.0, float(input_range[0])), max(0.0, float(input_range[1])))
        self.input_range = input_range
        self.supports_masking = True

    @classmethod
    def like(cls, dense, input_range=None):
        """The int8 layer that multiplies by the weights of a built `Dense` layer."""
        if dense.activation is not keras.activations.linear:
            raise ValueError(f"Expected a Dense without activation. Received: {dense.activation}")
        kernel = np.asarray(dense.kernel, "float32")
        layer = cls(dense.units, input_range, name=dense.name)
        layer.build((None, kernel.shape[0]))
        scale = np.maximum(np.abs(kernel).max(axis=0), 1e-30) / WEIGHT_STEPS  # [units]
        rounded = np.round(kernel / scale)
        layer.kernel.assign(rounded)
        layer.column_range.assign(scale * 127)  # what the op takes: the value of the integer 127
        # What the integer for 0 adds to each column is taken off again with the bias.
        step, zero = layer.input_step, layer.input_zero
        layer.offset.assign(-step * zero * scale * rounded.sum(axis=0))
        if dense.use_bias:
            (layer.bias if input_range is None else layer.offset).assign_add(dense.bias)
        return layer

    @property
    def quantization_mode(self):
        """Keras's name for integer weights whose scales only the layer applies."""
        return "int8"

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

    def build(self, x_shape):
        add = functools.partial(self.add_weight, initializer="zeros")
        self.kernel = add((x_shape[-1], self.units), dtype="int8", name="kernel")
        self.column_range = add((self.units,), name="column_range")
        self.offset = add((self.units,), name="offset")
        if self.input_range is None:
            self.bias = add((self.units,), name="bias")
        self.built = True

    def call(self, x):
        import tensorflow as tf

        if tf.executing_eagerly():  # the op exists in graphs only
            return self._in_graph(x)
        rows = ops.cast(ops.reshape(x, (-1, x.shape[-1])), "float32")
        y = self._by_row(rows) if self.input_range is None else self._by_range(rows)
        return y if len(x.shape) == 2 else ops.reshape(y, (*ops.shape(x)[:-1], self.units))

    @functools.cached_property
    def _in_graph(self):
        import tensorflow as tf

        return tf.function(self.call, autograph=False, reduce_retracing=True)

    def quantized_call(self, x):  # what Keras calls if there is a `quantization_mode`
        return self.call(x)

    def _by_range(self, x):
        """float32 `[rows, width]` → `[rows, units]`, with the calibrated range."""
        import tensorflow as tf

        step, zero = self.input_step, self.input_zero
        least, greatest = -zero * step, (INPUT_STEPS - zero) * step
        # The raw op, because tf.quantization.quantize warns of its own deprecation.
        integers, _, _ = tf.raw_ops.QuantizeV2(
            input=x, min_range=least, max_range=greatest, T=tf.quint8
        )
        return self._product(integers)

    def _by_row(self, x):
        """float32 `[rows, width]` → `[rows, units]`, with a range for each row."""
        import tensorflow as tf

        greatest = ops.max(ops.abs(x), axis=-1, keepdims=True)
        step = ops.maximum(greatest, 1e-30) * (1 / (MIDDLE - 1))  # [rows, 1]
        integers = tf.cast(x / step + (MIDDLE + 0.5), tf.uint8)  # cuts what is behind the point
        return self._product(tf.bitcast(integers, tf.quint8)) * step + self.bias

    def _product(self, x):
        """quint8 `[rows, width]` → float32 `[rows, units]`, with the offset."""
        import tensorflow as tf

        weights = self.kernel, self.column_range, self.offset
        kernel, column_range, offset = map(tf.convert_to_tensor, weights)
        greatest = tf.constant(self.input_step * INPUT_STEPS, tf.float32)
        kernel = tf.bitcast(kernel, tf.qint8)
        y = compat.quantized_matmul(x, kernel, offset, greatest, column_range)
        y.set_shape([None, self.units])
        return y

    def compute_output_spec(self, x):
        return keras.KerasTensor((*x.shape[:-1], self.units), dtype="float32")

    def get_config(self):
        return {**super().get_config(), "units": self.units, "input_range": self.input_range}


def quantize(model, batches, replace_layers):
    """Computes a model's large products in int8 and stores its embeddings so, in place.

    Args:
        model: A built model on TensorFlow, which nobody will train. Its direct layers stay.
        batches: What to call the model with, to find the ranges of its products' inputs. If there
            are none, each row of inputs has a range of its own, and products take longer.
        replace_layers: A function of the model and of a function (owner, layer) that gives the
            layer to put in the place of `layer`, or None; see `optimize.replace_layers`.

    Returns:
        The paths of the `Dense` layers that stay in float32, because they are small.

    Raises:
        RuntimeError: If this TensorFlow does not multiply in int8.
    """
    kept = observe(model, batches, replace_layers)

    def quantized(owner, layer):
        if isinstance(layer, keras.layers.Embedding) and layer.quantization_mode is None:
            layer.quantize("int8", type_check=False)  # a table that is only read needs no product
        if not isinstance(layer, ObservedDense):
            return None
        return Int8Dense.like(layer.dense, layer.input_range)

    replace_layers(model, quantized)
    return kept


def observe(model, batches, replace_layers):
    """Makes each large `Dense` layer an `ObservedDense` that has met the batches: see `quantize`.

    Returns:
        The paths of the other `Dense` layers.
    """
    check_available()
    kept = []

    def observed(owner, layer):
        if type(layer) is not keras.layers.Dense or not layer.built:
            return None
        if math.prod(layer.kernel.shape) < LEAST_WEIGHTS:
            return kept.append(layer.path)
        return ObservedDense(layer, f"{getattr(owner, 'place', owner.path)}/{layer.name}")

    replace_layers(model, observed)
    for batch in batches:
        model(batch)
    return kept


class ObservedDense(keras.layers.Layer):
    """A `Dense` layer that notes the least and the greatest input it receives.

    Args:
        dense: The layer.
        place: The path of the layer in its model.

    Attributes:
        rounded: A function that is called instead of the layer, if there is one.
    """

    def __init__(self, dense, place):
        super().__init__(name=dense.name)
        self.dense, self.place, self.input_range, self.rounded = dense, place, None, None
        self.built = self.supports_masking = True

    def call(self, x):
        if self.rounded is not None:
            return self.rounded(x)
        low, high = self.input_range or (0.0, 0.0)
        self.input_range = min(low, float(ops.min(x))), max(high, float(ops.max(x)))
        return self.dense(x)


def errors(model, batches, replace_layers):
    """How far each large product moves a model if it alone is an int8 one; the model changes.

    Args:
        model, batches, replace_layers: As for `quantize`.

    Returns:
        {path of a product: nats by which it moves the log-probability of the most probable token,
        on the mean of all positions that are no padding}, the worst first.
    """
    observe(model, batches, replace_layers)
    products = [one for one in compat.flatten_layers(model) if isinstance(one, ObservedDense)]
    tops = [ops.argmax(model(batch), axis=-1)[..., None] for batch in batches]
    exact, found = _log_probs(model, batches, tops), {}
    for product in {id(one): one for one in products}.values():
        product.rounded = Int8Dense.like(product.dense, product.input_range).__call__
        moved = np.abs(_log_probs(model, batches, tops) - exact)
        found[product.place] = float(moved.mean())
        product.rounded = None
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _log_probs(model, batches, ids):
    """The log-probabilities of these ids at all positions that are no padding: float `[tokens]`."""
    found = []
    for batch, chosen in zip(batches, ids, strict=True):
        logits = model(batch)
        values = ops.take_along_axis(logits, chosen, axis=-1)[..., 0]  # [batch, target]
        values -= ops.logsumexp(logits, axis=-1)
        fed = batch[-1] if isinstance(batch, list | tuple) else batch
        found.append(np.asarray(values)[np.asarray(fed) != 0])
    return np.concatenate(found)


@functools.cache
def check_available():
    """Raises a RuntimeError if this TensorFlow does not multiply in int8."""
    import tensorflow as tf

    dense = keras.layers.Dense(2, kernel_initializer="ones")
    dense.build((None, 3))
    try:
        Int8Dense.like(dense)(np.ones((1, 3), "float32"))
    except (ValueError, RuntimeError, tf.errors.OpError) as error:
        raise RuntimeError(
            "int8 needs a TensorFlow for Linux on x86-64, 2.20 or newer. Received: TensorFlow "
            f"{tf.__version__} on {platform.system()} {platform.machine()}, without the op "
            f"{compat.QUANTIZED_MATMUL}"
        ) from error
