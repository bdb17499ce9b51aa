"""ServingClient against a server built with the official stubs, over real sockets."""

import http.server
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
import stub_translator
from stub_translator import HYPOTHESES, LONGEST, unused_port

from keras_tfmr.client import (
    TLS,
    DeadlineExceededError,
    MessageTooLargeError,
    ModelNotFoundError,
    ServingClient,
    ServingError,
    Target,
    UnavailableError,
)
from keras_tfmr.client.connection import from_http_status

LONG = "x" * (LONGEST + 1)
TEXTS = ["bom dia", "", "olá 🙂", "שלום", "a\x01b\tc", LONG]


@pytest.fixture
def client(address):
    with ServingClient(address) as client:
        yield client


def refused(kind, words, address, text="a", **options):
    """The error that a translation ends with."""
    with ServingClient(address, **options) as client, pytest.raises(kind, match=words) as caught:
        client.translate([text])
    return caught.value


def refuse(times, code="UNAVAILABLE"):
    """Behaviour: the first `times` requests fail."""
    left = iter(range(times))

    def behave(request, context):
        if next(left, None) is not None:
            context.abort(grpc.StatusCode[code], "in words")

    return behave


@pytest.mark.parametrize("rest", [False, True])
def test_translations_come_back_in_order_and_unharmed(address, server, rest):
    """Over gRPC from the stub, over REST from the development server."""
    address = f"127.0.0.1:{server.rest_port}" if rest else address
    with ServingClient(address, rest=rest) as client:
        answers = client.translate(TEXTS)
        assert [answer.text for answer in answers] == [text.upper() for text in TEXTS]
        assert [answer.truncated for answer in answers] == [False] * 5 + [True]
        np.testing.assert_allclose([a.score for a in answers], [-len(t) / 8 for t in TEXTS])
        for not_utf8 in (b"ol\xe1", "ol\udce1"):
            assert client.translate([not_utf8])[0].text == "OL\N{REPLACEMENT CHARACTER}"
        assert client.translate([]) == []
        assert client.status() == [(1 if rest else 7, "AVAILABLE", "")]
        with ThreadPoolExecutor(16) as pool:
            texts = [[f"texto {n} {k}" for k in range(n % 4 + 1)] for n in range(60)]
            for asked, found in zip(texts, pool.map(client.translate, texts), strict=True):
                assert [answer.text for answer in found] == [text.upper() for text in asked]


def test_nbest_scores_and_explanations(client):
    two, empty, long = client.translate_nbest(["dois", "", LONG])
    assert two == [("DOIS", 0.0, False), ("DOIS 1", -0.25, False), ("DOIS 2", -0.5, False)]
    assert empty == [("", 0.0, False)]
    assert [one.truncated for one in long] == [True] * HYPOTHESES
    scores = client.score(["um", LONG], ["one", "two of them"])
    assert scores == [(-0.5, 1, False), (-1.5, 3, True)]
    short, empty, long = client.explain(["a b", "", "c d e"])
    assert short.source_tokens == ["▁a", "▁b"] and short.target_tokens == ["▁A", "▁B"]
    assert np.shape(short.attention) == (2, 2) and np.shape(short.attention_heads) == (2, 4, 2, 2)
    assert empty.source_tokens == [] and empty.attention == []
    one_ahead = np.roll(np.eye(3), 1, axis=1)
    np.testing.assert_array_equal(long.attention_heads[0][1], one_ahead)
    np.testing.assert_array_equal(long.encoder_heads[0][2], one_ahead)  # the stub's, in reverse
    np.testing.assert_array_equal(long.decoder_heads[0][1], one_ahead)
    words = " ".join(["w"] * 400)  # 2 x 4 x 400 x 400 floats: beyond gRPC's default of 4 MiB
    assert len(client.explain([words])[0].target_tokens) == 400


def test_documents_and_streams_of_their_lines(client, stub):
    found = client.translate_document(["um\n\n  dois ", "", LONG])
    pieces = [("um", "UM"), ("\n\n  ", "\n\n  "), ("dois ", "DOIS ")]
    assert found[:2] == [("UM\n\n  DOIS ", 2, False, pieces), ("", 0, False, [])]
    assert found[2] == (LONG.upper(), 1, True, [(LONG, LONG.upper())])
    lines = ["um\r\n", "\n", "\r", *[f"{'dois ' * 300}\n"] * 8, "quatro"]
    stream = client.stream_document("".join(lines))
    found = [next(stream).text]
    assert len(stub.requests) == 2  # no more than it gives
    found += [document.text for document in stream]
    assert found == [line.upper() for line in lines] and 4 <= len(stub.requests) <= 8
    assert [*client.stream_document("")] == []


def test_wrong_arguments_are_refused_before_anything_is_sent(client, stub):
    with pytest.raises(TypeError, match="list of str"):
        client.translate("bom dia")
    with pytest.raises(ValueError, match="2 texts, 1 references"):
        client.score(["a", "b"], ["c"])
    with pytest.raises(ValueError, match="not both"):
        ServingClient(version=1, label="stable")
    with pytest.raises(ValueError, match="key"):
        TLS(cert="client.pem")
    with pytest.raises(ValueError, match="ftp"):
        ServingClient("ftp://127.0.0.1", rest=True)
    with pytest.raises(ValueError, match="timeout must be"):
        ServingClient(timeout=0)
    assert stub.requests == []


def test_unavailable_is_tried_again_unless_one_wants_no_retry(client, address, stub):
    stub.behave = refuse(3)
    assert client.translate(["a"])[0].text == "A" and len(stub.requests) == 4
    stub.behave = refuse(99)
    refused(UnavailableError, "in words", address, retry=False)
    assert len(stub.requests) == 5
    start = time.monotonic()
    refused((UnavailableError, DeadlineExceededError), "", address, timeout=0.5)
    assert time.monotonic() - start < 2 and len(stub.requests) > 6


@pytest.mark.parametrize("code", ["INVALID_ARGUMENT", "INTERNAL", "RESOURCE_EXHAUSTED"])
def test_nothing_else_is_tried_again(address, stub, code):
    stub.behave = refuse(99, code)
    assert refused(ServingError, f"{code}.*in words", address).code == code
    assert len(stub.requests) == 1


def test_rest_errors_are_those_of_grpc(server):
    errors = {503: UnavailableError, 404: ModelNotFoundError, 504: DeadlineExceededError}
    for status, kind in {**errors, 413: MessageTooLargeError, 400: ServingError}.items():
        error = from_http_status(status, "in words", Target("host"))
        assert type(error) is kind and "in words" in str(error)
    address = f"127.0.0.1:{server.rest_port}"
    refused(ModelNotFoundError, "only model is default", address, rest=True, model="other")
    refused(MessageTooLargeError, "the server accepts", address, "a" * (1 << 20), rest=True)
    refused(MessageTooLargeError, "1000", address, "a" * 999, rest=True, max_message_bytes=1000)
    with unused_port() as port:
        address = f"127.0.0.1:{port}"
        refused(UnavailableError, f"{address} does not answer", address, rest=True, timeout=0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address, start = f"127.0.0.1:{silent.getsockname()[1]}", time.monotonic()
        refused(DeadlineExceededError, "in time", address, rest=True, timeout=0.3)
        assert time.monotonic() - start < 2


@pytest.mark.parametrize("body", [b"hello", b'["hello"]', b'{"hello": 1}'])
def test_rest_says_when_the_answer_is_not_tensorflow_servings(body):
    class Other(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

    with http.server.HTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.handle_request).start()
        address = f"127.0.0.1:{other.server_port}"
        refused(ServingError, "TensorFlow Serving's JSON.*hello", address, rest=True)


def test_a_model_that_is_no_translator(address, monkeypatch):
    monkeypatch.setitem(stub_translator.SIGNATURES, "translate", lambda texts: {"y": [1]})
    refused(ServingError, "translation.*y", address)
