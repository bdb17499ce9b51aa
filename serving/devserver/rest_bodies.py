"""The bodies of Predict over REST: `instances` (rows) or `inputs` (columns) in, answers out."""

import json

from . import tensors
from .errors import invalid
from .predict import checker, naming
from .tensors import shown


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
    """The inputs in a parsed body, as `Tensor`s by name, for a SignatureDef."""
    import tensorflow as tf

    if ("instances" in document) == ("inputs" in document):
        raise invalid("Expected either 'instances' (rows) or 'inputs' (columns)")
    names = signature.inputs.keys()
    columns = document["inputs"] if "inputs" in document else columns_of(document, names)
    columns, inputs = named(columns, names), {}
    for name, info in signature.inputs.items():
        with naming(f"Input {name}"):
            dtype = tf.as_dtype(info.dtype).name
            inputs[name] = tensors.from_json(columns[name], dtype, checker(info, options))
    return inputs


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


def answer(outputs, rows):
    """The body of the answer to Predict: `predictions` if `rows`, otherwise `outputs`."""
    plain = {name: lists(name, tensor) for name, tensor in outputs.items()}
    values = plain if len(plain) > 1 else next(iter(plain.values()))
    if not rows:
        return dump({"outputs": values})
    sizes = {(*tensor.shape[:1],) for tensor in outputs.values()}
    if len(sizes) != 1 or sizes == {()}:
        raise invalid("The outputs have no common number of rows. Ask with 'inputs'")
    if len(plain) > 1:
        values = [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]
    return dump({"predictions": values})


def lists(name, tensor):
    """Nested lists: strings as they are, or as base64 if the name ends in `_bytes`."""
    return tensors.to_json(tensor, tensors.base64_of if name.endswith("_bytes") else raw)


def raw(value):
    return value.decode("utf-8", "surrogateescape")


def dump(document):
    """JSON as bytes; strings keep their bytes, also those that are not UTF-8."""
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogateescape")
