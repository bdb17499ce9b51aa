"""A translator behind TensorFlow Serving's API that knows no model: for tests of what asks it.

Built with the official stubs, so that whatever talks to it talks to the real server. Its English
is the Portuguese in capitals; `behave` makes it fail the way a server can. With other signatures it
is a classifier or a completer.
"""

import contextlib
import re
from concurrent import futures

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import (
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

LAYERS, HEADS, HYPOTHESES, LONGEST = 2, 4, 3, 200


def too_long(texts):
    return np.array([len(text) > LONGEST for text in texts])


def encoded(texts):
    """Lists of texts, filled with "" to the same length, as an array of bytes."""
    longest = max(map(len, texts), default=0)
    padded = [[*row, *[""] * (longest - len(row))] for row in texts]
    return np.array([[text.encode() for text in row] for row in padded], object)


def translate(texts):
    return {
        "translation": [text.upper().encode() for text in texts],
        "score": np.array([-len(text) / 8 for text in texts], "float32"),
        "truncated": too_long(texts),
    }


def translate_nbest(texts):
    """The n-th best translation has the number n at its end; "" has one translation only."""
    scores = np.tile(-np.arange(HYPOTHESES, dtype="float32") / 4, (len(texts), 1))
    scores[[not text for text in texts], 1:] = np.finfo("float32").min
    ends = ["", *(f" {n}" for n in range(1, HYPOTHESES))]
    translations = encoded([[text.upper() + end for end in ends] for text in texts])
    return {"translations": translations, "scores": scores, "truncated": too_long(texts)}


def translate_with_terms(texts, terms):
    """As the real one, of whole words."""
    outputs = translate(texts)
    for row, lines in enumerate(terms):
        given = dict(line.split("\t", 1) for line in lines.splitlines())
        words = [given.get(word, word.upper()) for word in texts[row].split()]
        outputs["translation"][row] = " ".join(words).encode()
    return outputs


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
        "target_tokens": encoded([[word.upper() for word in one] for one in words]),
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
        "translation": [text.upper().encode() for text in texts],
        "sentences": np.array([len(one) for one in sentences], "int32"),
        "truncated": np.array([any(too_long(one)) for one in sentences]),
        "source_pieces": encoded(pieces),
        "target_pieces": encoded([[piece.upper() for piece in one] for one in pieces]),
    }


SIGNATURES = {
    function.__name__: function
    for function in (
        translate_document,
        translate,
        translate_nbest,
        translate_with_terms,
        score,
        explain,
    )
}


def classify(texts):
    """Long, as likely as the text has characters of ten."""
    long = np.array([min(len(text) / 10, 1.0) for text in texts], "float32")
    probabilities = np.stack([np.maximum(long, 1 - long), np.minimum(long, 1 - long)], axis=1)
    labels = [["long", "short"] if share >= 0.5 else ["short", "long"] for share in long]
    return {
        "label": [names[0].encode() for names in labels],
        "labels": encoded(labels),
        "probabilities": probabilities,
        "truncated": too_long(texts),
    }


def complete(_top_p, _top_k, temperature, _seed, prompts, lengths):
    """As many words as may be, which are the temperature."""
    pairs = list(zip(temperature, lengths, strict=True))
    return {
        "text": [(f" {warmth:g}" * length).encode() for warmth, length in pairs],
        "log_prob": -np.array(lengths, "float32"),
        "tokens": np.array(lengths, "int32"),
        "finished": np.zeros(len(prompts), bool),
        "truncated": too_long(prompts),
    }


class StubTranslator(
    prediction_service_pb2_grpc.PredictionServiceServicer,
    model_service_pb2_grpc.ModelServiceServicer,
):
    """PredictionService and ModelService over the functions above.

    Attributes:
        behave: Function of (request, context) called before each answer; may sleep or abort.
        requests: The requests so far.
    """

    def __init__(self, signatures=None):
        self.signatures = SIGNATURES if signatures is None else signatures
        self.behave = lambda request, context: None
        self.requests = []

    def Predict(self, request, context):  # noqa: N802
        self.requests.append(request)
        self.behave(request, context)
        self._check_model(request.model_spec, context)
        if (name := request.model_spec.signature_name) not in self.signatures:
            text = f'Serving signature key "{name}" not found.'
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, text)
        inputs = [
            [one.decode("utf-8", "replace") if isinstance(one, bytes) else one for one in values]
            for _, tensor in sorted(request.inputs.items(), reverse=True)  # text, reference
            for values in [tf.make_ndarray(tensor).tolist()]
        ]
        outputs = self.signatures[name](*inputs)
        protos = {name: tf.make_tensor_proto(value) for name, value in outputs.items()}
        return predict_pb2.PredictResponse(outputs=protos)

    def GetModelStatus(self, request, context):  # noqa: N802
        self._check_model(request.model_spec, context)
        status = {"version": 7, "state": "AVAILABLE"}
        return get_model_status_pb2.GetModelStatusResponse(model_version_status=[status])

    def _check_model(self, spec, context):
        if spec.name != "default":
            text = f"Servable not found for request: Latest({spec.name})"
            context.abort(grpc.StatusCode.NOT_FOUND, text)


@contextlib.contextmanager
def serving(stub, port=0, credentials=None):
    """Serves a stub on loopback; yields `HOST:PORT`."""
    server = grpc.server(futures.ThreadPoolExecutor(16))
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
