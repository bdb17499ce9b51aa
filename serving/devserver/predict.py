"""Predict, for both protocols: reads a request for its signature, runs it, writes the answer."""

import asyncio
import contextlib
import math

import numpy as np

from .errors import invalid

STRING_BYTES = 64  # of memory that a string takes beside its characters
FIELDS = {"f4": "float_val", "f8": "double_val", "i4": "int_val", "i8": "int64_val"}
FIELDS |= {"O": "string_val", "b1": "bool_val"}


async def predict(version, name, read, write, timeout, output_filter=()):
    """Runs one request. All that takes time does so in a thread, and the event loop goes on.

    Args:
        version: A serving `Version`.
        name: The signature; "" for `serving_default`.
        read: A function of the SignatureDef to a dict from input names to arrays.
        write: A function of the signature's name and a dict from output names to arrays.
        timeout: Seconds until the client stops waiting, or None.
        output_filter: The outputs to answer with; all if empty.

    Returns:
        What `write` returns.

    Raises:
        ServingError: The request does not fit the signature, or failed.
        TimeoutError: It was not done in time.
    """
    model = version.model
    name, signature = model.signature(name)
    if unknown := sorted(set(output_filter) - signature.outputs.keys()):
        known = ", ".join(sorted(signature.outputs))
        raise invalid(f"{name} has the outputs {known}. Received: {', '.join(unknown)}")
    outputs = sorted(output_filter or signature.outputs)

    def work(left):
        inputs = read(signature)
        feeds = {signature.inputs[key].name: array for key, array in inputs.items()}
        values = model.run(feeds, [signature.outputs[key].name for key in outputs], left)
        return write(name, dict(zip(outputs, values, strict=True)))

    deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
    return await version.run(work, deadline)


def check_names(names, signature):
    """Raises unless these are the inputs of a SignatureDef."""
    if names != signature.inputs.keys():
        wanted, given = (", ".join(sorted(each)) for each in (signature.inputs, names))
        raise invalid(f"Expected the inputs {wanted}. Received: {given or 'none'}")


def check(key, info, dtype, shape, options):
    """Raises unless an input has the type and shape of its TensorInfo, and keeps to the limits.

    Args:
        key: The input's name.
        info: Its TensorInfo in the signature.
        dtype: TensorFlow's number of its type.
        shape: Its sizes.
        options: Those of `server.py`.
    """
    import tensorflow as tf

    kind, sizes = tf.as_dtype(info.dtype), tf.TensorShape(info.tensor_shape)
    valid = info.dtype == dtype and min(shape, default=0) >= 0
    if not valid or not sizes.is_compatible_with(shape):
        with contextlib.suppress(TypeError):  # no type has this number
            dtype = tf.as_dtype(dtype).name
        raise invalid(f"Input {key} is {kind.name}{sizes}. Received: {dtype}{shape}")
    if shape and shape[0] > options.max_batch_size:
        limit = f"larger than maximum input batch size {options.max_batch_size}"
        raise invalid(f"Task size {shape[0]} is {limit}")
    size = math.prod(shape) * (STRING_BYTES if kind == tf.string else kind.size)
    if size > options.max_request_bytes:
        raise invalid(f"Input {key} has too many elements. Received the shape: {shape}")


def from_proto(key, proto, info, options):
    """The array of a TensorProto from a client, which may be malformed.

    As in TensorFlow Serving, surplus values are dropped, and the last one stands for missing ones:
    a request of a few bytes may name a shape of any size.
    """
    import tensorflow as tf

    sizes = [dim.size for dim in proto.tensor_shape.dim]
    if proto.tensor_shape.unknown_rank or len(sizes) > 32:
        raise invalid(f"Input {key} has no valid shape: {sizes}")
    check(key, info, proto.dtype, sizes, options)
    if proto.dtype == tf.string.as_datatype_enum and len(proto.string_val) == math.prod(sizes):
        return object_array(proto.string_val).reshape(sizes)
    try:
        return np.asarray(tf.io.parse_tensor(proto.SerializeToString(), tf.as_dtype(proto.dtype)))
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
