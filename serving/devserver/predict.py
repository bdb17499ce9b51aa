"""Predict, for both protocols: checks a request against its signature and runs it."""

import asyncio
import math

import numpy as np

from .errors import invalid

MAX_ELEMENTS = 1 << 27  # a request of a few bytes may name a shape of any size
FIELDS = {"f4": "float_val", "f8": "double_val", "i4": "int_val", "i8": "int64_val"}
FIELDS |= {"O": "string_val", "b1": "bool_val"}


async def predict(version, name, inputs, timeout, output_filter=()):
    """Runs one request.

    Args:
        version: A serving `Version`.
        name: The signature; "" for `serving_default`.
        inputs: A dict from input names to arrays.
        timeout: Seconds until the client stops waiting, or None.
        output_filter: The outputs to answer with; all if empty.

    Returns:
        (the signature's name, a dict from output names to arrays).

    Raises:
        ServingError: The request does not fit the signature, or failed.
        TimeoutError: It was not done in time.
    """
    name, signature = version.model.signature(name)
    check(name, signature, inputs)
    if unknown := sorted(set(output_filter) - signature.outputs.keys()):
        known = ", ".join(sorted(signature.outputs))
        raise invalid(f"{name} has the outputs {known}. Received: {', '.join(unknown)}")
    outputs = sorted(output_filter or signature.outputs)
    deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
    values = await version.run(
        {signature.inputs[key].name: array for key, array in inputs.items()},
        [signature.outputs[key].name for key in outputs],
        deadline,
    )
    return name, dict(zip(outputs, values, strict=True))


def check(name, signature, inputs):
    """Raises unless names, types and shapes are the signature's."""
    import tensorflow as tf

    if inputs.keys() != signature.inputs.keys():
        wanted, given = (", ".join(sorted(names)) for names in (signature.inputs, inputs))
        raise invalid(f"{name} expects the inputs {wanted}. Received: {given or 'none'}")
    for key, array in inputs.items():
        info = signature.inputs[key]
        wanted, given = tf.as_dtype(info.dtype), tf.as_dtype(array.dtype)
        shape = tf.TensorShape(info.tensor_shape)
        if wanted != given or not shape.is_compatible_with(array.shape):
            wanted, given = f"{wanted.name}{shape}", f"{given.name}{tf.TensorShape(array.shape)}"
            raise invalid(f"Input {key} of {name} is {wanted}. Received: {given}")


def from_proto(key, proto):
    """The array of a TensorProto from a client, which may be malformed.

    As in TensorFlow Serving, surplus values are dropped, and the last one stands for missing ones.
    """
    import tensorflow as tf

    sizes = [dim.size for dim in proto.tensor_shape.dim]
    if proto.tensor_shape.unknown_rank or min(sizes, default=0) < 0 or len(sizes) > 32:
        raise invalid(f"Input {key} has no valid shape: {sizes}")
    if math.prod(sizes) > MAX_ELEMENTS:
        raise invalid(f"Input {key} has too many elements. Received the shape: {sizes}")
    if proto.dtype == tf.string.as_datatype_enum and len(proto.string_val) == math.prod(sizes):
        return object_array(proto.string_val).reshape(sizes)
    try:
        dtype = tf.as_dtype(proto.dtype)
        return np.asarray(tf.io.parse_tensor(proto.SerializeToString(), dtype))
    except (tf.errors.OpError, TypeError, ValueError, AttributeError) as error:
        raise invalid(f"Input {key} is not a valid TensorProto") from error


def to_proto(array, proto):
    """Fills a TensorProto, with typed fields as TensorFlow Serving does."""
    import tensorflow as tf

    field = FIELDS.get("O" if array.dtype == object else array.dtype.str[1:])
    if field is None:
        raise invalid(f"The development server cannot send the type {array.dtype}")
    proto.dtype = tf.as_dtype(array.dtype).as_datatype_enum
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    getattr(proto, field).extend(array.ravel().tolist())


def object_array(values):
    """A vector of any Python objects; `np.array` would look into them."""
    array = np.empty(len(values), object)
    array[:] = list(values)
    return array
