"""Tensors on the wire, as TensorProto or JSON.

A tensor enters as nested lists, from a message, from JSON or as an array, and leaves as any of
them. Knows nothing of requests.
"""

import base64
import itertools
import math
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from keras_tfmr.client import serving_pb2


class _Kind(NamedTuple):
    number: int  # in TensorFlow's enum DataType
    field: str  # of TensorProto
    letter: str  # of `struct`, for a value in `tensor_content`; "" if it has no fixed size
    zero: Any
    types: tuple[type, ...]  # of JSON


KINDS = {
    "float32": _Kind(1, "float_val", "f", 0.0, (int, float)),
    "float64": _Kind(2, "double_val", "d", 0.0, (int, float)),
    "int32": _Kind(3, "int_val", "i", 0, (int,)),
    "string": _Kind(7, "string_val", "", b"", (str, dict)),
    "int64": _Kind(9, "int64_val", "q", 0, (int,)),
    "bool": _Kind(10, "bool_val", "?", False, (bool,)),
}
_NAMES = {kind.number: name for name, kind in KINDS.items()}
_MOST_DIMENSIONS = 32

# Is told the number of a data type and a shape before there are values, and raises to refuse them:
# a shape of a few bytes may promise any number.
Check = Callable[[int, list[int]], None]


class Tensor(NamedTuple):
    """A tensor without NumPy.

    Fields:
        dtype: One of `KINDS`.
        shape: Its sizes.
        values: All values, in one list; strings are bytes.
    """

    dtype: str
    shape: list[int]
    values: list[Any]


def from_lists(value: Any, dtype: str) -> Tensor:
    """The tensor of nested lists; a ValueError if those of a level differ in length.

    >>> from_lists([[b"bom", b"dia"]], "string")
    Tensor(dtype='string', shape=[1, 2], values=[b'bom', b'dia'])
    """
    shape: list[int] = []
    values = [value]
    while values and isinstance(values[0], list):
        shape.append(len(values[0]))
        if any(not isinstance(inner, list) or len(inner) != shape[-1] for inner in values):
            raise ValueError("has lists of different lengths")
        values = [*itertools.chain.from_iterable(values)]
    return Tensor(dtype, shape, values)


def to_lists(tensor: Tensor) -> Any:
    """The values, nested like the shape.

    >>> to_lists(Tensor("int32", [2, 2], [1, 2, 3, 4]))
    [[1, 2], [3, 4]]
    """
    if not tensor.shape:
        return tensor.values[0]
    values = tensor.values
    for size, outer in zip(tensor.shape[:0:-1], range(len(tensor.shape) - 1, 0, -1), strict=True):
        count = math.prod(tensor.shape[:outer])
        values = [values[row * size : (row + 1) * size] for row in range(count)]
    return values


def to_proto(tensor: Tensor) -> Any:
    """The TensorProto, with the values in the field of their type, as TensorFlow Serving does."""
    kind = KINDS[tensor.dtype]
    proto = serving_pb2.TensorProto(  # type: ignore[attr-defined]
        dtype=kind.number, **{kind.field: tensor.values}
    )
    for size in tensor.shape:
        proto.tensor_shape.dim.add(size=size)
    return proto


def from_proto(proto: Any, check: Check) -> Tensor:
    """The tensor of a TensorProto from anybody; a ValueError if it is none.

    As in TensorFlow, surplus values are dropped, and the last one stands for missing ones.

    >>> to_lists(from_proto(to_proto(Tensor("string", [2], [b"bom", b"dia"])), print))
    7 [2]
    [b'bom', b'dia']
    """
    shape = [dim.size for dim in proto.tensor_shape.dim]
    if proto.tensor_shape.unknown_rank or len(shape) > _MOST_DIMENSIONS:
        raise ValueError(f"has no valid shape: {shape}")
    check(proto.dtype, shape)
    if proto.dtype not in _NAMES or min(shape, default=0) < 0:
        known = ", ".join(_NAMES.values())
        raise ValueError(f"has data type {proto.dtype}, shape {shape}. Expected a type of {known}")
    kind, size = KINDS[_NAMES[proto.dtype]], math.prod(shape)
    if proto.tensor_content:
        values = _unpacked(proto.tensor_content, kind.letter, size)
    else:
        values = [*getattr(proto, kind.field)[:size]]
        values += [values[-1] if values else kind.zero] * (size - len(values))
    return Tensor(_NAMES[proto.dtype], shape, values)


def _unpacked(content, letter, size):
    if not letter or len(content) != struct.calcsize(f"<{size}{letter}"):
        raise ValueError(f"has {size} elements in {len(content)} bytes")
    return [*struct.unpack(f"<{size}{letter}", content)]


def to_json(tensor: Tensor, string: Callable[[bytes], Any]) -> Any:
    """Nested lists for `json.dumps`.

    Args:
        tensor: A `Tensor`.
        string: What becomes of each string: `text_or_base64`, `base64_of` or another function.

    >>> to_json(Tensor("float32", [2], [0.10000000149011612, 2.0]), base64_of)
    [0.1, 2.0]
    """
    written = {"string": string, "float32": _short}.get(tensor.dtype)
    return to_lists(tensor._replace(values=[*map(written, tensor.values)]) if written else tensor)


def _short(value):
    """A float32 with as few digits as tell it from others: 6 or 9, as in TensorFlow Serving."""
    short = float(f"{value:.6g}")
    return short if struct.pack("f", short) == struct.pack("f", value) else float(f"{value:.9g}")


def base64_of(value: bytes) -> dict[str, str]:
    """Bytes as the object that JSON has for them."""
    return {"b64": base64.b64encode(value).decode("ascii")}


def text_or_base64(value: bytes) -> str | dict[str, str]:
    """Bytes as a JSON string, in base64 if they are not UTF-8.

    >>> text_or_base64("olá".encode()), text_or_base64(b"ol\\xe1")
    ('olá', {'b64': 'b2zh'})
    """
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return base64_of(value)


def from_json(value: Any, dtype: str, check: Check) -> Tensor:
    """The tensor of nested lists from anybody's JSON; a ValueError if it is none of this type."""
    tensor, kind = from_lists(value, dtype), KINDS[dtype]
    check(kind.number, tensor.shape)
    if wrong := [leaf for leaf in tensor.values if type(leaf) not in kind.types]:
        raise ValueError(f"is {dtype}. Received: {shown(wrong[0])}")
    return tensor._replace(values=[*map(_bytes, tensor.values)]) if dtype == "string" else tensor


def _bytes(value):
    try:
        if isinstance(value, str):
            return value.encode()
        return base64.b64decode(value["b64"], validate=True)
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"has a string that is not valid: {shown(value)}") from None


def from_array(array: Any) -> Tensor:
    """The tensor of a NumPy array; strings are bytes in an array of objects."""
    dtype = "string" if array.dtype == object else array.dtype.name
    if dtype not in KINDS:
        raise ValueError(f"has the type {dtype}. Expected one of {', '.join(KINDS)}")
    return Tensor(dtype, [*array.shape], array.ravel().tolist())


def to_array(tensor: Tensor) -> Any:
    """The NumPy array; a ValueError for a number that is too large for its type."""
    array = np.empty(len(tensor.values), object)  # `np.array` would look into strings
    array[:] = tensor.values
    try:
        with np.errstate(over="raise"):
            array = array if tensor.dtype == "string" else array.astype(tensor.dtype)
        return array.reshape(tensor.shape)
    except (OverflowError, FloatingPointError):
        raise ValueError(f"has a number too large for {tensor.dtype}") from None


def shown(value: Any) -> str:
    """The beginning of a value, for an error."""
    text = repr([*value][:8] if isinstance(value, dict | list) and len(value) > 8 else value)
    return text if len(text) <= 80 else f"{text[:80]}..."
