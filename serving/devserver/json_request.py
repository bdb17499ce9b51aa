"""Converts JSON to tensors, with TensorFlow Serving's rules and error texts."""

import base64
import itertools
import json
import math
import re

import grpc
import numpy as np
import tensorflow as tf

from . import tensors
from .errors import MAX_MESSAGE, ServingError, invalid

# Message of Python's JSON parser: that of rapidjson, which clients of the real server receive.
_PARSE_ERRORS = {
    "Expecting value": "Invalid value.",
    "Extra data": "The document root must not be followed by other values.",
    "Expecting property name enclosed in double quotes": "Missing a name for object member.",
    "Expecting ':' delimiter": "Missing a colon after a name of object member.",
    "Expecting ',' delimiter": "Missing a comma or } after an object member.",
    "Unterminated string starting at": "Missing a closing quotation mark in string.",
    "Invalid control character at": "Invalid encoding in string.",
    "Invalid \\escape": "Invalid escape character in string.",
    "Invalid \\uXXXX escape": "Incorrect hex digit after \\u escape in string.",
}
# Every escape in a JSON text; `alone` is half of a surrogate pair without its other half.
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_ESCAPES = re.compile(
    r"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]|(?P<alone>u[dD][89a-fA-F])|.)", re.DOTALL
)
MAX_RANK = 63  # numpy's limit is 64, and rows are stacked
_INTEGERS = (tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint32, tf.uint64)


def parse(body):
    """Parses a request body.

    Args:
        body: Bytes. Strings need not be valid UTF-8: the model receives their bytes unchanged.

    Returns:
        Dict.

    Raises:
        ServingError: INVALID_ARGUMENT, the body is not a JSON object or is nested too deeply.
    """
    if not body:
        raise invalid("JSON Parse error: The document is empty")
    text = body.decode("utf-8", "surrogateescape")
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        what = _PARSE_ERRORS.get(error.msg, error.msg)
        raise invalid(f"JSON Parse error: {what} at offset: {error.pos}") from error
    except RecursionError as error:
        raise invalid("JSON Parse error: Terminate parsing: nested too deeply.") from error
    except ValueError as error:  # a number with more digits than Python converts
        raise invalid("JSON Parse error: Number too big to be stored in double.") from error
    _check_surrogates(text)
    if not isinstance(document, dict):
        raise wrong(document, "Is not object")
    return document


def _check_surrogates(text):
    """Raises if a JSON text escapes half a surrogate pair, which Python's parser accepts."""
    if _SURROGATE.search(text):
        for escape in _ESCAPES.finditer(text):
            if escape["alone"]:
                what = "The surrogate pair in string is invalid."
                raise invalid(f"JSON Parse error: {what} at offset: {escape.start()}")


def signature_name(document):
    """The signature that a parsed body names; "" for none."""
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        what = "not formatted correctly. 'signature_name' key must be a string value."
        raise wrong(document, what)
    return name


def fill_request(document, inputs, request):
    """Fills a PredictRequest from a parsed body.

    Args:
        document: Dict from `parse`.
        inputs: Dict from name to TensorInfo: the inputs of the signature that the document names.
        request: PredictRequest, with its model_spec set.

    Returns:
        True for the row format (`instances`), False for the column format (`inputs`).

    Raises:
        ServingError: The document does not fit the signature; the text is the real server's.
    """
    request.model_spec.signature_name = name = signature_name(document)
    if not inputs:
        raise invalid(f"Failed to get input map for signature: {name or 'DEFAULT'}")
    by_row = "instances" in document
    if by_row and "inputs" in document:
        what = "expecting only one of 'inputs' or 'instances' keys to exist "
        raise wrong(document, f"Not formatted correctly {what}")
    if not by_row and "inputs" not in document:
        raise invalid("Missing 'inputs' or 'instances' key")
    arrays = _rows(document, inputs) if by_row else _columns(document["inputs"], inputs)
    for alias, array in arrays.items():
        request.inputs[alias].CopyFrom(tensors.to_proto(array))
    return by_row


def _columns(value, inputs):
    if not _is_object(value):
        _check_single("inputs is a plain value/list, but expecting an object", inputs)
        value = {next(iter(inputs)): value}
    for name in inputs:
        if name not in value:
            raise invalid(f"Missing named input: {name} in 'inputs' object.")
    return {name: _array(value[name], info.dtype) for name, info in inputs.items()}


def _check_single(what, inputs):
    if len(inputs) > 1:
        raise invalid(f"{what} as multiple input tensors required as per tensorinfo_map")


def _rows(document, inputs):
    instances = document["instances"]
    if not isinstance(instances, list):
        # "Excepting" is the real server's own spelling.
        raise wrong(document, "Excepting 'instances' to be an list/array")
    if not instances:
        raise wrong(document, "No values in 'instances' array")
    if not isinstance(instances[0], dict):
        _check_single("instances is a plain list, but expecting list of objects", inputs)
    named = _is_object(instances[0])
    rows = {name: [] for name in inputs}
    for number, item in enumerate(instances):
        if _is_object(item) != named:
            kinds = "object but got list" if named else "value/list but got object"
            raise invalid(f"Expecting {kinds} at item {number} of input list")
        failed = f"Failed to process element: {number}"
        for name, value in item.items() if named else [(next(iter(inputs)), item)]:
            try:
                _add_row(name, value, inputs, rows)
            except ServingError as error:
                where = failed + (f" key: {name}" if named else "")
                raise invalid(f"{where} of 'instances' list. Error: {error}") from error
        if named and set(item) != set(inputs):
            what = f"JSON object: {_text(item)} keys must be equal to: {','.join(sorted(inputs))}"
            raise invalid(f"{failed} of 'instances' list. {what}")
    return {name: np.stack(arrays) for name, arrays in rows.items() if arrays}


def _add_row(name, value, inputs, rows):
    """Appends the value of one input in one instance; its shape must be that of the first."""
    if name not in inputs:
        raise invalid(f"JSON object: does not have named input: {name}")
    row = _array(value, inputs[name].dtype)
    rows[name].append(row)
    first = rows[name][0]
    if row.size != first.size:
        raise invalid(f"Expecting tensor size: {first.size} but got: {row.size}")
    if row.shape != first.shape:
        wanted, got = ("[" + ",".join(map(str, array.shape)) + "]" for array in (first, row))
        raise invalid(f"Expecting shape {wanted} but got: {got}")


def _array(value, dtype):
    """Converts nested lists to a dense array."""
    shape, first = [], value
    while isinstance(first, list):
        shape.append(len(first))
        first = first[0] if first else None
    if len(shape) > MAX_RANK:
        raise invalid(f"JSON Value: lists within lists to level {len(shape)}")
    rank, leaves = len(shape), [value]
    for level, size in enumerate(shape):
        for item in leaves:
            if not isinstance(item, list):
                where = f"found at incorrect level: {level + 1} in the JSON DOM"
                raise wrong(item, f"{where}. Expected at level: {rank}")
            if len(item) != size:
                what = f"Encountered list at unexpected size: {len(item)} at level: {level}"
                raise invalid(f"{what} expected size: {size}")
        leaves = list(itertools.chain.from_iterable(leaves))
    if any(isinstance(item, list) for item in leaves):
        raise invalid(f"Encountered list at unexpected level: {rank} expected < {rank}")
    return _flat_array(leaves, tf.as_dtype(dtype)).reshape(shape)


def _flat_array(values, dtype):
    """Converts values to an array of a tf.DType; checks each as the real server does."""
    if dtype == tf.string:
        return np.array([as_bytes(value) for value in values], object)
    if dtype in (tf.float32, tf.float64):
        return np.array([as_float(value, dtype) for value in values], dtype.as_numpy_dtype)
    if dtype != tf.bool and dtype not in _INTEGERS:
        name = tensors.dtype_name(dtype.as_datatype_enum)
        what = f"Conversion of JSON Value: {_text(values[0] if values else None)} to type: {name}"
        raise ServingError(grpc.StatusCode.UNIMPLEMENTED, what)
    # A TensorProto holds narrow integers as int32, so the check is against int32's range.
    held_as = dtype.as_numpy_dtype if dtype.size >= 4 else np.int32
    kind = bool if dtype == tf.bool else int
    low, high = np.iinfo(held_as).min, np.iinfo(held_as).max
    for value in values:
        if type(value) is not kind or not low <= value <= high:
            raise _type_error(value, dtype)
    return np.array(values, held_as).astype(dtype.as_numpy_dtype)


def as_float(value, dtype):
    """Returns a number that fits a floating-point type; raises for any other value."""
    if type(value) not in (int, float):
        raise _type_error(value, dtype)
    limits = np.finfo(dtype.as_numpy_dtype)
    most = float(limits.max) if isinstance(value, float) else 2 ** (limits.nmant + 1) - 1
    if most < abs(value) < math.inf:
        what = f"{_text(value)} to {tensors.dtype_name(dtype.as_datatype_enum)}"
        raise invalid(f"Cannot convert JSON value: {what} without loss of precision.")
    return value


def as_bytes(value):
    """The bytes of a JSON string or of `{"b64": …}`."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if not isinstance(value, dict):
        raise _type_error(value, tf.string)
    if not is_base64(value):
        raise wrong(value, "not formatted correctly for base64 data")
    text = value["b64"].rstrip("=")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError as error:
        raise invalid("Unable to base64 decode") from error


def is_base64(value):
    """Whether a value is `{"b64": …}`."""
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get("b64"), str)


def _is_object(value):
    """Whether a value is an object; `{"b64": …}` counts as a plain value."""
    return isinstance(value, dict) and not is_base64(value)


def _type_error(value, dtype):
    name = tensors.dtype_name(dtype.as_datatype_enum)
    return wrong(value, f"Type: {type_name(value)} is not of expected type: {name}")


def type_name(value):
    """The name that rapidjson gives to the type of a value."""
    names = {int: "Number", float: "Number", str: "String", dict: "Object", list: "Array"}
    return names.get(type(value), "Null" if value is None else str(value))


def wrong(value, what):
    """An error that quotes the value that it is about."""
    return invalid(f"JSON Value: {_text(value)} {what}")


def _text(value):
    """A value as JSON, for an error; truncated, because it may be the whole request."""
    try:
        value, _ = _beginning(value, MAX_MESSAGE + 1)
        text = json.dumps(value, indent=4, ensure_ascii=False)
    except RecursionError:
        text = "..."
    return text if len(text) <= MAX_MESSAGE else text[:MAX_MESSAGE] + "..."


def _beginning(value, room):
    """Truncates a value to about `room` characters of text; returns (the value, room left)."""
    if isinstance(value, str):
        return value[: max(room, 0)], room - len(value)
    if isinstance(value, list):
        kept = []
        for item in value:
            if room <= 0:
                break
            item, room = _beginning(item, room - 1)
            kept.append(item)
        return kept, room
    if isinstance(value, dict):
        kept = {}
        for key, item in value.items():
            if room <= 0:
                break
            kept[key[:room]], room = _beginning(item, room - 1 - len(key))
        return kept, room
    return value, room - 1
