"""Any value through the development server's JSON, tensors and config files, and the client's.

The oracles are others' code: Python's json, TensorFlow's own protos and `make_ndarray`, the grammar
of TensorFlow Serving's REST API as its documentation has it. HYPOTHESIS_PROFILE=long, which the
slow test sets, draws a hundred times as many examples.
"""

import base64
import json
import math
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import classification_pb2, predict_pb2

from keras_tfmr.client import rest_transport, serving_pb2
from keras_tfmr.client import tensors as client_tensors
from serving.devserver import (
    configs,
    examples,
    json_examples,
    json_request,
    json_response,
    tensors,
)
from serving.devserver.errors import HTTP_STATUS, ServingError

ROOT = pathlib.Path(__file__).resolve().parents[2]

QUIET = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True}
settings.register_profile("quick", max_examples=40, derandomize=True, **QUIET)
settings.register_profile("long", max_examples=4000, **QUIET)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

DTYPES = ("float32", "float64", "int32", "int64", "uint8", "int8", "bool")
SHAPES = nps.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3)
BYTES = st.binary(max_size=20)


@st.composite
def arrays(draw, dtypes=DTYPES):
    """An array of any shape; of a string type, bytes in an object array."""
    dtype = draw(st.sampled_from((*dtypes, "string")))
    shape = draw(SHAPES)
    if dtype != "string":
        return draw(nps.arrays(dtype, shape))
    values = draw(st.lists(BYTES, min_size=math.prod(shape), max_size=math.prod(shape)))
    array = np.empty(len(values), object)
    array[:] = values
    return array.reshape(shape)


def same(left, right):
    """Whether two arrays hold the same, bit by bit but for the kind of NaN."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    equal_nan = left.dtype.kind == "f"
    return np.array_equal(left, right, equal_nan=equal_nan)


@given(arrays())
def test_tensor_to_proto_and_back(array):
    """By our reader, TensorFlow's and the client's."""
    proto = tensors.to_proto(array)
    assert same(tensors.to_array(proto, "x"), array)
    assert same(tf.make_ndarray(proto), array)
    if array.dtype in (np.uint8, np.int8):
        return  # no type that a translator answers with
    read = client_tensors.to_lists(serving_pb2.TensorProto.FromString(proto.SerializeToString()))
    plain = [v.decode("utf-8", "replace") for v in array.ravel()] if array.dtype == object else None
    expected = array if plain is None else np.array(plain, object).reshape(array.shape)
    np.testing.assert_equal(read, expected.tolist())


def signature(array):
    dtype = tf.string if array.dtype == object else tf.as_dtype(array.dtype)
    inputs = meta_graph_pb2.SignatureDef().inputs
    inputs["x"].dtype = dtype.as_datatype_enum
    return inputs


def plain(array):
    """Nested lists as a client writes them into JSON: bytes as {"b64": ...}."""
    if array.dtype != object:
        return array.tolist()
    encoded = np.empty(array.size, object)
    encoded[:] = [{"b64": base64.b64encode(v).decode()} for v in array.ravel()]
    return encoded.reshape(array.shape).tolist()


@given(arrays(), st.sampled_from(("inputs", "instances")))
def test_json_to_tensor(array, key):
    """api_rest.md: a tensor is nested lists, row by row or as a whole, bytes are {"b64": ...}."""
    assume(key == "inputs" or (array.ndim and len(array)))
    request = predict_pb2.PredictRequest()
    body = json.dumps({key: plain(array)}).encode()
    document = json_request.parse(body)
    assert json_request.fill_request(document, signature(array), request) == (key == "instances")
    read = tf.make_ndarray(request.inputs["x"])
    # A list without elements says nothing of the dimensions within it.
    assert read.shape == array.shape or not array.size
    if array.size:
        assert same(read, array)


@given(arrays(("float32", "float64", "int32", "int64", "bool")), st.booleans())
def test_tensor_to_json(array, row):
    assume(not row or array.ndim)
    text = json_response.format_response({"y": array}, row)
    document = json.loads(text.decode("utf-8", "surrogateescape"))
    (read,) = document.values()
    if array.dtype == object:
        expected = [v.decode("utf-8", "surrogateescape") for v in array.ravel()]
        filled = np.empty(array.size, object)
        filled[:] = expected
        assert read == filled.reshape(array.shape).tolist()
    else:
        read = np.array(read, array.dtype)
        np.testing.assert_array_equal(read.ravel(), array.ravel())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(("x", "b64", "text", "é", "")), inner, max_size=3)
    ),
    max_leaves=12,
)
BODIES = st.fixed_dictionaries(
    {},
    optional={
        "instances": JSON,
        "inputs": JSON,
        "signature_name": JSON,
        "examples": JSON,
        "context": JSON,
    },
)


ANSWERED = (200, 400, 501)  # filled, or refused for a fault of the client's


def status(function, *arguments):
    """The HTTP status of a request that a function fills; an error's text is short and UTF-8."""
    try:
        function(*arguments)
    except ServingError as error:
        assert len(error.message) < 20_000
        json_response.quote(error.message).encode("utf-8", "surrogateescape")
        return HTTP_STATUS[error.code]
    return 200


def fill(content, dtype):
    inputs = meta_graph_pb2.SignatureDef().inputs
    for name in ("x", "text"):
        inputs[name].dtype = dtype
    document = json_request.parse(content)
    json_request.signature_name(document)
    json_request.fill_request(document, dict(inputs), predict_pb2.PredictRequest())


@given(BODIES | JSON, st.sampled_from((1, 2, 3, 4, 7, 8, 9, 10, 22, 23)))
def test_any_json_is_filled_or_refused(body, dtype):
    assert status(fill, json.dumps(body).encode(), dtype) in ANSWERED


@given(BODIES | JSON)
def test_any_json_of_examples_is_filled_or_refused(body):
    def fill_examples():
        request = classification_pb2.ClassificationRequest()
        json_examples.fill(json_request.parse(json.dumps(body).encode()), request)
        for one in examples.serialized(request.input):
            tf.train.Example.FromString(one)

    assert status(fill_examples) in ANSWERED


@given(st.binary(max_size=200), st.sampled_from((1, 7, 9)))
def test_any_bytes_are_filled_or_refused(content, dtype):
    assert status(fill, content, dtype) in ANSWERED
    assert status(fill, b'{"instances": [' + content + b"]}", dtype) in ANSWERED
    assert status(fill, b'{"inputs": {"x": "' + content + b'", "text": "a"}}', dtype) in ANSWERED


@given(st.binary(max_size=100))
def test_any_bytes_as_a_string_of_a_client(content):
    """What the client writes into JSON is what the model reads."""
    body = json.dumps({"inputs": [rest_transport.json_value(content)]}).encode()
    request = predict_pb2.PredictRequest()
    inputs = meta_graph_pb2.SignatureDef().inputs
    inputs["x"].dtype = 7
    json_request.fill_request(json_request.parse(body), inputs, request)
    assert list(request.inputs["x"].string_val) == [content]
    proto = client_tensors.string_tensor([content])
    read = predict_pb2.PredictRequest()
    read.inputs["x"].ParseFromString(proto.SerializeToString())
    assert tensors.to_array(read.inputs["x"], "x").tolist() == [content]


@given(st.binary(max_size=60))
def test_any_bytes_as_an_answer_are_read_or_refused_by_the_client(content):
    try:
        proto = serving_pb2.TensorProto.FromString(content)
    except DecodeError:
        return
    if math.prod(max(dim.size, 0) for dim in proto.tensor_shape.dim) > 1000:
        return
    try:
        client_tensors.to_lists(proto)
    except client_tensors.ServingError as error:
        assert "The server answered with a tensor" in str(error)


SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "max_batch_size": st.integers(-2, 2000),
        "batch_timeout_micros": st.integers(-2, 1 << 40),
        "max_enqueued_batches": st.integers(-2, 100),
        "num_batch_threads": st.integers(-2, 64),
        "enable_large_batch_splitting": st.booleans(),
        "max_execution_batch_size": st.integers(-2, 2000),
        "allowed_batch_sizes": st.lists(st.integers(-2, 2000), max_size=4),
    },
)


@given(SETTINGS)
def test_batching_files_are_read_or_refused(values):
    """Whatever is taken over keeps the rules of batching_util.cc."""
    lines = []
    for name, value in values.items():
        if name == "allowed_batch_sizes":
            lines += [f"{name}: {size}" for size in value]
        else:
            lines.append(f"{name} {{ value: {str(value).lower()} }}")
    message = text_format.Parse("\n".join(lines), configs.BatchingParameters())
    try:
        found = configs.batch_settings(message)
    except ServingError as error:
        assert HTTP_STATUS[error.code] == 400
        return
    assert min(found.max_size, found.execution_size, found.max_enqueued, found.threads) >= 1
    assert found.execution_size <= found.max_size and found.timeout >= 0
    assert list(found.allowed) == sorted(set(found.allowed))
    assert not found.allowed or found.allowed[-1] == found.execution_size
    for size in range(1, min(found.execution_size, 50) + 1):
        assert size <= found.padded(size) <= max(found.execution_size, size)


@given(st.text(max_size=80) | st.binary(max_size=80))
def test_any_file_is_a_config_or_refused(tmp_path_factory, content):
    file = tmp_path_factory.getbasetemp() / "any.config"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    for kind in (configs.ModelServerConfig, configs.BatchingParameters, configs.SSLConfig):
        try:
            configs.read(str(file), kind)
        except ServingError as error:
            assert HTTP_STATUS[error.code] == 400 and "any.config" in error.message


@pytest.mark.slow
def test_a_hundred_times_as_many_examples():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "not slow", __file__],
        env={**os.environ, "HYPOTHESIS_PROFILE": "long"},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:]
