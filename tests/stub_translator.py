"""A translator behind TensorFlow Serving's API that knows no model: for tests of what asks it.

Built with the official stubs, so that whatever talks to it talks to the real server. Its English
is the Portuguese in capitals; `behave` makes it fail the way a server can.
"""

import base64
import contextlib
import json
import re
import socket
import threading
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import (
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

State = get_model_status_pb2.ModelVersionStatus.State
LAYERS, HEADS, HYPOTHESES, LONGEST = 2, 4, 3, 200


def english(text):
    """What the stub makes of a text."""
    return text.upper()


def too_long(texts):
    return np.array([len(text) > LONGEST for text in texts])


def encoded(texts):
    """Lists of texts, filled with "" to the same length, as an array of bytes."""
    longest = max(map(len, texts), default=0)
    padded = [[*row, *[""] * (longest - len(row))] for row in texts]
    return np.array([[text.encode() for text in row] for row in padded], object)


def translate(texts):
    return {
        "translation": [english(text).encode() for text in texts],
        "score": np.array([-len(text) / 8 for text in texts], "float32"),
        "truncated": too_long(texts),
    }


def hypothesis(text, n):
    """The n-th best translation; the best is `english`."""
    return f"{english(text)} {n}" if n else english(text)


def translate_nbest(texts):
    scores = np.tile(-np.arange(HYPOTHESES, dtype="float32") / 4, (len(texts), 1))
    scores[[not text for text in texts], 1:] = np.finfo("float32").min  # "" has one translation
    translations = encoded([[hypothesis(text, n) for n in range(HYPOTHESES)] for text in texts])
    return {"translations": translations, "scores": scores, "truncated": too_long(texts)}


def score(texts, references):
    lengths = np.array([len(reference.split()) for reference in references], "int32")
    log_prob = -0.5 * lengths.astype("float32")
    return {"log_prob": log_prob, "tokens": lengths, "truncated": too_long(texts)}


def explain(texts):
    """The words as pieces; head h of layer l looks h + l words ahead of itself, round the end."""
    words = [["▁" + word for word in text.split()] for text in texts]
    longest = max(map(len, words), default=0)
    heads = np.zeros((len(texts), LAYERS, HEADS, longest, longest), "float32")
    for row, one in enumerate(words):
        for layer, head, target in np.ndindex(LAYERS, HEADS, len(one)):
            heads[row, layer, head, target, (target + head + layer) % len(one)] = 1.0
    return {
        "source_tokens": encoded(words),
        "target_tokens": encoded([[english(word) for word in one] for one in words]),
        "attention": heads.mean((1, 2)),
        "attention_heads": heads,
        "encoder_heads": heads[:, :, ::-1],
        "decoder_heads": heads,
    }


def translate_document(texts):
    """A sentence ends after a full stop or a line."""
    pieces = [re.findall(r"\s+|[^\s.][^\n.]*\.?|\.", text) for text in texts]
    sentences = [[piece for piece in one if piece.strip()] for one in pieces]
    return {
        "translation": [english(text).encode() for text in texts],
        "sentences": np.array([len(one) for one in sentences], "int32"),
        "truncated": np.array([any(too_long(one)) for one in sentences]),
        "source_pieces": encoded(pieces),
        "target_pieces": encoded([[english(piece) for piece in one] for one in pieces]),
    }


SIGNATURES = {
    function.__name__: function
    for function in (translate_document, translate, translate_nbest, score, explain)
}


class StubTranslator(
    prediction_service_pb2_grpc.PredictionServiceServicer,
    model_service_pb2_grpc.ModelServiceServicer,
):
    """PredictionService and ModelService over the functions above.

    Attributes:
        behave: Function of (request, context) called before each answer; may sleep or abort.
        requests: The requests so far.
        largest: Most requests that were in work at the same time.
        versions: What the status says, as (version, state name).
    """

    def __init__(self):
        self.behave = lambda request, context: None
        self.requests = []
        self.versions = [(7, "AVAILABLE")]
        self.largest = self._running = 0
        self._lock = threading.Lock()

    def Predict(self, request, context):  # noqa: N802
        with self._counted(request):
            self.behave(request, context)
            self._check_model(request.model_spec, context)
            inputs = [
                [text.decode("utf-8", "replace") for text in tf.make_ndarray(tensor).tolist()]
                for _, tensor in sorted(request.inputs.items(), reverse=True)  # text, reference
            ]
            outputs = SIGNATURES[request.model_spec.signature_name](*inputs)
            protos = {name: tf.make_tensor_proto(value) for name, value in outputs.items()}
            return predict_pb2.PredictResponse(outputs=protos)

    def GetModelStatus(self, request, context):  # noqa: N802
        self._check_model(request.model_spec, context)
        response = get_model_status_pb2.GetModelStatusResponse()
        for version, state in self.versions:
            response.model_version_status.add(version=version, state=State.Value(state))
        return response

    def _check_model(self, spec, context):
        if spec.name != "default":
            context.abort(
                grpc.StatusCode.NOT_FOUND, f"Servable not found for request: Latest({spec.name})"
            )

    @contextlib.contextmanager
    def _counted(self, request):
        with self._lock:
            self.requests.append(request)
            self._running += 1
            self.largest = max(self.largest, self._running)
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1


@contextlib.contextmanager
def serving(stub, port=0, credentials=None, options=()):
    """Serves a stub on loopback; yields `HOST:PORT`."""
    server = grpc.server(futures.ThreadPoolExecutor(16), options=options)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(stub, server)
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(stub, server)
    address = f"127.0.0.1:{port}"
    if credentials is None:
        port = server.add_insecure_port(address)
    else:
        port = server.add_secure_port(address, credentials)
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


class _RestHandler(BaseHTTPRequestHandler):
    """The same signatures as TensorFlow Serving's REST API gives them, columnar."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if (answer := self.server.behave()) is not None:
            return self._answer(*answer)
        request = json.loads(body)
        columns = sorted(request["inputs"].items(), reverse=True)  # text, reference
        inputs = [[_text(one) for one in column] for _, column in columns]
        outputs = SIGNATURES[request["signature_name"]](*inputs)
        return self._answer(200, {"outputs": {k: _plain(v) for k, v in outputs.items()}})

    def do_GET(self):
        version = {"version": "7", "state": "AVAILABLE"}
        self._answer(200, {"model_version_status": [version]})

    def _answer(self, status, content):
        body = json.dumps(content, ensure_ascii=False).encode()
        self.server.answers.append(status)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


def _text(value):
    content = base64.b64decode(value["b64"]) if isinstance(value, dict) else value.encode()
    return content.decode("utf-8", "replace")


def _plain(value):
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.tolist()
    return [_plain(one) for one in value]


@contextlib.contextmanager
def serving_rest(behave=lambda: None):
    """Serves the stub's REST side on loopback; yields its server.

    Its `address`; `answers`, the HTTP statuses so far; `behave`, a function that may return
    (status, JSON) to answer that instead.
    """
    server = ThreadingHTTPServer(("127.0.0.1", 0), _RestHandler)
    server.daemon_threads = True
    server.behave, server.answers = behave, []
    server.address = f"127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=[0.02], daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def unused_port():
    """Yields a port of loopback on which nothing listens, kept from other processes meanwhile."""
    with socket.socket() as bound:  # bound without listening: connections are refused
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]
