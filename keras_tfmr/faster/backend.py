"""What differs between Keras's backends in a step of decoding: caches, a product, a split."""

import keras
from keras import ops


def fixed_shapes():
    """Whether the shapes of a loop's tensors must stay the same, as on JAX."""
    return keras.backend.backend() == "jax"


def empty_cache(shape, dtype):
    """Keys or values of no token; shape (rows, heads, room, dim), the room only where it is fixed.

    TensorFlow does not know the size of axis 2, so that a loop may change it.
    """
    rows, heads, room, dim = shape
    if fixed_shapes():
        return ops.zeros((rows, heads, room, dim), dtype)
    return any_length(ops.zeros((rows, heads, 0, dim), dtype))


def append(cache, new, index):
    """A cache with the tokens `new` `[rows, heads, 1, dim]` after `index` others."""
    if fixed_shapes():
        return ops.slice_update(cache, (0, 0, index, 0), new)
    return ops.concatenate([cache, new], axis=2)


def begin(empty, read):
    """An empty cache that begins with `read` `[rows, heads, tokens, dim]`."""
    if fixed_shapes():
        return ops.slice_update(empty, (0, 0, 0, 0), read)
    return any_length(read)


def any_length(x):
    """`x` `[rows, heads, length, dim]`, of whose rows and length TensorFlow knows nothing."""
    if keras.backend.backend() != "tensorflow":
        return x
    import tensorflow as tf

    shape = [None, x.shape[1], None, x.shape[3]]
    return tf.raw_ops.PlaceholderWithDefault(input=x, shape=shape)


def matmul_transposed(x, y):
    """`[..., n, k]` times `[..., m, k]` transposed → `[..., n, m]`.

    On TensorFlow, the product itself transposes: one operation less in each attention.
    """
    if keras.backend.backend() != "tensorflow":
        return ops.matmul(x, ops.swapaxes(y, -1, -2))
    import tensorflow as tf

    return tf.matmul(x, y, transpose_b=True)


def split(x, sizes, axis):
    """`x` cut into pieces of these sizes along an axis.

    `ops.split` takes places, from which TensorFlow would compute the sizes in seven operations.
    """
    if keras.backend.backend() != "tensorflow":
        return ops.split(x, [sum(sizes[:i]) for i in range(1, len(sizes))], axis=axis)
    import tensorflow as tf

    return tf.split(x, sizes, axis=axis)
