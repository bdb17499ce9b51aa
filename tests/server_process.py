"""The development server as users start it, and small SavedModels for it to serve.

It is a process of its own with real sockets on free ports. The models are tf.Modules: no library
of ours is involved.
"""

import json
import pathlib
import re
import signal
import subprocess
import sys
import time

import grpc
import httpx
import tensorflow as tf
from tensorflow.python.data.experimental.ops import testing
from tensorflow_serving.apis import (
    model_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_log_pb2,
    prediction_service_pb2_grpc,
)

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

    def http(self, path, body=None):
        """GET, or POST of `body` (bytes, or anything that goes to JSON): (status, text)."""
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.rest_port}{path}"
        options = {"timeout": 30, "verify": False, "trust_env": False}
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


def signature(**inputs):
    """A decorator: a tf.function of inputs NAME=[dtype, *shape behind the batch]."""
    specs = [tf.TensorSpec([None, *s], dtype, name) for name, (dtype, *s) in inputs.items()]
    return tf.function(input_signature=specs)


class Toys(tf.Module):
    """A signature for each thing that a server has to get right."""

    def __init__(self, version):
        super().__init__()
        self.version = tf.Variable(version)

    @signature(text=[tf.string])
    def echo(self, text):
        return {"text": tf.identity(text), "bytes": tf.strings.length(text)}

    @signature(text=[tf.string])
    def raw(self, text):
        return {"text_bytes": tf.identity(text)}

    @signature(text=[tf.string])
    def boom(self, text):
        wrong = tf.reduce_any(text == "boom")
        with tf.control_dependencies([tf.debugging.assert_equal(wrong, False, "asked for")]):
            return {"text": tf.identity(text)}

    @signature(number=[tf.int32], vector=[tf.float32, None])
    def pair(self, number, vector):
        total = tf.cast(number, tf.float32) + tf.reduce_sum(vector, axis=-1)
        return {"sum": total, "twice": vector * 2.0}

    @signature(x=[tf.float32])
    def total(self, x):
        return {"total": tf.reduce_sum(x)}

    @signature(long=[tf.int64], double=[tf.float64], bool=[tf.bool])
    def types(self, long, double, bool):
        return {"long": -long, "double": 2 * double, "bool": ~bool}

    @signature(text=[tf.string])
    def translate(self, text):
        """As `stub_translator` does; beside it, what the demo page asks for."""
        length = tf.strings.length(text, unit="UTF8_CHAR")
        score = -tf.cast(length, tf.float32) / 8
        return {"translation": capitals(text), "score": score, "truncated": length > 200}

    @signature(text=[tf.string])
    def translate_document(self, text):
        pieces = {"source_pieces": text[:, None], "target_pieces": capitals(text)[:, None]}
        one, short = tf.ones_like(text, tf.int32), text == ""
        return {"translation": capitals(text), "sentences": one, "truncated": short, **pieces}

    @signature(ms=[tf.int32])
    def slow(self, ms):
        """Answers after the largest of `ms`; tells the rows of its run and the model's version."""
        half = 500 * tf.cast(
            tf.reduce_max(ms), tf.int64
        )  # microseconds, before the row and the end
        zero = tf.data.Dataset.from_tensors(0).apply(testing.sleep(half)).get_single_element()
        rows = tf.fill(tf.shape(ms), tf.size(ms) + zero)
        return {"rows": rows, "version": tf.fill(tf.shape(ms), self.version)}


def capitals(text):
    return tf.strings.upper(text, encoding="utf-8")


SIGNATURES = ("echo", "raw", "boom", "pair", "total", "types", "translate", "translate_document")
SIGNATURES += ("slow",)


def save(base_path, version=1, warmup=()):
    """Saves `Toys` as one version, with requests to warm up, before its folder has its name."""
    toys, temporary = Toys(version), pathlib.Path(base_path) / f"writing-{version}"
    signatures = {name: getattr(toys, name) for name in SIGNATURES}
    tf.saved_model.save(toys, str(temporary), {"serving_default": toys.echo, **signatures})
    (temporary / "assets.extra").mkdir()
    file = temporary / "assets.extra" / "tf_serving_warmup_requests"
    with tf.io.TFRecordWriter(str(file)) as writer:
        for one in warmup:
            log = prediction_log_pb2.PredictionLog(predict_log={"request": one})
            writer.write(log.SerializeToString())
    about = {"examples": ["bom dia", "boa noite"], "run": {}}
    (temporary / "assets.extra" / "keras_tfmr.json").write_text(json.dumps(about))
    temporary.rename(temporary.with_name(str(version)))


def request(signature="", version=None, label=None, model="default", output_filter=(), **inputs):
    """A PredictRequest; inputs are whatever tf.make_tensor_proto takes, or TensorProtos."""
    spec = model_pb2.ModelSpec(name=model, signature_name=signature)
    if version is not None:
        spec.version.value = version
    if label is not None:
        spec.version_label = label
    message = predict_pb2.PredictRequest(model_spec=spec, output_filter=output_filter)
    for name, value in inputs.items():
        proto = value if hasattr(value, "tensor_shape") else tf.make_tensor_proto(value)
        message.inputs[name].CopyFrom(proto)
    return message
