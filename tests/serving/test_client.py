"""ServingClient against a server built with the official stubs, over real sockets."""

import contextlib
import http.server
import json
import pickle
import socket
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest
import stub_translator
from stub_translator import HYPOTHESES, LONGEST, serving, unused_port

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


@contextlib.contextmanager
def http_server(*parts, encoding="identity", seconds=0, tls=None):
    """A server that answers every request with these bytes, pausing between them: `HOST:PORT`."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            with contextlib.suppress(OSError):  # the client has hung up
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: %b\r\n" % encoding.encode())
                for part in parts:
                    self.wfile.write(part)
                    time.sleep(seconds)

        do_GET = do_POST  # noqa: N815

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


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
    assert two == ["DOIS", "DOIS 1", "DOIS 2"] and [one.score for one in two] == [0.0, -0.25, -0.5]
    same = pickle.loads(pickle.dumps(two[1]))
    assert (same.text, same.score, same.truncated) == ("DOIS 1", -0.25, False)
    assert [repr(one) for one in empty] == ["Translation(text='', score=-0.0, truncated=False)"]
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
    assert found == [line.upper() for line in lines] and 4 <= len(stub.requests) <= 9
    assert [*client.stream_document("")] == []
    assert len([*client.stream_document("\n" * 600)]) == 600  # servers limit the texts of a request
    assert max(one.inputs["text"].tensor_shape.dim[0].size for one in stub.requests) <= 256


def test_wrong_arguments_are_refused_before_anything_is_sent(client, stub):
    with pytest.raises(TypeError, match="list of str"):
        client.translate("bom dia")
    with pytest.raises(ValueError, match="2 texts, 1 references"):
        client.score(["a", "b"], ["c"])
    assert stub.requests == []


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("not both", {"version": 1, "label": "stable"}),
        ("must have a name", {"model": ""}),
        ("timeout must be", {"timeout": 0}),
        ("timeout must be", {"timeout": float("nan")}),
        ("timeout must be", {"timeout": float("inf")}),
        ("max_message_bytes", {"max_message_bytes": 0}),
        ("in_flight must be", {"in_flight": 0}),
        ("lower case.*'Authorization'", {"headers": {"Authorization": "Bearer a"}}),
        ("protocol's own.*'grpc-timeout'", {"headers": {"grpc-timeout": "1S"}}),
        ("authorization must be .* 9 characters", {"headers": {"authorization": "Bearer a\n"}}),
        ("needs rest=True", {"server": "https://localhost"}),
        ("ftp", {"server": "ftp://localhost", "rest": True}),
        ("localhost:99999", {"server": "localhost:99999", "rest": True}),
        ("query", {"server": "http://localhost?a=b", "rest": True}),
        ("not encrypted", {"server": "http://localhost", "rest": True, "tls": TLS()}),
    ],
)
def test_arguments_that_contradict_each_other_or_the_protocol(words, options):
    with pytest.raises(ValueError, match=words):
        ServingClient(**options)


def test_a_certificate_needs_its_key():
    with pytest.raises(ValueError, match="key"):
        TLS(cert="client.pem")


def test_unavailable_is_tried_again_unless_one_wants_no_retry(client, address, stub):
    stub.behave = refuse(3)
    assert client.translate(["a"])[0].text == "A" and len(stub.requests) == 4
    stub.behave = refuse(99)
    refused(UnavailableError, "in words", address, retry=False)
    assert len(stub.requests) == 5
    start = time.monotonic()
    refused((UnavailableError, DeadlineExceededError), ".", address, timeout=0.5)
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


STATUS = {"model_version_status": [{"version": "1", "state": "AVAILABLE"}]}


def columns(**changed):
    """An answer to two texts, with other columns."""
    rows = {"translation": ["A", "B"], "score": [0.5, 0.5], "truncated": [False, False]}
    return {"outputs": rows | changed}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"hello", "TensorFlow Serving's JSON.*hello"),
        (["hello"], "TensorFlow Serving's JSON.*hello"),
        (STATUS, "TensorFlow Serving's JSON.*AVAILABLE"),
        (b"[" * 100_000, "TensorFlow Serving's JSON"),
        ({"outputs": ["A", "B"]}, "without translation, score, truncated"),
        (columns(score=[0.5]), "cannot be read"),
        (columns(score=None), "cannot be read"),
        ({"outputs": {"translation": ["A"], "score": [0], "truncated": [False]}}, "1 rows to 2"),
    ],
    ids=str,
)
def test_rest_refuses_answers_that_are_not_those_of_the_texts(answer, words):
    answer = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    with http_server(b"\r\n", answer) as address:
        client = ServingClient(address, rest=True)
        with client, pytest.raises(ServingError, match=words):
            client.translate(["a", "b"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda outputs: {name: value[:1] for name, value in outputs.items()}, "1 rows to 2"),
        (lambda outputs: {"y": [1]}, "without translation, score, truncated"),  # no translator
    ],
)
def test_grpc_refuses_them_too(address, monkeypatch, change, words):
    signatures, translate = stub_translator.SIGNATURES, stub_translator.translate
    monkeypatch.setitem(signatures, "translate", lambda texts: change(translate(texts)))
    with ServingClient(address) as client, pytest.raises(ServingError, match=words):
        client.translate(["a", "b"])


def test_rest_says_so_when_a_status_or_an_encoding_is_broken():
    with http_server(b"\r\n", b'{"model_version_status": [{"version": "x"}]}') as address:
        client = ServingClient(address, rest=True)
        with client, pytest.raises(ServingError, match="TensorFlow Serving's JSON"):
            client.status()
    with http_server(b"\r\n", b"no gzip", encoding="gzip") as address:
        refused(ServingError, "decompress", address, rest=True)


@pytest.mark.parametrize("head", [[], [b"\r\n"]], ids=["in the head", "in the body"])
def test_the_timeout_is_that_of_the_whole_call(head):
    """A server that sends a byte now and then does not prolong it."""
    with http_server(*head, *[b"X"] * 40, seconds=0.1) as address:
        start = time.monotonic()
        refused(DeadlineExceededError, "in time", address, rest=True, timeout=0.5)
        assert 0.5 <= time.monotonic() - start < 2


def test_a_client_that_is_closed_ends_its_calls_and_its_thread():
    before = threading.active_count()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = ServingClient(f"127.0.0.1:{silent.getsockname()[1]}", rest=True)
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(client.translate, ["a"])
            connection, _ = silent.accept()
            connection.recv(9)
            client.close()
            assert asked.exception(timeout=9).code == "CANCELLED"
    with pytest.raises(ServingError, match="closed"):
        client.status()
    end = time.monotonic() + 9
    while threading.active_count() > before:
        assert time.monotonic() < end


@pytest.mark.parametrize("rest", [False, True])
def test_both_sides_show_a_certificate_and_anybody_else_is_refused(rest, stub, certificates):
    files, own = certificates, [certificates["client.pem"], certificates["client.key"]]
    pem = {name: Path(path).read_bytes() for name, path in files.items()}
    credentials = grpc.ssl_server_credentials(
        [(pem["server.key"], pem["server.pem"])], pem["ca.pem"], require_client_auth=True
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=files["ca.pem"])
    context.load_cert_chain(files["server.pem"], files["server.key"])
    context.verify_mode = ssl.CERT_REQUIRED
    row = {"translation": ["A"], "score": [0.5], "truncated": [False]}
    answer = b"\r\n", json.dumps({"outputs": row}).encode()
    both = http_server(*answer, tls=context), serving(stub, credentials=credentials)
    name = "translator.test"
    with both[0 if rest else 1] as server:

        def ask(**options):
            with ServingClient(server, rest=rest, retry=False, **options) as client:
                return client.translate(["a"])[0].text

        assert ask(tls=TLS(files["ca.pem"], *own, name)) == "A"
        wrong_name, unknown_authority = TLS(files["ca.pem"], *own), TLS(None, *own, name)
        no_certificates = [] if rest else [TLS(files["ca.key"])]
        for tls in (wrong_name, unknown_authority, *no_certificates):
            with pytest.raises(ServingError, match="UNAUTHENTICATED"):
                ask(tls=tls)
        with pytest.raises(ServingError, match="certificate"):  # the server hangs up
            ask(tls=TLS(files["ca.pem"], server_name=name))
        with pytest.raises(ServingError):
            ask(tls=None)
