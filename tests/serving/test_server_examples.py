"""Classify and Regress of the development server, by the official client and over REST.

The model is a graph of TensorFlow 1, as estimators export it: serialised tf.Examples in.
"""

import json

import numpy as np
import pytest
import server_models
import tensorflow as tf
from server_models import request
from server_process import ServerProcess, status_of
from tensorflow_serving.apis import (
    classification_pb2,
    model_pb2,
    prediction_log_pb2,
    regression_pb2,
)

v1 = tf.compat.v1
BATCHING = """
max_batch_size { value: 8 } max_enqueued_batches { value: 100 }
allowed_batch_sizes: 4 allowed_batch_sizes: 8
"""


def save(path):
    """p = x + bias, of classes [low, high] with scores [1 - p, p], and the value 10 p."""
    with tf.Graph().as_default(), v1.Session() as session:
        examples = v1.placeholder(tf.string, [None], "examples")
        features = {name: tf.io.FixedLenFeature([1], tf.float32, [0.0]) for name in ("x", "bias")}
        features["tag"] = tf.io.FixedLenFeature([1], tf.string, ["?"])
        parsed = tf.io.parse_example(examples, features)
        p = parsed["x"] + parsed["bias"]  # [examples, 1]
        scores = tf.concat([1 - p, p], axis=1)
        names = tf.tile([["low", "high"]], [tf.shape(p)[0], 1])
        builder = v1.saved_model.Builder(str(path))
        classify = v1.saved_model.classification_signature_def
        regress = v1.saved_model.regression_signature_def
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            {
                "serving_default": classify(examples, names, scores),
                "scores": classify(examples, None, scores),
                "classes": classify(examples, names, None),
                "tags": classify(examples, parsed["tag"], None),
                "value": regress(examples, 10 * p),
                "flat": regress(examples, 10 * p[:, 0]),
                "wide": regress(examples, scores),
                "echo": v1.saved_model.predict_signature_def(
                    {"text": examples}, {"text": tf.identity(examples)}
                ),
            },
        )
        builder.save()
    return path


@pytest.fixture(scope="module", params=[False, True], ids=["alone", "batched"])
def server(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples")
    path = save(folder / "model" / "1")
    records = []
    for kind, message in (
        ("classify_log", classify_request(0.5)),
        ("regress_log", regress_request(0.5)),
    ):
        log = prediction_log_pb2.PredictionLog()
        getattr(log, kind).request.CopyFrom(message)
        records.append(log.SerializeToString())
    server_models.warmup(path, *records)
    (folder / "batching.config").write_text(BATCHING)
    (folder / "monitoring.config").write_text("prometheus_config { enable: true }")
    flags = ["--enable_batching", f"--batching_parameters_file={folder}/batching.config"]
    with ServerProcess(
        folder,
        f"--model_base_path={folder}/model",
        "--model_name=m",
        f"--monitoring_config_file={folder}/monitoring.config",
        *(flags if request.param else []),
    ) as running:
        yield running


def example(**features):
    kinds = {
        float: lambda v: tf.train.Feature(float_list=tf.train.FloatList(value=[v])),
        bytes: lambda v: tf.train.Feature(bytes_list=tf.train.BytesList(value=[v])),
    }
    chosen = {name: kinds[type(value)](value) for name, value in features.items()}
    return tf.train.Example(features=tf.train.Features(feature=chosen))


def filled(message, signature, xs, context):
    message.model_spec.CopyFrom(model_pb2.ModelSpec(name="m", signature_name=signature))
    rows = [example(x=x) for x in xs]
    if context is None:
        message.input.example_list.examples.extend(rows)
    else:
        message.input.example_list_with_context.examples.extend(rows)
        message.input.example_list_with_context.context.CopyFrom(context)
    return message


def classify_request(*xs, signature="", context=None):
    return filled(classification_pb2.ClassificationRequest(), signature, xs, context)


def regress_request(*xs, signature="value", context=None):
    return filled(regression_pb2.RegressionRequest(), signature, xs, context)


def test_classify(server):
    response = server.prediction.Classify(classify_request(0.25, 0.75, 0.5))
    assert response.model_spec.name == "m" and response.model_spec.version.value == 1
    assert response.model_spec.signature_name == "serving_default"
    rows = [[(c.label, c.score) for c in row.classes] for row in response.result.classifications]
    assert rows == [[("low", 1 - x), ("high", x)] for x in (0.25, 0.75, 0.5)]


def test_classes_or_scores_alone(server):
    for signature, expected in (("classes", ("high", 0.0)), ("scores", ("", 0.25))):
        response = server.prediction.Classify(classify_request(0.25, signature=signature))
        (row,) = response.result.classifications
        assert (row.classes[1].label, row.classes[1].score) == expected


@pytest.mark.parametrize("signature", ["value", "flat"])
def test_regress(server, signature):
    response = server.prediction.Regress(regress_request(0.5, 0.25, signature=signature))
    assert [one.value for one in response.result.regressions] == [5.0, 2.5]


def test_context_is_merged_into_every_example(server):
    context = example(bias=0.25, x=0.5)  # an example's own x comes before it
    response = server.prediction.Regress(regress_request(0.25, 0.5, context=context))
    assert [one.value for one in response.result.regressions] == [5.0, 7.5]
    message = regress_request(context=context)
    message.input.example_list_with_context.examples.add()
    assert server.prediction.Regress(message).result.regressions[0].value == 7.5


def test_more_rows_than_a_batch_and_many_clients(server):
    values = [float(x) for x in np.linspace(0, 1, 8, dtype="float32")]
    calls = [server.prediction.Regress.future(regress_request(*values)) for _ in range(40)]
    for call in calls:
        found = [one.value for one in call.result().result.regressions]
        np.testing.assert_allclose(found, np.multiply(values, 10), rtol=1e-6)


ERRORS = {
    "no signature": (
        classify_request(0.5, signature="x"),
        "No signature was found with the name: x",
    ),
    "no examples": (classify_request(), "Input is empty."),
    "no input": (
        classification_pb2.ClassificationRequest(model_spec=model_pb2.ModelSpec(name="m")),
        "Input is empty.",
    ),
    "no spec": (classification_pb2.ClassificationRequest(), "Missing ModelSpec"),
    "other inputs": (
        classify_request(0.5, signature="echo"),
        "No classification inputs found in SignatureDef: ",
    ),
    "a regression's outputs": (
        classify_request(0.5, signature="value"),
        'Expected classification signature outputs to contain at least one of "classes" or "scor',
    ),
    "two outputs": (regress_request(0.5, signature=""), "Expected one output Tensor."),
    "no outputs": (
        regress_request(0.5, signature="scores"),
        "No regression outputs found in SignatureDef: ",
    ),
    "two columns": (
        regress_request(0.5, 0.5, signature="wide"),
        "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got [2,2]",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(server, case):
    message, expected = ERRORS[case]
    regress = isinstance(message, regression_pb2.RegressionRequest)
    call = server.prediction.Regress if regress else server.prediction.Classify
    code, text = status_of(call, message, timeout=10)
    assert code == "INVALID_ARGUMENT" and text.startswith(expected), text


def test_rest(server):
    body = {"examples": [{"x": 0.25}, {"x": [0.75]}]}
    assert server.http("/v1/models/m:classify", body) == (
        200,
        '{\n    "results": [[["low", 0.75], ["high", 0.25]], '
        '[["low", 0.25], ["high", 0.75]]\n    ]\n}',
    )
    body = {"signature_name": "value", "context": {"bias": 0.25}, "examples": [{"x": 0.25}, {}]}
    assert server.http("/v1/models/m/versions/1:regress", body) == (
        200,
        '{\n    "results": [5.0, 2.5]\n}',
    )
    body = {"signature_name": "tags", "examples": [{"tag": "é"}, {"tag": {"b64": "YQ=="}}]}
    _, text = server.http("/v1/models/m:classify", body)
    assert json.loads(text) == {"results": [[["é", 0.0]], [["a", 0.0]]]}


REST_ERRORS = {
    "no examples": ({}, "When method is classify, key 'examples' is expected and was not found"),
    "no list": ({"examples": {}}, "Expecting 'examples' value to be an list/array"),
    "empty list": ({"examples": []}, "'examples' value is an empty array"),
    "no object": ({"examples": [1]}, "Example must be JSON object but got JSON Number"),
    "context no object": ({"context": [], "examples": [{}]}, "but got JSON Array"),
    "nested": (
        {"examples": [{"x": [[1.0]]}]},
        "Feature: x has element with unexpected JSON type: Array",
    ),
    "object": ({"examples": [{"x": {"y": 1}}]}, "unexpected JSON type: Object"),
    "null": ({"examples": [{"x": None}]}, "unexpected JSON type: Null"),
    "two kinds": ({"examples": [{"x": [1.0, 1]}]}, "Unexpected element type in feature: x"),
    "uint64": ({"examples": [{"x": 1 << 63}]}, "has uint64 element. Only int64 is supported."),
    "beyond float": ({"examples": [{"x": 1e300}]}, "without loss of precision"),
    "beyond any": ({"examples": [{"x": 10**400}]}, "without loss of precision"),
    "another type": ({"examples": [{"x": 1}]}, "Key: x"),
}


@pytest.mark.parametrize("case", REST_ERRORS)
def test_rest_errors(server, case):
    body, expected = REST_ERRORS[case]
    status, text = server.http("/v1/models/m:classify", body)
    assert status == 400 and expected in json.loads(text)["error"], text


def test_names_that_are_no_utf8(server):
    for body in (b'{"examples": [{"\xff": 1}]}', b'{"signature_name": "\xff", "examples": [{}]}'):
        status, text = server.http("/v1/models/m:classify", body)
        assert status == 400 and "is not valid UTF-8" in text


def test_metrics_name_the_method(server):
    server.prediction.Classify(classify_request(0.5))
    page = server.http("/monitoring/prometheus/metrics")[1]
    assert ':request_latency_count{API="Classify",entrypoint="GRPC",model_name="m"}' in page
    assert ':runtime_latency_count{API="Classify",model_name="m",runtime="TF1"}' in page


def test_predict_of_the_same_model_goes_on(server):
    response = server.prediction.Predict(request("m", "echo", text=["a"]))
    assert list(response.outputs["text"].string_val) == [b"a"]
