"""The development server's gRPC answers against TensorFlow Serving's: codes, texts, fields."""

import grpc
import numpy as np
import pytest
import tensorflow as tf
from grpc_health.v1 import health_pb2, health_pb2_grpc
from server_models import request, three_models
from server_process import status_of
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    predict_pb2,
)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with three_models(tmp_path_factory.mktemp("server")) as running:
        yield running


def tensor(dtype, shape=(), **fields):
    proto = tensor_pb2.TensorProto(dtype=dtype, **fields)
    for size in shape:
        proto.tensor_shape.dim.add(size=size)
    return proto


FLOAT, STRING = types_pb2.DT_FLOAT, types_pb2.DT_STRING
GRPC_ERRORS = {
    "unknown model": (
        request("nope", x=[1.0]),
        "NOT_FOUND",
        "Servable not found for request: Latest(nope)",
    ),
    "unknown version": (
        request("half", version=7, x=[1.0]),
        "NOT_FOUND",
        "Servable not found for request: Specific(half, 7)",
    ),
    "version 0 is not the latest": (
        request("half", version=0, x=[1.0]),
        "NOT_FOUND",
        "Servable not found for request: Specific(half, 0)",
    ),
    "no model_spec": (predict_pb2.PredictRequest(), "INVALID_ARGUMENT", "Missing ModelSpec"),
    "no name": (request("", x=[1.0]), "INVALID_ARGUMENT", "ModelSpec has no name specified."),
    "unknown label": (
        request("half", label="x", x=[1.0]),
        "INVALID_ARGUMENT",
        "Unrecognized servable version label: x",
    ),
    "unknown signature": (
        request("half", "x", x=[1.0]),
        "FAILED_PRECONDITION",
        'Serving signature key "x" not found.',
    ),
    "missing input": (
        request("half"),
        "INVALID_ARGUMENT",
        "input size does not match signature: 0!=1 len({}) != len({x}). Sent extra: {}. Missing "
        "but required: {x}.",
    ),
    "extra input": (
        request("half", x=[1.0], z=[1.0]),
        "INVALID_ARGUMENT",
        "input size does not match signature: 2!=1 len({x,z}) != len({x}). Sent extra: {z}. "
        "Missing but required: {}.",
    ),
    "misnamed input": (
        request("half", z=[1.0]),
        "INVALID_ARGUMENT",
        "Signature input alias: x(feed name: serving_default_x:0) not found in request and no "
        "default value provided. Inputs expected to be in the request {z}, or default input alias "
        "set: ",
    ),
    "wrong dtype": (
        request("echo", text=[1.0]),
        "INVALID_ARGUMENT",
        "Type mismatch: actual float vs. expect string",
    ),
    "half a float in tensor_content": (
        request("half", x=tensor(FLOAT, [1], tensor_content=b"12")),
        "INVALID_ARGUMENT",
        "tensor parsing error: x",
    ),
    "negative dimension": (
        request("half", x=tensor(FLOAT, [-1], float_val=[1.0])),
        "INVALID_ARGUMENT",
        "tensor parsing error: x",
    ),
    "a shape of terabytes": (
        request("half", x=tensor(FLOAT, [1 << 40], float_val=[1.0])),
        "INVALID_ARGUMENT",
        "tensor parsing error: x",
    ),
    "no such dtype": (
        request("half", x=tensor(99, [1])),
        "INVALID_ARGUMENT",
        "tensor parsing error: x",
    ),
    "unknown output": (
        request("half", output_filter=["q"], x=[1.0]),
        "INVALID_ARGUMENT",
        "output tensor alias not found in signature: q Outputs expected to be in the set {y}.",
    ),
    "duplicate output": (
        request("half", output_filter=["y", "y"], x=[1.0]),
        "INVALID_ARGUMENT",
        "duplicate output tensor alias: y",
    ),
}


@pytest.mark.parametrize("case", GRPC_ERRORS)
def test_predict_errors(server, case):
    message, code, text = GRPC_ERRORS[case]
    assert status_of(server.prediction.Predict, message, timeout=10) == (code, text)


def test_long_error_is_cut(server):
    code, text = status_of(server.prediction.Predict, request("half", "s" * 5000, x=[1.0]))
    assert code == "FAILED_PRECONDITION"
    assert text.endswith("...TRUNCATED") and len(text) == 1024 + len("...TRUNCATED")


def test_predict_by_version_and_label(server):
    for spec, version, expected in (
        ({}, 2, [3.5, 4.0]),
        ({"version": 1}, 1, [2.5, 3.0]),
        ({"label": "stable"}, 1, [2.5, 3.0]),
        ({"label": "canary"}, 2, [3.5, 4.0]),
    ):
        response = server.prediction.Predict(request("half", x=[1.0, 2.0], **spec))
        assert response.model_spec.name == "half"
        assert response.model_spec.version.value == version
        assert response.model_spec.signature_name == "serving_default"
        output = response.outputs["y"]
        assert list(output.float_val) == expected and not output.tensor_content
        assert output.dtype == FLOAT and [d.size for d in output.tensor_shape.dim] == [2]


@pytest.mark.parametrize(
    "proto, expected",
    [
        (tensor(FLOAT, [3], float_val=[2.0]), [3.0, 3.0, 3.0]),  # too few: the last is repeated
        (tensor(FLOAT, [1], float_val=[2.0, 8.0]), [3.0]),  # too many: dropped
        (tensor(FLOAT, [2], tensor_content=np.float32([2, 4]).tobytes()), [3.0, 4.0]),
        (tensor(FLOAT, [0]), []),
        (tensor(FLOAT, [], float_val=[2.0]), [3.0]),  # ranks are not checked
        (tensor(FLOAT, [1, 2], float_val=[2.0, 4.0]), [3.0, 4.0]),
    ],
)
def test_tensors_are_read_as_in_cpp(server, proto, expected):
    response = server.prediction.Predict(request("half", version=1, x=proto))
    assert list(response.outputs["y"].float_val) == expected
    assert response.outputs["y"].tensor_shape == proto.tensor_shape


def test_output_filter_and_several_inputs(server):
    message = request("echo", "pair", number=[1, 2], vector=[[1.0, 2.0], [3.0, 4.0]])
    everything = server.prediction.Predict(message).outputs
    assert list(everything["sum"].float_val) == [4.0, 9.0]
    assert tf.make_ndarray(everything["vector"]).tolist() == [[2.0, 4.0], [6.0, 8.0]]
    message.output_filter.append("sum")
    assert list(server.prediction.Predict(message).outputs) == ["sum"]


def test_strings_come_back_as_they_are(server):
    texts = [b"", b"a\0b", b"\xff\xfe", "é🙂".encode(), b"x" * 100_000]
    outputs = server.prediction.Predict(request("echo", text=texts)).outputs
    assert list(outputs["text"].string_val) == texts
    assert list(outputs["bytes"].int_val) == [len(text) for text in texts]


def test_session_errors_keep_code_and_text(server):
    code, text = status_of(server.prediction.Predict, request("echo", "boom", text=["boom"]))
    assert code == "INVALID_ARGUMENT" and "boom was asked for" in text


def test_deadline(server):
    message = request("slow", ms=[2_000_000_000])
    assert status_of(server.prediction.Predict, message, timeout=0.5)[0] == "DEADLINE_EXCEEDED"
    # The run itself was stopped, too: the machine is free for others.
    assert status_of(server.prediction.Predict, request("slow", ms=[1]), timeout=10)[0] == "OK"


def test_bytes_that_are_no_message(server):
    for method in ("PredictionService/Predict", "ModelService/GetModelStatus"):
        call = server.channel.unary_unary(f"/tensorflow.serving.{method}")
        code, text = status_of(call, b"\xff\xff")
        assert code == "INVALID_ARGUMENT" and "Error parsing message" in text
    assert "Traceback" not in server.stderr()


def test_unimplemented_method(server):
    message = inference_pb2.MultiInferenceRequest()
    code, text = status_of(server.prediction.MultiInference, message)
    assert code == "UNIMPLEMENTED" and "not implemented" in text


def test_model_status(server):
    def ask(name, version=None):
        message = get_model_status_pb2.GetModelStatusRequest()
        message.model_spec.name = name
        if version is not None:
            message.model_spec.version.value = version
        return message

    answer = server.models.GetModelStatus(ask("half")).model_version_status
    assert [(v.version, v.state, v.status.error_code) for v in answer] == [(2, 30, 0), (1, 30, 0)]
    assert len(server.models.GetModelStatus(ask("half", 1)).model_version_status) == 1
    assert status_of(server.models.GetModelStatus, ask("x")) == (
        "NOT_FOUND",
        "Could not find any versions of model x",
    )
    assert status_of(server.models.GetModelStatus, ask("half", 7)) == (
        "NOT_FOUND",
        "Could not find version 7 of model half",
    )
    empty = get_model_status_pb2.GetModelStatusRequest()
    assert status_of(server.models.GetModelStatus, empty)[0] == "INVALID_ARGUMENT"


def test_model_metadata(server):
    message = get_model_metadata_pb2.GetModelMetadataRequest()
    message.model_spec.name = "half"
    ask = server.prediction.GetModelMetadata
    assert status_of(ask, message) == (
        "INVALID_ARGUMENT",
        "GetModelMetadataRequest must specify at least one metadata_field",
    )
    message.metadata_field.append("signature_def")
    answer = ask(message)
    assert (answer.model_spec.name, answer.model_spec.version.value) == ("half", 2)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert answer.metadata["signature_def"].Unpack(signatures)
    assert signatures.signature_def["serving_default"].inputs["x"].dtype == FLOAT
    assert "__saved_model_init_op" in signatures.signature_def
    message.metadata_field.append("other")
    assert status_of(ask, message) == ("INVALID_ARGUMENT", "Metadata field other is not supported")


def test_health(server):
    stub = health_pb2_grpc.HealthStub(server.channel)
    for service in ("", "PredictionService", "ModelService"):
        answer = stub.Check(health_pb2.HealthCheckRequest(service=service))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    unknown = health_pb2.HealthCheckRequest(service="x")
    assert status_of(stub.Check, unknown)[0] == "NOT_FOUND"


def test_metrics(server):
    def count(text, status):
        line = f':tensorflow:serving:request_count{{model_name="half",status="{status}"}} '
        return float(next((x.split()[-1] for x in text.splitlines() if x.startswith(line)), 0))

    path = "/monitoring/prometheus/metrics"
    before = server.http(path)[1]
    server.http("/v1/models/half:predict", {"instances": [1.0]})
    server.prediction.Predict(request("half", x=[1.0]))
    status_of(server.prediction.Predict, request("half", x=["x"]))
    status, after = server.http(path)
    assert status == 200
    assert "# TYPE :tensorflow:serving:request_count counter" in after
    assert count(after, "OK") == count(before, "OK") + 2
    assert count(after, "INVALID_ARGUMENT") == count(before, "INVALID_ARGUMENT") + 1
    for name in (
        ':tensorflow:serving:request_latency_bucket{API="Predict",entrypoint="REST",',
        ':tensorflow:serving:runtime_latency_count{API="Predict",model_name="half",runtime="TF1"}',
    ):
        assert name in after


def test_names_that_strangers_make_up_are_not_kept(server):
    for number in range(20):
        status_of(server.prediction.Predict, request(f"stranger{number}", x=[1.0]))
        server.http(f"/v1/models/stranger{number}:predict", {"instances": [1.0]})
    page = server.http("/monitoring/prometheus/metrics")[1]
    assert "stranger" not in page
    assert ':tensorflow:serving:request_count{model_name="",status="NOT_FOUND"} ' in page


def test_message_limits_of_clients_are_their_own(server):
    """As with the real server: 4 MiB is what a client takes unless it says otherwise."""
    text = ["x" * 3_000_000] * 2
    channel = grpc.insecure_channel(f"127.0.0.1:{server.port}")
    stub = type(server.prediction)(channel)
    assert status_of(stub.Predict, request("echo", text=text))[0] == "RESOURCE_EXHAUSTED"
    assert status_of(server.prediction.Predict, request("echo", text=text))[0] == "OK"
    channel.close()
