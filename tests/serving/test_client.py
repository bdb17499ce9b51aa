"""The clients on the wire, over gRPC and REST: sockets, errors, certificates, loops and forks."""

import asyncio
import contextlib
import gc
import http.server
import json
import socket
import ssl
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest
from stub_translator import LONGEST, serving, unused_port

from keras_tfmr.client import (
    TLS,
    AsyncServingClient,
    DeadlineExceededError,
    MessageTooLargeError,
    ModelNotFoundError,
    ServingClient,
    ServingError,
    Target,
    UnavailableError,
    background,
)
from keras_tfmr.client.connection import from_http_status

protocols = pytest.mark.parametrize("rest", [False, True], ids=["gRPC", "REST"])
LONG = "x" * (LONGEST + 1)
TEXTS = ["bom dia", "", "olá 🙂", "שלום", "a\x01b\tc", LONG]


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


def port_of(server, rest):
    return server.rest_port if rest else server.port


@protocols
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
            for asked, answers in zip(texts, pool.map(client.translate, texts), strict=True):
                assert answers == [text.upper() for text in asked]
        if not rest:
            words = " ".join(["w"] * 400)  # 2 x 4 x 400 x 400 floats: gRPC's default is 4 MiB
            assert len(client.explain([words])[0].target_tokens) == 400


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
    with silent_server() as address:
        start = time.monotonic()
        refused(DeadlineExceededError, "in time", address, rest=True, timeout=0.3)
        assert time.monotonic() - start < 2


def test_rest_refuses_what_is_not_json_of_tensorflow_serving():
    status = {"model_version_status": [{"version": "1", "state": "AVAILABLE"}]}
    for answer, words in (
        (b"hello", "TensorFlow Serving's JSON.*hello"),
        (b'["hello"]', "TensorFlow Serving's JSON.*hello"),
        (json.dumps(status).encode(), "TensorFlow Serving's JSON.*AVAILABLE"),
        (b"[" * 100_000, "TensorFlow Serving's JSON"),
        (b'{"outputs": ["A", "B"]}', "without translation, score, truncated"),
    ):
        with http_server(b"\r\n", answer) as address:
            refused(ServingError, words, address, rest=True)
    with http_server(b"\r\n", b'{"model_version_status": [{"version": "x"}]}') as address:
        client = ServingClient(address, rest=True)
        with client, pytest.raises(ServingError, match="TensorFlow Serving's JSON"):
            client.status()
    with http_server(b"\r\n", b"no gzip", encoding="gzip") as address:
        refused(ServingError, "decompress", address, rest=True)


def test_the_timeout_is_that_of_the_whole_call():
    """A server that sends a byte now and then, of the head or of the body, does not prolong it."""
    for head in ([], [b"\r\n"]):
        with http_server(*head, *[b"X"] * 40, seconds=0.1) as address:
            start = time.monotonic()
            refused(DeadlineExceededError, "in time", address, rest=True, timeout=0.4)
            assert 0.4 <= time.monotonic() - start < 2


def test_a_server_that_comes_later_is_waited_for(stub):
    with socket.socket() as bound, ThreadPoolExecutor(1) as pool:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        with ServingClient(f"127.0.0.1:{port}") as client:
            asked = pool.submit(client.translate, ["a"])
            time.sleep(0.3)
            with serving(stub, port):
                assert asked.result() == ["A"]
            client.retry = False
            with pytest.raises(UnavailableError):
                client.translate(["a"])


@contextlib.contextmanager
def silent_server():
    """`HOST:PORT` that accepts connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield f"127.0.0.1:{silent.getsockname()[1]}"


@protocols
def test_closing_a_client_ends_its_own_calls_and_no_others(rest, server):
    """Of many that share a thread; a client that nobody refers to closes itself."""
    threads = threading.active_count()
    with silent_server() as silent, ThreadPoolExecutor(9) as pool:
        closed = ServingClient(silent, rest=rest, retry=False)
        waiting = [pool.submit(closed.translate, ["a"]) for _ in range(4)]
        with ServingClient(f"127.0.0.1:{port_of(server, rest)}", rest=rest) as other:
            asked = [pool.submit(other.translate, [f"{n}"] * 9, 1) for n in range(4)]
            time.sleep(0.2)
            closed.close()
            for call in waiting:
                assert call.exception(timeout=9).code == "CANCELLED"
            assert [call.result() for call in asked] == [[f"{n}"] * 9 for n in range(4)]
            with pytest.raises(ServingError, match="closed"):
                closed.status()
            client = ServingClient(other.target.server, rest=rest)
            assert client.translate(["a"]) == ["A"]
            left, transport = weakref.ref(client), client._transport
            del client
            wait_until(lambda: gc.collect() >= 0 and left() is None and transport.closed)
    wait_until(lambda: threading.active_count() <= threads + 2)  # one is gRPC's


def wait_until(condition):
    end = time.monotonic() + 9
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@protocols
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of connections when their loop is closed
def test_coroutines_share_a_client_without_threads(rest, server):
    """In one event loop at a time. A call that is cancelled disturbs no other."""
    texts = [f"texto {n}" for n in range(9)]
    client = AsyncServingClient(f"127.0.0.1:{port_of(server, rest)}", rest=rest)

    async def ask():
        answers = await asyncio.gather(*(client.translate([text]) for text in texts))
        assert answers == [[text.upper()] for text in texts]
        return await client.status()

    async def close():
        async with client:
            assert await ask() == [(1, "AVAILABLE", "")]
            with pytest.raises(ServingError, match="another event loop"):
                await asyncio.to_thread(asyncio.run, client.status())
        with silent_server() as silent:
            other = AsyncServingClient(silent, rest=rest, retry=False)
            asked, cancelled = (asyncio.create_task(other.translate(["a"])) for _ in "ab")
            await asyncio.sleep(0.1)
            cancelled.cancel()
            await asyncio.sleep(0.05)
            assert cancelled.cancelled() and not asked.done()
            await other.close()
            for call in (asked, other.status()):
                with pytest.raises(ServingError, match="closed") as caught:
                    await asyncio.wait_for(call, 9)
                assert caught.value.code == "CANCELLED"

    threads = threading.active_count()
    asyncio.run(ask())
    asyncio.run(close())  # the loop before is closed
    gc.collect()
    assert threading.active_count() <= threads + (not rest)  # gRPC has one


FORK = """
import os, sys, time
from keras_tfmr.client import ServingClient, ServingError

server, rest = sys.argv[1], sys.argv[2] == "True"
client = ServingClient(server, rest=rest, timeout=5)

def ask(client):
    try:
        return client.translate(["a"])[0]
    except ServingError as error:
        return str(error)

def in_child(*clients):
    sys.stdout.flush()
    if (pid := os.fork()) == 0:
        start = time.monotonic()
        print("child", *[ask(each) for each in clients], time.monotonic() - start < 3, sep="|")
        sys.exit()
    print(os.waitpid(pid, 0)[1], ask(client) if client else "", sep="|")

in_child(client)
in_child(client, ServingClient(server, rest=rest, timeout=5))
client.close()
client = None
in_child(ServingClient(server, rest=rest, timeout=5))
"""


@protocols
def test_a_client_works_in_a_forked_process_or_says_that_it_cannot(rest, server):
    """Unused, used, and after all were closed; the parent's connection goes on."""
    command = [sys.executable, "-c", FORK, f"127.0.0.1:{port_of(server, rest)}", str(rest)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr, done.stderr
    unused, used, after_close = done.stdout.splitlines()[::2]
    assert unused == after_close == "child|A|True"
    assert done.stdout.splitlines()[1::2] == ["0|A", "0|A", "0|"]
    if rest:
        assert used == "child|A|A|True"
    else:
        assert used.count("Close the clients before the fork, or use rest=True") == 2, used


def test_the_time_limit_holds_when_the_event_loop_stands(monkeypatch):
    stop = threading.Event()
    monkeypatch.setattr(background, "PATIENCE", 0.1)
    monkeypatch.setattr(background, "_process", background._Background())

    async def block():
        stop.wait(20)

    background.start(block())
    with ServingClient("127.0.0.1:1", timeout=0.2) as client:
        start = time.monotonic()
        with pytest.raises(DeadlineExceededError, match="event loop stands"):
            client.translate(["a"])
        assert 0.3 <= time.monotonic() - start < 5
    stop.set()
    loop = background._process._loop
    background.run(asyncio.sleep(0), 5)
    loop.call_soon_threadsafe(loop.stop)
    while loop.is_running():
        time.sleep(0.01)
    loop.close()


@protocols
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
