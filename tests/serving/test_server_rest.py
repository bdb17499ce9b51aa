"""The development server over REST, with TensorFlow Serving's paths, status codes and JSON."""

import gzip
import json
import socket

import pytest

MODEL = "/v1/models/default"


def test_columns(server):
    assert server.predict({"inputs": ["a", "é"]}) == (
        200,
        {"outputs": {"text": ["a", "é"], "bytes": [1, 2]}},
    )
    assert server.predict({"inputs": {"text": ["a"]}}, "raw") == (
        200,
        {"outputs": [{"b64": "YQ=="}]},
    )
    assert server.predict({"inputs": {"x": [1, 2.5]}}, "total") == (200, {"outputs": 3.5})
    both = {"inputs": {"x": [-(1 << 62)], "negate": [True]}}
    assert server.predict(both, "sign")[1] == {"outputs": {"x": [1 << 62], "negate": [True]}}


def test_rows(server):
    assert server.predict({"instances": ["a", {"b64": "/w=="}]}, "raw")[1] == {
        "predictions": [{"b64": "YQ=="}, {"b64": "/w=="}]
    }
    rows = [{"number": 1, "vector": [0.1, 2]}, {"number": 2, "vector": [0, 0.3]}]
    assert server.predict({"instances": rows}, "pair") == (
        200,
        {"predictions": [{"sum": 3.1, "twice": [0.2, 4.0]}, {"sum": 2.3, "twice": [0.0, 0.6]}]},
    )


WRONG = [
    (b"", "JSON"),
    (b"\xff", "JSON"),
    (b"[" * 100_000, "nested"),
    (b'{"inputs": ' + b"9" * 5000 + b"}", "JSON"),
    ([1], "object"),
    ({}, "instances"),
    ({"inputs": ["a"], "instances": ["a"]}, "either"),
    ({"instances": []}, "rows"),
    ({"instances": [{"other": "a"}]}, "text"),
    ({"inputs": {"other": ["a"]}}, "text"),
    ({"inputs": [1]}, "string"),
    ({"inputs": [["a"], "b"]}, "lengths"),
    ({"inputs": [["a"], ["b", "c"]]}, "lengths"),
    ({"inputs": "a"}, r"string"),
    ({"inputs": [{"b64": "*"}]}, "valid"),
    (b'{"inputs": ["\\ud800"]}', "valid"),
    ({"inputs": ["a"], "signature_name": 1}, "signature_name"),
    ({"inputs": ["a"], "signature_name": "nothing"}, "signature"),
    ({"inputs": [True], "signature_name": "total"}, "float32"),
    ({"inputs": [1e300], "signature_name": "total"}, "too large"),
    ({"inputs": {"number": [1 << 40], "vector": [[1]]}, "signature_name": "pair"}, "too large"),
    ({"inputs": {"number": [1.5], "vector": [[1]]}, "signature_name": "pair"}, "int32"),
    ({"instances": [1], "signature_name": "total"}, "'inputs'"),
    ({"inputs": ["boom"], "signature_name": "boom"}, "asked for"),
]


@pytest.mark.parametrize(("body", "text"), WRONG, ids=[str(body)[:30] for body, _ in WRONG])
def test_wrong_bodies_are_bad_requests(server, body, text):
    status, answer = server.http(f"{MODEL}:predict", body)
    assert status == 400 and text in json.loads(answer)["error"]


def test_status_and_metadata(server):
    status, text = server.http(MODEL)
    assert status == 200 and json.loads(text) == {
        "model_version_status": [
            {
                "version": "1",
                "state": "AVAILABLE",
                "status": {"error_code": "OK", "error_message": ""},
            }
        ]
    }
    assert server.http(f"{MODEL}/versions/1") == (status, text)
    status, text = server.http(f"{MODEL}/versions/1/metadata")
    found = json.loads(text)
    assert found["model_spec"] == {"name": "default", "signature_name": "", "version": "1"}
    pair = found["metadata"]["signature_def"]["signature_def"]["pair"]
    assert pair["inputs"]["vector"]["dtype"] == "DT_FLOAT"
    sizes = [dim["size"] for dim in pair["inputs"]["vector"]["tensor_shape"]["dim"]]
    assert sizes == ["-1", "-1"] and pair["method_name"] == "tensorflow/serving/predict"


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("/", None, 404),
        ("/v1/models", None, 404),
        ("/v1/models/other", None, 404),
        ("/v1/models/other:predict", {"inputs": ["a"]}, 404),
        (f"{MODEL}/versions/7", None, 404),
        (f"{MODEL}/versions/7:predict", {"inputs": ["a"]}, 404),
        (f"{MODEL}/versions/{'9' * 40}", None, 404),
        (f"{MODEL}:predict", None, 405),
        (MODEL, {}, 405),
        (f"{MODEL}:classify", {"examples": []}, 501),
        (f"{MODEL}:predict", b'{"inputs": ["' + b"a" * (1 << 22) + b'"]}', 413),
    ],
)
def test_other_paths_and_sizes(server, path, body, expected):
    status, text = server.http(path, body)
    assert status == expected and json.loads(text)["error"]


def test_a_version_in_the_path(server):
    status, text = server.http(f"{MODEL}/versions/1:predict", {"inputs": ["a"]})
    assert status == 200 and json.loads(text)["outputs"]["text"] == ["a"]


def test_compressed_bodies(server):
    body = gzip.compress(json.dumps({"inputs": ["a"]}).encode())
    headers = {"Content-Encoding": "gzip"}
    assert server.http(f"{MODEL}:predict", body, headers)[0] == 200
    bomb = gzip.compress(b'{"inputs": ["' + b"a" * (1 << 26))
    assert server.http(f"{MODEL}:predict", bomb, headers)[0] == 413
    assert server.http(f"{MODEL}:predict", b"not gzip", headers)[0] == 400


def test_the_time_limit(server):
    status, answer = server.predict({"inputs": [20_000]}, "slow")
    assert status == 504 and "deadline" in answer["error"]
    with socket.create_connection(("127.0.0.1", server.rest_port)) as client:
        client.sendall(
            f"POST {MODEL}:predict HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n".encode()
        )
        client.settimeout(20)
        assert client.recv(100).startswith(b"HTTP/1.1 504")  # a body that never comes


def test_metrics_count_requests(server):
    def count():
        _, page = server.http("/monitoring/prometheus/metrics")
        key = 'devserver_requests_total{code="OK",method="predict",protocol="rest"}'
        found = [line.split()[-1] for line in page.splitlines() if line.startswith(key)]
        return float(found[0]), page

    server.predict({"inputs": ["a"]})
    before, _ = count()
    server.predict({"inputs": ["a"]})
    after, page = count()
    assert after >= before + 1
    assert 'devserver_request_seconds_bucket{le="0.005",method="predict",protocol="rest"}' in page
