"""Inputs of requests as arrays, checked before anything of the size that they claim is made."""

import base64
import math

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2

from keras_tfmr.export.batching import MAX_BATCH_SIZE

# The fields of a TensorProto, by the data type.
FIELDS = {
    types_pb2.DT_FLOAT: "float_val",
    types_pb2.DT_DOUBLE: "double_val",
    types_pb2.DT_INT32: "int_val",
    types_pb2.DT_STRING: "string_val",
    types_pb2.DT_INT64: "int64_val",
    types_pb2.DT_BOOL: "bool_val",
}


def from_proto(name, proto, info):
    """The array of a TensorProto for the input of a TensorInfo; a ValueError if it is none."""
    if info.dtype not in FIELDS:
        raise ValueError(f"the development server takes no input {name} of data type {info.dtype}")
    kind = tf.as_dtype(info.dtype)
    if proto.dtype != info.dtype:
        raise ValueError(
            f"{name}: expected data type {info.dtype} ({kind.name}). Received: {proto.dtype}"
        )
    sizes = [dim.size for dim in proto.tensor_shape.dim]
    if proto.tensor_shape.unknown_rank or min(sizes, default=0) < 0:
        raise ValueError(f"{name}: expected a shape of known sizes. Received: {sizes}")
    check_rows(name, sizes)
    sent = len(getattr(proto, FIELDS[info.dtype]))
    if proto.tensor_content and kind != tf.string:
        sent = len(proto.tensor_content) / kind.size
    if sent != math.prod(sizes):
        raise ValueError(
            f"{name}: expected {math.prod(sizes)} values, as its shape has. Received: {sent}"
        )
    return tf.make_ndarray(proto)


def from_json(name, value, info):
    """The array of a JSON value for the input of a TensorInfo; a ValueError if it is none."""
    found = np.array(value, object)
    if any(isinstance(one, list) for one in found.ravel()):
        raise ValueError(f"{name}: expected lists of one length at each depth, all dense")
    check_rows(name, found.shape)
    kind, values = tf.as_dtype(info.dtype), [without_base64(one) for one in found.ravel()]
    for one in values:
        if not isinstance(one, types_of(kind)) or isinstance(one, bool) != (kind == tf.bool):
            raise ValueError(f"{name}: expected {kind.name}. Received: {one!r:.80}")
    if kind == tf.string:
        values = [one.encode() if isinstance(one, str) else one for one in values]
    return np.array(values, kind.as_numpy_dtype).reshape(found.shape)


def types_of(kind):
    """Python's types of the values of a data type."""
    if kind in (tf.string, tf.bool):
        return str | bytes if kind == tf.string else bool
    return int if kind.is_integer else int | float


def check_rows(name, sizes):
    """A ValueError for more texts than TensorFlow Serving takes with an export's batching."""
    if sizes and sizes[0] > MAX_BATCH_SIZE:
        raise ValueError(
            f"{name}: expected at most {MAX_BATCH_SIZE} texts in a request. Received: {sizes[0]}"
        )


def without_base64(value):
    """The bytes of an object {"b64": …}; anything else as it is."""
    is_object = isinstance(value, dict) and value.keys() == {"b64"}
    return base64.b64decode(value["b64"], validate=True) if is_object else value
