"""Nested lists to TensorProto messages and back, without NumPy, which the client does not need."""

import math
from typing import Any

from keras_tfmr.client import serving_pb2

# dtype: its number in TensorFlow's enum DataType, its field of TensorProto, and the format of
# `memoryview` for the bytes of `tensor_content`, where strings are never.
KINDS = {
    "float32": (1, "float_val", "f"),
    "int32": (3, "int_val", "i"),
    "string": (7, "string_val", ""),
    "int64": (9, "int64_val", "q"),
    "bool": (10, "bool_val", "?"),
}
FIELDS = {number: (field, letter) for number, field, letter in KINDS.values()}


def to_proto(values: list[Any], dtype: str) -> Any:
    """The TensorProto of `[batch]` values."""
    number, field, _ = KINDS[dtype]
    proto = serving_pb2.TensorProto(dtype=number, **{field: values})
    proto.tensor_shape.dim.add(size=len(values))
    return proto


def to_lists(proto: Any) -> Any:
    """The values of a TensorProto, nested like its shape, with str for bytes.

    Raises:
        ValueError: If the message is no tensor of a type above.

    >>> to_lists(to_proto([b"bom", b"dia"], "string"))
    ['bom', 'dia']
    """
    if proto.dtype not in FIELDS:
        raise ValueError(
            f"a tensor has data type {proto.dtype}. Expected one of {', '.join(KINDS)}"
        )
    field, letter = FIELDS[proto.dtype]
    shape = [dim.size for dim in proto.tensor_shape.dim]
    if proto.tensor_content:  # of a server with --enable_serialization_as_tensor_content
        values = [*memoryview(proto.tensor_content).cast(letter)]  # type: ignore[call-overload]
    else:
        values = [*getattr(proto, field)]
    if len(values) != math.prod(shape):
        raise ValueError(f"a tensor has the shape {shape}, but {len(values)} values")
    if field == "string_val":
        values = [value.decode("utf-8", "replace") for value in values]
    for axis in range(len(shape) - 1, 0, -1):  # the innermost lists first
        rows, size = math.prod(shape[:axis]), shape[axis]
        values = [values[row * size : (row + 1) * size] for row in range(rows)]
    return values if shape else values[0]
