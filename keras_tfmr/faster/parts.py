"""The weights of parts, and the parts that hold most of them: products and tables.

A part is made of the weights of layers and computes as they do, in fewer operations. It holds them
as tensors, so that in a graph it follows a model in training, or as variables of its own, as an
export needs them: `Weights` says which.
"""

import keras
from keras import ops

from keras_tfmr import compat
from keras_tfmr.precision import copy_of


class Weights:
    """What becomes of the weights that parts are made of.

    Args:
        dtype: The dtype of products and tables. Norms, positions and logits stay in float32.
        as_variables: Whether they become variables, and own layers copies, which an export needs.

    Attributes:
        precision: The dtype, or another name for what a subclass makes.
        variables: All variables so far.
        tables: All tables so far, by what they are made of: source and target may share one.
    """

    def __init__(self, dtype, as_variables=False):
        self.dtype = self.precision = dtype
        self.as_variables = as_variables
        self.variables, self.tables = [], {}

    def hold(self, value, dtype="float32"):
        """A tensor in a dtype, as a variable if so wanted; None for None."""
        if value is None:
            return None
        value = ops.cast(value, dtype)
        if not self.as_variables:
            return value
        self.variables.append(keras.Variable(value, dtype=dtype, trainable=False))
        return self.variables[-1]

    def product(self, place, kernel, bias, then=None, float32_sum=False):
        """A `Product`; `place` is the path of its layer in the model."""
        return Product(self, kernel, bias, then, float32_sum)

    def table(self, vectors):
        """A `Table`."""
        return Table(self, vectors)

    def positions(self, layer):
        """A layer of positions, or a copy of it."""
        if not self.as_variables:
            return layer
        copy = type(layer).from_config(layer.get_config())
        copy.build((None,))
        copy.set_weights(layer.get_weights())
        self.variables += copy.weights
        return copy

    def layers(self, model):
        """Layers of a model's own, which are called as they are, or copies of them."""
        if not self.as_variables:
            return model
        copy = copy_of(model, self.dtype)
        self.variables += copy.weights
        return copy


class Product:
    """x W + b, and a function of the sum.

    Args:
        weights: The `Weights` to hold kernel and bias.
        kernel: Tensor `[width, units]`.
        bias: Tensor `[units]`, or None.
        then: A function of the sum, or None.
        float32_sum: Whether the sum is float32 in every precision, as it is for logits.

    Call arguments:
        x: Tensor `[rows, width]`.
    """

    def __init__(self, weights, kernel, bias, then=None, float32_sum=False):
        self.then = then
        self.dtype = "float32" if float32_sum else weights.dtype  # of the sums
        self.kernel = weights.hold(kernel, weights.dtype)
        self.bias = weights.hold(bias, self.dtype)

    def __call__(self, x):
        y = ops.matmul(ops.cast(x, self.kernel.dtype), self.kernel)
        y = ops.cast(y, self.dtype)
        y = y if self.bias is None else ops.add(y, self.bias)
        return y if self.then is None else self.then(y)


class Table:
    """Vectors by integer.

    Args:
        weights: The `Weights` to hold the vectors.
        vectors: Tensor `[vocab, width]`.

    Call arguments:
        ids: int32 tensor of any shape.

    Returns:
        float32 tensor `[..., width]`.
    """

    def __init__(self, weights, vectors):
        self.vectors = weights.hold(vectors, weights.dtype)

    def __call__(self, ids):
        return ops.cast(compat.take(self.vectors, ids), "float32")
