"""What the arguments of a search must be. An error names what was received and what was expected.

All of `decoding` checks here, before anything runs and alike on every backend. Values that only the
run of a compiled graph will know cannot be checked: their shapes and dtypes are.
"""

import math
import operator
from numbers import Real

import numpy as np
from keras import backend, ops

from keras_tfmr._checks import known

LARGEST = 2**31 - 1  # of int32


def integer(name, value, least, **most):
    """The value as an int; a ValueError unless it is an integer in this range.

    `most` is the upper end, by the name of what sets it, such as `num_beams=4`; none by default.
    """
    ((bound, end),) = most.items() or (("", LARGEST),)
    try:
        index = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        index = None
    if index is None or not least <= index <= end:
        span = f"between {least} and {bound}={end}" if most else f"of at least {least}"
        raise ValueError(f"{name} must be an integer {span}; received {value!r}")
    return index


def number(name, value, *, positive=False, most=None):
    """The value as a float; a ValueError unless it is finite, not negative, and in this range."""
    real = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if not real or value < 0 or (positive and value == 0) or (most is not None and value > most):
        span = ("positive" if positive else "not negative") + (f", up to {most}" if most else "")
        raise ValueError(f"{name} must be finite and {span}; received {value!r}")
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
        dtype: What it becomes; floats are not taken for integers.
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
