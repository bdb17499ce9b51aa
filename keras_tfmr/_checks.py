"""Checks of arguments and inputs, whose errors name what was received and what was expected.

A check of shapes adds nothing to a graph. Numbers in tensors are checked where they are known when
a layer is called: everywhere but in a graph that is being traced.
"""

import math
import operator
from numbers import Real

import keras
import numpy as np
from keras import backend, ops

LARGEST = 2**31 - 1  # of int32


def positive_int(name, value):
    """Returns `value`, a positive integer, or raises a ValueError that names it."""
    return integer(name, value, 1)


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
    """Returns `value`, a positive integer that divides a number, or raises a ValueError."""
    if number % positive_int(name, value):
        raise ValueError(f"`{name}` must divide `{of}`. Received: {of}={number}, {name}={value}")
    return int(value)


def rank(shape):
    """Number of axes, or None of a tensor of TensorFlow whose rank is unknown."""
    return None if getattr(shape, "rank", 0) is None else len(shape)


def in_words(shape):
    """A shape, for an error."""
    return "a tensor of unknown rank" if rank(shape) is None else f"shape {tuple(shape)}"


def sequence_of_vectors(name, shape, width=None):
    """Raises a ValueError unless `shape` is [batch, length, width] with a known width."""
    if rank(shape) != 3 or shape[-1] is None:
        raise ValueError(
            f"`{name}` must have shape [batch, length, width] with a known width. "
            f"Received: {in_words(shape)}"
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


def one_for_each(name, number, length):
    """Raises a ValueError unless there is one for each of `length` positions, or one for all."""
    # While JAX traces an unknown length, it is a symbol that cannot be compared.
    if isinstance(number, int) and isinstance(length, int) and number not in (1, length):
        raise ValueError(
            f"`{name}` must be of {length} positions, or of one for all. Received: {number}"
        )


def broadcasts(name, shape, to):
    """Raises a ValueError unless `shape` broadcasts to the shape `to`, as far as both are known."""
    axes = zip(reversed(shape), reversed(to), strict=False)
    fits = all(None in (size, most) or size in (1, most) for size, most in axes)
    if len(shape) > len(to) or not fits:
        raise ValueError(
            f"`{name}` must broadcast to shape {tuple(to)}. Received: shape {tuple(shape)}"
        )


def same_shape(**shapes):
    """Raises a ValueError unless two shapes are equal, as far as both are known."""
    (first, shape), (second, other) = shapes.items()
    pairs = zip(shape, other, strict=False)
    if len(shape) != len(other) or any(None not in pair and pair[0] != pair[1] for pair in pairs):
        raise ValueError(
            f"`{first}` and `{second}` must have the same shape. Received: shapes "
            f"{tuple(shape)} and {tuple(other)}"
        )


def same_batch(**shapes):
    """Raises a ValueError unless the shapes begin with one batch size, where it is known."""
    if len({shape[0] for shape in shapes.values()} - {None}) > 1:
        names = " and ".join(f"`{name}`" for name in shapes)
        received = " and ".join(str(tuple(shape)) for shape in shapes.values())
        raise ValueError(f"{names} must have the same batch size. Received: shapes {received}")


def instance(name, value, kind):
    """Raises a TypeError unless `value` is of class `kind`."""
    if not isinstance(value, kind):
        raise TypeError(
            f"`{name}` must be a {kind.__name__}. Received: {type(value).__name__} {value!r:.80}"
        )


def not_built(layer, owner):
    """Raises a ValueError if a layer, a part of `owner` such as "a stack", has its weights."""
    if layer.built:
        raise ValueError(
            f"A {type(layer).__name__} belongs to {owner} alone, which makes its weights: give "
            f"each one of its own. Received: {layer.name!r}, which is built already"
        )


def known(tensor):
    """The numbers of a tensor, an array or a list as an array; None for None.

    And None while a graph is traced, where symbols stand for tensors.
    """
    is_symbol = isinstance(tensor, keras.KerasTensor) or getattr(tensor, "is_meta", False)
    if ops.is_tensor(tensor) and backend.backend() == "tensorflow":
        is_symbol = not hasattr(tensor, "numpy")  # NumPy would warn before it fails
    if tensor is None or is_symbol:
        return None
    try:
        return np.asarray(ops.convert_to_numpy(tensor))
    except (NotImplementedError, RuntimeError, TypeError):  # of TensorFlow, torch and JAX
        return None


def in_range(name, tensor, least, below=math.inf):
    """Raises a ValueError if numbers that are known leave the range least <= number < below."""
    numbers = known(tensor)
    if numbers is None or ((numbers >= least) & (numbers < below)).all():
        return
    expected = f"at least {least}" + (f" and below {below}" if below < math.inf else "")
    first = numbers[~((numbers >= least) & (numbers < below))].flat[0]
    raise ValueError(f"`{name}` must be {expected}. Received: {name} with {first}")


def sequence_of_ids(name, ids, below=math.inf, axes=("batch", "length")):
    """Returns ids of these axes and less than `below` as integers, or raises an error.

    Floats are cast, because Keras builds a model without `Input` on placeholders of floats.
    """
    if getattr(ids, "ragged_rank", 0) or getattr(ids, "ragged", False):
        raise ValueError(f"`{name}` must be dense, padded with 0. Received: a ragged tensor")
    if not hasattr(ids, "shape"):
        received = type(ids).__name__
        raise ValueError(f"`{name}` must have shape [{', '.join(axes)}]. Received: {received}")
    if rank(ids.shape) != len(axes):
        received = in_words(ids.shape)
        raise ValueError(f"`{name}` must have shape [{', '.join(axes)}]. Received: {received}")
    in_range(name, ids, 0, below)
    dtype = backend.standardize_dtype(ids.dtype)
    if backend.is_float_dtype(dtype):
        numbers = known(ids)
        if numbers is not None and (numbers != np.floor(numbers)).any():
            raise TypeError(f"`{name}` must be integers (token ids). Received: fractions")
        return ops.cast(ids, "int32")
    if "int" not in dtype:
        raise TypeError(f"`{name}` must be integers (token ids). Received: dtype {dtype}")
    return ids


def mask(name, tensor, *layouts, **sizes):
    """Returns a mask of any dtype as bool, True = valid / may attend, or raises a ValueError.

    Args:
        name: The argument that holds it.
        tensor: The mask; integers other than zero are True, as in Keras.
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
    return as_bool(name, tensor)


def as_bool(name, mask):
    """A mask as bool; a ValueError if it holds floats, as far as known, other than 0 and 1.

    Elsewhere, a mask of 0 and -inf is added to the scores: as bool, it would mean the opposite.
    """
    if backend.is_float_dtype(backend.standardize_dtype(mask.dtype)):
        numbers = known(mask)
        if numbers is not None and not np.isin(numbers, (0, 1)).all():
            other = numbers[~np.isin(numbers, (0, 1))].flat[0]
            raise ValueError(
                f"`{name}` must be bool, True = may attend, or hold 0 and 1. "
                f"Received: {name} with {other}"
            )
    return ops.cast(mask, "bool")


def sequence_mask(name, tensor, x):
    """Returns the mask `[batch, length]` of a sequence `x` as bool, or None."""
    if tensor is None:
        return None
    return mask(name, tensor, ("batch", "length"), batch=x.shape[0], length=x.shape[1])


def positions(positions, name="positions"):
    """Returns int positions `[length]`, a tensor, an array or a list, or raises an error."""
    if not hasattr(positions, "shape"):
        positions = np.asarray(positions)
    if len(positions.shape) != 1:
        shape = tuple(positions.shape)
        raise ValueError(f"`{name}` must have shape [length]. Received: shape {shape}")
    dtype = backend.standardize_dtype(positions.dtype)
    if "int" not in dtype:
        raise TypeError(f"`{name}` must be integers. Received: dtype {dtype}")
    in_range(name, positions, 0)
    return positions


def positive(name, value):
    """Returns `value`, a positive finite number, or raises a ValueError that names it."""
    return number(name, value, positive=True)


def flag(name, value):
    """Raises a ValueError unless `value` is True or False; "no" would count as true."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"`{name}` must be True or False. Received: {name}={value!r}")


def one_of(name, value, known):
    """Returns `value`, one of the names in `known`, or raises a ValueError that lists them."""
    if value not in known:
        raise ValueError(f"`{name}` must be one of {', '.join(known)}. Received: {name}={value!r}")
    return value


def integer(name, value, least, most=LARGEST, most_name=None):
    """The value as an int; a ValueError unless it is an integer in this range.

    `most_name` is what sets the upper end, for the error.
    """
    try:
        index = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        index = None
    if index is None or not least <= index <= most:
        end = most if most_name is None else f"{most_name}={most}"
        span = f"of at least {least}" if most == LARGEST else f"between {least} and {end}"
        raise ValueError(f"`{name}` must be an integer {span}. Received: {name}={value!r}")
    return index


def number(name, value, *, positive=False, most=None):
    """The value as a float; a ValueError unless it is finite, not negative, and in this range."""
    real = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if not real or value < 0 or (positive and value == 0) or (most is not None and value > most):
        span = ("positive" if positive else "not negative") + (f", up to {most}" if most else "")
        raise ValueError(f"`{name}` must be finite and {span}. Received: {name}={value!r}")
    return float(value)


def token_ids(name, ids, least):
    """Ids of the vocabulary as a tuple of ints; a ValueError unless each is at least `least`."""
    return tuple(integer(name, token, least) for token in ids)


def tensor(name, value, dtype, least, most, **axes):
    """The value as a tensor of these axes: the size of each by its name, None for any.

    The other arguments and the errors are those of `values`.
    """
    shaped(name, _given(name, value)[1], **axes)
    return values(name, value, dtype, least, most)


def shaped(name, value, **axes):
    """A ValueError unless the shape of a tensor has these sizes, by the name of each axis."""
    shape, wanted = tuple(value.shape), tuple(axes.values())
    if len(shape) != len(wanted) or not all(map(fits, shape, wanted)):
        sizes = [axis if size is None else f"{axis}={size}" for axis, size in axes.items()]
        raise ValueError(f"{name} must have shape [{', '.join(sizes)}]; received shape {shape}")


def values(name, value, dtype, least, most):
    """The value as a tensor of this dtype, "int32" or "float32".

    Args:
        name: The argument that holds it.
        value: A tensor, array, list or number.
        dtype: The dtype of the result; floats are not taken for integers.
        least, most: The range of its values, which is checked where they are known.

    Raises:
        ValueError: If it holds something else, or its shape is another.
    """
    numbers, given = _given(name, value)
    kind = str(given.dtype) if numbers is not None else backend.standardize_dtype(given.dtype)
    empty = numbers is not None and numbers.size == 0  # NumPy takes an empty list for floats
    if not (empty or "int" in kind or (dtype == "float32" and "float" in kind)):
        what = "integers" if dtype == "int32" else "numbers"
        raise ValueError(f"{name} must hold {what}; received dtype {given.dtype}")
    if numbers is not None and not np.all((numbers >= least) & (numbers <= most)):
        raise ValueError(
            f"{name} must lie between {least} and {most}; received {numbers.tolist()!s:.200}"
        )
    return ops.convert_to_tensor(value, dtype=dtype)


def padded_ids(name, value, most=LARGEST, shortest=0, **axes):
    """int32 ids `[batch, length]`, at least `shortest` in a row, with padding only behind them."""
    ids = tensor(name, value, "int32", 0, most, **axes)
    values = known(ids)
    if values is not None:
        real = values != 0
        if (~real[:, :-1] & real[:, 1:]).any() or (real.sum(axis=1) < shortest).any():
            raise ValueError(
                f"{name} must hold at least {shortest} ids in each row, with padding (0) only "
                f"behind them; received {values.tolist()!s:.200}"
            )
    return ids


def _given(name, value):
    """The known values or None; and what has the shape and the dtype."""
    numbers = known(value)
    if numbers is None and not hasattr(value, "shape"):
        raise ValueError(f"{name} must be a tensor; received {value!r}")
    return numbers, value if numbers is None else numbers


def fits(size, wanted):
    """Whether an axis may have a size; what is not known, None and JAX's symbols, fits all."""
    return not (isinstance(size, int) and isinstance(wanted, int)) or size == wanted
