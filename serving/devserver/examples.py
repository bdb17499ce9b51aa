"""Classify and Regress: take tf.Examples, return classes or values."""

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import classification_pb2, regression_pb2

from .errors import invalid
from .predict import DEFAULT_SIGNATURE, Call
from .tensors import dtype_name

_SHAPE = "Expected Tensor shape: [batch_size num_classes] but got"


def prepare_classify(servable, request):
    """Checks a ClassificationRequest against its signature.

    Args:
        servable: The Servable that answers.
        request: ClassificationRequest.

    Returns:
        predict.Call whose outputs are `classes`, `scores` or both.

    Raises:
        ServingError: The request or the signature is invalid; code and text are the real server's.
    """
    name, signature, feeds = _prepare(servable, request, "classification")
    if len(signature.outputs) not in (1, 2):
        raise invalid(f"Expected one or two output Tensors, found {len(signature.outputs)}")
    outputs = {
        alias: signature.outputs[alias].name
        for alias in ("classes", "scores")
        if alias in signature.outputs
    }
    if not outputs:
        raise invalid(
            "Expected classification signature outputs to contain at least one of "
            f'"classes" or "scores". Signature was: {signature}'
        )
    return Call(name, feeds, outputs)


def prepare_regress(servable, request):
    """Checks a RegressionRequest against its signature; its Call has one output, `outputs`."""
    name, signature, feeds = _prepare(servable, request, "regression")
    if len(signature.outputs) != 1:
        raise invalid("Expected one output Tensor.")
    if "outputs" not in signature.outputs:
        raise invalid(f"No regression outputs found in SignatureDef: {signature}")
    return Call(name, feeds, {"outputs": signature.outputs["outputs"].name})


def _prepare(servable, request, kind):
    name = request.model_spec.signature_name or DEFAULT_SIGNATURE
    signature = servable.signatures.get(name)
    if signature is None:
        raise invalid(f"No signature was found with the name: {name}")
    if len(signature.inputs) != 1:
        raise invalid("Expected one input Tensor.")
    if "inputs" not in signature.inputs:
        raise invalid(f"No {kind} inputs found in SignatureDef: {signature}")
    return name, signature, {signature.inputs["inputs"].name: serialized(request.input)}


def serialized(input):
    """The Examples of an Input as an array `[examples]` of bytes."""
    kind = input.WhichOneof("kind")
    given = getattr(input, kind) if kind else None
    if given is None or not given.examples:
        raise invalid("Input is empty.")
    # Joined bytes parse as merged messages: the example's features override the context's.
    context = given.context.SerializeToString() if kind == "example_list_with_context" else b""
    return np.array([context + example.SerializeToString() for example in given.examples], object)


def count(request):
    """The number of Examples in a request."""
    return len(getattr(request.input, request.input.WhichOneof("kind")).examples)


def classifications(arrays, count):
    """The ClassificationResult of `classes` and `scores`.

    Args:
        arrays: Dict of `classes` (string), `scores` (float32) or both, each `[examples, classes]`.
        count: Number of examples in the request.

    Raises:
        ServingError: The model's outputs have other types or shapes.
    """
    for alias, dtype, kind in (("classes", "DT_STRING", object), ("scores", "DT_FLOAT", "float32")):
        array = arrays.get(alias)
        if array is None:
            continue
        if np.ndim(array) != 2:
            raise invalid(f"{_SHAPE} {_shape(array)}")
        if array.dtype != kind:
            raise invalid(f"Expected {alias} Tensor of {dtype}. Got: {_dtype(array)}")
        if len(array) != count:
            raise invalid(f"Expected {alias} output batch size of {count}. Got: {len(array)}")
    widths = [array.shape[1] for array in arrays.values()]
    if len(set(widths)) > 1:
        both = f"{arrays['classes'].shape[1]} vs. {arrays['scores'].shape[1]}"
        raise invalid(f"Tensors class and score should match in dim_size(1). Got {both}")
    result = classification_pb2.ClassificationResult()
    for row in range(count):
        classes = result.classifications.add().classes
        for column in range(widths[0]):
            one = classes.add()
            if "classes" in arrays:
                one.label = arrays["classes"][row, column].decode("utf-8", "replace")
            if "scores" in arrays:
                one.score = arrays["scores"][row, column]
    return result


def regressions(arrays, count):
    """The RegressionResult of `outputs`, float32 `[examples]` or `[examples, 1]`."""
    array = arrays["outputs"]
    if not (np.ndim(array) == 1 or (np.ndim(array) == 2 and array.shape[1] == 1)):
        what = "Expected output Tensor shape to be either [batch_size] or [batch_size, 1]"
        raise invalid(f"{what} but got {_shape(array)}")
    if len(array) != count:
        what = "Input batch size did not match output batch size"
        raise invalid(f"{what}: {count} vs. {len(array)}")
    if array.dtype != "float32":
        raise invalid(f"Expected output Tensor of DT_FLOAT.  Got: {_dtype(array)}")
    result = regression_pb2.RegressionResult()
    for value in array.ravel():
        result.regressions.add(value=value)
    return result


def _shape(array):
    return "[" + ",".join(map(str, np.shape(array))) + "]"


def _dtype(array):
    return "DT_" + dtype_name(tf.as_dtype(np.asarray(array).dtype).as_datatype_enum).upper()
