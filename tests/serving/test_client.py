"""ServingClient against a server built with the official stubs, over real sockets."""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
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
def free_port():
    with unused_port() as port:
        yield port


@pytest.fixture(params=["grpc", "rest"])
def client(request, server):
    if request.param == "grpc":
        with ServingClient(server) as client:
            yield client
    else:
        with (
            serving_rest() as rest,
            ServingClient(rest.address, rest=True) as client,
        ):
            yield client


def refuse(times, code=grpc.StatusCode.UNAVAILABLE, text="Socket closed"):
    """Behaviour: the first `times` requests fail."""
    left = iter(range(times))

    def behave(request, context):
        if next(left, None) is not None:
            context.abort(code, text)

    return behave


def test_translations_come_back_in_order_and_unharmed(client):
    answers = client.translate(TEXTS)
    assert [answer.text for answer in answers] == [english(text) for text in TEXTS]
    assert [answer.truncated for answer in answers] == [False] * 5 + [True]
    np.testing.assert_allclose([a.score for a in answers], [-len(t) / 8 for t in TEXTS])


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
    np.testing.assert_allclose(np.sum(short.attention, -1), 1.0)
    assert empty.source_tokens == [] and empty.attention == []
    one_ahead = np.roll(np.eye(3), 1, axis=1)
    np.testing.assert_array_equal(long.attention_heads[0][1], one_ahead)
    np.testing.assert_array_equal(long.encoder_heads[0][2], one_ahead)  # the stub's, in reverse
    np.testing.assert_array_equal(long.decoder_heads[0][1], one_ahead)
    assert np.shape(short.encoder_heads) == np.shape(short.decoder_heads) == (2, 4, 2, 2)


def test_documents(client):
    found = client.translate_document(["um\n\n  dois ", "", TEXTS[-1]])
    pieces = [("um", "UM"), ("\n\n  ", "\n\n  "), ("dois ", "DOIS ")]
    assert found[:2] == [("UM\n\n  DOIS ", 2, False, pieces), ("", 0, False, [])]
    assert found[2] == (english(TEXTS[-1]), 1, True, [(TEXTS[-1], english(TEXTS[-1]))])


def test_a_document_streams_in_order_while_it_is_translated(client):
    lines = ["um\r\n", "\n", "\r", f"{'dois ' * 300}\n", f"{'três ' * 300}\n", "quatro"]
    stream = client.stream_document("".join(lines))
    assert next(stream).text == "UM\r\n"
    rest = [document.text for document in stream]
    assert ["UM\r\n", *rest] == [english(line) for line in lines]
    assert [*client.stream_document("")] == []
    (found,) = client.stream_document(b"ol\xe1")
    assert found.text == "OL\N{REPLACEMENT CHARACTER}" and found.sentences == 1


def test_a_stream_asks_for_no_more_than_it_gives(server, stub):
    with ServingClient(server) as client:
        stream = client.stream_document("".join(f"{'um ' * 300}\n" for _ in range(9)))
        next(stream)
        assert len(stub.requests) == 1
        assert len([*stream]) == 8 and 3 <= len(stub.requests) <= 5


def test_status_and_no_texts(client):
    assert client.status() == [(7, "AVAILABLE", "")]
    assert client.translate([]) == [] and client.explain([]) == []


def test_bytes_that_are_no_utf8_reach_the_server(client):
    assert client.translate([b"ol\xe1"])[0].text == "OL\N{REPLACEMENT CHARACTER}"
    assert client.translate(["ol\udce1"])[0].text == "OL\N{REPLACEMENT CHARACTER}"
    assert "\N{REPLACEMENT CHARACTER}" in client.translate(["\ud83d alone"])[0].text


def test_a_large_answer_passes(client):
    words = " ".join(["w"] * 400)  # 2 x 4 x 400 x 400 floats: beyond gRPC's default of 4 MiB
    assert len(client.explain([words])[0].target_tokens) == 400


def test_wrong_arguments_are_refused_before_anything_is_sent(client):
    with pytest.raises(TypeError, match="list of str"):
        client.translate("bom dia")
    with pytest.raises(TypeError, match="int"):
        client.translate(["bom dia", 3])
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


def test_threads_share_a_client(client):
    def ask(n):
        texts = [f"texto {n} {k}" for k in range(n % 4 + 1)]
        return [answer.text for answer in client.translate(texts)] == [english(t) for t in texts]

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(100)))


def test_unavailable_is_tried_again(server, stub, caplog):
    stub.behave = refuse(3)
    with ServingClient(server) as client:
        assert client.translate(["a"])[0].text == "A"
    assert len(stub.requests) == 4
    assert "Trying again for up to 30 s" in caplog.text


def test_who_wants_no_retry_gets_none(server, stub):
    stub.behave = refuse(99, text="queue is full")
    with (
        ServingClient(server, retry=False) as client,
        pytest.raises(UnavailableError, match="queue is full"),
    ):
        client.translate(["a"])
    assert len(stub.requests) == 1


@pytest.mark.parametrize(
    "code", ["INVALID_ARGUMENT", "INTERNAL", "RESOURCE_EXHAUSTED", "ABORTED", "UNKNOWN"]
)
def test_nothing_else_is_tried_again(server, stub, code):
    stub.behave = refuse(99, code=grpc.StatusCode[code], text="in words")
    with (
        ServingClient(server) as client,
        pytest.raises(ServingError, match=f"{code}.*in words") as caught,
    ):
        client.translate(["a"])
    assert caught.value.code == code and len(stub.requests) == 1


def test_rest_errors_are_those_of_grpc():
    answers = {503: UnavailableError, 404: ModelNotFoundError, 504: DeadlineExceededError}
    answers |= {413: MessageTooLargeError, 400: ServingError, 500: ServingError}
    for status, kind in answers.items():
        refusal = (status, {"error": "in words"})
        with (
            serving_rest(lambda handler, refusal=refusal: refusal) as rest,
            ServingClient(rest.address, rest=True, retry=False) as client,
        ):
            with pytest.raises(kind, match="in words"):
                client.translate(["a"])
            assert len(rest.answers) == 1


def test_rest_says_when_the_answer_is_not_tensorflow_servings():
    with (
        serving_rest(lambda handler: (200, ["hello"])) as rest,
        ServingClient(rest.address, rest=True) as client,
        pytest.raises(ServingError, match="hello"),
    ):
        client.translate(["a"])


def test_a_model_that_is_no_translator(server, stub, monkeypatch):
    monkeypatch.setitem(
        sys.modules["stub_translator"].SIGNATURES, "translate", lambda texts: {"y": [1]}
    )
    with ServingClient(server) as client, pytest.raises(ServingError, match=r"translation.*y"):
        client.translate(["a"])


@pytest.mark.parametrize("rest", [False, True])
def test_server_down(free_port, rest):
    with (
        ServingClient(f"127.0.0.1:{free_port}", rest=rest, timeout=0.5) as client,
        pytest.raises(UnavailableError, match=f"127.0.0.1:{free_port} does not answer"),
    ):
        client.translate(["a"])


def test_a_server_that_comes_up_is_found(free_port, stub, monkeypatch):
    refused, sleep = threading.Event(), time.sleep
    monkeypatch.setattr(time, "sleep", lambda seconds: (refused.set(), sleep(seconds)))
    with (
        ServingClient(f"127.0.0.1:{free_port}") as client,
        ThreadPoolExecutor(1) as pool,
    ):
        answer = pool.submit(client.translate, ["a"])
        assert refused.wait(30)  # it pauses before the next attempt
        with serving(stub, port=free_port):
            assert answer.result()[0].text == "A"


@pytest.mark.parametrize("rest", [False, True])
def test_deadline(server, stub, rest):
    release = threading.Event()
    stub.behave = lambda request, context: release.wait(10)
    with serving_rest(lambda handler: release.wait(10) and None) as rest_server:
        address = rest_server.address if rest else server
        with ServingClient(address, rest=rest, timeout=0.3) as client:
            start = time.monotonic()
            with pytest.raises(DeadlineExceededError, match="in time"):
                client.translate(["a"])
            assert time.monotonic() - start < 2
        release.set()


def test_deadline_covers_the_retries(server, stub):
    stub.behave = refuse(10_000)
    start = time.monotonic()
    with (
        ServingClient(server, timeout=0.5) as client,
        pytest.raises((UnavailableError, DeadlineExceededError)),
    ):
        client.translate(["a"])
    assert time.monotonic() - start < 2


def test_message_too_large(stub):
    text = "a" * 50_000
    with serving(stub, options=[("grpc.max_receive_message_length", 10_000)]) as server:
        with ServingClient(server) as client:
            with pytest.raises(MessageTooLargeError, match="10000"):
                client.translate([text])
            assert client.translate(["a"])[0].text == "A"
        with (
            ServingClient(server, max_message_bytes=1000) as client,
            pytest.raises(MessageTooLargeError, match="1000"),
        ):
            client.translate([text])
    with (
        serving_rest() as rest,
        ServingClient(rest.address, rest=True, max_message_bytes=1000) as client,
        pytest.raises(MessageTooLargeError, match="1000"),
    ):
        client.translate([text])
