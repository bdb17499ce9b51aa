"""Sends mixed traffic to a translator's server, and checks every answer."""

import collections
import concurrent.futures
import math
import random
import time

import grpc
import numpy as np
import tensorflow as tf
from server_models import request
from tensorflow.core.framework import tensor_pb2, types_pb2

from keras_tfmr.export import questions

CLIENTS = 32
TEXTS = [text.encode() for text in (*questions.TEXTS, "A minha irmã comprou um livro novo.")]
TEXTS += questions.HOSTILE
SIGNATURES = ("serving_default", "translate", "translate_nbest", "score", "explain")
_MANY = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING)
_MANY.tensor_shape.dim.add(size=1 << 50)
# Invalid requests: (request, the code that the documentation gives for it).
HOSTILE = [
    (request("translator", "nope", text=[b"a"]), "FAILED_PRECONDITION"),
    (request("nobody", text=[b"a"]), "NOT_FOUND"),
    (request("translator", version=99, text=[b"a"]), "NOT_FOUND"),
    (request("translator", label="nope", text=[b"a"]), "INVALID_ARGUMENT"),
    (request("translator", text=[1.0]), "INVALID_ARGUMENT"),
    (request("translator"), "INVALID_ARGUMENT"),
    (request("translator", txet=[b"a"]), "INVALID_ARGUMENT"),
    (request("translator", text=_MANY), "INVALID_ARGUMENT"),
    (request("translator", text=b"scalar"), "INVALID_ARGUMENT"),
    (request("translator", text=[b"a"] * 1000), "INVALID_ARGUMENT"),
]
HOSTILE_BODIES = [
    b"[" * 100_000,
    b'{"instances": ["a',
    b'{"instances": [1]}',
    b'{"instances": []}',
    b"\xff\0",
]
PATH = "/v1/models/translator:predict"


def feeds(signature, texts):
    """The inputs of a signature; a translation to score is the text itself."""
    return {"text": texts, **({"reference": texts} if signature == "score" else {})}


def answers(session):
    """{(signature, text): outputs of the one row}, each text asked alone."""
    found = {}
    for signature in SIGNATURES:
        for text in TEXTS:
            outputs = session.run(signature, **feeds(signature, [text]))
            found[signature, text] = {name: value[0] for name, value in outputs.items()}
    return found


def same(got, expected):
    """Whether outputs are equal, floats up to the noise of another batch size.

    Trailing dimensions depend on the other rows of the batch; what exceeds the expected shape has
    to be padding.
    """
    got, expected = np.asarray(got), np.asarray(expected)
    if got.shape != expected.shape:
        common = tuple(slice(0, min(a, b)) for a, b in zip(got.shape, expected.shape, strict=True))
        rest = got.copy()
        rest[common] = b"" if got.dtype == object else 0
        if np.any(rest != (b"" if got.dtype == object else 0)):
            return False
        got, expected = got[common], expected[common]
    if got.dtype.kind == "f":
        return bool(np.allclose(got, expected, rtol=1e-3, atol=1e-3, equal_nan=True))
    return bool(np.all(got == expected))


class Client:
    """Sends random requests and keeps the wrong answers.

    Args:
        server: ServerProcess of a model `translator`.
        known: {version: answers(session)}.
        seed: Seed of the requests.
        rate: Requests per second, at random times; None sends the next one at once.
    """

    def __init__(self, server, known, seed, rate=None):
        self._server, self._known, self._rate = server, known, rate
        self._random = random.Random(seed)
        self.kinds = collections.Counter()
        self.wrong = []
        self.latencies = []  # seconds of right gRPC answers, from the time they were due

    def run(self, end, requests):
        due, done = self._wait(time.monotonic(), end), 0
        while due < end and done < requests:
            kind = self._random.choices(
                [self._grpc, self._rest, self._hostile, self._hostile_rest, self._give_up],
                [60, 15, 15, 5, 5],
            )[0]
            try:
                kind()
            except Exception as error:
                self.wrong.append(f"{kind.__name__}: {error!r}"[:500])
            else:
                if kind == self._grpc:
                    self.latencies.append(time.monotonic() - due)
            self.kinds[kind.__name__.strip("_")] += 1
            due, done = self._wait(due, end), done + 1

    def _wait(self, last, end):
        """Waits until the next request is due, but not beyond the end, and returns that time."""
        if self._rate is None:
            return time.monotonic()
        due = last + self._random.expovariate(self._rate)
        time.sleep(max(0.0, min(due, end) - time.monotonic()))
        return due

    def _pick(self):
        size = self._random.choice([1, 1, 1, 2, 3, 8])
        return self._random.choice(SIGNATURES), self._random.choices(TEXTS, k=size)

    def _grpc(self):
        signature, texts = self._pick()
        message = request("translator", signature, **feeds(signature, texts))
        response = self._server.prediction.Predict(message, timeout=100)
        known = self._known[response.model_spec.version.value]
        for name, proto in response.outputs.items():
            for row, text in zip(tf.make_ndarray(proto), texts, strict=True):
                if not same(row, known[signature, text][name]):
                    self.wrong.append(f"{signature}({text[:40]!r}).{name}: {row!r}"[:500])

    def _rest(self):
        texts = self._random.choices(TEXTS[:9], k=2)
        body = {"inputs": [text.decode() for text in texts]}
        status, text = self._server.http(PATH, body, timeout=100)
        if status != 200 or not text.startswith('{\n    "outputs": {'):
            self.wrong.append(f"REST {status}: {text[:200]}")

    def _hostile(self):
        message, expected = self._random.choice(HOSTILE)
        try:
            self._server.prediction.Predict(message, timeout=100)
            code = "OK"
        except grpc.RpcError as error:
            code = error.code().name
        if code != expected:
            self.wrong.append(f"{expected} expected, {code} received for {str(message)[:200]}")

    def _hostile_rest(self):
        status, text = self._server.http(PATH, self._random.choice(HOSTILE_BODIES), timeout=100)
        if status != 400 or "error" not in text:
            self.wrong.append(f"REST {status} instead of 400: {text[:200]}")

    def _give_up(self):
        signature, texts = self._pick()
        message = request("translator", signature, **feeds(signature, texts))
        call = self._server.prediction.Predict.future(message, timeout=100)
        time.sleep(self._random.random() / 20)
        call.cancel()


def run(server, known, seconds, requests=math.inf, rate=None):
    """Runs 32 clients for some time, or until a number of requests is answered.

    Args:
        server: ServerProcess of a model `translator`.
        known: {version: answers(session)}.
        seconds: Most seconds.
        requests: Most requests, over all clients.
        rate: Requests per second over all clients; None: each sends its next one at once.

    Returns:
        Dict of the requests, in all and by kind, the number of wrong answers and the first of them,
        and the latency of translations in milliseconds, p50 and p99.
    """
    started = time.monotonic()
    each = rate and rate / CLIENTS
    clients = [Client(server, known, seed, each) for seed in range(CLIENTS)]
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        each = requests / CLIENTS
        list(pool.map(lambda client: client.run(started + seconds, each), clients))
    kinds = sum((client.kinds for client in clients), collections.Counter())
    wrong = [text for client in clients for text in client.wrong]
    latencies = [value for client in clients for value in client.latencies]
    return {
        "requests": sum(kinds.values()),
        "kinds": dict(kinds),
        "seconds": time.monotonic() - started,
        "wrong": len(wrong),
        "first_wrong": wrong[:10],
        "latency_ms": [1e3 * float(value) for value in np.percentile(latencies or 0, (50, 99))],
    }
