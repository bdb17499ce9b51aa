"""The development server and requests that nobody planned: it refuses them and goes on."""

import re
import socket
from base64 import b64decode, b64encode

import numpy as np
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
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
often = settings(quiet, max_examples=150)


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


BODIES = [b'{"instances": ["a", {"b64": "YQ=="}]}', b'{"inputs": {"text": ["a"]}}', b"[" * 2000]
CHANGES = st.lists(st.tuples(st.integers(0, 300), st.binary(max_size=2)), max_size=8)


def changed(content, changes):
    """The bytes with no, another or two bytes in place of one."""
    content = bytearray(content)
    for place, new in changes:
        place %= len(content)
        content[place : place + 1] = new
    return bytes(content)


@often
@given(body=st.sampled_from(BODIES), changes=CHANGES, sent=st.floats(0.5, 1))
def test_changed_bytes_of_http_and_requests_that_break_off(server, body, changes, sent):
    head = f"POST {PREDICT} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
    content = changed(head.encode() + body, changes)
    with socket.create_connection(("127.0.0.1", server.rest_port), timeout=20) as client:
        client.sendall(content[: int(sent * len(content))])
        client.shutdown(socket.SHUT_WR)
        answer = client.recv(1 << 16)
    assert not answer or re.match(rb"HTTP/\d\.\d (?!500)", answer), answer


@often
@given(changes=CHANGES)
def test_changed_bytes_of_messages(server, changes):
    """Most of them are no messages any more."""
    message = request("pair", number=[1], vector=[[0.5, 2.0]]).SerializeToString()
    call = server.channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
    code, text = status_of(call, changed(message, changes))
    assert code not in ("INTERNAL", "UNKNOWN", "UNAVAILABLE"), text
