"""Converts TensorProto to numpy and back, like `Tensor::FromProto` and `AsProtoField` in C++."""

import math

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow.python.framework import tensor_util

from .errors import invalid

# A request of a few bytes may name a shape of any size; larger tensors than this are refused.
MAX_ELEMENTS = 1 << 28


def dtype_name(dtype):
    """The C++ name of a dtype enum: `float`, `string`, `int32`."""
    return types_pb2.DataType.Name(dtype).removeprefix("DT_").lower()


def to_array(proto, alias):
    """The values of a request's tensor.

    Args:
        proto: TensorProto from a client; it may be malformed.
        alias: The input's name, for the error.

    Returns:
        Numpy array; strings are bytes in an object array. As in C++, surplus values are dropped,
        and the last value stands for missing ones.

    Raises:
        ServingError: INVALID_ARGUMENT, the proto is malformed or has too many elements.
    """
    shape = [dim.size for dim in proto.tensor_shape.dim]
    count = math.prod(shape)
    if proto.tensor_shape.unknown_rank or min(shape, default=0) < 0 or count > MAX_ELEMENTS:
        raise invalid(f"tensor parsing error: {alias}")
    if proto.dtype == types_pb2.DT_STRING and len(proto.string_val) == count:
        return np.array(list(proto.string_val), object).reshape(shape)
    try:
        # TensorFlow handles every other form of a TensorProto: this calls Tensor::FromProto.
        return tf.io.parse_tensor(proto.SerializeToString(), tf.as_dtype(proto.dtype)).numpy()
    except (tf.errors.OpError, TypeError, ValueError, AttributeError) as error:
        raise invalid(f"tensor parsing error: {alias}") from error


def to_proto(array):
    """Converts an array to a TensorProto with typed fields, never tensor_content."""
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
