"""Checks of arguments and inputs, whose errors name what was received and what was expected."""

from keras import backend, ops


def positive_int(name, value):
    """Returns `value`, a positive integer, or raises a ValueError that names it."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or int(value) <= 0:
        raise ValueError(f"`{name}` must be a positive integer. Received: {name}={value!r}")
    return int(value)


def rate(name, value):
    """Returns `value`, a dropout rate in [0, 1), or raises a ValueError that names it."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
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


def kv_heads(num_heads, num_kv_heads):
    """Returns `num_kv_heads`, or `num_heads` for None; raises unless it divides `num_heads`."""
    if num_kv_heads is None:
        return num_heads
    if num_heads % positive_int("num_kv_heads", num_kv_heads):
        raise ValueError(
            "`num_kv_heads` must divide `num_heads`. "
            f"Received: num_heads={num_heads}, num_kv_heads={num_kv_heads}"
        )
    return num_kv_heads


def sequence_of_vectors(name, shape):
    """Raises a ValueError unless `shape` is [batch, length, width] with a known width."""
    if len(shape) != 3 or shape[-1] is None:
        raise ValueError(
            f"`{name}` must have shape [batch, length, width] with a known width. "
            f"Received: shape {tuple(shape)}"
        )


def sequence_of_ids(name, ids, axes=("batch", "length")):
    """Raises unless `ids` is an integer tensor of these axes."""
    if len(ids.shape) != len(axes):
        raise ValueError(
            f"`{name}` must have shape [{', '.join(axes)}]. Received: shape {tuple(ids.shape)}"
        )
    dtype = backend.standardize_dtype(ids.dtype)
    if "int" not in dtype:
        raise TypeError(f"`{name}` must be integers (token ids). Received: dtype {dtype}")


def mask(name, tensor, ranks, last, *, batch=None, query=None, heads=None):
    """Raises unless `tensor` is a bool mask of one of `ranks` whose axes have the given sizes.

    An axis of size 1 fits any size. A size of None, which is unknown while tracing, is not checked.
    `query` is the size of the last axis but one, for ranks 3 and 4; `heads` is the size of the
    second axis, for rank 4.
    """
    dtype = backend.standardize_dtype(tensor.dtype)
    if dtype != "bool":
        raise TypeError(
            f"`{name}` must be bool, True = valid / may attend. Received: dtype {dtype}"
        )
    shape = tuple(tensor.shape)
    if len(shape) not in ranks:
        raise ValueError(
            f"`{name}` must have rank {' or '.join(map(str, ranks))}. Received: shape {shape}"
        )
    sizes = {"last": (-1, last), "first": (0, batch)}
    if len(shape) > 2:
        sizes["query"] = (-2, query)
    if len(shape) > 3:
        sizes["heads"] = (1, heads)
    for axis, (index, size) in sizes.items():
        if None not in (shape[index], size) and shape[index] not in (1, size):
            raise ValueError(
                f"The {axis} axis of `{name}` must have length {size}. Received: shape {shape}"
            )


def static_length(tensor):
    """The length of the first axis if it is known while tracing, else None."""
    length = ops.shape(tensor)[0]
    return length if isinstance(length, int) else None


def positive(name, value):
    """Returns `value`, a positive number, or raises a ValueError that names it."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise ValueError(f"`{name}` must be a positive number. Received: {name}={value!r}")
    return value


def one_of(name, value, known):
    """Returns `value`, one of the names in `known`, or raises a ValueError that lists them."""
    if value not in known:
        raise ValueError(f"`{name}` must be one of {', '.join(known)}. Received: {name}={value!r}")
    return value
