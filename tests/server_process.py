"""Starts the development server as users do: its own process, real sockets, free ports."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import grpc
from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

ROOT = pathlib.Path(__file__).resolve().parents[1]
UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


def free_port():
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(log, *flags):
    """Starts the server without waiting for it; its stderr goes to the file `log`."""
    # setpriv: a test run that is killed leaves no server behind. With Popen's preexec_fn instead,
    # gRPC's fork handlers run in the child, which has then died before it became the server.
    command = ["setpriv", "--pdeathsig", "KILL", sys.executable, ROOT / "serving" / "server.py"]
    with open(log, "wb") as stderr:
        return subprocess.Popen(
            [*map(str, (*command, *flags))], stderr=stderr, stdout=stderr, cwd=ROOT
        )


class ServerProcess:
    """A running server: `with ServerProcess(folder, "--model_base_path=...") as server:`."""

    def __init__(self, folder, *flags, wait=240):
        # A port that was free may be taken by the time that the server is there: then others are.
        for _ in range(5):
            self.port, self.rest_port = free_port(), free_port()
            self.log = pathlib.Path(folder) / f"server-{self.port}.log"
            self.process = start(
                self.log, f"--port={self.port}", f"--rest_api_port={self.rest_port}", *flags
            )
            started = self._started(wait)
            if started or "cannot listen on" not in self.stderr():
                break
        if not started:
            self.process.kill()
            status = self.process.wait()
            raise AssertionError(
                f"not serving within {wait} s, exit status {status}: {self.stderr()[-2000:]}"
            )
        self.channel = self.connect()
        self.prediction = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)
        self.models = model_service_pb2_grpc.ModelServiceStub(self.channel)

    def _started(self, seconds):
        end = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < end:
            if "Exporting HTTP/REST API" in self.stderr():
                return True
            time.sleep(0.05)
        return False

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.channel.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def connect(self):
        """A channel that shares its connection with no other."""
        options = [*UNLIMITED, ("grpc.use_local_subchannel_pool", 1)]
        return grpc.insecure_channel(f"127.0.0.1:{self.port}", options)

    def stderr(self):
        return self.log.read_text(errors="replace")

    def wait_for(self, condition, seconds=30):
        """Waits until `condition()` is true; the server must live meanwhile."""
        end = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, self.stderr()[-2000:]
            assert time.monotonic() < end, f"not within {seconds} s: {self.stderr()[-2000:]}"
            time.sleep(0.05)

    def http(self, path, body=None, headers=(), timeout=30):
        """GET, or POST of `body` (bytes, or anything that goes to JSON): (status, text)."""
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.rest_port}{path}"
        request = urllib.request.Request(url, data=body, headers=dict(headers))
        try:
            with urllib.request.urlopen(request, timeout=timeout) as response:
                return response.status, response.read().decode("utf-8", "surrogateescape")
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode("utf-8", "surrogateescape")

    def states(self, model):
        """{version: state name} by the REST status."""
        status, text = self.http(f"/v1/models/{model}")
        if status != 200:
            return {}
        versions = json.loads(text)["model_version_status"]
        return {int(version["version"]): version["state"] for version in versions}

    def memory(self):
        """Resident memory in bytes."""
        pages = int(pathlib.Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def terminate(self, seconds=30):
        """SIGTERM; returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)


def status_of(call, *arguments, **options):
    """(code name, text) that a call ends with; ("OK", "") if it does not fail."""
    try:
        call(*arguments, **options)
    except grpc.RpcError as error:
        return error.code().name, error.details()
    return "OK", ""
