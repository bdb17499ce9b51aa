"""The development server as users start it, and a small SavedModel for it to serve."""

import json
import pathlib
import re
import subprocess
import sys

import grpc
import httpx
import tensorflow as tf
from tensorflow.python.data.experimental.ops import testing
from tensorflow_serving.apis import (
    model_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

SERVER = pathlib.Path(__file__).resolve().parents[1] / "serving" / "server.py"


class ServerProcess:
    """`serving/server.py` for a folder of versions, on free ports, in a `with` statement.

    The attributes `prediction` and `models` are the official stubs.
    """

    def __init__(self, base_path):
        command = [sys.executable, SERVER, f"--model_base_path={base_path}"]
        command += ["--port=0", "--rest_api_port=0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()  # once it serves
        self.port, self.rest_port = map(int, re.findall(r":(\d+)", line))
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.port}")
        self.prediction = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)
        self.models = model_service_pb2_grpc.ModelServiceStub(self.channel)

    def http(self, path, body=None, timeout=60):
        """GET, or POST of a JSON document or bytes: (status, JSON)."""
        method = "GET" if body is None else "POST"
        content = body if body is None or isinstance(body, bytes) else json.dumps(body)
        url = f"http://127.0.0.1:{self.rest_port}{path}"
        answer = httpx.request(method, url, content=content, timeout=timeout)
        return answer.status_code, answer.json()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.terminate()
        self.channel.close()
        self.process.communicate(timeout=60)


def signature(*specs):
    """A decorator: a tf.function whose inputs have these specs, and the parameters' names."""
    return tf.function(input_signature=specs)


TEXTS, INTS, FLOATS = (tf.TensorSpec([None], dtype) for dtype in (tf.string, tf.int32, tf.float32))
LONGS, DOUBLES, BOOLS = (tf.TensorSpec([None], dtype) for dtype in (tf.int64, tf.float64, tf.bool))


class Toys(tf.Module):
    """Signatures of every type and number of inputs and outputs."""

    def __init__(self, version):
        super().__init__()
        self.version = tf.Variable(version)

    @signature(TEXTS)
    def echo(self, text):
        return {"text": tf.identity(text), "bytes": tf.strings.length(text)}

    @signature(INTS, tf.TensorSpec([None, None]))
    def pair(self, number, vector):
        total = tf.cast(number, tf.float32) + tf.reduce_sum(vector, axis=-1)
        return {"sum": total, "twice": vector * 2.0}

    @signature(FLOATS)
    def total(self, x):
        return {"total": tf.reduce_sum(x)}

    @signature(LONGS, DOUBLES, BOOLS)
    def types(self, long, double, bool):
        return {"long": -long, "double": 2 * double, "bool": ~bool}

    @signature(INTS)
    def slow(self, ms):
        """Answers with the model's version, after the largest of `ms`."""
        pause = 500 * tf.cast(tf.reduce_max(ms), tf.int64)  # µs, before the row and the end
        zero = tf.data.Dataset.from_tensors(0).apply(testing.sleep(pause)).get_single_element()
        return {"version": tf.fill(tf.shape(ms), self.version + zero)}


def save(base_path, version=1):
    """Saves `Toys` as a version, whose folder gets its name when it is whole."""
    toys, temporary = Toys(version), pathlib.Path(base_path) / f"writing-{version}"
    signatures = {name: getattr(toys, name) for name in ("echo", "pair", "total", "types", "slow")}
    tf.saved_model.save(toys, str(temporary), signatures | {"serving_default": toys.echo})
    return temporary.rename(temporary.with_name(str(version)))


DTYPES = {"text": tf.string, "long": tf.int64, "double": tf.float64}  # the others are as in Python


def request(signature="", version=None, label=None, model="default", output_filter=(), **inputs):
    """A PredictRequest; the inputs are nested lists, or TensorProtos."""
    spec = model_pb2.ModelSpec(name=model, signature_name=signature, version_label=label)
    if version is not None:
        spec.version.value = version
    message = predict_pb2.PredictRequest(model_spec=spec, output_filter=output_filter)
    for name, value in inputs.items():
        if isinstance(value, list):
            value = tf.make_tensor_proto(value, DTYPES.get(name))
        message.inputs[name].CopyFrom(value)
    return message
