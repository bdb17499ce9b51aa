"""TensorFlow Serving's JSON: `instances` (rows) or `inputs` (columns) in, their answers out."""

import base64
import itertools
import json

import numpy as np

from .errors import invalid
from .predict import check, object_array


def parse(body):
    """The JSON object in the bytes of a body."""
    try:
        document = json.loads(body.decode())
    except RecursionError:
        raise invalid("The body's JSON is nested too deeply") from None
    except ValueError as error:  # not UTF-8, not JSON, or a number of too many digits
        raise invalid(f"The body is not valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise invalid(f"Expected a JSON object. Received: {shown(document)}")
    return document


def inputs_of(document, signature, options):
    """The inputs in a parsed body, as arrays by name, for a SignatureDef."""
    if ("instances" in document) == ("inputs" in document):
        raise invalid("Expected either 'instances' (rows) or 'inputs' (columns)")
    names = signature.inputs.keys()
    columns = document["inputs"] if "inputs" in document else columns_of(document, names)
    columns = named(columns, names)
    return {name: array(name, columns[name], signature.inputs[name], options) for name in names}


def columns_of(document, names):
    """The columns of `instances`: one value, or an object with all inputs, for each row."""
    rows = document["instances"]
    if not isinstance(rows, list) or not rows:
        raise invalid(f"Expected a list of one or more rows. Received: {shown(rows)}")
    rows = [named(row, names) for row in rows]
    return {name: [row[name] for row in rows] for name in names}


def named(value, names):
    """An object with all inputs; a value by itself stands for the only one."""
    is_object = isinstance(value, dict) and value.keys() != {"b64"}
    if not is_object and len(names) == 1:
        return {next(iter(names)): value}
    if not is_object or value.keys() != names:
        wanted = ", ".join(sorted(names))
        raise invalid(f"Expected an object with the inputs {wanted}. Received: {shown(value)}")
    return value


def array(name, value, info, options):
    """Nested lists of equal lengths as an array, for a TensorInfo and the server's options."""
    import tensorflow as tf

    dtype, shape, leaves = tf.as_dtype(info.dtype), [], [value]
    while leaves and isinstance(leaves[0], list):
        shape.append(len(leaves[0]))
        if any(not isinstance(one, list) or len(one) != shape[-1] for one in leaves):
            raise invalid(f"The lists of input {name} have different lengths")
        leaves = list(itertools.chain.from_iterable(leaves))
    check(name, info, info.dtype, shape, options)
    values = object_array([leaf(name, one, dtype) for one in leaves])
    try:
        with np.errstate(over="raise"):
            return values.astype(dtype.as_numpy_dtype).reshape(shape)
    except (OverflowError, FloatingPointError):
        raise invalid(f"Input {name} has a number too large for {dtype.name}") from None


def leaf(name, value, dtype):
    """A value, if it is of the kind that belongs to `dtype`; strings as bytes."""
    kinds = {"string": (str, dict), "bool": (bool,)}.get(dtype.name, (int,))
    if type(value) not in kinds + (float,) * dtype.is_floating:
        raise invalid(f"Input {name} is {dtype.name}. Received: {shown(value)}")
    try:
        if isinstance(value, dict):
            return base64.b64decode(value["b64"], validate=True)
        return value.encode() if isinstance(value, str) else value
    except (KeyError, TypeError, ValueError):
        raise invalid(f"Input {name} has a string that is not valid: {shown(value)}") from None


def answer(arrays, rows):
    """The body of the answer to Predict: `predictions` if `rows`, otherwise `outputs`."""
    plain = {name: lists(name, value) for name, value in arrays.items()}
    values = plain if len(plain) > 1 else next(iter(plain.values()))
    if not rows:
        return dump({"outputs": values})
    sizes = {value.shape[:1] for value in arrays.values()}
    if len(sizes) != 1 or sizes == {()}:
        raise invalid("The outputs have no common number of rows. Ask with 'inputs'")
    if len(plain) > 1:
        values = [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]
    return dump({"predictions": values})


def lists(name, value):
    """An array as nested lists: strings as text, or as base64 if the name ends in `_bytes`."""
    flat = value.ravel()
    if value.dtype == object and name.endswith("_bytes"):
        flat = [{"b64": base64.b64encode(one).decode()} for one in flat]
    elif value.dtype == object:
        flat = [one.decode("utf-8", "surrogateescape") for one in flat]
    elif value.dtype == np.float32:
        flat = [float(str(one)) for one in flat]  # 0.1, not 0.10000000149011612
    else:
        flat = flat.tolist()
    return object_array(flat).reshape(value.shape).tolist()


def dump(document):
    """JSON as bytes; strings keep their bytes, also those that are not UTF-8."""
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogateescape")


def shown(value):
    """The beginning of a value, for an error."""
    text = repr(list(value)[:8] if isinstance(value, dict | list) and len(value) > 8 else value)
    return text if len(text) <= 80 else text[:80] + "..."
