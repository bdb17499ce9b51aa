"""The client against a stub behind the official stubs, over real sockets."""

import pickle
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import descriptor_pb2
from stub_translator import (
    LONGEST,
    SIGNATURES,
    StubTranslator,
    classify,
    complete,
    score,
    serving,
    translate,
)
from tensorflow_serving.apis import predict_pb2

from keras_tfmr.client import (
    DeadlineExceededError,
    ModelNotFoundError,
    ServingClient,
    ServingError,
    UnavailableError,
    serving_pb2,
    tensors,
)
from keras_tfmr.client import client as client_module

ROOT = Path(__file__).resolve().parents[2]
LONG = "x" * (LONGEST + 1)
TEXTS = ["bom dia", "", "olá 🙂", "שלום", "a\x01b\tc", LONG]
MANY = [f"texto {n}" for n in range(50)]
STATUS = grpc.StatusCode


@pytest.fixture
def client(address):
    with ServingClient(address) as client:
        yield client


def sizes(stub):
    """The number of texts of each request so far, in order of size; they are forgotten."""
    found = sorted(len(request.inputs["text"].string_val) for request in stub.requests)
    stub.requests.clear()
    return found


def abort_on(text, code, details="in words"):
    """What a stub does at a request with a text: fails with a status."""

    def behave(request, context):
        if text.encode() in request.inputs["text"].string_val:
            context.abort(code, details)

    return behave


def test_threads_share_a_client_and_no_text_is_harmed(client):
    answers = client.translate(TEXTS)
    assert answers == [text.upper() for text in TEXTS]
    assert [answer.truncated for answer in answers] == [False] * 5 + [True]
    np.testing.assert_allclose([a.score for a in answers], [-len(t) / 8 for t in TEXTS])
    assert client.translate([b"ol\xe1", "ol\udce1"]) == ["OL\N{REPLACEMENT CHARACTER}"] * 2
    assert client.translate([]) == [] and client.status() == [(7, "AVAILABLE", "")]
    with ThreadPoolExecutor(16) as pool:
        texts = [[f"texto {n} {k}" for k in range(n % 4 + 1)] for n in range(60)]
        for asked, found in zip(texts, pool.map(client.translate, texts), strict=True):
            assert found == [text.upper() for text in asked]


def test_each_call_of_a_translator(client, stub):
    two, empty, long = client.translate_nbest(["dois", "", LONG])
    assert two == ["DOIS", "DOIS 1", "DOIS 2"] and [one.score for one in two] == [0.0, -0.25, -0.5]
    same = pickle.loads(pickle.dumps(two[1]))
    assert (same.text, same.score, same.truncated) == ("DOIS 1", -0.25, False)
    assert empty == [""] and [one.truncated for one in long] == [True] * 3
    scores = client.score(["um", LONG], ["one", "two of them"])
    assert scores == [(-0.5, 1, False), (-1.5, 3, True)]
    first, blank = client.translate_document(["um\n\n  dois ", ""])
    pieces = [("um", "UM"), ("\n\n  ", "\n\n  "), ("dois ", "DOIS ")]
    assert (first, blank) == (("UM\n\n  DOIS ", 2, False, pieces), ("", 0, False, []))
    short, none, other = client.explain(["a b", "", "c d e"])
    assert short.source_tokens == ["▁a", "▁b"] and short.target_tokens == ["▁A", "▁B"]
    assert np.shape(short.attention) == (2, 2) and np.shape(short.attention_heads) == (2, 4, 2, 2)
    assert none.source_tokens == [] and none.attention == []
    one_ahead = np.roll(np.eye(3), 1, axis=1)
    np.testing.assert_array_equal(other.attention_heads[0][1], one_ahead)
    np.testing.assert_array_equal(other.encoder_heads[0][2], one_ahead)  # the stub's, in reverse
    stub.requests.clear()
    words = " ".join(["w"] * 100)  # 8 x 2 x 4 x 100 x 100 floats, three times: more than 4 MiB
    assert len(client.explain([words] + ["a"] * 17)[0].target_tokens) == 100
    assert sizes(stub) == [2, 8, 8]


def test_each_call_of_the_other_models():
    log_prob = {"log_prob": lambda texts: score(texts, texts)}
    stub = StubTranslator({"classify": classify, "complete": complete, **log_prob})
    with serving(stub) as address, ServingClient(address) as client:
        assert client.log_prob(["um dia"]) == [(-1.0, 2, False)]
        (answer,) = client.classify(["um dia"])
        assert answer[::2] == ("long", False)
        assert answer.probabilities == pytest.approx({"long": 0.6, "short": 0.4})
        (answer,) = client.complete(["era"], length=2, temperature=0.5, top_k=3, top_p=0.5, seed=7)
        assert answer == (" 0.5 0.5", -2.0, 2, False, False)
        sent = stub.requests[-1].inputs
        assert sent["seed"].int64_val == [7] and sent["top_k"].int_val == [3]
        assert sent["top_p"].float_val == [0.5]
        with pytest.raises(ServingError, match=r"translate.*not found"):
            client.translate(["a"])


def test_texts_are_sent_with_the_terms_that_they_may_have(address, stub):
    terms = {"gato": "Cat", "Preto": "Black", "nada": "none"}
    texts = ["um gato", "gato preto", "x", b"o preto"] * 2
    with ServingClient(address, batch_size=5) as client:
        answers = client.translate_with_terms(texts, terms)
    assert answers == ["UM Cat", "Cat PRETO", "X", "O PRETO"] * 2
    sent = sorted(([*r.inputs["terms"].string_val] for r in stub.requests), key=len)
    both, cat, black = b"gato\tCat\nPreto\tBlack", b"gato\tCat", b"Preto\tBlack"
    assert sent == [[both, b"", black], [cat, both, b"", black, cat]]


def test_a_long_list_is_sent_in_bounded_requests_and_answered_in_order(address, stub):
    running, most = set(), []

    def behave(request, context):
        running.add(id(request))
        most.append(len(running))
        time.sleep(0.01 + 0.02 * (len(stub.requests) % 2))  # later ones overtake
        running.remove(id(request))

    stub.behave = behave
    with ServingClient(address, batch_size=4) as client:
        assert client.translate(MANY) == [text.upper() for text in MANY]
    assert sizes(stub) == [2, *[4] * 12] and 1 < max(most) <= 4


def test_an_error_names_the_texts_of_its_batch_and_holds_the_answers_before(address, stub, client):
    stub.behave = abort_on("texto 20", STATUS.INTERNAL)
    batch = pytest.raises(ServingError, match=r"texts\[20:25\] of 50: .*in words")
    with ServingClient(address, batch_size=5) as small, batch as caught:
        small.translate(MANY)
    assert caught.value.code == "INTERNAL"
    assert caught.value.answers == [text.upper() for text in MANY[:20]]
    with pytest.raises(ServingError, match=r"^127[^ ]* refused the request: in words"):
        client.translate(["texto 20"])


def test_the_exception_of_a_status(address, stub):
    kinds = {
        STATUS.NOT_FOUND: ModelNotFoundError,
        STATUS.DEADLINE_EXCEEDED: DeadlineExceededError,
        STATUS.UNAVAILABLE: UnavailableError,
        STATUS.RESOURCE_EXHAUSTED: ServingError,
    }
    with ServingClient(address, retry=False) as client:
        for code, kind in kinds.items():
            stub.behave = abort_on("a", code)
            with pytest.raises(ServingError, match=f"in words.*{code.name}") as caught:
                client.translate(["a"])
            assert type(caught.value) is kind and caught.value.code == code.name
    assert len(stub.requests) == len(kinds)


@pytest.mark.parametrize("code", [STATUS.UNAVAILABLE, STATUS.RESOURCE_EXHAUSTED])
def test_a_server_that_cannot_answer_now_is_asked_again_within_the_timeout(
    address, stub, monkeypatch, code
):
    left = iter([0, 1])

    def behave(request, context):
        if next(left, None) is not None:
            context.abort(code, "just now")

    stub.behave = behave
    monkeypatch.setattr(client_module, "PAUSES", (0.01, 0.02))
    with ServingClient(address) as client:
        assert client.translate(["a"]) == ["A"] and len(stub.requests) == 3
    stub.behave = abort_on("a", code)
    monkeypatch.setattr(client_module, "PAUSES", (9.0,))
    with ServingClient(address, timeout=5) as client, pytest.raises(ServingError, match="words"):
        client.translate(["a"])
    assert len(stub.requests) == 4


def test_a_server_that_starts_later_is_found(stub):
    with socket.socket() as bound, ThreadPoolExecutor(1) as pool:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        with ServingClient(f"127.0.0.1:{port}") as client:
            asked = pool.submit(client.translate, ["a"])
            time.sleep(0.3)
            with serving(stub, port):
                assert asked.result() == ["A"]


@pytest.mark.parametrize("timeout", [0.3, 3600])
def test_a_refused_connection_is_said_whatever_the_timeout(timeout, monkeypatch):
    monkeypatch.setattr(client_module, "PAUSES", (0.1, 0.1, 0.2))
    with socket.socket() as bound:  # which does not listen
        bound.bind(("127.0.0.1", 0))
        server, start = f"127.0.0.1:{bound.getsockname()[1]}", time.monotonic()
        with ServingClient(server, timeout=timeout) as client:
            for ask in (lambda: client.translate(["a"] * 99), client.status):
                with pytest.raises(UnavailableError, match=r"Connection refused.*UNAVAILABLE"):
                    ask()
        assert time.monotonic() - start < 5


def test_timeout_and_close_end_a_call():
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(1) as pool:
        server, start = f"127.0.0.1:{silent.getsockname()[1]}", time.monotonic()
        with ServingClient(server, timeout=0.3) as client:
            with pytest.raises(DeadlineExceededError, match="gave no answer in time"):
                client.translate(["a"])
            assert 0.3 <= time.monotonic() - start < 2
            client.timeout = 30
            asked = pool.submit(client.translate, ["a"])
            time.sleep(0.2)
            client.close()
            assert asked.exception(timeout=9).code == "CANCELLED"


def test_headers_are_read_at_each_request(address, stub):
    sent = []
    stub.behave = lambda request, context: sent.append(dict(context.invocation_metadata()))
    with ServingClient(address, headers={"authorization": "Bearer a b"}) as client:
        client.translate(["a"])
        client.headers = {"authorization": "two"}  # the first has expired
        client.translate(["a"])
        assert [headers["authorization"] for headers in sent] == ["Bearer a b", "two"]
        client.headers = {"authorization": "secret\n"}
        with pytest.raises(ValueError, match="'authorization' with 7 characters") as caught:
            client.translate(["a"])
    assert "secret" not in str(caught.value)


def test_no_proxy_of_the_environment_is_asked_for_this_machine(address, stub, monkeypatch):
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    for server in (address, address.replace("127.0.0.1", "localhost")):
        with ServingClient(server, retry=False) as client:
            assert client.translate(["a"]) == ["A"]


@pytest.mark.needs("openssl")
def test_both_sides_show_a_certificate_and_anybody_else_is_refused(stub, tmp_path):
    key, pem = tmp_path / "key", tmp_path / "pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=test"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", pem]
    subprocess.run(command, check=True, capture_output=True)
    pair = key.read_bytes(), pem.read_bytes()
    credentials = grpc.ssl_server_credentials([pair], pair[1], require_client_auth=True)
    known = grpc.ssl_channel_credentials(pair[1])
    mine = grpc.ssl_channel_credentials(pair[1], *pair)
    with serving(stub, credentials=credentials) as server:
        with ServingClient(server, credentials=mine) as client:
            assert client.translate(["a"]) == ["A"]
        for other in (grpc.ssl_channel_credentials(), known, None):
            client = ServingClient(server, retry=False, credentials=other)
            with client, pytest.raises(UnavailableError):
                client.translate(["a"])


def test_answers_that_are_not_those_of_the_texts_are_refused(client, stub):
    for change, words in (
        (lambda outputs: {name: value[:1] for name, value in outputs.items()}, "1 rows.*2"),
        (lambda outputs: {"y": [b"1", b"2"]}, "lacks translation, score, truncated"),
        (lambda outputs: outputs | {"score": np.float32([0.5])}, "translate cannot be read"),
        (lambda outputs: outputs | {"score": np.float64([0.5, 1])}, "data type 2"),
        (lambda outputs: outputs | {"score": np.float32(0.5)}, "float"),
    ):
        wrong = {"translate": lambda texts, change=change: change(translate(texts))}
        stub.signatures = SIGNATURES | wrong
        with pytest.raises(ServingError, match=words):
            client.translate(["a", "b"])


WRONG_ARGUMENTS = [
    ({"version": 1, "label": "stable"}, "not both"),
    ({"timeout": float("nan")}, "timeout must be"),
    ({"timeout": 1e12}, "at most 86400 seconds"),
    ({"batch_size": 0}, "batch_size must be at least 1"),
    ({"headers": {"Authorization": "Bearer a"}}, "lower case.*'Authorization'"),
    ({"server": "https://localhost:443"}, "must be HOST:PORT"),
]
WRONG_INPUTS = [
    (lambda client: client.translate("bom dia"), TypeError, "list of str"),
    (lambda client: client.translate([1]), TypeError, "str"),
    (lambda client: client.score(["a", "b"], ["c"]), ValueError, "2 texts, 1 references"),
    (lambda client: client.translate_with_terms(["a"], {" ": "b"}), ValueError, "visible"),
    (lambda client: client.complete(["a"], length=2.5), TypeError, "length must be a whole"),
    (lambda client: client.complete(["a"], top_p=1.5), ValueError, "top_p must be from 0.0"),
]


def test_what_cannot_be_sent_is_refused_before_anything_is(client, stub):
    for options, words in WRONG_ARGUMENTS:
        with pytest.raises(ValueError, match=words):
            ServingClient(**options)
    for ask, kind, words in WRONG_INPUTS:
        with pytest.raises(kind, match=words):
            ask(client)
    for ask in (client.translate, client.translate_document, client.explain, client.complete):
        assert ask([]) == []
    assert client.score([], []) == client.translate_with_terms([], {"a": "b"}) == []
    assert stub.requests == [], "TensorFlow Serving may never answer a request without a text"


def test_generated_messages_are_those_of_the_proto_file(tmp_path):
    """Compared as descriptors: compilers of different versions lay the Python out differently."""
    source, compiled = serving_pb2.DESCRIPTOR.name, tmp_path / "compiled"
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", f"--descriptor_set_out={compiled}"]
    services = source.replace("serving.proto", "service.proto")
    subprocess.run([*command, source, services], cwd=ROOT, check=True, timeout=60)
    file, others = descriptor_pb2.FileDescriptorSet.FromString(compiled.read_bytes()).file
    assert {
        f"/{others.package}.{service.name}/{method.name}": (method.input_type, method.output_type)
        for service in others.service
        for method in service.method
    } == {
        method: tuple(f".keras_tfmr.client.{name}{end}" for end in ("Request", "Response"))
        for method, name in (
            (client_module.PREDICT, "Predict"), (client_module.STATUS, "GetModelStatus")
        )
    }  # fmt: skip
    for message in [*file.message_type, *(n for m in file.message_type for n in m.nested_type)]:
        for field in message.field:
            field.ClearField("json_name")
    committed = descriptor_pb2.FileDescriptorProto()
    serving_pb2.DESCRIPTOR.CopyToProto(committed)
    assert file == committed, f"generate it anew, as {source} says"


def test_tensors_are_the_official_ones():
    """Values in the field of their type, as the C++ server writes them, or all in one string."""
    for field, array in {
        "string_val": np.array([[b"bom", b""], [b"ol\xe1", "🙂".encode()]], object),
        "float_val": np.array([[0.5, -1.25], [3e-9, np.inf]], "float32"),
        "int_val": np.array(7, "int32"),
        "int64_val": np.array([[[1 << 60], [-1]]]),
        "bool_val": np.array([[True], [False]]),
    }.items():
        official = tf.make_tensor_proto(array)
        in_field = tf.make_tensor_proto(array)
        in_field.ClearField("tensor_content")
        in_field.ClearField(field)
        getattr(in_field, field).extend(array.ravel().tolist())
        expected = array.tolist()
        if field == "string_val":
            expected = [[one.decode("utf-8", "replace") for one in row] for row in expected]
            ours = tensors.to_proto(array[0].tolist(), "string")
            assert ours.SerializeToString() == tf.make_tensor_proto(array[0]).SerializeToString()
        for proto in (official, in_field):
            read = serving_pb2.TensorProto.FromString(proto.SerializeToString())
            assert tensors.to_lists(read) == expected


def test_requests_are_the_official_ones(address, stub):
    for which, spec in (
        ({"version": 3}, {"version": {"value": 3}}), ({"label": "b"}, {"version_label": "b"})
    ):  # fmt: skip
        with ServingClient(address, **which) as client:
            client.translate(["a"])
        spec |= {"name": "default", "signature_name": "translate"}
        inputs = {"text": tf.make_tensor_proto([b"a"])}
        assert stub.requests[-1] == predict_pb2.PredictRequest(model_spec=spec, inputs=inputs)
