"""JSON to tensors, with TensorFlow Serving's rules and texts."""

import base64
import binascii
import itertools
import json
import math

from tensorflow.core.framework import tensor_pb2, types_pb2

from . import tensors
from .errors import MAX_MESSAGE, ServingError, invalid, unimplemented

# Python's parser says it in its own words; clients see rapidjson's.
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
_INTEGERS = {
    types_pb2.DT_INT32: ("int_val", -(1 << 31), (1 << 31) - 1),
    types_pb2.DT_INT16: ("int_val", -(1 << 31), (1 << 31) - 1),
    types_pb2.DT_INT8: ("int_val", -(1 << 31), (1 << 31) - 1),
    types_pb2.DT_UINT8: ("int_val", -(1 << 31), (1 << 31) - 1),
    types_pb2.DT_INT64: ("int64_val", -(1 << 63), (1 << 63) - 1),
    types_pb2.DT_UINT32: ("uint32_val", 0, (1 << 32) - 1),
    types_pb2.DT_UINT64: ("uint64_val", 0, (1 << 64) - 1),
}
_FLOATS = {
    types_pb2.DT_FLOAT: ("float", 24, 3.4028234663852886e38),
    types_pb2.DT_DOUBLE: ("double", 53, 1.7976931348623157e308),
}


def parse(body):
    """Parses a request body.

    Args:
        body: bytes; strings need not be valid UTF-8, their bytes reach the model as they are.

    Returns:
        dict.

    Raises:
        ServingError: INVALID_ARGUMENT; also for nesting deeper than the parser can follow.
    """
    if not body:
        raise invalid("JSON Parse error: The document is empty")
    try:
        document = json.loads(body.decode("utf-8", "surrogateescape"))
    except json.JSONDecodeError as error:
        text = _PARSE_ERRORS.get(error.msg, error.msg)
        raise invalid(f"JSON Parse error: {text} at offset: {error.pos}") from error
    except RecursionError as error:
        raise invalid("JSON Parse error: Terminate parsing: nested too deeply.") from error
    except ValueError as error:  # a number with more digits than Python converts
        raise invalid("JSON Parse error: Number too big to be stored in double.") from error
    if not isinstance(document, dict):
        raise invalid(f"JSON Value: {_text(document)} Is not object")
    return document


def fill_request(document, signature_inputs, request):
    """Fills a PredictRequest from a parsed body.

    Args:
        document: dict from `parse`.
        signature_inputs: function from signature name to the signature's inputs.
        request: PredictRequest; its model_spec is set.

    Returns:
        True for the row format (`instances`), False for the columnar one (`inputs`).

    Raises:
        ServingError: as the real server answers it.
    """
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise invalid(
            f"JSON Value: {_text(document)} not formatted correctly. 'signature_name' key must be "
            f"a string value."
        )
    request.model_spec.signature_name = name
    inputs = signature_inputs(name)
    if not inputs:
        raise invalid(f"Failed to get input map for signature: {name or 'DEFAULT'}")
    if "instances" in document and "inputs" in document:
        raise invalid(
            f"JSON Value: {_text(document)} Not formatted correctly expecting only one of 'inputs' "
            f"or 'instances' keys to exist "
        )
    if "instances" in document:
        instances = document["instances"]
        if not isinstance(instances, list):
            what = "Excepting 'instances' to be an list/array"  # the real server's own words
            raise invalid(f"JSON Value: {_text(document)} {what}")
        if not instances:
            raise invalid(f"JSON Value: {_text(document)} No values in 'instances' array")
        _fill_rows(instances, inputs, request.inputs)
        return True
    if "inputs" in document:
        _fill_columns(document["inputs"], inputs, request.inputs)
        return False
    raise invalid("Missing 'inputs' or 'instances' key")


def _fill_columns(value, inputs, out):
    if not isinstance(value, dict) or _is_base64(value):
        if len(inputs) > 1:
            raise invalid(
                "inputs is a plain value/list, but expecting an object as multiple input tensors "
                "required as per tensorinfo_map"
            )
        value = {next(iter(inputs)): value}
    for name, info in inputs.items():
        if name not in value:
            raise invalid(f"Missing named input: {name} in 'inputs' object.")
        out[name].CopyFrom(_tensor(value[name], info.dtype))


def _fill_rows(instances, inputs, out):
    named = isinstance(instances[0], dict) and not _is_base64(instances[0])
    if not isinstance(instances[0], dict) and len(inputs) > 1:
        raise invalid(
            "instances is a plain list, but expecting list of objects as multiple input tensors "
            "required as per tensorinfo_map"
        )
    first = {}
    for number, item in enumerate(instances):
        if named != (isinstance(item, dict) and not _is_base64(item)):
            raise invalid(
                f"Expecting object but got list at item {number} of input list"
                if named
                else f"Expecting value/list but got object at item {number} of input list"
            )
        for name, value in item.items() if named else [(next(iter(inputs)), item)]:
            where = f"element: {number} key: {name}" if named else f"element: {number}"
            try:
                _add_row(name, value, inputs, first, out)
            except ServingError as error:
                raise invalid(
                    f"Failed to process {where} of 'instances' list. Error: {error}"
                ) from error
        if named and set(item) != set(inputs):
            raise invalid(
                f"Failed to process element: {number} of 'instances' list. JSON object: "
                f"{_text(item)} keys must be equal to: {','.join(sorted(inputs))}"
            )
    for name, shape in first.items():
        for size in (len(instances), *shape):
            out[name].tensor_shape.dim.add(size=size)


def _add_row(name, value, inputs, first, out):
    """Appends one instance's value of one input; all must have the shape of the first."""
    if name not in inputs:
        raise invalid(f"JSON object: does not have named input: {name}")
    row = _tensor(value, inputs[name].dtype)
    shape = [dim.size for dim in row.tensor_shape.dim]
    wanted = first.setdefault(name, shape)
    if math.prod(shape) != math.prod(wanted):
        raise invalid(f"Expecting tensor size: {math.prod(wanted)} but got: {math.prod(shape)}")
    if shape != wanted:
        raise invalid(f"Expecting shape {_shape_text(wanted)} but got: {_shape_text(shape)}")
    row.ClearField("tensor_shape")
    row.ClearField("dtype")
    out[name].dtype = inputs[name].dtype
    out[name].MergeFrom(row)


def _shape_text(shape):
    return "[" + ",".join(map(str, shape)) + "]"


def _tensor(value, dtype):
    """A dense tensor from nested lists."""
    proto = tensor_pb2.TensorProto(dtype=dtype)
    shape, leaf = [], value
    while isinstance(leaf, list):
        shape.append(len(leaf))
        proto.tensor_shape.dim.add(size=len(leaf))
        leaf = leaf[0] if leaf else None
    leaves = [value]
    for level, size in enumerate(shape):
        for item in leaves:
            if not isinstance(item, list):
                raise invalid(
                    f"JSON Value: {_text(item)} found at incorrect level: {level + 1} in the JSON "
                    f"DOM. Expected at level: {len(shape)}"
                )
            if len(item) != size:
                raise invalid(
                    f"Encountered list at unexpected size: {len(item)} at level: {level} expected "
                    f"size: {size}"
                )
        leaves = list(itertools.chain.from_iterable(leaves))
    rank = len(shape)
    if any(isinstance(item, list) for item in leaves):
        raise invalid(f"Encountered list at unexpected level: {rank} expected < {rank}")
    _add_values(leaves, dtype, proto)
    return proto


def _add_values(values, dtype, proto):
    if dtype == types_pb2.DT_STRING:
        proto.string_val.extend([_string(value) for value in values])
    elif dtype in _FLOATS:
        getattr(proto, tensors.FIELDS[dtype]).extend([_float(value, dtype) for value in values])
    elif dtype == types_pb2.DT_BOOL:
        for value in values:
            if not isinstance(value, bool):
                raise _type_error(value, dtype)
        proto.bool_val.extend(values)
    elif dtype in _INTEGERS:
        field, lowest, highest = _INTEGERS[dtype]
        for value in values:
            if type(value) is not int or not lowest <= value <= highest:
                raise _type_error(value, dtype)
        getattr(proto, field).extend(values)
    else:
        error = unimplemented("JSON")
        raise ServingError(
            error.code,
            f"Conversion of JSON Value: {_text(values[0] if values else None)} to type: "
            f"{tensors.dtype_name(dtype)}",
        )


def _float(value, dtype):
    if type(value) not in (int, float):
        raise _type_error(value, dtype)
    name, digits, largest = _FLOATS[dtype]
    exact = abs(value) < 1 << digits if type(value) is int else abs(value) <= largest
    if not exact and not (isinstance(value, float) and not math.isfinite(value)):
        raise invalid(
            f"Cannot convert JSON value: {_text(value)} to {name} without loss of precision."
        )
    return value


def _string(value):
    if isinstance(value, str):
        try:
            return value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise invalid(
                "JSON Parse error: The surrogate pair in string is invalid. at offset: 0"
            ) from error
    if not isinstance(value, dict):
        raise _type_error(value, types_pb2.DT_STRING)
    if not _is_base64(value):
        raise invalid(f"JSON Value: {_text(value)} not formatted correctly for base64 data")
    text = value["b64"].rstrip("=")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise invalid("Unable to base64 decode") from error


def _is_base64(value):
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get("b64"), str)


def _type_error(value, dtype):
    names = {bool: str(value), int: "Number", float: "Number", str: "String", dict: "Object"}
    kind = names.get(type(value), "Null" if value is None else "Array")
    return invalid(
        f"JSON Value: {_text(value)} Type: {kind} is not of expected type: "
        f"{tensors.dtype_name(dtype)}"
    )


def _text(value):
    """A value as JSON, for an error; cut, as it may be the whole request."""
    try:
        text = json.dumps(value, indent=4, ensure_ascii=False)
    except RecursionError:
        text = "..."
    return text if len(text) <= MAX_MESSAGE else text[:MAX_MESSAGE] + "..."
