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


def translate(texts):
    return {
        "translation": [english(text).encode() for text in texts],
        "score": np.array([-len(text) / 8 for text in texts], "float32"),
        "truncated": np.array([len(text) > LONGEST for text in texts]),
    }


def hypothesis(text, n):
    """The n-th best translation; the best is `english`."""
    return f"{english(text)} {n}" if n else english(text)


def translate_nbest(texts):
    scores = np.tile(-np.arange(HYPOTHESES, dtype="float32") / 4, (len(texts), 1))
    scores[[not text for text in texts], 1:] = np.finfo("float32").min  # "" has one translation
    translations = [[hypothesis(text, n).encode() for n in range(HYPOTHESES)] for text in texts]
    truncated = np.array([len(text) > LONGEST for text in texts])
    return {"translations": translations, "scores": scores, "truncated": truncated}


def score(texts, references):
    lengths = np.array([len(reference.split()) for reference in references], "int32")
    truncated = np.array([len(text) > LONGEST for text in texts])
    log_prob = -0.5 * lengths.astype("float32")
    return {"log_prob": log_prob, "tokens": lengths, "truncated": truncated}


def pieces(text):
    """The words of a text, those of more than a dozen characters in several pieces."""
    return [
        ("" if start else "▁") + word[start : start + 12]
        for word in text.split()
        for start in range(0, len(word), 12)
    ]


def explain(texts):
    """Pieces; head h of layer l looks h + l pieces ahead of the diagonal, round the end."""
    words = [pieces(text) for text in texts]
    longest = max([len(one) for one in words], default=0)
    heads = np.zeros((len(texts), LAYERS, HEADS, longest, longest), "float32")
    for row, one in enumerate(words):
        for layer, head, target in np.ndindex(LAYERS, HEADS, len(one)):
            heads[row, layer, head, target, (target + head + layer) % len(one)] = 1.0
    padded = [one + [""] * (longest - len(one)) for one in words]
    return {
        "source_tokens": [[token.encode() for token in one] for one in padded],
        "target_tokens": [[english(token).encode() for token in one] for one in padded],
        "attention": heads.mean((1, 2)),
        "attention_heads": heads,
        "encoder_heads": heads[:, :, ::-1],
        "decoder_heads": heads,
    }


def translate_document(texts):
    """A sentence ends after a full stop or a line."""
    pieces = [re.findall(r"\s+|[^\s.][^\n.]*\.?|\.", text) for text in texts]
    longest = max(map(len, pieces), default=0)
    padded = [[*one, *[""] * (longest - len(one))] for one in pieces]
    sentences = [[piece for piece in one if piece.strip()] for one in pieces]
    return {
        "translation": [english(text).encode() for text in texts],
        "sentences": np.array([len(one) for one in sentences], "int32"),
        "truncated": np.array([max(map(len, one), default=0) > LONGEST for one in sentences]),
        "source_pieces": np.array([[piece.encode() for piece in one] for one in padded], object),
        "target_pieces": np.array(
            [[english(piece).encode() for piece in one] for one in padded], object
        ),
    }


SIGNATURES = {
    "translate_document": translate_document,
    "translate": translate,
    "translate_nbest": translate_nbest,
    "score": score,
    "explain": explain,
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
            response = predict_pb2.PredictResponse()
            for name, value in outputs.items():
                response.outputs[name].CopyFrom(tf.make_tensor_proto(value))
            return response

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
        self.server.clients.add(self.client_address)
        if (answer := self.server.behave(self)) is not None:
            return self._answer(*answer)
        if self.path != "/v1/models/default:predict":
            return self._answer(404, {"error": f"Servable not found for request: {self.path}"})
        request = json.loads(body)
        inputs = [[_text(one) for one in request["inputs"]["text"]]]
        if "reference" in request["inputs"]:
            inputs.append(request["inputs"]["reference"])
        outputs = SIGNATURES[request["signature_name"]](*inputs)
        return self._answer(200, {"outputs": {k: _plain(v) for k, v in outputs.items()}})

    def do_GET(self):
        version = {"version": "7", "state": self.server.state}
        version["status"] = {"error_code": "OK", "error_message": ""}
        self._answer(200, {"model_version_status": [version]})

    def _answer(self, status, content):
        body = json.dumps(content, ensure_ascii=False).encode()
        self.server.answers.append(status)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
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
def serving_rest(behave=lambda handler: None):
    """Serves the stub's REST side on loopback; yields its server.

    Attributes of the server: `address`; `answers`, the HTTP statuses so far; `clients`, the
    addresses they went to; `state`, what the status page says; `behave`, a function of the
    handler that returns (status, JSON) to answer that instead.
    """
    server = ThreadingHTTPServer(("127.0.0.1", 0), _RestHandler)
    server.daemon_threads = True
    server.behave, server.answers, server.clients = behave, [], set()
    server.state = "AVAILABLE"
    server.address = f"127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
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
