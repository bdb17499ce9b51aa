"""Lists of any length, sent by both clients; what is the asynchronous one's own."""

import asyncio
import inspect
import itertools
import socket
import threading
import time

import grpc
import pytest
from stub_translator import serving

from keras_tfmr.client import AsyncServingClient, ServingClient, ServingError, UnavailableError

TEXTS = [f"texto {n}" for n in range(50)]


def ask(kind, address, texts=TEXTS, call="translate", *more, **options):
    """The answers of a client to a call."""
    if kind is ServingClient:
        with ServingClient(address, **options) as client:
            return getattr(client, call)(texts, *more)

    async def main():
        async with AsyncServingClient(address, **options) as client:
            return await getattr(client, call)(texts, *more)

    return asyncio.run(main())


both = pytest.mark.parametrize("kind", [ServingClient, AsyncServingClient])


@both
def test_a_long_list_is_sent_in_bounded_requests_and_answered_in_order(kind, address, stub):
    running, most = set(), []

    def behave(request, context):
        running.add(id(request))
        most.append(len(running))
        time.sleep(0.01 + 0.02 * (len(stub.requests) % 2))  # later requests overtake earlier ones
        running.remove(id(request))

    def sizes():
        texts = [one.inputs["text"].string_val for one in stub.requests]
        stub.requests.clear()
        return [len(some) for some in texts], [sum(map(len, some)) for some in texts]

    stub.behave = behave
    answers = ask(kind, address, batch_texts=4, in_flight=3)
    assert [one.text for one in answers] == [text.upper() for text in TEXTS]
    counts, _ = sizes()
    assert sorted(counts) == [2, *[4] * 12] and max(most) == 3
    texts = ["é" * n for n in (10, 30, 200, 5, 40, 0)]
    answers = ask(kind, address, texts, batch_bytes=100, call="translate_document", in_flight=1)
    assert [one.text for one in answers] == [text.upper() for text in texts]
    assert sizes() == ([2, 1, 3], [80, 400, 90]) and max(most) == 3
    assert len(ask(kind, address, TEXTS, call="explain")) == 50
    assert max(sizes()[0]) < 10  # their answers are large


def test_the_size_of_a_batch_may_be_that_of_a_call(address, stub):
    with ServingClient(address, batch_texts=20) as client:
        answers = client.score(TEXTS, TEXTS[::-1], batch_size=9)
        assert answers == client.score(TEXTS, TEXTS[::-1], batch_size=99)
        counts = [len(one.inputs["reference"].string_val) for one in stub.requests]
        assert sorted(counts[:6]) == [5, *[9] * 5] and sorted(counts[6:]) == [10, 20, 20]
        with pytest.raises(ValueError, match="batch_size must be at least 1"):
            client.translate(TEXTS, batch_size=0)


@both
def test_an_error_names_the_texts_of_its_batch_and_ends_the_others(kind, address, stub):
    def behave(request, context):
        if b"texto 20" in request.inputs["text"].string_val:
            context.abort(grpc.StatusCode.INTERNAL, "no luck")

    stub.behave = behave
    with pytest.raises(ServingError, match=r"texts\[20:25\] of 50: .*no luck") as caught:
        ask(kind, address, batch_texts=5, in_flight=2)
    assert caught.value.code == "INTERNAL" and len(stub.requests) < 10
    with pytest.raises(ServingError, match=r"^127.*no luck"):  # the only one needs no name
        ask(kind, address)


@both
def test_each_request_has_its_own_timeout_and_its_own_retries(kind, address, stub):
    first = itertools.count()

    def behave(request, context):
        if next(first) == 2:
            context.abort(grpc.StatusCode.UNAVAILABLE, "just now")
        time.sleep(0.2)

    stub.behave = behave
    start = time.monotonic()
    assert len(ask(kind, address, batch_texts=10, in_flight=1, timeout=0.9)) == 50
    assert time.monotonic() - start > 1 and len(stub.requests) == 6


@both
def test_pages_are_asked_in_parts(kind, address, stub):
    pages = ["<p>Um <b>gato</b>", "<title>Um</title>"]
    found = ask(kind, address, pages, call="translate_html", batch_texts=1)
    assert found == ["<p>UM <b>GATO</b>", "<title>UM</title>"] and len(stub.requests) == 2
    found = ask(kind, address, [b"Um *gato* `preto`"], call="translate_markdown")
    assert found == [b"UM *GATO* `preto`"]


@both
@pytest.mark.parametrize("rest", [False, True])
def test_texts_are_sent_with_the_terms_that_they_may_have(kind, rest, address, server, stub):
    address = f"127.0.0.1:{server.rest_port}" if rest else address
    if rest:  # the toys of the development server do not translate
        with pytest.raises(ServingError, match="translate_with_terms needs a model with slots in"):
            ask(kind, address, ["a"], "translate_with_terms", {"a": "b"}, rest=True)
        return
    terms = {"gato": "Cat", "Preto": "Black", "nada": "none"}
    texts = ["um gato", "gato preto", "x", b"o preto"] * 2
    found = ask(kind, address, texts, "translate_with_terms", terms, batch_texts=5)
    assert found == ["UM Cat", "Cat PRETO", "X", "O PRETO"] * 2
    shapes = [[d.size for d in one.inputs["terms"].tensor_shape.dim] for one in stub.requests]
    assert sorted(shapes) == [[3, 2], [5, 2]]
    stub.signatures = {"translate": stub.signatures["translate"]}
    with pytest.raises(ServingError, match=r"not found.* needs a model with slots in its vocab"):
        ask(kind, address, ["a"], "translate_with_terms", terms)


@both
def test_headers_are_the_metadata_of_each_request(kind, address, stub):
    seen = set()
    stub.behave = lambda request, context: seen.add(
        dict(context.invocation_metadata()).get("authorization")
    )
    ask(kind, address, headers={"authorization": "Bearer a b"}, batch_texts=25)
    assert seen == {"Bearer a b"} and len(stub.requests) == 2
    with ServingClient(address) as client:
        for token in ("one", "two"):  # the first has expired
            client.headers = {"authorization": token}
            client.translate(["a"])
        client.headers = {"Authorization": "three"}
        with pytest.raises(ValueError, match="lower case"):
            client.translate(["a"])
    assert seen == {"Bearer a b", "one", "two"}


def test_the_asynchronous_client_has_all_calls_of_the_other():
    for name, call in inspect.getmembers(ServingClient, inspect.isfunction):
        if not name.startswith("_"):
            other = getattr(AsyncServingClient, name)
            assert inspect.iscoroutinefunction(other) or inspect.isasyncgenfunction(other)
            assert inspect.signature(other).parameters == inspect.signature(call).parameters


@pytest.mark.parametrize("rest", [False, True])
def test_coroutines_share_a_client_without_threads(server, rest):
    async def main():
        threads = threading.active_count()
        address = f"127.0.0.1:{server.rest_port if rest else server.port}"
        async with AsyncServingClient(address, rest=rest) as client:
            found = await asyncio.gather(*(client.translate([text]) for text in TEXTS))
            assert [one.text for (one,) in found] == [text.upper() for text in TEXTS]
            assert threading.active_count() <= threads + (not rest)  # gRPC has one
            assert (
                await client.status() == [(1, "AVAILABLE", "")] and await client.translate([]) == []
            )
            with pytest.raises(TypeError, match="list of str"):
                await client.translate("bom dia")

    asyncio.run(main())


def test_a_stream_for_coroutines(address, stub):
    async def main():
        async with AsyncServingClient(address) as client:
            return [document.text async for document in client.stream_document("um\n\ndois")]

    assert asyncio.run(main()) == ["UM\n", "\n", "DOIS"]


@pytest.mark.parametrize("rest", [False, True])
def test_a_client_that_is_closed_ends_the_calls_of_its_coroutines(rest):
    async def main():
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"127.0.0.1:{silent.getsockname()[1]}"
            client = AsyncServingClient(address, rest=rest, retry=False)
            asked = asyncio.create_task(client.translate(["a"]))
            cancelled = asyncio.create_task(client.translate(["b"]))
            await asyncio.sleep(0.2)
            cancelled.cancel()
            await asyncio.sleep(0.1)
            assert cancelled.cancelled() and not asked.done()
            await client.close()
            for call in (asked, client.status()):
                with pytest.raises(ServingError, match="closed") as caught:
                    await asyncio.wait_for(call, 9)
                assert caught.value.code == "CANCELLED"

    asyncio.run(main())


def test_a_server_that_comes_later_is_waited_for(stub):
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]

        async def main():
            async with AsyncServingClient(f"127.0.0.1:{port}") as client:
                asked = asyncio.create_task(client.translate(["a"]))
                await asyncio.sleep(0.3)
                with serving(stub, port):
                    assert (await asked)[0].text == "A"
                with pytest.raises(UnavailableError):
                    client.retry = False
                    await client.translate(["a"])

        asyncio.run(main())
