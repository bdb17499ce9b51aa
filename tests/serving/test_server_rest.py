"""The development server's REST answers against TensorFlow Serving's: codes, texts, layout."""

import gzip
import json
import urllib.request

import pytest
from server_models import three_models


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with three_models(tmp_path_factory.mktemp("server")) as running:
        yield running


REST_LAYOUTS = {
    "row": ("half", {"instances": [1.0, 2, 5.0]}, '{\n    "predictions": [3.5, 4.0, 5.5\n    ]\n}'),
    "row of rank 2": (
        "half",
        {"instances": [[1.0, 2.0], [3.0, 4.0]]},
        '{\n    "predictions": [[3.5, 4.0], [4.5, 5.0]\n    ]\n}',
    ),
    "columnar": (
        "half",
        {"inputs": [1.0, 2.0]},
        '{\n    "outputs": [\n        3.5,\n        4.0\n    ]\n}',
    ),
    "columnar scalar": ("half", {"inputs": 1.0}, '{\n    "outputs": 3.5\n}'),
    "columnar scalar string": (
        "echo",
        {"signature_name": "joined", "inputs": {"first": ["a"], "second": [{"b64": "YgA="}]}},
        '{\n    "outputs": "ab\\u0000"\n}',
    ),
    "columnar of no rows": ("half", {"inputs": []}, '{\n    "outputs": []\n}'),
    "floats": (
        "half",
        {"instances": [0.2, 17999994.0, 2e20, float("inf"), float("-inf"), float("nan")]},
        '{\n    "predictions": [3.1, 9e+06, 1e+20, Infinity, -Infinity, NaN\n    ]\n}',
    ),
    "nine digits where six do not do": (
        "half",
        {"instances": [0.2468024, 3e-7]},
        '{\n    "predictions": [3.12340117, 3.00000024\n    ]\n}',
    ),
    "named columns, unknown keys ignored": (
        "echo",
        {"signature_name": "pair", "inputs": {"number": [1], "vector": [[2, 3.5]]}, "other": 1},
        '{\n    "outputs": {\n        "sum": [\n            6.5\n        ],\n'
        '        "vector": [\n            [\n                4.0,\n                7.0\n'
        "            ]\n        ]\n    }\n}",
    ),
    "named rows": (
        "echo",
        {"instances": ["é\n", {"b64": "YWI="}]},
        '{\n    "predictions": [\n        {\n            "bytes": 3,\n'
        '            "text": "é\\n"\n        },\n        {\n            "bytes": 2,\n'
        '            "text": "ab"\n        }\n    ]\n}',
    ),
    "bytes": (
        "echo",
        {"signature_name": "raw", "instances": [{"b64": "/w=="}]},
        '{\n    "predictions": [{\n            "b64": "/w=="\n        }\n    ]\n}',
    ),
}


@pytest.mark.parametrize("case", REST_LAYOUTS)
def test_rest_layout(server, case):
    model, body, expected = REST_LAYOUTS[case]
    assert server.http(f"/v1/models/{model}:predict", body) == (200, expected)


def test_rest_strings_are_raw_bytes(server):
    body = b'{"instances": ["\xff\xc3\xa9"]}'
    status, text = server.http("/v1/models/echo:predict", body)
    assert status == 200 and b'"text": "\xff\xc3\xa9"' in text.encode("utf-8", "surrogateescape")


PREDICT, ECHO = "/v1/models/half:predict", "/v1/models/echo:predict"
ROW = "Failed to process element: "
REST_ERRORS = {
    "empty body": (PREDICT, b"", 400, "JSON Parse error: The document is empty"),
    "no JSON": (PREDICT, b"instances = [1]", 400, "JSON Parse error: Invalid value. at offset: 0"),
    "cut JSON": (PREDICT, b'{"instances": [1.0', 400, "JSON Parse error: "),
    "no object": (PREDICT, [1.0], 400, "Is not object"),
    "neither key": (PREDICT, {"x": 1}, 400, "Missing 'inputs' or 'instances' key"),
    "both keys": (PREDICT, {"inputs": [1], "instances": [1]}, 400, "expecting only one of"),
    "instances no list": (PREDICT, {"instances": 1}, 400, "Excepting 'instances' to be an list"),
    "instances empty": (PREDICT, {"instances": []}, 400, "No values in 'instances' array"),
    "signature no string": (PREDICT, {"signature_name": 100}, 400, "must be a string value."),
    "unknown signature": (
        PREDICT,
        {"signature_name": "x", "instances": [1.0]},
        400,
        'Serving signature name: "x" not found in signature def',
    ),
    "string for float": (
        PREDICT,
        {"instances": ["x"]},
        400,
        'JSON Value: "x" Type: String is not of expected type: float',
    ),
    "bool for float": (
        PREDICT,
        {"instances": [True]},
        400,
        "Type: True is not of expected type: float",
    ),
    "null": (PREDICT, {"instances": [None]}, 400, "Type: Null is not of expected type: float"),
    "float for int": (
        "/v1/models/slow:predict",
        {"instances": [1.5]},
        400,
        "JSON Value: 1.5 Type: Number is not of expected type: int32",
    ),
    "int out of range": (
        "/v1/models/slow:predict",
        {"instances": [1 << 31]},
        400,
        "is not of expected type: int32",
    ),
    "number for string": (
        ECHO,
        {"instances": [1]},
        400,
        "Type: Number is not of expected type: string",
    ),
    "int without an exact float": (
        PREDICT,
        {"instances": [(1 << 24) + 1]},
        400,
        "Cannot convert JSON value: 16777217 to float without loss of precision.",
    ),
    "rows of unequal size": (
        PREDICT,
        {"instances": [[1.0], [1.0, 2.0]]},
        400,
        f"{ROW}1 of 'instances' list. Error: INVALID_ARGUMENT: Expecting tensor size: 1 but got: 2",
    ),
    "rows of unequal shape": (
        PREDICT,
        {"instances": [[1.0, 2.0], [[1.0], [2.0]]]},
        400,
        "Expecting shape [2] but got: [2,1]",
    ),
    "ragged list": (
        PREDICT,
        {"inputs": [[1.0], [1.0, 2.0]]},
        400,
        "Encountered list at unexpected size: 2 at level: 1 expected size: 1",
    ),
    "plain list for two inputs": (
        ECHO,
        {"signature_name": "pair", "instances": [1]},
        400,
        "instances is a plain list",
    ),
    "object without a key": (
        ECHO,
        {"signature_name": "pair", "instances": [{"number": 1}]},
        400,
        "keys must be equal to: number,vector",
    ),
    "object with a foreign key": (
        ECHO,
        {"signature_name": "pair", "instances": [{"q": 1}]},
        400,
        "JSON object: does not have named input: q",
    ),
    "missing named input": (
        ECHO,
        {"signature_name": "pair", "inputs": {"number": [1]}},
        400,
        "Missing named input: vector in 'inputs' object.",
    ),
    "objects and values mixed": (
        PREDICT,
        {"instances": [1.0, {"x": 1.0}]},
        400,
        "Expecting value/list but got object at item 1 of input list",
    ),
    "bytes for one of two inputs": (
        ECHO,
        {"signature_name": "joined", "instances": [{"b64": "YQ=="}]},
        400,
        "input size does not match signature: 1!=2",
    ),
    "no base64": (ECHO, {"instances": [{"b64": "a"}]}, 400, "Unable to base64 decode"),
    "half a surrogate pair": (
        ECHO,
        b'{"instances": ["\\\\ud83d\\ude42", "\\ud800"]}',
        400,
        "JSON Parse error: The surrogate pair in string is invalid. at offset: ",
    ),
    "the other half": (ECHO, b'{"instances": ["\\udc80"]}', 400, "surrogate pair"),
    "half a pair in a name": (PREDICT, b'{"instances": [{"\\ud800": 1}]}', 400, "surrogate pair"),
    "a name that is not UTF-8": (
        PREDICT,
        b'{"instances": [{"\xff": 1}]}',
        400,
        "named input: \udcff",
    ),
    "a signature that is not UTF-8": (
        PREDICT,
        b'{"signature_name": "\xff", "instances": [1]}',
        400,
        'Serving signature name: "\udcff" not found in signature def',
    ),
    "nested deeply": (
        PREDICT,
        b'{"instances": ' + b"[" * 500_000 + b"]" * 500_000 + b"}",
        400,
        "JSON Parse error",
    ),
    "nested as deeply as it parses": (
        PREDICT,
        b'{"instances": ' + b"[" * 900 + b"]" * 900 + b"}",
        400,
        f"{ROW}0 of 'instances' list. Error: INVALID_ARGUMENT: JSON Value: lists within lists to "
        "level 899",
    ),
    "a name of megabytes": (
        PREDICT,
        {"instances": [{"q" * (3 << 20): 1}]},
        400,
        "...TRUNCATED",
    ),
    "a number of a million digits": (
        PREDICT,
        b'{"instances": [' + b"9" * 1_000_000 + b"]}",
        400,
        "JSON Parse error",
    ),
    "scalar output by rows": (
        ECHO,
        {"signature_name": "total", "instances": [1.0]},
        400,
        "Tensor name: total has no shape information ",
    ),
    "unknown model": (
        "/v1/models/x:predict",
        {"instances": [1]},
        404,
        "Servable not found for request: Latest(x)",
    ),
    "unknown version": (
        "/v1/models/half/versions/7:predict",
        {"instances": [1.0]},
        404,
        "Servable not found for request: Specific(half, 7)",
    ),
    "unknown label": (
        "/v1/models/half/labels/x:predict",
        {"instances": [1.0]},
        400,
        "Unrecognized servable version label: x",
    ),
    "unknown method": (
        "/v1/models/half:guess",
        {},
        400,
        "Malformed request: POST /v1/models/half:guess",
    ),
    "GET of predict": (PREDICT, None, 400, f"Malformed request: GET {PREDICT}"),
    "POST of status": ("/v1/models/half", {}, 400, "Malformed request: POST /v1/models/half"),
    "no model": ("/v1/models", None, 400, "Missing model name in request."),
    "malformed path": ("/v1/foo", None, 400, "Malformed request: GET /v1/foo"),
    "status of unknown": ("/v1/models/x", None, 404, "Could not find any versions of model x"),
}


@pytest.mark.parametrize("case", REST_ERRORS)
def test_rest_errors(server, case):
    path, body, expected_status, expected_text = REST_ERRORS[case]
    status, text = server.http(path, body)
    assert status == expected_status
    assert expected_text in json.loads(text)["error"]


def test_rest_paths(server):
    assert server.http("/") == (404, "")
    assert server.http("/statuspage") == (404, "")
    too_large = "/v1/models/half/versions/99999999999999999999:predict"
    assert server.http(too_large, {"instances": [1]}) == (400, "")
    for path in (
        "/v1/models/half/versions/1:predict",
        "/V1/Models/half/labels/stable:PREDICT",
        "/v1/models/%68alf/versions/1:predict",
    ):
        assert server.http(path, {"instances": [1.0]}) == (
            200,
            '{\n    "predictions": [2.5\n    ]\n}',
        )


def test_rest_status_and_metadata(server):
    status, text = server.http("/v1/models/half/versions/1")
    assert status == 200 and json.loads(text) == {
        "model_version_status": [
            {
                "version": "1",
                "state": "AVAILABLE",
                "status": {"error_code": "OK", "error_message": ""},
            }
        ]
    }
    status, text = server.http("/v1/models/half/metadata")
    metadata = json.loads(text)
    assert metadata["model_spec"] == {"name": "half", "signature_name": "", "version": "2"}
    signature = metadata["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert signature["defaults"] == {}
    assert signature["inputs"]["x"]["tensor_shape"] == {
        "dim": [{"size": "-1", "name": ""}],
        "unknown_rank": False,
    }


def test_rest_gzip_and_cors(server):
    body = gzip.compress(b'{"instances": [1.0]}')
    headers = {"Content-Encoding": "gzip"}
    assert server.http(PREDICT, body, headers)[0] == 200
    assert server.http(PREDICT, b"no gzip", headers)[0] == 400
    url = f"http://127.0.0.1:{server.rest_port}/v1/models/half"
    with urllib.request.urlopen(url) as response:
        assert response.headers["Access-Control-Allow-Origin"] == "*"
        assert response.headers["Content-Type"].startswith("application/json")


def test_rest_timeout(server):
    status, text = server.http("/v1/models/slow:predict", {"instances": [2_000_000_000]})
    assert status == 504 and "error" in json.loads(text)
