"""ServingClient against a server built with the official stubs, over real sockets."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
import stub_translator
from stub_translator import (
    HYPOTHESES,
    LONGEST,
    StubTranslator,
    english,
    hypothesis,
    serving,
    serving_rest,
    unused_port,
)

from keras_tfmr.client import (
    TLS,
    DeadlineExceededError,
    MessageTooLargeError,
    ModelNotFoundError,
    ServingClient,
    ServingError,
    UnavailableError,
)

TEXTS = ["bom dia", "", "olá 🙂", "שלום", "a\x00b\tc", "x" * (LONGEST + 1)]


@pytest.fixture
def stub():
    return StubTranslator()


@pytest.fixture
def server(stub):
    with serving(stub) as address:
        yield address


@pytest.fixture
def grpc_client(server):
    with ServingClient(server) as client:
        yield client


@pytest.fixture(params=["grpc", "rest"])
def client(request):
    if request.param == "grpc":
        yield request.getfixturevalue("grpc_client")
    else:
        with serving_rest() as rest, ServingClient(rest.address, rest=True) as client:
            yield client


def refused(kind, words, address, text="a", **options):
    """The error that a translation ends with."""
    with ServingClient(address, **options) as client, pytest.raises(kind, match=words) as caught:
        client.translate([text])
    return caught.value


def refuse(times, code="UNAVAILABLE", text="in words"):
    """Behaviour: the first `times` requests fail."""
    left = iter(range(times))

    def behave(request, context):
        if next(left, None) is not None:
            context.abort(grpc.StatusCode[code], text)

    return behave


def test_translations_come_back_in_order_and_unharmed(client):
    answers = client.translate(TEXTS)
    assert [answer.text for answer in answers] == [english(text) for text in TEXTS]
    assert [answer.truncated for answer in answers] == [False] * 5 + [True]
    np.testing.assert_allclose([a.score for a in answers], [-len(t) / 8 for t in TEXTS])
    not_utf8 = client.translate([b"ol\xe1", "ol\udce1", "\ud83d alone"])
    assert [answer.text[:3] for answer in not_utf8[:2]] == ["OL\N{REPLACEMENT CHARACTER}"] * 2
    assert "\N{REPLACEMENT CHARACTER}" in not_utf8[2].text
    assert client.translate([]) == [] and client.status() == [(7, "AVAILABLE", "")]


def test_nbest_scores_and_explanations(client):
    two, empty, long = client.translate_nbest(["dois", "", TEXTS[-1]])
    assert two == [(hypothesis("dois", n), -n / 4, False) for n in range(HYPOTHESES)]
    assert empty == [("", 0.0, False)]
    assert [one.truncated for one in long] == [True] * HYPOTHESES
    scores = client.score(["um", TEXTS[-1]], ["one", "two of them"])
    assert scores == [(-0.5, 1, False), (-1.5, 3, True)]
    short, empty, long = client.explain(["a b", "", "c d e"])
    assert short.source_tokens == ["▁a", "▁b"] and short.target_tokens == ["▁A", "▁B"]
    assert np.shape(short.attention) == (2, 2) and np.shape(short.attention_heads) == (2, 4, 2, 2)
    assert empty.source_tokens == [] and empty.attention == []
    one_ahead = np.roll(np.eye(3), 1, axis=1)
    np.testing.assert_array_equal(long.attention_heads[0][1], one_ahead)
    np.testing.assert_array_equal(long.encoder_heads[0][2], one_ahead)  # the stub's, in reverse
    np.testing.assert_array_equal(long.decoder_heads[0][1], one_ahead)


def test_documents(client):
    found = client.translate_document(["um\n\n  dois ", "", TEXTS[-1]])
    pieces = [("um", "UM"), ("\n\n  ", "\n\n  "), ("dois ", "DOIS ")]
    assert found[:2] == [("UM\n\n  DOIS ", 2, False, pieces), ("", 0, False, [])]
    assert found[2] == (english(TEXTS[-1]), 1, True, [(TEXTS[-1], english(TEXTS[-1]))])


def test_a_document_streams_in_order_while_it_is_translated(grpc_client, stub):
    lines = ["um\r\n", "\n", "\r", *[f"{'dois ' * 300}\n"] * 8, "quatro"]
    stream = grpc_client.stream_document("".join(lines))
    found = [next(stream).text]
    assert len(stub.requests) == 1  # no more than it gives
    found += [document.text for document in stream]
    assert found == [english(line) for line in lines] and 3 <= len(stub.requests) <= 7
    assert [*grpc_client.stream_document("")] == []


def test_a_large_answer_passes(grpc_client):
    words = " ".join(["w"] * 400)  # 2 x 4 x 400 x 400 floats: beyond gRPC's default of 4 MiB
    assert len(grpc_client.explain([words])[0].target_tokens) == 400


def test_wrong_arguments_are_refused_before_anything_is_sent(grpc_client, stub):
    with pytest.raises(TypeError, match="list of str"):
        grpc_client.translate("bom dia")
    with pytest.raises(ValueError, match="2 texts, 1 references"):
        grpc_client.score(["a", "b"], ["c"])
    with pytest.raises(ValueError, match="not both"):
        ServingClient(version=1, label="stable")
    with pytest.raises(ValueError, match="key"):
        TLS(cert="client.pem")
    with pytest.raises(ValueError, match="ftp"):
        ServingClient("ftp://127.0.0.1", rest=True)
    with pytest.raises(ValueError, match="timeout must be"):
        ServingClient(timeout=0)
    assert stub.requests == []


def test_threads_share_a_client(client):
    def ask(n):
        texts = [f"texto {n} {k}" for k in range(n % 4 + 1)]
        return [answer.text for answer in client.translate(texts)] == [english(t) for t in texts]

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(60)))


def test_unavailable_is_tried_again_unless_one_wants_no_retry(grpc_client, server, stub):
    stub.behave = refuse(3)
    assert grpc_client.translate(["a"])[0].text == "A" and len(stub.requests) == 4
    stub.behave = refuse(99)
    refused(UnavailableError, "in words", server, retry=False)
    assert len(stub.requests) == 5


@pytest.mark.parametrize("code", ["INVALID_ARGUMENT", "INTERNAL", "RESOURCE_EXHAUSTED"])
def test_nothing_else_is_tried_again(server, stub, code):
    stub.behave = refuse(99, code)
    assert refused(ServingError, f"{code}.*in words", server).code == code
    assert len(stub.requests) == 1


def test_rest_errors_are_those_of_grpc():
    errors = {503: UnavailableError, 404: ModelNotFoundError, 504: DeadlineExceededError}
    errors |= {413: MessageTooLargeError, 400: ServingError, 500: ServingError}
    with serving_rest() as rest:
        for status, kind in errors.items():
            rest.behave = lambda status=status: (status, {"error": "in words"})
            refused(kind, "in words", rest.address, rest=True, retry=False)
        assert rest.answers == [*errors]
        rest.behave = lambda: (200, ["hello"])  # not TensorFlow Serving
        refused(ServingError, "hello", rest.address, rest=True)


def test_a_model_that_is_no_translator(server, monkeypatch):
    monkeypatch.setitem(stub_translator.SIGNATURES, "translate", lambda texts: {"y": [1]})
    refused(ServingError, "translation.*y", server)


@pytest.mark.parametrize("rest", [False, True])
def test_server_down(rest):
    with unused_port() as port:
        address = f"127.0.0.1:{port}"
        options = {"rest": rest, "timeout": 0.5}
        refused(UnavailableError, f"{address} does not answer", address, **options)


def test_a_server_that_comes_up_is_found(stub):
    with (
        unused_port() as port,
        ServingClient(f"127.0.0.1:{port}") as client,
        ThreadPoolExecutor(1) as pool,
    ):
        answer = pool.submit(client.translate, ["a"])
        time.sleep(0.3)
        with serving(stub, port=port):
            assert answer.result()[0].text == "A"


@pytest.mark.parametrize("rest", [False, True])
def test_deadline(server, stub, rest):
    release = threading.Event()
    stub.behave = lambda request, context: release.wait(10)
    with serving_rest(lambda: release.wait(10) and None) as rest_server:
        address = rest_server.address if rest else server
        start = time.monotonic()
        options = {"rest": rest, "timeout": 0.3}
        refused(DeadlineExceededError, "in time", address, **options)
        assert time.monotonic() - start < 2
        release.set()


def test_deadline_covers_the_retries(server, stub):
    stub.behave = refuse(10_000)
    start = time.monotonic()
    kinds = (UnavailableError, DeadlineExceededError)
    refused(kinds, "", server, timeout=0.5)
    assert time.monotonic() - start < 2 and len(stub.requests) > 1


def test_message_too_large(server, stub):
    long = "a" * 5000
    with serving(stub, options=[("grpc.max_receive_message_length", 1000)]) as small:
        refused(MessageTooLargeError, "1000", small, long)
    with serving_rest() as rest:
        for address, over_rest in ((server, False), (rest.address, True)):
            options = {"rest": over_rest, "max_message_bytes": 1000}
            refused(MessageTooLargeError, "1000", address, long, **options)
