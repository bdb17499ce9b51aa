"""The warm-up file: requests that TensorFlow Serving replays before it serves a version.

The first request of each signature and batch size is slow, because it builds executors. If a
request in this file fails, the server does not load the version, so the export's check replays it.
"""

import pathlib
from typing import NamedTuple

import numpy as np

from keras_tfmr.export.batching import MAX_EXECUTION_BATCH_SIZE
from keras_tfmr.export.saved_session import first_lines

FILE = pathlib.Path("assets.extra", "tf_serving_warmup_requests")

# The fields of a PredictionLog that hold the requests of each method.
METHODS = {"predict": "predict_log", "classify": "classify_log", "regress": "regress_log"}

# For requests of one sentence, of a few, and for batches.
BATCHES = (1, 4, MAX_EXECUTION_BATCH_SIZE)

# With more, the server fails.
MOST_RECORDS = 1000


def write(path, requests, methods=None):
    """Writes a warm-up file.

    Args:
        path: The version's folder.
        requests: A list of (signature, {input name: values}); the values are a list of strings or
            an array, or serialised Examples for Classify and Regress.
        methods: {signature: its method}, of `METHODS`; "predict" by default.

    Raises:
        ValueError: If there are more requests than the server accepts.
    """
    import tensorflow as tf
    from tensorflow_serving.apis import prediction_log_pb2

    requests = list(requests)
    if len(requests) > MOST_RECORDS:
        raise ValueError(
            f"A warm-up file can hold at most {MOST_RECORDS} requests. Received: {len(requests)}"
        )
    file = pathlib.Path(path) / FILE
    file.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(file)) as writer:
        for signature, inputs in requests:
            method = (methods or {}).get(signature, "predict")
            log = prediction_log_pb2.PredictionLog()
            request = getattr(log, METHODS[method]).request
            request.model_spec.signature_name = signature
            if method == "predict":
                for name, values in inputs.items():
                    request.inputs[name].CopyFrom(tf.make_tensor_proto(values))
            else:
                (examples,) = inputs.values()
                parsed = [tf.train.Example.FromString(example) for example in examples]
                request.input.example_list.examples.extend(parsed)
            writer.write(log.SerializeToString())


def requests(text_model, texts, batches=BATCHES):
    """Requests for every signature of a text model and every batch size.

    Args:
        text_model: A `TextModel`.
        texts: A list of strings like those of real requests.
        batches: The batch sizes.

    Returns:
        A list for `write`, the default signature first.
    """
    from keras_tfmr.export import known_answers  # imports Keras, which a server does without

    default = text_model.default
    names = [default, *(name for name in text_model.signatures if name != default)]
    return [
        (name, known_answers.example(text_model, name, rows))
        for name in names
        for rows in ([texts[i % len(texts)] for i in range(batch)] for batch in batches)
    ]


class Request(NamedTuple):
    """A request in a warm-up file: its number, its signature, {input name: array}."""

    number: int
    signature: str
    inputs: dict


def read(path, problems):
    """The requests in a version's warm-up file; records that call no signature are left out.

    Args:
        path: The version's folder.
        problems: A list to which problems are added, as sentences.

    Returns:
        A list of `Request`, up to the first record that cannot be read.
    """
    import tensorflow as tf

    file, listed, number = pathlib.Path(path) / FILE, [], 1
    if not file.exists():
        return listed
    try:
        from tensorflow_serving.apis import prediction_log_pb2

        for record in tf.data.TFRecordDataset(str(file)).as_numpy_iterator():
            if number > MOST_RECORDS:
                raise ValueError(f"Number of warmup records exceeds the maximum ({MOST_RECORDS})")
            log = prediction_log_pb2.PredictionLog.FromString(record)
            if (kind := log.WhichOneof("log_type")) is None:
                raise ValueError("the record holds no request")
            if kind in METHODS.values():
                asked = getattr(log, kind).request
                name = asked.model_spec.signature_name or "serving_default"
                listed.append(Request(number, name, _inputs(asked)))
            number += 1
    except ImportError:
        problems.append("the warm-up file can only be read with tensorflow-serving-api installed")
    except Exception as error:  # after any error, the server refuses the version
        problems.append(f"warm-up request {number} fails: {first_lines(error)}")
    return listed


def _inputs(request):
    """{name: array} of a PredictRequest, ClassificationRequest or RegressionRequest."""
    import tensorflow as tf

    if hasattr(request, "inputs"):
        return {alias: tf.make_ndarray(value) for alias, value in request.inputs.items()}
    examples = request.input.example_list.examples
    return {"inputs": np.array([example.SerializeToString() for example in examples], object)}


def replay(session, requests, problems):
    """Runs warm-up requests until one fails, as the server does.

    Args:
        session: A `SavedSession`.
        requests: A list of `Request`.
        problems: A list to which a problem is added, as a sentence.
    """
    for request in requests:
        try:
            _replay_one(session, request)
        except Exception as error:  # after any error, the server refuses the version
            said = first_lines(error)
            problems.append(f"warm-up request {request.number} fails: {said}")
            return


def _replay_one(session, request):
    if request.signature not in session.signatures:
        raise ValueError(f"there is no signature {request.signature}")
    expected = set(session.signatures[request.signature].inputs)
    if set(request.inputs) != expected:
        raise ValueError(
            f"{request.signature} expects the inputs {sorted(expected)}; the request has "
            f"{sorted(request.inputs)}"
        )
    session.run(request.signature, request.inputs)
