"""Clients that die, stall, flood or send monsters: the others keep being served."""

import gzip
import socket
import subprocess
import sys
import threading
import time

import http2
import pytest
import server_models
from server_models import request
from server_process import ROOT, ServerProcess, status_of

BATCHING = """
max_batch_size { value: 16 } max_enqueued_batches { value: 4 } num_batch_threads { value: 2 }
"""
CONFIG = """model_config_list {{
  config {{ name: "echo" base_path: "{0}/echo" model_platform: "tensorflow" }}
  config {{ name: "slow" base_path: "{0}/slow" model_platform: "tensorflow" }}
}}"""
CLIENT = """
import sys
sys.path.insert(0, {tests!r})
from server_models import request
from server_process import prediction_service_pb2_grpc as api
import grpc
stub = api.PredictionServiceStub(grpc.insecure_channel("127.0.0.1:{port}"))
calls = [stub.Predict.future(request("slow", ms=[2000])) for _ in range(8)]
print("asked", flush=True)
[call.result() for call in calls]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("robustness")
    server_models.echo(folder / "echo")
    server_models.slow(folder / "slow")
    (folder / "batching.config").write_text(BATCHING)
    (folder / "models.config").write_text(CONFIG.format(folder))
    with ServerProcess(
        folder,
        f"--model_config_file={folder}/models.config",
        "--enable_batching",
        f"--batching_parameters_file={folder}/batching.config",
        "--rest_api_timeout_in_ms=5000",
    ) as running:
        yield running


class Neighbour(threading.Thread):
    """Another client, over gRPC and REST; remembers how many rounds it made and what went wrong."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.stop = server, threading.Event()
        self.rounds, self.problems = 0, []
        self.advanced = threading.Condition()

    def run(self):
        while not self.stop.is_set():
            text = f"text {self.rounds}".encode()
            try:
                message = request("echo", text=[text])
                answer = self.server.prediction.Predict(message, timeout=20)
                assert list(answer.outputs["text"].string_val) == [text]
                body = {"signature_name": "raw", "instances": ["a"]}
                assert self.server.http("/v1/models/echo:predict", body)[0] == 200
            except Exception as error:
                self.problems.append(repr(error))
            with self.advanced:
                self.rounds += 1
                self.advanced.notify_all()

    def goes_on(self, rounds=1):
        """Waits for more rounds; the time that they took in all."""
        started, end = time.monotonic(), self.rounds + rounds
        with self.advanced:
            assert self.advanced.wait_for(lambda: self.rounds >= end, timeout=60)
        return time.monotonic() - started


@pytest.fixture(autouse=True)
def others_are_served(server):
    """While whatever a test does goes on, another client gets its answers, and gets on.

    Its pace is held against its own before the test, so that a busy machine does not fail it: in
    the time of a hundred of its rounds, and three seconds, it makes one.
    """
    neighbour = Neighbour(server)
    neighbour.start()
    pace = neighbour.goes_on(10) / 10
    before, started = neighbour.rounds, time.monotonic()
    yield
    lasted = time.monotonic() - started
    neighbour.goes_on()
    neighbour.stop.set()
    neighbour.join(30)
    assert neighbour.problems == []
    assert neighbour.rounds - before >= lasted / (100 * pace + 3)
    assert server.process.poll() is None


def connect(server):
    return socket.create_connection(("127.0.0.1", server.rest_port), timeout=30)


def test_client_killed(server):
    code = CLIENT.format(tests=str(ROOT / "tests"), port=server.port)
    client = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert client.stdout.readline() == b"asked\n"
    client.kill()
    client.wait()
    answer = server.prediction.Predict(request("slow", ms=[1]), timeout=20)
    assert list(answer.outputs["ms"].int_val) == [1]


def test_half_sent_body(server):
    with connect(server) as half, connect(server) as reset:
        head = b"POST /v1/models/echo:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"
        half.sendall(head)
        reset.sendall(head)
        reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        reset.close()
        started = time.monotonic()
        answer = half.recv(1000)  # the server gives up on it, in its own time
        assert answer.startswith(b"HTTP/1.1 504") and 3 < time.monotonic() - started < 15


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00\xff" * 5000,
        b"GET /v1/models/echo HTTP/9.9\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"CONNECT \r\nHost: x\r\n\r\n",
    ],
)
def test_no_http(server, garbage):
    with connect(server) as client:
        client.sendall(garbage)
        assert b" 200 " not in client.recv(1000)
    assert "Traceback" not in server.stderr()
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(garbage)


def test_broken_body_behind_the_answer(server):
    with connect(server) as client:
        head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 7\r\n\r\n"
        client.sendall(head)
        assert client.recv(1000).startswith(b"HTTP/1.1 404")
        client.sendall(b"no gzip")
        assert client.recv(1000) == b""
    assert "Traceback" not in server.stderr()


@pytest.mark.parametrize("name", [b"\xff", b"Predict\xc3", b"PREDICT", b""])
def test_method_that_there_is_not(server, name):
    frames = http2.call(b"/tensorflow.serving.PredictionService/" + name, b"")
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        client.sendall(http2.PREFACE + b"".join(frames))
        answer = b""
        while b"grpc-status" not in answer:
            answer += (received := client.recv(1 << 16))
            assert received, (answer, server.stderr()[-2000:])
    assert b"\x0bgrpc-status\x0212" in answer  # UNIMPLEMENTED
    assert "Traceback" not in server.stderr()


def test_a_thousand_idle_connections(server):
    idle = [connect(server) for _ in range(500)]
    idle += [socket.create_connection(("127.0.0.1", server.port)) for _ in range(500)]
    fresh = server.connect()
    stub = type(server.prediction)(fresh)
    assert status_of(stub.Predict, request("echo", text=["a"]), timeout=20)[0] == "OK"
    for connection in idle:
        connection.close()
    fresh.close()


def test_requests_of_200_megabytes(server):
    size = 200 << 20
    before = server.memory()
    code, _ = status_of(server.prediction.Predict, request("echo", text=[b"x" * size]), timeout=60)
    assert code == "RESOURCE_EXHAUSTED"
    with connect(server) as client:
        client.sendall(
            b"POST /v1/models/echo:predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size
        )
        try:
            for _ in range(200):
                client.sendall(b"x" * (1 << 20))
        except OSError:
            pass  # the server does not have to read what it will not take
        else:
            assert client.recv(100).startswith(b"HTTP/1.1 429")
    bomb = gzip.compress(b'{"instances": ["' + b"x" * size + b'"]}', 1)
    status, text = server.http("/v1/models/echo:predict", bomb, {"Content-Encoding": "gzip"})
    assert status == 429, text
    assert server.memory() - before < 400 << 20


def test_deep_json(server):
    for body in (
        b"[" * 10_000_000,
        b'{"instances": ' * 100_000,
        b'{"instances": [' + b'{"b64": ' * 50_000 + b"1" + b"}" * 50_000 + b"]}",
    ):
        assert server.http("/v1/models/echo:predict", body)[0] == 400


def test_flood_beyond_the_queue(server):
    calls = [
        server.prediction.Predict.future(request("slow", ms=[100] * 16), timeout=60)
        for _ in range(500)
    ]
    codes = [call.code().name for call in calls]
    assert set(codes) == {"OK", "UNAVAILABLE"}
    assert codes.count("OK") >= 4
    for call in calls:
        if call.code().name == "OK":
            assert list(call.result().outputs["ms"].int_val) == [100] * 16
