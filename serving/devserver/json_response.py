"""Tensors to JSON, with TensorFlow Serving's layout."""

import base64
import functools
import json
import math
import re

import numpy as np

from .errors import invalid


def format_response(arrays, row):
    """The response body.

    Args:
        arrays: dict of output name to numpy array.
        row: True for the row format: every array [rows, ...].

    Returns:
        bytes; strings are written as they are, without a check for UTF-8.

    Raises:
        ServingError: INVALID_ARGUMENT, the outputs do not fit the row format.
    """
    if not arrays:
        raise invalid("Cannot convert empty tensor map to JSON")
    text = _rows(arrays) if row else _columns(arrays)
    return text.encode("utf-8", "surrogateescape")


def _columns(arrays):
    depth = 2 if len(arrays) > 1 else 1
    values = {name: _nested(_leaves(name, a), depth, single=False) for name, a in arrays.items()}
    if depth == 1:
        (value,) = values.values()
        return '{\n    "outputs": ' + value + "\n}"
    return '{\n    "outputs": ' + _members(values, 1) + "\n}"


def _rows(arrays):
    sizes = {name: array.shape[0] if np.ndim(array) else None for name, array in arrays.items()}
    rows = next(iter(sizes.values()))
    for name, size in sizes.items():
        if size is None:
            raise invalid(f"Tensor name: {name} has no shape information ")
        if size != rows:
            raise invalid(
                f"Tensor name: {name} has inconsistent batch size: {size} expecting: {rows}"
            )
    if not rows:
        return '{\n    "predictions": []\n}'
    leaves = {name: _leaves(name, array) for name, array in arrays.items()}
    if len(leaves) == 1:
        (values,) = leaves.values()
        items = ", ".join(_nested(value, 2, single=True) for value in values)
        return '{\n    "predictions": [' + items + "\n    ]\n}"
    items = [
        "        "
        + _members({n: _nested(values[i], 3, single=True) for n, values in leaves.items()}, 2)
        for i in range(rows)
    ]
    return '{\n    "predictions": [\n' + ",\n".join(items) + "\n    ]\n}"


def _members(values, depth):
    """A JSON object of finished texts, one a line."""
    indent = "    " * depth
    lines = ",\n".join(f"{indent}    {quote(name)}: {value}" for name, value in values.items())
    return "{\n" + lines + f"\n{indent}}}"


def _nested(value, depth, single):
    """Nested lists of finished texts as JSON: on one line, or one value a line."""
    if not isinstance(value, list):
        return value.replace("\n", "\n" + "    " * depth) if "\n" in value else value
    if not value:
        return "[]"
    items = [_nested(item, depth + 1, single) for item in value]
    if single:
        return "[" + ", ".join(items) + "]"
    indent = "    " * depth
    return "[\n" + ",\n".join(indent + "    " + item for item in items) + f"\n{indent}]"


def _leaves(name, array):
    """An array as nested lists of JSON texts."""
    array = np.asarray(array)
    if array.dtype == object:
        write = _write_bytes if name.endswith("_bytes") else _write_string
    elif array.dtype == bool:
        write = {True: "true", False: "false"}.__getitem__
    elif np.issubdtype(array.dtype, np.integer):
        write = str
    elif array.dtype == np.float64:
        write = functools.partial(_write_float, np.float64, 17)
    elif array.dtype.itemsize <= 4 and array.dtype.kind != "c":
        array = array.astype(np.float32)
        write = functools.partial(_write_float, np.float32, 9)
    else:
        raise invalid(f"Failed to write JSON value for tensor type: {array.dtype}")
    texts = np.empty(array.size, object)
    texts[:] = [write(value) for value in array.ravel().tolist()]
    return texts.reshape(array.shape).tolist()


def _write_bytes(value):
    return '{\n    "b64": "' + base64.b64encode(value).decode() + '"\n}'


def _write_string(value):
    return quote(value.decode("utf-8", "surrogateescape"))


def quote(text):
    quoted = json.dumps(text, ensure_ascii=False)
    return re.sub(r"\\u00[01][0-9a-f]", lambda match: "\\u" + match[0][2:].upper(), quoted)


def _write_float(cast, digits, value):
    """Six digits where they stand for the number, else as many as its type needs."""
    if not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    text = f"{value:g}"
    if cast(text) != cast(value):
        text = f"{value:.{digits}g}"
    return text if "." in text or "e" in text else text + ".0"
