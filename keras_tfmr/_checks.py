"""Checks of arguments and inputs, whose errors name what was received and what was expected."""

from numbers import Real

from keras import backend, ops


def positive_int(name, value):
    """Returns `value`, a positive integer, or raises a ValueError that names it."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or int(value) <= 0:
        raise ValueError(f"`{name}` must be a positive integer. Received: {name}={value!r}")
    return int(value)


def optional_int(name, value):
    """`positive_int` of a value that may be None."""
    return None if value is None else positive_int(name, value)


def rate(name, value):
    """Returns `value`, a dropout rate in [0, 1), or raises a ValueError that names it."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= value < 1:
        raise ValueError(f"`{name}` must be a number in [0, 1). Received: {name}={value!r}")
    return float(value)


def head_width(d_model, num_heads):
    """Returns d_model // num_heads, or raises a ValueError if heads do not divide the width."""
    positive_int("d_model", d_model)
    positive_int("num_heads", num_heads)
    if d_model % num_heads:
        raise ValueError(
            "`d_model` must be divisible by `num_heads` unless `key_dim` is given. "
            f"Received: d_model={d_model}, num_heads={num_heads}"
        )
    return d_model // num_heads


def divisor(name, value, of, number):
    """Returns `value`, a positive integer that divides a number, or that number for None."""
    if value is None:
        return number
    if number % positive_int(name, value):
        raise ValueError(f"`{name}` must divide `{of}`. Received: {of}={number}, {name}={value}")
    return int(value)


def sequence_of_vectors(name, shape, width=None):
    """Raises a ValueError unless `shape` is [batch, length, width] with a known width."""
    if len(shape) != 3 or shape[-1] is None:
        raise ValueError(
            f"`{name}` must have shape [batch, length, width] with a known width. "
            f"Received: shape {tuple(shape)}"
        )
    if width not in (None, shape[-1]):
        raise ValueError(
            f"`{name}` must have width d_model={width}. Received: shape {tuple(shape)}"
        )


def same_length(value, key):
    """Raises a ValueError unless `value` and `key` are sequences of vectors of one length."""
    for name, tensor in (("value", value), ("key", key)):
        sequence_of_vectors(name, tensor.shape)
    if None not in (value.shape[1], key.shape[1]) and value.shape[1] != key.shape[1]:
        raise ValueError(
            "`value` and `key` must have the same length. Received: shapes "
            f"{tuple(value.shape)} and {tuple(key.shape)}"
        )


def sequence_of_ids(name, ids, axes=("batch", "length")):
    """Returns ids of these axes as integers, or raises an error.

    Floats are cast, because Keras builds a model without `Input` on placeholders of floats.
    """
    if getattr(ids, "ragged_rank", 0) or getattr(ids, "ragged", False):
        raise ValueError(f"`{name}` must be dense, padded with 0. Received: a ragged tensor")
    shape = getattr(ids, "shape", None)
    if shape is None or len(shape) != len(axes):
        received = type(ids).__name__ if shape is None else f"shape {tuple(shape)}"
        raise ValueError(f"`{name}` must have shape [{', '.join(axes)}]. Received: {received}")
    dtype = backend.standardize_dtype(ids.dtype)
    if backend.is_float_dtype(dtype):
        return ops.cast(ids, "int32")
    if "int" not in dtype:
        raise TypeError(f"`{name}` must be integers (token ids). Received: dtype {dtype}")
    return ids


def mask(name, tensor, *layouts, **sizes):
    """Returns a mask of any dtype as bool, True = valid / may attend, or raises a ValueError.

    Args:
        name: The argument that holds it.
        tensor: The mask; numbers other than zero are True, as in Keras.
        *layouts: The names of its axes, for each rank that it may have.
        **sizes: The size of each axis. 1 fits any size; None is not checked.
    """
    if not hasattr(tensor, "shape"):
        tensor = ops.convert_to_tensor(tensor)
    shape, layouts = tuple(tensor.shape), {len(axes): axes for axes in layouts}
    if len(shape) not in layouts:
        raise ValueError(
            f"`{name}` must have rank {' or '.join(map(str, layouts))}. Received: shape {shape}"
        )
    for axis, length in zip(layouts[len(shape)], shape, strict=True):
        if None not in (length, sizes[axis]) and length not in (1, sizes[axis]):
            raise ValueError(
                f"The {axis} axis of `{name}` must have length {sizes[axis]}. "
                f"Received: shape {shape}"
            )
    return ops.cast(tensor, "bool")


def sequence_mask(name, tensor, x):
    """Returns the mask `[batch, length]` of a sequence `x` as bool, or None."""
    if tensor is None:
        return None
    return mask(name, tensor, ("batch", "length"), batch=x.shape[0], length=x.shape[1])


def positions(positions):
    """Returns int positions `[length]`, a tensor, an array or a list, or raises a ValueError."""
    if not hasattr(positions, "shape"):
        positions = ops.convert_to_tensor(positions)
    if len(positions.shape) != 1:
        shape = tuple(positions.shape)
        raise ValueError(f"`positions` must have shape [length]. Received: shape {shape}")
    return positions


def positive(name, value):
    """Returns `value`, a positive number, or raises a ValueError that names it."""
    if isinstance(value, bool) or not isinstance(value, Real) or not value > 0:
        raise ValueError(f"`{name}` must be a positive number. Received: {name}={value!r}")
    return float(value)


def one_of(name, value, known):
    """Returns `value`, one of the names in `known`, or raises a ValueError that lists them."""
    if value not in known:
        raise ValueError(f"`{name}` must be one of {', '.join(known)}. Received: {name}={value!r}")
    return value
