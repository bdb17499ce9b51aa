"""What a client makes of its calls, whatever the protocol: a transport in memory answers them."""

import asyncio
import inspect
import itertools
import pickle
import threading
import time

import numpy as np
import pytest
from in_memory import awaited, client
from stub_translator import HYPOTHESES, LONGEST

from keras_tfmr.client import (
    TLS,
    AsyncServingClient,
    DeadlineExceededError,
    ServingClient,
    ServingError,
    UnavailableError,
)
from keras_tfmr.signatures import calls

LONG = "x" * (LONGEST + 1)
TEXTS = [f"texto {n}" for n in range(50)]


def refuse(times, kind=UnavailableError):
    """Behaviour: the first `times` requests fail."""
    left = iter(range(times))

    async def behave(*request):
        if next(left, None) is not None:
            raise kind("in words", "UNAVAILABLE")

    return behave


def test_nbest_scores_and_explanations():
    asked, _ = client()
    two, empty, long = asked.translate_nbest(["dois", "", LONG])
    assert two == ["DOIS", "DOIS 1", "DOIS 2"]
    assert [translation.score for translation in two] == [0.0, -0.25, -0.5]
    same = pickle.loads(pickle.dumps(two[1]))
    assert (same.text, same.score, same.truncated) == ("DOIS 1", -0.25, False)
    assert [*map(repr, empty)] == ["Translation(text='', score=-0.0, truncated=False)"]
    assert [translation.truncated for translation in long] == [True] * HYPOTHESES
    scores = asked.score(["um", LONG], ["one", "two of them"])
    assert scores == [(-0.5, 1, False), (-1.5, 3, True)]
    short, empty, long = asked.explain(["a b", "", "c d e"])
    assert short.source_tokens == ["▁a", "▁b"] and short.target_tokens == ["▁A", "▁B"]
    assert np.shape(short.attention) == (2, 2) and np.shape(short.attention_heads) == (2, 4, 2, 2)
    assert empty.source_tokens == [] and empty.attention == []
    one_ahead = np.roll(np.eye(3), 1, axis=1)
    np.testing.assert_array_equal(long.attention_heads[0][1], one_ahead)
    np.testing.assert_array_equal(long.encoder_heads[0][2], one_ahead)  # the stub's, in reverse
    np.testing.assert_array_equal(long.decoder_heads[0][1], one_ahead)


def test_documents_and_streams_of_their_lines():
    asked, transport = client()
    documents = asked.translate_document(["um\n\n  dois ", "", LONG])
    pieces = [("um", "UM"), ("\n\n  ", "\n\n  "), ("dois ", "DOIS ")]
    assert documents[:2] == [("UM\n\n  DOIS ", 2, False, pieces), ("", 0, False, [])]
    assert documents[2] == (LONG.upper(), 1, True, [(LONG, LONG.upper())])
    lines = ["um\r\n", "\n", "\r", *[f"{'dois ' * 300}\n"] * 8, "quatro"]
    stream = asked.stream_document("".join(lines))
    translated = [next(stream).text]
    assert len(transport.requests) == 2  # no more than it gives
    translated += [document.text for document in stream]
    assert translated == [line.upper() for line in lines] and 4 <= len(transport.requests) <= 9
    assert [*asked.stream_document("")] == []
    assert len([*asked.stream_document("\n" * 600)]) == 600
    assert max(transport.sizes()) <= 256  # servers limit the texts of a request

    async def main():
        asked, _ = client(AsyncServingClient)
        return [document.text async for document in asked.stream_document("um\n\ndois")]

    assert asyncio.run(main()) == ["UM\n", "\n", "DOIS"]


def test_both_clients_have_each_call_of_one_declaration():
    """As coroutines and as methods that wait, with one signature, and one text for `help`."""

    def public(kind):
        members = inspect.getmembers(kind, inspect.isfunction)
        return {name: function for name, function in members if not name.startswith("_")}

    methods, coroutines = public(ServingClient), public(AsyncServingClient)
    assert methods.keys() == coroutines.keys() > {"translate", "tag", "complete", "status"}
    for name in methods.keys() - {"close", "stream_document"}:
        method, coroutine = methods[name], coroutines[name]
        assert inspect.iscoroutinefunction(coroutine) and not inspect.iscoroutinefunction(method)
        assert inspect.signature(method) == inspect.signature(coroutine)
        assert method.__doc__ == coroutine.__doc__
    asked, transport = client(batch_texts=1)
    answers, other = awaited("translate", TEXTS, batch_texts=1)
    assert answers == asked.translate(TEXTS) == [text.upper() for text in TEXTS]
    assert [r[:3] for r in other.requests] == [r[:3] for r in transport.requests]


def test_inputs_are_made_in_the_thread_that_calls(monkeypatch):
    """That of all clients would answer nobody meanwhile."""
    threads, terms_of = [], calls.with_terms

    def with_terms(*arguments):
        threads.append(threading.current_thread())
        return terms_of(*arguments)

    monkeypatch.setattr(calls, "with_terms", with_terms)
    asked, _ = client()
    asked.translate_with_terms(["a"], {"a": "b"})
    assert threads == [threading.current_thread()]


def test_a_long_list_is_sent_in_bounded_requests_and_answered_in_order():
    running, most = set(), []

    async def behave(name, inputs, *_):
        running.add(id(inputs))
        most.append(len(running))
        await asyncio.sleep(0.01 + 0.02 * (len(transport.requests) % 2))  # later ones overtake
        running.remove(id(inputs))

    asked, transport = client(batch_texts=4, in_flight=3)
    transport.behave = behave
    assert asked.translate(TEXTS) == [text.upper() for text in TEXTS]
    assert sorted(transport.sizes()) == [2, *[4] * 12] and max(most) == 3
    asked, transport = client(batch_bytes=100, in_flight=1)
    texts = ["é" * n for n in (10, 30, 200, 5, 40, 0)]
    documents = asked.translate_document(texts)
    assert [document.text for document in documents] == [text.upper() for text in texts]
    assert transport.sizes() == [2, 1, 3]
    asked.explain(TEXTS)
    assert max(transport.sizes()) < 10  # their answers are large
    asked, transport = client(batch_texts=20)
    for size, sizes in ((9, [5, *[9] * 5]), (99, [10, 20, 20])):
        asked.score(TEXTS, TEXTS[::-1], batch_size=size)
        assert sorted(transport.sizes()) == sizes
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        asked.translate(TEXTS, batch_size=0)


def test_an_error_names_the_texts_of_its_batch_and_keeps_the_answers_before_it():
    async def behave(name, inputs, *_):
        if b"texto 20" in inputs["text"]:
            raise ServingError("no luck", "INTERNAL")
        await asyncio.sleep(0.02)  # those before it are still under way

    asked, transport = client(batch_texts=5, in_flight=2)
    transport.behave = behave
    with pytest.raises(ServingError, match=r"texts\[20:25\] of 50: no luck") as caught:
        asked.translate(TEXTS)
    assert caught.value.code == "INTERNAL"
    answers = caught.value.answers
    assert answers == [text.upper() for text in TEXTS[:20]] + [None] * 30
    asked, transport = client()
    transport.behave = behave
    with pytest.raises(ServingError, match=r"^no luck") as caught:  # the only one needs no name
        asked.translate(TEXTS)
    assert caught.value.answers == []


def test_each_request_has_its_own_timeout_and_its_own_retries():
    """A server that is not available is tried again, and nothing else is."""
    first = itertools.count()

    async def behave(*request):
        if next(first) == 2:
            raise UnavailableError("just now")
        await asyncio.sleep(0.1)

    asked, transport = client(batch_texts=10, in_flight=1, timeout=0.45)
    transport.behave = behave
    assert len(asked.translate(TEXTS)) == 50 and len(transport.requests) == 6
    asked, transport = client()
    transport.behave = refuse(3)
    assert asked.translate(["a"]) == ["A"] and len(transport.requests) == 4
    asked.retry, transport.behave = False, refuse(99)
    with pytest.raises(UnavailableError, match="in words"):
        asked.translate(["a"])
    asked.retry, transport.behave = True, refuse(99, ServingError)
    with pytest.raises(ServingError, match="in words"):
        asked.translate(["a"])
    assert len(transport.requests) == 6
    asked.timeout, transport.behave = 0.3, refuse(99)
    start = time.monotonic()
    with pytest.raises((UnavailableError, DeadlineExceededError)):
        asked.translate(["a"])
    transport.behave = lambda *request: asyncio.sleep(99)
    with pytest.raises(DeadlineExceededError, match=r"in time: no answer within 0\.3 s"):
        asked.translate(["a"])
    assert 0.3 <= time.monotonic() - start < 3


def test_texts_are_sent_with_the_terms_that_they_may_have():
    terms = {"gato": "Cat", "Preto": "Black", "nada": "none"}
    texts = ["um gato", "gato preto", "x", b"o preto"] * 2
    asked, transport = client(batch_texts=5)
    answers = asked.translate_with_terms(texts, terms)
    assert answers == ["UM Cat", "Cat PRETO", "X", "O PRETO"] * 2
    shapes = sorted(np.shape(inputs["terms"]) for _, inputs, _, _ in transport.requests)
    assert shapes == [(3, 2), (5, 2)]
    del transport.signatures["translate_with_terms"]
    with pytest.raises(ServingError, match=r"not found.* needs a model with slots in its vocab"):
        asked.translate_with_terms(["a"], terms)


def test_headers_are_read_at_each_request():
    asked, transport = client(headers={"authorization": "Bearer a b"})
    asked.translate(TEXTS, batch_size=25)
    for token in ("one", "two"):  # the first has expired
        asked.headers = {"authorization": token}
        asked.translate(["a"])
    sent = [headers["authorization"] for _, _, headers, _ in transport.requests]
    assert sent == ["Bearer a b"] * 2 + ["one", "two"]
    asked.headers = {"Authorization": "three"}
    with pytest.raises(ValueError, match="lower case"):
        asked.translate(["a"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda outputs: {name: value[:1] for name, value in outputs.items()}, "1 rows to 2"),
        (lambda outputs: {"y": [1]}, "without translation, score, truncated"),  # no translator
        (lambda outputs: outputs | {"score": [0.5]}, "cannot be read"),
        (lambda outputs: outputs | {"score": [None, None], "truncated": []}, "cannot be read"),
    ],
)
def test_answers_that_are_not_those_of_the_texts_are_refused(change, words):
    asked, transport = client()
    translate = transport.signatures["translate"]
    transport.signatures["translate"] = lambda texts: change(translate(texts))
    with pytest.raises(ServingError, match=words):
        asked.translate(["a", "b"])


def test_wrong_arguments_are_refused_before_anything_is_sent():
    asked, transport = client()
    for call in (asked.translate, asked.explain):
        with pytest.raises(TypeError, match="list of str"):
            call("bom dia")
    with pytest.raises(TypeError, match="list of str"):
        awaited("translate", "bom dia")
    with pytest.raises(ValueError, match="2 texts, 1 references"):
        asked.score(["a", "b"], ["c"])
    for options in ({"length": 2.5}, {"top_k": True}, {"temperature": "1"}, {"seed": 0.5}):
        with pytest.raises(TypeError, match=next(iter(options))):
            asked.complete(["a"], **options)
    with pytest.raises(ValueError, match="length must be at least 1"):
        asked.complete(["a"], length=0)
    assert transport.requests == []


WRONG = [
    ("not both", {"version": 1, "label": "stable"}),
    ("printable name", {"model": ""}),
    ("printable name", {"model": "\ud800"}),
    ("version must be 0 to", {"version": -1}),
    ("version must be 0 to", {"version": 1 << 63}),
    ("timeout must be", {"timeout": 0}),
    ("timeout must be", {"timeout": float("nan")}),
    ("timeout must be", {"timeout": float("inf")}),
    ("max_message_bytes", {"max_message_bytes": 0}),
    ("in_flight must be", {"in_flight": 0}),
    ("lower case.*'Authorization'", {"headers": {"Authorization": "Bearer a"}}),
    ("protocol's own.*'grpc-timeout'", {"headers": {"grpc-timeout": "1S"}}),
    ("authorization must be .* 9 characters", {"headers": {"authorization": "Bearer a\n"}}),
    ("after its colon", {"server": "127.0.0.1:"}),
    ("from 1 to 65535", {"server": "127.0.0.1:99999"}),
    ("must be HOST", {"server": ""}),
    ("needs rest=True", {"server": "https://localhost"}),
    ("ftp", {"server": "ftp://localhost", "rest": True}),
    ("localhost:99999", {"server": "localhost:99999", "rest": True}),
    ("query", {"server": "http://localhost?a=b", "rest": True}),
    ("not encrypted", {"server": "http://localhost", "rest": True, "tls": TLS()}),
]


@pytest.mark.parametrize(("words", "options"), WRONG, ids=str)
def test_arguments_that_contradict_each_other_or_the_protocol(words, options):
    with pytest.raises(ValueError, match=words):
        ServingClient(**options)


@pytest.mark.parametrize("rest", [False, True])
def test_an_argument_of_another_type_is_refused_whatever_the_protocol(rest):
    """Every argument, with a value that one of the protocols would take for something."""
    wrong = {
        name: [None, b"1", 1.5, object()] for name in inspect.signature(ServingClient).parameters
    }
    wrong |= {"version": ["1", 1.0, True], "label": [1], "tls": [True, {}], "retry": [1, "no"]}
    wrong |= {"headers": [[], [("a", "b")], {"a": 1}, {b"a": "b"}, None]}
    wrong |= {"timeout": ["3", None, True], "rest": [0, "grpc"]}
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(TypeError, match=name):
                ServingClient(**{"rest": rest} | {name: value})
    with pytest.raises(ValueError, match="key"):
        TLS(cert="client.pem")
