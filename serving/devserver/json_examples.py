"""Converts JSON to tf.Examples, with TensorFlow Serving's rules and error texts."""

import tensorflow as tf

from .errors import invalid
from .json_request import as_bytes, as_float, is_base64, signature_name, type_name, wrong

_KINDS = {"bytes_list": "BYTES", "float_list": "FLOAT", "int64_list": "INT64"}


def fill(document, request):
    """Fills the input of a ClassificationRequest or RegressionRequest from a parsed body.

    Args:
        document: Dict from `json_request.parse`.
        request: The request, with its model_spec set.

    Raises:
        ServingError: INVALID_ARGUMENT, the document is invalid; the text is the real server's.
    """
    request.model_spec.signature_name = utf8(signature_name(document), "signature_name")
    filled = request.input.example_list
    if "context" in document:
        filled = request.input.example_list_with_context
        _fill_example(document["context"], filled.context)
    if "examples" not in document:
        what = "When method is classify, key 'examples' is expected and was not found"
        raise wrong(document, what)
    if not isinstance(document["examples"], list):
        raise wrong(document, "Expecting 'examples' value to be an list/array")
    if not document["examples"]:
        raise wrong(document, "'examples' value is an empty array")
    for value in document["examples"]:
        _fill_example(value, filled.examples.add())


def _fill_example(value, example):
    if not isinstance(value, dict):
        raise invalid(f"Example must be JSON object but got JSON {type_name(value)}")
    example.features.SetInParent()
    for name, content in value.items():
        feature = example.features.feature[utf8(name, "the name of a feature")]
        for one in content if isinstance(content, list) else [content]:
            _add_value(one, name, feature)


def _add_value(value, name, feature):
    """Adds a value to a feature, all of whose values must be of one kind."""
    kind, value = _converted(value, name)
    before = feature.WhichOneof("kind")
    if before not in (None, kind):
        what = f"Unexpected element type in feature: {name}"
        raise invalid(f"{what} expected type: {_KINDS[before]}")
    getattr(feature, kind).value.append(value)


def _converted(value, name):
    """Converts a JSON value to (kind of feature, value)."""
    if isinstance(value, str) or is_base64(value):
        return "bytes_list", as_bytes(value)
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        value = float(value) if abs(value) < 1 << 1000 else float("1e308")  # as rapidjson reads it
    if isinstance(value, int):
        if value >= 1 << 63:
            what = f"Feature: {name} has uint64 element. Only int64 is supported."
            raise invalid(what)
        return "int64_list", int(value)
    if isinstance(value, float):
        return "float_list", as_float(value, tf.float32)
    what = f"Feature: {name} has element with unexpected JSON type"
    raise invalid(f"{what}: {type_name(value)}")


def utf8(name, what):
    """Returns a name that protobuf can hold; raises for any other."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise invalid(f"{what} is not valid UTF-8") from None
    return name
