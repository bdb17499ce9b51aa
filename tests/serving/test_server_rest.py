"""The development server over REST, with TensorFlow Serving's paths, status codes and JSON."""

import json
import socket

import prometheus_client.parser
import pytest

MODEL = "/v1/models/default"
PREDICT = f"{MODEL}:predict"


def test_columns(server):
    found = {"text": ["a", "é"], "bytes": [1, 2]}
    assert server.predict({"inputs": ["a", "é"]}) == (200, {"outputs": found})
    assert server.predict({"inputs": {"x": [1, 2.5]}}, "total") == (200, {"outputs": 3.5})
    both = {"inputs": {"long": [-(1 << 62)], "double": [0.1], "bool": [True]}}
    found = {"long": [1 << 62], "double": [0.2], "bool": [False]}
    assert server.predict(both, "types") == (200, {"outputs": found})


def test_rows(server):
    rows = [{"number": 1, "vector": [0.1, 2]}, {"number": 2, "vector": [0, 0.3]}]
    assert server.predict({"instances": rows}, "pair") == (
        200,
        {"predictions": [{"sum": 3.1, "twice": [0.2, 4.0]}, {"sum": 2.3, "twice": [0.0, 0.6]}]},
    )


WRONG = [
    (b"[" * 100_000, "nested"),
    (b'{"inputs": ' + b"9" * 5000 + b"}", "JSON"),
    ([1], "object"),
    ({"inputs": ["a"], "instances": ["a"]}, "either"),
    ({"instances": [{"other": "a"}]}, "text"),
    (b'{"inputs": ["\\ud800"]}', "valid"),
    ({"inputs": ["a"], "signature_name": 1}, "signature_name"),
    ({"inputs": [1e300], "signature_name": "total"}, "too large"),
    ({"inputs": {"number": [1.5], "vector": [[1]]}, "signature_name": "pair"}, "int32"),
    ({"instances": [1], "signature_name": "total"}, "'inputs'"),
    ({"inputs": ["a"], "signature_name": "none"}, "not found"),
    ({"instances": ["a"] * 257}, "Task size 257"),
    ({"inputs": [["a"]]}, "is string"),
    (b'{"inputs": ' + b'{"a": ' * 900 + b"1" + b"}" * 901, "Expected"),
    (b'{"inputs": ["a", ' + b"[" * 900 + b"]" * 900 + b"]}", "text"),
]


@pytest.mark.parametrize(("body", "text"), WRONG, ids=[str(body)[:30] for body, _ in WRONG])
def test_wrong_bodies_are_bad_requests(server, body, text):
    status, answer = server.http(PREDICT, body)
    assert status == 400 and text in json.loads(answer)["error"]


def test_status(server):
    status = {"error_code": "OK", "error_message": ""}
    version = {"version": "1", "state": "AVAILABLE", "status": status}
    status, text = server.http(f"{MODEL}/versions/1")
    assert status == 200 and json.loads(text) == {"model_version_status": [version]}


def test_paths_and_sizes(server):
    for path, body, expected in (
        (f"{MODEL}/versions/1:predict", {"inputs": ["a"]}, 200),
        ("/", None, 404),
        ("/v1/models/other", None, 404),
        ("/v1/other", None, 400),
        ("/V1/Models/default", None, 200),
        (f"{MODEL}/labels/stable", None, 400),
        (f"{MODEL}/labels/stable:predict", {"inputs": ["a"]}, 400),
        ("/v1/models/other:predict", {"inputs": ["a"]}, 404),
        (f"{MODEL}/versions/7:predict", {"inputs": ["a"]}, 404),
        (f"{MODEL}/versions/{2**63 - 1}", None, 404),
        (f"{MODEL}/versions/{2**63}", None, 400),
        (f"{MODEL}/versions/{'9' * 5000}", None, 400),
        (PREDICT, None, 400),
        (f"{MODEL}:classify", {"examples": []}, 501),
        (f"{MODEL}/metadata", None, 501),
        (PREDICT, b'{"inputs": ["' + b"a" * (1 << 20) + b'"]}', 413),
    ):
        status, text = server.http(path, body)
        assert status == expected and ("error" in json.loads(text)) == (status != 200)


def test_the_time_limit(server):
    with socket.create_connection(("127.0.0.1", server.rest_port), timeout=20) as client:
        client.sendall(f"POST {PREDICT} HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n".encode())
        status, answer = server.predict({"inputs": [20_000]}, "slow")
        assert status == 504 and "deadline" in answer["error"]
        assert client.recv(100).startswith(b"HTTP/1.1 504")  # a body that never comes


def test_metrics_have_the_names_and_labels_of_tensorflow_serving(server):
    def read(name, **labels):
        page = server.http("/monitoring/prometheus/metrics")[1]
        wanted = (f":tensorflow:serving:{name}", labels | {"model_name": "default"})
        families = prometheus_client.parser.text_string_to_metric_families(page)
        samples = [sample for family in families for sample in family.samples]
        return sum(one.value for one in samples if (one.name, one.labels) == wanted)

    for inputs, status in (["a"], "OK"), ([1], "INVALID_ARGUMENT"):
        before = read("request_count", status=status)
        server.predict({"inputs": inputs})
        assert read("request_count", status=status) == before + 1
    labels = {"API": "predict", "entrypoint": "REST"}
    before = read("request_latency_sum", **labels)
    server.predict({"inputs": [20]}, "slow")
    assert read("request_latency_sum", **labels) - before >= 20_000  # microseconds
