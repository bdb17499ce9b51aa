"""Predict, for both protocols: reads a request for its signature, runs it, writes the answer."""

import asyncio
import contextlib
import math

from . import tensors
from .errors import Code, StatusError, invalid

STRING_BYTES = 64  # of memory that a string takes beside its characters


async def predict(version, name, read, write, timeout, output_filter=()):
    """Runs one request. All that takes time does so in a thread, and the event loop goes on.

    Args:
        version: A serving `Version`.
        name: The signature; "" for `serving_default`.
        read: A function of the SignatureDef to a dict from input names to `Tensor`s.
        write: A function of the signature's name and a dict from output names to `Tensor`s.
        timeout: Seconds until the client stops waiting, or None.
        output_filter: The outputs to answer with; all if empty.

    Returns:
        What `write` returns.

    Raises:
        StatusError: The request does not fit the signature, or failed.
        TimeoutError: It was not done in time.
    """
    session, name = version.session, name or "serving_default"
    if name not in session.signatures:
        text = f'Serving signature key "{name}" not found. Known: {", ".join(session.signatures)}'
        raise StatusError(Code.FAILED_PRECONDITION, text)
    signature = session.signatures[name]
    if unknown := sorted(set(output_filter) - signature.outputs.keys()):
        known = ", ".join(sorted(signature.outputs))
        raise invalid(f"{name} has the outputs {known}. Received: {', '.join(unknown)}")

    def work(left):
        inputs = {}
        for key, tensor in read(signature).items():
            with naming(f"Input {key}"):
                inputs[key] = tensors.to_array(tensor)
        outputs = {}
        for key, array in session.run(name, inputs, output_filter or None, left).items():
            with naming(f"Output {key}"):
                outputs[key] = tensors.from_array(array)
        return write(name, outputs)

    deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
    return await version.run(work, deadline)


@contextlib.contextmanager
def naming(what):
    """Turns what `tensors` says of an input or output into the error of a request."""
    try:
        yield
    except ValueError as error:
        raise invalid(f"{what} {error}") from None


def checker(info, options):
    """The check of an input by its type, shape and size, for the readers of `tensors`.

    Args:
        info: Its TensorInfo in the signature.
        options: Those of `server.py`.
    """
    import tensorflow as tf

    expected, sizes = tf.as_dtype(info.dtype), tf.TensorShape(info.tensor_shape)

    def check(dtype, shape):
        valid = info.dtype == dtype and min(shape, default=0) >= 0
        if not valid or not sizes.is_compatible_with(shape):
            with contextlib.suppress(TypeError):  # no type has this number
                dtype = tf.as_dtype(dtype).name
            raise ValueError(f"is {expected.name}{sizes}. Received: {dtype}{shape}")
        if shape and shape[0] > options.max_batch_size:
            limit = f"larger than maximum input batch size {options.max_batch_size}"
            raise ValueError(f"is too long: Task size {shape[0]} is {limit}")
        size = math.prod(shape) * (STRING_BYTES if expected == tf.string else expected.size)
        if size > options.max_request_bytes:
            raise ValueError(f"has too many elements. Received the shape: {shape}")

    return check
