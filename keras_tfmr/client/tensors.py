"""Conversion of strings and numbers to TensorProto, and of TensorProto to nested lists."""

import math
import struct

from keras_tfmr._inputs import utf8
from keras_tfmr.client import serving_pb2
from keras_tfmr.client.errors import ServingError

DT_FLOAT, DT_DOUBLE, DT_INT32, DT_STRING, DT_INT64, DT_BOOL = 1, 2, 3, 7, 9, 10

# data type -> (field of TensorProto, struct letter of one value in tensor_content, zero)
_LAYOUT = {
    DT_FLOAT: ("float_val", "f", 0.0),
    DT_DOUBLE: ("double_val", "d", 0.0),
    DT_INT32: ("int_val", "i", 0),
    DT_STRING: ("string_val", None, b""),
    DT_INT64: ("int64_val", "q", 0),
    DT_BOOL: ("bool_val", "?", False),
}


def string_tensor(texts):
    """A string tensor [batch] of str or bytes."""
    tensor = serving_pb2.TensorProto(dtype=DT_STRING, string_val=[utf8(text) for text in texts])
    tensor.tensor_shape.dim.add(size=len(texts))
    return tensor


def tensor(values):
    """A tensor [batch] of texts, or of numbers if the list has a `dtype`."""
    if not hasattr(values, "dtype"):
        return string_tensor(values)
    kind = {"float32": DT_FLOAT, "int32": DT_INT32, "int64": DT_INT64}[values.dtype]
    field, _, _ = _LAYOUT[kind]
    filled = serving_pb2.TensorProto(dtype=kind, **{field: values})
    filled.tensor_shape.dim.add(size=len(values))
    return filled


def to_lists(tensor):
    """The tensor's values as lists nested like its shape; bytes become str.

    >>> to_lists(string_tensor(["bom", "dia"]))
    ['bom', 'dia']
    """
    if tensor.dtype not in _LAYOUT:
        raise ServingError(
            f"The server answered with a tensor of data type {tensor.dtype}; expected float32, "
            "float64, int32, int64, bool or string"
        )
    field, letter, zero = _LAYOUT[tensor.dtype]
    shape = [dim.size for dim in tensor.tensor_shape.dim]
    size = math.prod(shape)
    if tensor.tensor_content:
        values = _unpacked(tensor.tensor_content, size, letter)
    else:  # fewer values than elements: the last one stands for the rest
        values = list(getattr(tensor, field))[:size]
        values += [values[-1] if values else zero] * (size - len(values))
    if tensor.dtype == DT_STRING:
        values = [value.decode("utf-8", "replace") for value in values]
    return _nest(values, shape)


def _unpacked(content, size, letter):
    try:
        return list(struct.unpack(f"<{size}{letter}", content))
    except struct.error as error:
        raise ServingError(
            f"The server answered with a tensor of {size} elements in {len(content)} bytes"
        ) from error


def _nest(values, shape):
    if not shape:
        return values[0]
    if len(shape) == 1:
        return values
    step = len(values) // max(shape[0], 1)
    return [_nest(values[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]
