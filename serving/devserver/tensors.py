"""TensorProto to numpy and back, as C++ `Tensor::FromProto` and `AsProtoField` do it."""

import math

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow.python.framework import tensor_util

from .errors import invalid

# A shape in a few bytes of a request may ask for any amount of memory: this is where it stops.
MAX_ELEMENTS = 1 << 28


def dtype_name(dtype):
    """The C++ name of a dtype enum: `float`, `string`, `int32`."""
    return types_pb2.DataType.Name(dtype).removeprefix("DT_").lower()


def to_array(proto, alias):
    """The values of a request's tensor.

    Args:
        proto: TensorProto as a client sent it: nothing about it is trusted.
        alias: The input's name, for the error.

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
        return np.array(list(proto.string_val), object).reshape(shape)
    try:
        # The rare shapes of a TensorProto are left to TensorFlow: this is Tensor::FromProto.
        return tf.io.parse_tensor(proto.SerializeToString(), tf.as_dtype(proto.dtype)).numpy()
    except (tf.errors.OpError, TypeError, ValueError, AttributeError) as error:
        raise invalid(f"tensor parsing error: {alias}") from error


def to_proto(array):
    """The response's tensor: typed fields, never tensor_content."""
    array = np.asarray(array)
    proto = tensor_pb2.TensorProto(
        dtype=tf.as_dtype(array.dtype).as_datatype_enum,
        tensor_shape=tf.TensorShape(array.shape).as_proto(),
    )
    append = tensor_util.GetNumpyAppendFn(array.dtype)
    if append is None:
        raise invalid(f"cannot answer with a tensor of type {dtype_name(proto.dtype)}")
    append(proto, array.ravel())
    return proto
