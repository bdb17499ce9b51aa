"""Starts the development server as users do: its own process, real sockets, free ports."""

import json
import pathlib
import re
import signal
import subprocess
import sys
import time

import grpc
import httpx
from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

SERVER = pathlib.Path(__file__).resolve().parents[1] / "serving" / "server.py"


class ServerProcess:
    """`serving/server.py` with these flags, on free ports; its log goes into a folder.

    With `ready`, it waits until it serves. In a `with` statement, it is ended behind it. The
    attributes `prediction` and `models` are the official stubs.
    """

    def __init__(self, folder, *flags, ready=True):
        self.log = pathlib.Path(folder) / f"server-{time.monotonic_ns()}.log"
        command = ["timeout", "--signal=KILL", "1800"]  # no server outlives a killed test for long
        command += [sys.executable, SERVER, "--port=0", "--rest_api_port=0", *flags]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        ports = self.wait_for(r"gRPC on .*:(\d+), REST on http://[^:]*:(\d+)/")
        self.port, self.rest_port = map(int, ports.groups())
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.port}")
        self.prediction = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)
        self.models = model_service_pb2_grpc.ModelServiceStub(self.channel)
        if ready:
            self.wait_for("Serving version")

    def http(self, path, body=None, headers=None):
        """GET, or POST of `body` (bytes, or anything that goes to JSON): (status, text)."""
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.rest_port}{path}"
        options = {"headers": headers, "timeout": 30, "verify": False, "trust_env": False}
        answer = httpx.request("GET" if body is None else "POST", url, content=body, **options)
        return answer.status_code, answer.content.decode("utf-8", "surrogateescape")

    def predict(self, document, signature=""):
        """(status, JSON) of a REST request for a prediction."""
        document = {**document, "signature_name": signature}
        status, text = self.http("/v1/models/default:predict", document)
        return status, json.loads(text)

    def states(self):
        """{version: state}."""
        versions = json.loads(self.http("/v1/models/default")[1])["model_version_status"]
        return {int(version["version"]): version["state"] for version in versions}

    def wait_for(self, pattern, seconds=240):
        """Waits until the log has a regular expression; returns the match."""
        end = time.monotonic() + seconds
        while not (match := re.search(pattern, output := self.log.read_text(errors="replace"))):
            ended = self.process.poll()
            if ended is not None or time.monotonic() > end:
                self.process.kill()
                raise AssertionError(f"no {pattern!r}, exit status {ended}: {output}")
            time.sleep(0.05)
        return match

    def terminate(self):
        """SIGTERM; returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.channel.close()
        if self.process.poll() is None:
            self.terminate()


def status_of(call, *arguments, timeout=20):
    """(code name, text) that a call ends with; ("OK", "") if it does not fail."""
    try:
        call(*arguments, timeout=timeout)
    except grpc.RpcError as error:
        return error.code().name, error.details()
    return "OK", ""
