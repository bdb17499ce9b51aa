"""Checks of arguments and inputs, whose errors name what was received and what was expected.

A check of shapes adds nothing to a graph. Numbers in tensors are checked where they are at hand:
neither in a graph that is being traced, nor on an accelerator, which would have to wait for it.
"""

import math
import operator
from numbers import Real

import keras
import numpy as np
from keras import backend, ops

LARGEST = 2**31 - 1  # of int32


def integer(name, value, least=1, most=LARGEST, most_name=None):
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


def divisor(name, value, of, number):
    """The value as an int; a ValueError unless it is a positive integer that divides a number."""
    if number % integer(name, value):
        raise ValueError(f"`{name}` must divide `{of}`. Received: {of}={number}, {name}={value}")
    return int(value)


def number(name, value, *, positive=False, most=None):
    """The value as a float; a ValueError unless it is finite, not negative, and in this range."""
    real = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if not real or value < 0 or (positive and value == 0) or (most is not None and value > most):
        span = ("positive" if positive else "not negative") + (f", up to {most}" if most else "")
        raise ValueError(f"`{name}` must be finite and {span}. Received: {name}={value!r}")
    return float(value)


def rate(name, value):
    """The value as a float; a ValueError unless it is a number in [0, 1)."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= value < 1:
        raise ValueError(f"`{name}` must be a number in [0, 1). Received: {name}={value!r}")
    return float(value)


def flag(name, value):
    """Raises a ValueError unless the value is True or False; "no" would count as true."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"`{name}` must be True or False. Received: {name}={value!r}")


def one_of(name, value, known):
    """Raises a ValueError unless the value is one of the names in `known`."""
    if value not in known:
        raise ValueError(f"`{name}` must be one of {', '.join(known)}. Received: {name}={value!r}")


def instance(name, value, kind):
    """Raises a TypeError unless the value is of class `kind`."""
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


def token_ids(name, ids, least):
    """Ids of the vocabulary as a tuple of ints; a ValueError unless each is at least `least`."""
    return tuple(integer(name, token, least) for token in ids)


def fits(size, wanted):
    """Whether an axis may have a size; what is not known, None and JAX's symbols, fits all."""
    return not (isinstance(size, int) and isinstance(wanted, int)) or size == wanted


def shaped(name, value, *, ones=False, **axes):
    """Raises a ValueError unless a tensor has these axes: the size of each by its name.

    None is any size; with `ones`, 1 fits any size too.
    """
    shape, wanted = tuple(value.shape), tuple(axes.values())
    if len(shape) != len(wanted) or not all(
        fits(size, most) or (ones and size == 1) for size, most in zip(shape, wanted, strict=True)
    ):
        sizes = [axis if size is None else f"{axis}={size}" for axis, size in axes.items()]
        raise ValueError(f"`{name}` must have shape [{', '.join(sizes)}]. Received: shape {shape}")


def same_shape(name, value, expected):
    """Raises a ValueError unless a tensor has a shape, as far as both are known."""
    shape, expected = tuple(value.shape), tuple(expected)
    if len(shape) != len(expected) or not all(map(fits, shape, expected)):
        raise ValueError(f"`{name}` must have shape {expected}. Received: shape {shape}")


def broadcasts(name, value, to):
    """Raises a ValueError unless a tensor broadcasts to the shape `to`, as far as it is known."""
    shape = tuple(value.shape)
    axes = zip(reversed(shape), reversed(to), strict=False)
    if len(shape) > len(to) or not all(size == 1 or fits(size, most) for size, most in axes):
        raise ValueError(f"`{name}` must broadcast to shape {tuple(to)}. Received: shape {shape}")


def mask(name, tensor, **axes):
    """A mask of these axes, of any dtype, as bool, True = valid / may attend; None for None.

    An axis may have size 1 instead. Integers other than 0 are True, as in Keras.
    """
    if tensor is None:
        return None
    tensor = ops.convert_to_tensor(tensor)
    shaped(name, tensor, ones=True, **axes)
    return as_bool(name, tensor)


def as_bool(name, mask):
    """A mask as bool; a ValueError if it holds floats, as far as at hand, other than 0 and 1.

    Elsewhere, a mask of 0 and -inf is added to the scores: as bool, it would mean the opposite.
    """
    numbers = at_hand(mask) if backend.is_float_dtype(mask.dtype) else None
    if numbers is not None and not np.isin(numbers, (0, 1)).all():
        other = numbers[~np.isin(numbers, (0, 1))].flat[0]
        raise ValueError(
            f"`{name}` must be bool, True = may attend, or hold 0 and 1. "
            f"Received: {name} with {other}"
        )
    return ops.cast(mask, "bool")


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


def at_hand(tensor):
    """As `known`, but None for a tensor on an accelerator too, which is not copied for a check."""
    # Each backend names a CPU as such; on one, its tensors and NumPy's arrays share their memory.
    return known(tensor) if "cpu" in str(getattr(tensor, "device", "cpu")).lower() else None


def in_range(name, tensor, least, most):
    """Raises a ValueError if numbers at hand leave the range least <= number <= most."""
    numbers = at_hand(tensor)
    if numbers is not None and not ((numbers >= least) & (numbers <= most)).all():
        span = f"be at least {least}" if most == math.inf else f"lie between {least} and {most}"
        first = numbers[~((numbers >= least) & (numbers <= most))].flat[0]
        raise ValueError(f"`{name}` must {span}. Received: {name} with {first}")


def values(name, value, dtype, least, most):
    """The value as a tensor of this dtype, "int32" or "float32".

    Args:
        name: The argument that holds it.
        value: A tensor, array, list or number.
        dtype: The dtype of the result. Floats are integers if they are whole, as far as at hand:
            Keras builds a model without `Input` on placeholders of floats.
        least, most: The range of its values, which is checked where they are at hand.

    Raises:
        ValueError: If it holds something else.
    """
    numbers, given = _given(name, value)
    kind = str(given.dtype) if numbers is not None else backend.standardize_dtype(given.dtype)
    what = "integers" if dtype == "int32" else "numbers"
    if "int" not in kind and "float" not in kind:
        raise ValueError(f"`{name}` must hold {what}. Received: dtype {kind}")
    if dtype == "int32" and numbers is not None and (numbers != np.floor(numbers)).any():
        raise ValueError(f"`{name}` must hold {what}. Received: fractions")
    in_range(name, given, least, most)
    return ops.convert_to_tensor(value, dtype=dtype)


def tensor(name, value, dtype, least, most, **axes):
    """The value as a tensor of these axes: see `shaped` and, for the rest, `values`."""
    shaped(name, _given(name, value)[1], **axes)
    return values(name, value, dtype, least, most)


def padded_ids(name, value, most=LARGEST, shortest=0, **axes):
    """int32 ids `[batch, length]`, at least `shortest` in a row, with padding only behind them."""
    ids = tensor(name, value, "int32", 0, most, **axes)
    numbers = at_hand(ids)
    if numbers is not None:
        real = numbers != 0
        if (~real[:, :-1] & real[:, 1:]).any() or (real.sum(axis=1) < shortest).any():
            raise ValueError(
                f"`{name}` must hold at least {shortest} ids in each row, with padding (0) only "
                f"behind them. Received: {numbers.tolist()!s:.200}"
            )
    return ids


def _given(name, value):
    """The numbers at hand or None; and what has the shape and the dtype."""
    numbers = at_hand(value)
    if numbers is None and not hasattr(value, "shape"):
        raise ValueError(f"`{name}` must be a tensor. Received: {value!r}")
    return numbers, value if numbers is None else numbers
