"""The warm-up file: requests that TensorFlow Serving replays before it serves a version.

The first request of each signature and batch size is slow, because it builds executors. If a
request in this file fails, the server does not load the version, so the export's check replays it.
"""

import pathlib
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from keras_tfmr.export.saved_session import SavedSession, first_lines

FILE = pathlib.Path("assets.extra", "tf_serving_warmup_requests")

# For requests of one sentence, of a few, and for batches.
BATCHES = (1, 4, 32)


class Request(NamedTuple):
    """A request in a warm-up file: its number, its signature, {input name: array}."""

    number: int
    signature: str
    inputs: dict[str, np.ndarray]


def write(path: pathlib.Path, requests: Iterable[tuple[str, dict]]) -> None:
    """Writes the warm-up file into a version's folder.

    Each request is a signature and {input name: list of strings, or array}.
    """
    file = path / FILE
    file.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(file)) as writer:
        for signature, inputs in requests:
            log = prediction_log_pb2.PredictionLog()
            request = log.predict_log.request
            request.model_spec.signature_name = signature
            for name, values in inputs.items():
                request.inputs[name].CopyFrom(tf.make_tensor_proto(values))
            writer.write(log.SerializeToString())


def read(path: pathlib.Path) -> list[Request]:
    """The requests in a version's warm-up file, none if there is no file.

    A ValueError for a record that cannot be read: the server would refuse the version.
    """
    file = path / FILE
    requests: list[Request] = []
    if not file.exists():
        return requests
    try:
        for record in tf.data.TFRecordDataset(str(file)).as_numpy_iterator():
            log = prediction_log_pb2.PredictionLog.FromString(record)
            if log.WhichOneof("log_type") != "predict_log":
                raise ValueError("the record holds no request to Predict")
            asked = log.predict_log.request
            inputs = {alias: tf.make_ndarray(value) for alias, value in asked.inputs.items()}
            name = asked.model_spec.signature_name or "serving_default"
            requests.append(Request(len(requests) + 1, name, inputs))
    except Exception as error:  # of TFRecord, protobuf or NumPy
        said = first_lines(error)
        raise ValueError(f"warm-up request {len(requests) + 1} fails: {said}") from error
    return requests


def replay(session: SavedSession, request: Request) -> None:
    """Runs a warm-up request, as the server does; a ValueError if it fails."""
    try:
        if request.signature not in session.signatures:
            raise ValueError(f"there is no signature {request.signature}")
        expected = sorted(session.signatures[request.signature].inputs)
        if sorted(request.inputs) != expected:
            raise ValueError(
                f"{request.signature} expects the inputs {expected}; the request has "
                f"{sorted(request.inputs)}"
            )
        session.run(request.signature, request.inputs)
    except Exception as error:  # whatever it is, the server refuses the version
        said = first_lines(error)
        raise ValueError(f"warm-up request {request.number} fails: {said}") from error
