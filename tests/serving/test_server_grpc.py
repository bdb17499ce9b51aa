"""The development server over gRPC, asked by the official stubs."""

import re
import time

import grpc
import numpy as np
import pytest
import tensorflow as tf
from grpc_health.v1 import health_pb2, health_pb2_grpc
from server_process import request, status_of
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
)


def ask(server, *arguments, **inputs):
    response = server.prediction.Predict(request(*arguments, **inputs), timeout=20)
    return {name: tf.make_ndarray(proto).tolist() for name, proto in response.outputs.items()}


def refused(server, message, timeout=20):
    return status_of(server.prediction.Predict, message, timeout=timeout)


def test_predict_names_what_answered(server):
    response = server.prediction.Predict(request(text=["a", "é\0"]), timeout=20)
    assert tf.make_ndarray(response.outputs["text"]).tolist() == [b"a", "é\0".encode()]
    assert response.outputs["text"].tensor_content == b""  # typed fields, as the real server's
    spec = response.model_spec
    assert (spec.name, spec.version.value, spec.signature_name) == ("default", 1, "serving_default")


def test_types_and_signatures(server):
    number, vector = np.int32([1, 2]), np.float32([[0.5], [1]])
    found = ask(server, "pair", number=number, vector=vector)
    assert found == {"sum": [1.5, 3], "twice": [[1], [2]]}
    inputs = {"long": np.int64([-(1 << 62)]), "double": np.float64([0.1]), "bool": [True]}
    found = {"long": [1 << 62], "double": [0.2], "bool": [False]}
    assert ask(server, "types", **inputs) == found
    assert ask(server, "total", x=np.float32([1, 2])) == {"total": 3}
    none = np.array([], object)
    assert ask(server, "echo", output_filter=["text"], text=none) == {"text": []}


def of(dtype, *shape, **values):
    """A TensorProto with this shape, whatever values it has."""
    return TensorProto(dtype=dtype, tensor_shape={"dim": [{"size": n} for n in shape]}, **values)


FLOAT, STRING = tf.float32.as_datatype_enum, tf.string.as_datatype_enum
ONE = {"number": [1]}
WRONG = [
    (request("echo", text=["a"], other=["a"]), "the inputs text. .*other"),
    (request("echo", text=[1]), "string"),
    (request("echo", text="a"), r"is string.*: string\[\]"),
    (request("echo", output_filter=["nothing"], text=["a"]), "bytes"),
    (
        request("echo", text=["a"] * 257),
        "Task size 257 is larger than maximum input batch size 256",
    ),
    (request("echo", text=of(STRING, 1 << 24, string_val=[b"a"])), "Task size"),
    (request("echo", text=of(STRING, *[1] * 300, string_val=[b"a"])), "no valid shape"),
    (request("pair", vector=of(FLOAT, 1, 1 << 40, float_val=[1]), **ONE), "too many"),
    (request("pair", vector=of(FLOAT, 1 << 62, 1 << 62), **ONE), "Task size"),
    (request("total", x=of(FLOAT, -2)), "-2"),
    (request("total", x=of(99, 1)), "is float32.*99"),
    (request("total", x=of(FLOAT, 2, tensor_content=b"a")), "2 elements in 1 bytes"),
    (request("boom", text=["boom"]), "asked for"),
    (request(model="", text=["a"]), "no name"),
    (request(text=["a"], label="stable"), "Unrecognized servable version label: stable"),
    (predict_pb2.PredictRequest(), "Missing ModelSpec"),
]


@pytest.mark.parametrize(("message", "text"), WRONG, ids=[text for _, text in WRONG])
def test_wrong_requests_are_invalid_arguments_at_once(server, message, text):
    start = time.monotonic()
    code, details = refused(server, message)
    assert code == "INVALID_ARGUMENT" and re.search(text, details), details
    assert time.monotonic() - start < 5


LACKING = {
    "Classify": classification_pb2.ClassificationRequest(),
    "GetModelMetadata": get_model_metadata_pb2.GetModelMetadataRequest(),
}


def test_other_models_versions_signatures_and_methods(server):
    assert refused(server, request(model="other", text=["a"]))[0] == "NOT_FOUND"
    for version in (0, 7):
        assert refused(server, request(version=version, text=["a"]))[0] == "NOT_FOUND"
    status = get_model_status_pb2.GetModelStatusRequest(model_spec={"name": "other"})
    assert status_of(server.models.GetModelStatus, status)[0] == "NOT_FOUND"
    for name in ("none", "__saved_model_init_op"):  # a few bytes that would be a gigabyte
        code, text = refused(server, request(name, text=of(STRING, 1 << 24, string_val=[b"a"])), 5)
        assert code == "FAILED_PRECONDITION" and f'"{name}" not found' in text
    for method in ("Classify", "GetModelMetadata"):
        code, text = status_of(getattr(server.prediction, method), LACKING[method])
        assert code == "UNIMPLEMENTED" and "TensorFlow Serving has it" in text


def test_status_and_health(server):
    message = get_model_status_pb2.GetModelStatusRequest(model_spec={"name": "default"})
    (version,) = server.models.GetModelStatus(message, timeout=20).model_version_status
    assert (version.version, version.state) == (1, 30)  # AVAILABLE
    check = health_pb2_grpc.HealthStub(server.channel).Check
    for service in ("", "PredictionService"):
        answer = check(health_pb2.HealthCheckRequest(service=service), timeout=20)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_a_message_above_the_limit(server):
    code, text = refused(server, request(text=["a" * (1 << 20)]))
    assert code == "RESOURCE_EXHAUSTED" and "larger than max" in text


def test_a_full_queue_refuses_and_recovers(server):
    asked = [
        server.prediction.Predict.future(request("slow", ms=[100]), timeout=30) for _ in range(60)
    ]
    errors = [error for one in asked if (error := one.exception())]
    assert 0 < len(errors) < 60
    assert {error.code() for error in errors} == {grpc.StatusCode.UNAVAILABLE}
    assert "queue is full" in errors[0].details()
    assert ask(server, text=["a"])["bytes"] == [1]


def test_deadlines_and_clients_that_go_away_leave_no_work(server):
    for _ in range(2):
        assert refused(server, request("slow", ms=[20_000]), 0.3)[0] == "DEADLINE_EXCEEDED"
    assert ask(server, "slow", ms=[1])["rows"] == [1]  # both threads are free again
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        for ms in [2000] * 15 + [100]:
            stub.Predict.future(request("slow", ms=[ms]), timeout=60)
    assert ask(server, "slow", ms=[1])["rows"] == [1]
