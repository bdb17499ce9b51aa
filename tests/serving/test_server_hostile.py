"""The development server and requests that nobody planned: it refuses them and goes on."""

import random
import re
import socket
import time
from base64 import b64decode, b64encode

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from server_process import request, status_of

PREDICT = "/v1/models/default:predict"
TEXTS = st.binary(max_size=20) | st.sampled_from(["é🙂\0".encode(), b"\xc3"])
KEYS = st.sampled_from(["b64", "text", "x", "number", "vector"])
JSON = st.recursive(
    st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=2),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(st.sampled_from(["instances", "inputs"]), JSON, min_size=1)
quiet = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@quiet
@given(texts=st.lists(TEXTS, max_size=4))
def test_any_bytes_come_back_over_both_protocols(server, texts):
    """What was sent is what arrives: by gRPC, by columns and by rows."""
    sent = [*texts, b""]
    message = request("raw", text=tf.make_tensor_proto(np.array(sent, object)))
    answer = server.prediction.Predict(message, timeout=20)
    assert list(answer.outputs["text_bytes"].string_val) == sent
    document = [{"b64": b64encode(text).decode()} for text in sent]
    for asked, key in (("inputs", "outputs"), ("instances", "predictions")):
        status, found = server.predict({asked: document}, "raw")
        assert status == 200 and [b64decode(one["b64"]) for one in found[key]] == sent


@quiet
@given(document=DOCUMENTS, signature=st.sampled_from(["echo", "total", "pair", "types"]))
def test_any_json_has_an_answer_or_a_bad_request(server, document, signature):
    status, found = server.predict(document, signature)
    assert status in (200, 400), found
    assert ("error" in found) == (status != 200)


def fuzz_http(server, random):
    """A request with a few bytes changed, or the beginning of one, on a socket of its own."""
    body = random.choice(
        [b'{"instances": ["a", {"b64": "YQ=="}]}', b'{"inputs": {"text": ["a"]}}', b"[" * 2000]
    )
    head = f"POST {PREDICT} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    sent = bytearray(head + body)
    for _ in range(random.randrange(8)):
        place = random.randrange(len(sent))
        change = random.randrange(3)
        sent[place : place + (change > 0)] = random.randbytes(change < 2)
    with socket.create_connection(("127.0.0.1", server.rest_port), timeout=10) as client:
        client.sendall(sent[: random.randrange(len(sent) // 2, len(sent) + 1)])
        client.shutdown(socket.SHUT_WR)
        answer = client.recv(1 << 16)
    assert not answer or re.match(rb"HTTP/\d\.\d (?!500)", answer), (bytes(sent), answer)


def fuzz_grpc(server, random):
    """A call with a few bytes of its message changed, most of which are no message any more."""
    message = bytearray(request("pair", number=[1], vector=[[0.5, 2.0]]).SerializeToString())
    for _ in range(random.randrange(1, 6)):
        message[random.randrange(len(message))] = random.randrange(256)
    method = random.choice(["Predict", "GetModelMetadata"])
    call = server.channel.unary_unary(f"/tensorflow.serving.PredictionService/{method}")
    code, text = status_of(call, bytes(message), timeout=10)
    assert code not in ("INTERNAL", "UNKNOWN", "UNAVAILABLE"), (bytes(message), text)


@pytest.mark.parametrize("seconds", [2, pytest.param(300, marks=pytest.mark.slow)])
def test_changed_bytes(server, seconds):
    seed = 1 if seconds < 60 else random.randrange(1 << 32)
    rng, count, end = random.Random(seed), 0, time.monotonic() + seconds
    while time.monotonic() < end:
        rng.choice([fuzz_http, fuzz_grpc])(server, rng)
        count += 1
    assert server.predict({"inputs": ["still here"]})[1]["outputs"]["text"] == ["still here"]
    assert count > 3 * seconds, seed
