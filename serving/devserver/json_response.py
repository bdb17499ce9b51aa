"""Tensors to JSON, with TensorFlow Serving's layout."""

import base64
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
    several = len(arrays) > 1
    depth = 2 if several else 1
    values = {name: _nested(_leaves(name, a), depth, single=False) for name, a in arrays.items()}
    if not several:
        (value,) = values.values()
        return '{\n    "outputs": ' + value + "\n}"
    members = ",\n".join(f"        {quote(name)}: {value}" for name, value in values.items())
    return '{\n    "outputs": {\n' + members + "\n    }\n}"


def _rows(arrays):
    sizes = {}
    for name, array in arrays.items():
        if np.ndim(array) == 0:
            raise invalid(f"Tensor name: {name} has no shape information ")
        sizes[name] = array.shape[0]
        first = next(iter(sizes.values()))
        if array.shape[0] != first:
            raise invalid(
                f"Tensor name: {name} has inconsistent batch size: {array.shape[0]} "
                f"expecting: {first}"
            )
    if not first:
        return '{\n    "predictions": []\n}'
    leaves = {name: _leaves(name, array) for name, array in arrays.items()}
    if len(leaves) == 1:
        (values,) = leaves.values()
        items = ", ".join(_nested(value, 2, single=True) for value in values)
        return '{\n    "predictions": [' + items + "\n    ]\n}"
    items = []
    for number in range(first):
        members = (
            f"            {quote(name)}: {_nested(values[number], 3, single=True)}"
            for name, values in leaves.items()
        )
        items.append("        {\n" + ",\n".join(members) + "\n        }")
    return '{\n    "predictions": [\n' + ",\n".join(items) + "\n    ]\n}"


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
        write = _write_double
    elif array.dtype.itemsize <= 4 and array.dtype.kind != "c":
        array = array.astype(np.float32)
        write = _write_float
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


def _write_float(value):
    text = f"{value:g}"
    if math.isfinite(value) and np.float32(text) != np.float32(value):
        text = f"{value:.9g}"
    return _decimal(text)


def _write_double(value):
    text = f"{value:g}"
    return _decimal(text if not math.isfinite(value) or float(text) == value else f"{value:.17g}")


def _decimal(text):
    special = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(text)
    if special:
        return special
    return text if "." in text or "e" in text else text + ".0"
