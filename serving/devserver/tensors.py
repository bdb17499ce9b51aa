"""TensorProto to numpy and back, as C++ `Tensor::FromProto` and `AsProtoField` do it."""

import math

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2, types_pb2

from .errors import invalid

# A shape in a few bytes of a request may ask for any amount of memory: this is where it stops.
MAX_ELEMENTS = 1 << 28

# dtype: the field that carries its values when they are not packed into tensor_content.
FIELDS = {
    types_pb2.DT_FLOAT: "float_val",
    types_pb2.DT_DOUBLE: "double_val",
    types_pb2.DT_INT32: "int_val",
    types_pb2.DT_INT16: "int_val",
    types_pb2.DT_INT8: "int_val",
    types_pb2.DT_UINT8: "int_val",
    types_pb2.DT_UINT16: "int_val",
    types_pb2.DT_STRING: "string_val",
    types_pb2.DT_INT64: "int64_val",
    types_pb2.DT_BOOL: "bool_val",
    types_pb2.DT_UINT32: "uint32_val",
    types_pb2.DT_UINT64: "uint64_val",
    types_pb2.DT_HALF: "half_val",
    types_pb2.DT_BFLOAT16: "half_val",
    types_pb2.DT_COMPLEX64: "scomplex_val",
    types_pb2.DT_COMPLEX128: "dcomplex_val",
}


def dtype_name(dtype):
    """The C++ name of a dtype enum: `float`, `string`, `int32`."""
    name = types_pb2.DataType.Name(dtype).removeprefix("DT_").lower()
    return name


def to_array(proto, alias):
    """The values of a request's tensor.

    Args:
        proto: TensorProto as a client sent it: nothing about it is trusted.
        alias: the input's name, for the error.

    Returns:
        numpy array; strings as bytes in an object array. Surplus values are dropped, missing ones
        repeat the last, as in C++.

    Raises:
        ServingError: INVALID_ARGUMENT `tensor parsing error: alias`.
    """
    shape = [dim.size for dim in proto.tensor_shape.dim]
    count = math.prod(shape)
    if proto.tensor_shape.unknown_rank or min(shape, default=0) < 0 or count > MAX_ELEMENTS:
        raise invalid(f"tensor parsing error: {alias}")
    if proto.dtype == types_pb2.DT_STRING and len(proto.string_val) == count:
        array = np.empty(count, object)
        array[:] = proto.string_val
        return array.reshape(shape)
    try:
        # The rare shapes of a TensorProto are left to TensorFlow: this is Tensor::FromProto.
        return tf.io.parse_tensor(proto.SerializeToString(), tf.as_dtype(proto.dtype)).numpy()
    except (tf.errors.OpError, TypeError, ValueError, AttributeError) as error:
        raise invalid(f"tensor parsing error: {alias}") from error


def to_proto(array):
    """The response's tensor: typed fields, never tensor_content."""
    array = np.asarray(array)
    proto = tensor_pb2.TensorProto(dtype=dtype_of(array))
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    field = FIELDS.get(proto.dtype)
    if field is None:
        raise invalid(f"cannot answer with a tensor of type {dtype_name(proto.dtype)}")
    if field == "half_val":
        array = array.view(np.uint16)
    elif field == "scomplex_val":
        array = np.ascontiguousarray(array).view(np.float32)
    elif field == "dcomplex_val":
        array = np.ascontiguousarray(array).view(np.float64)
    getattr(proto, field).extend(array.ravel().tolist())
    return proto


def dtype_of(array):
    """The dtype enum of a numpy array; object arrays hold strings."""
    return (
        types_pb2.DT_STRING if array.dtype == object else tf.as_dtype(array.dtype).as_datatype_enum
    )
