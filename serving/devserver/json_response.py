"""Converts tensors to JSON, with TensorFlow Serving's layout."""

import base64
import functools
import json
import math
import re

import numpy as np

from .errors import invalid


def format_response(arrays, row):
    """The response body for the outputs of Predict.

    Args:
        arrays: Dict from output name to numpy array.
        row: True for the row format, in which every array is `[rows, …]`; False for the column
            format.

    Returns:
        Bytes. Strings are written unchanged, even if they are not valid UTF-8.

    Raises:
        ServingError: INVALID_ARGUMENT, there are no outputs, or they do not fit the row format.
    """
    if not arrays:
        raise invalid("Cannot convert empty tensor map to JSON")
    text = _rows(arrays) if row else _columns(arrays)
    return text.encode("utf-8", "surrogateescape")


def format_classes(result):
    """The response body for a ClassificationResult."""
    rows = [
        ", ".join(f"[{quote(one.label)}, {_write_score(one.score)}]" for one in row.classes)
        for row in result.classifications
    ]
    texts = ", ".join(f"[{row}]" for row in rows)
    return f'{{\n    "results": [{texts}\n    ]\n}}'.encode()


def format_values(result):
    """The response body for a RegressionResult."""
    values = ", ".join(_write_score(one.value) for one in result.regressions)
    return f'{{\n    "results": [{values}]\n}}'.encode()


def _columns(arrays):
    values = {name: _leaves(name, array) for name, array in arrays.items()}
    if len(values) == 1:
        (values,) = values.values()
    return _layout({"outputs": values}, 0)


def _rows(arrays):
    shapes = {name: np.shape(array) for name, array in arrays.items()}
    rows = next(iter(shapes.values()))[:1]
    for name, shape in shapes.items():
        if not shape:
            raise invalid(f"Tensor name: {name} has no shape information ")
        if shape[:1] != rows:
            what = f"inconsistent batch size: {shape[0]} expecting: {rows[0]}"
            raise invalid(f"Tensor name: {name} has {what}")
    if rows == (0,):
        return _layout({"predictions": []}, 0)
    leaves = {name: _leaves(name, array) for name, array in arrays.items()}
    if len(leaves) == 1:
        (values,) = leaves.values()
        items = ", ".join(_layout(value, 2, rows=True) for value in values)
        return '{\n    "predictions": [' + items + "\n    ]\n}"
    items = [dict(zip(leaves, row, strict=True)) for row in zip(*leaves.values(), strict=True)]
    return _layout({"predictions": items}, 0, rows=True)


def _layout(value, depth, rows=False):
    """Nested lists and objects of finished texts as JSON, one value per line.

    In the row format, every list is on one line, except the list of the rows.
    """
    if isinstance(value, str):
        return value.replace("\n", "\n" + "    " * depth)
    if isinstance(value, dict):
        opening, closing = "{}"
        items = [f"{quote(key)}: {_layout(one, depth + 1, rows)}" for key, one in value.items()]
    else:
        opening, closing = "[]"
        items = [_layout(one, depth + 1, rows) for one in value]
        if rows and not any(isinstance(one, dict) for one in value):
            return "[" + ", ".join(items) + "]"
    if not items:
        return opening + closing
    end = "\n" + "    " * depth
    return opening + end + "    " + f",{end}    ".join(items) + end + closing


def _leaves(name, array):
    """An array as nested lists of JSON texts."""
    array = np.asarray(array)
    if array.dtype == object:
        write = _write_bytes if name.endswith("_bytes") else _write_string
    elif array.dtype == bool:
        write = json.dumps
    elif np.issubdtype(array.dtype, np.integer):
        write = str
    elif array.dtype == np.float64:
        write = functools.partial(_write_float, np.float64, 17)
    elif array.dtype.itemsize <= 4:
        array = array.astype(np.float32)
        write = functools.partial(_write_float, np.float32, 9)
    else:
        raise invalid(f"Failed to write JSON value for tensor type: {array.dtype}")
    texts = [write(value) for value in array.ravel().tolist()]
    return np.array(texts, object).reshape(array.shape).tolist()


def _write_bytes(value):
    return '{\n    "b64": "' + base64.b64encode(value).decode() + '"\n}'


def _write_string(value):
    return quote(value.decode("utf-8", "surrogateescape"))


def quote(text):
    quoted = json.dumps(text, ensure_ascii=False)
    return re.sub(r"\\u00[01][0-9a-f]", lambda match: "\\u" + match[0][2:].upper(), quoted)


def _write_score(value):
    return _write_float(np.float32, 9, value)


def _write_float(cast, digits, value):
    """Writes six digits if they give the exact number back, otherwise `digits` digits."""
    if not math.isfinite(value):
        return json.dumps(value)
    text = f"{value:g}"
    if cast(text) != cast(value):
        text = f"{value:.{digits}g}"
    return text if "." in text or "e" in text else text + ".0"
