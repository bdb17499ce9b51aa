"""Sends mutated requests to the development server, with real ones in between.

    python benchmarks/serving_fuzz.py                       # 200,000 requests
    python benchmarks/serving_fuzz.py --seconds 20 --dry    # 20 seconds, writes no results

It mutates REST bodies and heads, gRPC messages and HTTP/2 frames through a raw socket, and opens
connections that are slow, half-closed or reset. The run fails if the server answers 500 (gRPC:
INTERNAL, UNKNOWN), prints a traceback, ends, or answers a real request wrongly, and if its memory
grows by more than 3 % after the first fifth of 20,000 requests or more.
"""

import argparse
import collections
import contextlib
import json
import pathlib
import socket
import struct
import sys
import tempfile
import threading
import time

import grpc

from benchmarks import measure
from benchmarks.serving_parts.models import request, three_models
from benchmarks.serving_parts.mutations import Mutator

GROWTH = 0.03
SETTLED = 20_000  # requests; with fewer, code that runs for the first time still makes memory grow
WORKERS = 8
PATIENCE = 0.1  # seconds to wait for an answer to a request that may be incomplete
# How often each kind is drawn; the last two hold their connection for a while.
KINDS = {"rest_body": 40, "rest_head": 20, "grpc": 30, "http2": 8, "slow": 1, "reset": 1}
REFUSED = {"INTERNAL", "UNKNOWN", "DATA_LOSS"}
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with RST


class Findings:
    """Counts requests and answers, and keeps the faults."""

    def __init__(self):
        self.sent, self.answers = collections.Counter(), collections.Counter()
        self.faults, self.real = [], 0
        self._lock = threading.Lock()

    def add(self, kind, answer, fault=None):
        """Counts a request and its answer; `fault` says what is wrong with it."""
        with self._lock:
            self.sent[kind] += 1
            self.answers[f"{kind} {answer}"] += 1
            if fault is not None:
                self.faults.append(fault)

    @property
    def total(self):
        return sum(self.sent.values())


class Worker(threading.Thread):
    """Sends mutated requests until it is stopped."""

    def __init__(self, server, seed, findings, stop):
        super().__init__(daemon=True)
        self.server, self.findings, self.stop = server, findings, stop
        self.mutator = Mutator(seed)
        self.channel = server.connect()
        self.connection = None

    def run(self):
        kinds, weights = list(KINDS), list(KINDS.values())
        while not self.stop.is_set():
            (kind,) = self.mutator.random.choices(kinds, weights)
            try:
                getattr(self, kind)()
            except Exception as error:  # a fault in this script must not look like a clean run
                self.findings.add(kind, "fault", f"the run: {error!r}")
        self.channel.close()

    def rest_body(self):
        content = self.mutator.rest_body()
        try:
            if self.connection is None:
                self.connection = self._connect(self.server.rest_port)
            self.connection.sendall(content)
            answer = read_answer(self.connection)
        except OSError as error:
            answer = type(error).__name__
        if answer is None or not str(answer).isdigit() or answer == 400:
            self._hang_up()
        self._judge("rest_body", answer, content)

    def _hang_up(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def rest_head(self):
        content = self.mutator.rest_head()
        self._judge("rest_head", self._alone(self.server.rest_port, content), content)

    def http2(self):
        content = self.mutator.http2()
        with contextlib.suppress(OSError), self._connect(self.server.port) as connection:
            connection.sendall(content)
            connection.settimeout(PATIENCE / 4)
            while connection.recv(1 << 16):
                pass
        self.findings.add("http2", "sent")

    def slow(self):
        """Sends single bytes at intervals, then stops in the middle of the request."""
        content = self.mutator.rest_body()
        with self._connect(self.server.rest_port) as connection, contextlib.suppress(OSError):
            for place in range(0, min(len(content), 40), 10):
                connection.sendall(content[place : place + 10])
                time.sleep(0.005)
            connection.shutdown(socket.SHUT_WR)  # half-closed: the request never ends
            connection.settimeout(0.2)
            connection.recv(1 << 16)
        self.findings.add("slow", "sent")

    def reset(self):
        """Resets the connection during the request."""
        port = self.mutator.random.choice((self.server.rest_port, self.server.port))
        content = (
            self.mutator.rest_body() if port == self.server.rest_port else self.mutator.http2()
        )
        with self._connect(port) as connection, contextlib.suppress(OSError):
            connection.sendall(content[: self.mutator.random.randrange(len(content) + 1)])
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.findings.add("reset", "sent")

    def grpc(self):
        path, content = self.mutator.grpc()
        call = self.channel.unary_unary(path)
        timeout = self.mutator.random.choice((10.0, 10.0, 10.0, 0.001, 0.02))
        try:
            call(content, timeout=timeout)
            code, text = "OK", ""
        except grpc.RpcError as error:
            code, text = error.code().name, error.details()
        bad = code in REFUSED or (code == "UNAVAILABLE" and "enqueued" not in text)
        fault = f"gRPC {code} {text!r:.200} to {path} {content!r:.300}" if bad else None
        self.findings.add("grpc", code, fault)

    def _connect(self, port):
        connection = socket.create_connection(("127.0.0.1", port), timeout=10)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _alone(self, port, content):
        """Sends bytes on a new connection and returns the answer."""
        try:
            with self._connect(port) as connection:
                connection.sendall(content)
                connection.settimeout(PATIENCE)
                return read_answer(connection)
        except OSError as error:
            return type(error).__name__

    def _judge(self, kind, answer, content):
        bad = isinstance(answer, int) and answer >= 500 and answer not in (501, 503, 504)
        fault = f"{kind}: {answer} to {content!r:.600}" if bad else None
        self.findings.add(kind, answer, fault)


def read_answer(connection):
    """The status of one HTTP answer, whose body is read to the end; None without an answer."""
    content = b""
    while b"\r\n\r\n" not in content:
        chunk = connection.recv(1 << 16)
        if not chunk:
            return None
        content += chunk
    head, _, body = content.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    left = int(lengths[0].split(b":")[1]) - len(body) if lengths else 0
    while left > 0:
        chunk = connection.recv(1 << 16)
        if not chunk:
            break
        left -= len(chunk)
    return int(head.split(b" ")[1])


def ask_really(server, findings, stop):
    """Sends real requests over gRPC and REST during the whole run, and checks each answer."""
    while not stop.is_set():
        findings.real += 1
        value = float(findings.real % 1000)
        try:
            answer = server.prediction.Predict(request("half", version=1, x=[value]), timeout=30)
            assert list(answer.outputs["y"].float_val) == [value / 2 + 2], answer
            path = "/v1/models/half/versions/1:predict"
            status, text = server.http(path, {"instances": [value]})
            assert status == 200, (status, text)
            assert json.loads(text) == {"predictions": [value / 2 + 2]}, text
        except Exception as error:
            findings.faults.append(f"a real request: {error!r:.500}")
        stop.wait(0.05)


def run(server, requests, seconds, seed):
    """Fuzzes a server of `three_models`.

    Args:
        server: ServerProcess.
        requests: Number of mutated requests to send.
        seconds: Most seconds that the run takes.
        seed: Seed of the mutations.

    Returns:
        Dict of the numbers, and of the faults under `faults`.
    """
    findings, stop = Findings(), threading.Event()
    threads = [Worker(server, f"{seed}.{n}", findings, stop) for n in range(WORKERS)]
    threads.append(threading.Thread(target=ask_really, args=(server, findings, stop), daemon=True))
    started, memory = time.monotonic(), []
    for thread in threads:
        thread.start()
    while server.process.poll() is None and len(findings.faults) < 20:
        done = max(findings.total / requests, (time.monotonic() - started) / seconds)
        if done * 5 >= len(memory) + 1:
            memory.append(server.memory())
            size = f"{memory[-1] / 2**20:.0f} MiB"
            print(f"{findings.total:,} requests: {size}", file=sys.stderr, flush=True)
        if done >= 1:
            break
        time.sleep(0.1)
    stop.set()
    for thread in threads:
        thread.join(40)
    _look_at(server, findings)
    growth = memory[-1] / memory[0] - 1 if memory else 0.0
    if growth > GROWTH and findings.total >= SETTLED:
        findings.faults.append(f"memory grew by {growth:.1%}: {[m >> 20 for m in memory]} MiB")
    return {
        "requests": findings.total,
        "real": findings.real,
        "seconds": round(time.monotonic() - started),
        "seed": seed,
        "sent": dict(findings.sent),
        "answers": dict(sorted(findings.answers.items())),
        "memory_mib": [round(m / 2**20, 1) for m in memory],
        "growth": growth,
        "faults": findings.faults,
    }


def _look_at(server, findings):
    """Adds the faults of the server process itself."""
    text = server.stderr()
    if server.process.poll() is not None:
        findings.faults.append(f"the server ended: {text[-1000:]}")
    if "Traceback" in text:
        place = text.index("Traceback")
        findings.faults.append(f"a traceback: {text[max(0, place - 300) : place + 2200]}")


def page(numbers):
    """The text of results/serving_fuzz.md."""
    kinds = {
        "rest_body": "REST bodies",
        "rest_head": "REST methods, paths, headers",
        "grpc": "gRPC messages and methods",
        "http2": "HTTP/2 frames through a raw socket",
        "slow": "slow, then half-closed connections",
        "reset": "connections reset on the way",
    }
    rows = [[kinds[kind], f"{count:,}"] for kind, count in sorted(numbers["sent"].items())]
    rows.append(["real requests in between, all answered rightly", f"{2 * numbers['real']:,}"])
    memory = ", ".join(f"{m:.0f}" for m in numbers["memory_mib"])
    rows.append(["500s, tracebacks, wrong answers", str(len(numbers["faults"]))])
    rows.append(["resident memory after each fifth", f"{memory} MiB: {numbers['growth']:+.1%}"])
    return (
        "# The development server under mutated requests\n\n`python benchmarks/serving_fuzz.py "
        f"--seed {numbers['seed']}`, {numbers['machine']}, {numbers['versions']}:\n"
        f"{numbers['requests']:,} requests in {numbers['seconds']} s.\n\n"
        + measure.table(["what", "count"], rows)
    )


def main(arguments=None):
    """Fuzzes the server, prints the findings, and returns 1 if there are faults."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--requests", type=int, default=200_000, help="default: %(default)s")
    parser.add_argument(
        "--seconds", type=float, default=3600.0, help="most seconds; default: %(default)s"
    )
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--dry", action="store_true", help="do not write the results")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, three_models(pathlib.Path(folder)) as server:
        numbers = run(server, options.requests, options.seconds, options.seed)
    numbers["machine"] = measure.machine()
    numbers["versions"] = measure.versions("tensorflow", "grpcio", "aiohttp", "uvloop")
    print(json.dumps(numbers, indent=1))
    if not options.dry:
        measure.write("serving_fuzz", page(numbers), numbers)
    return 1 if numbers["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
