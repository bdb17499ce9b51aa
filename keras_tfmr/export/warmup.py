"""The warm-up file: requests that TensorFlow Serving replays before a version goes into service.

The first request of each signature and batch size is slow, and with XLA very slow, since it is
then that executors are built and kernels compiled. A request in this file that fails keeps the
server from loading the version, so the file is replayed at export.
"""

import pathlib
from typing import NamedTuple

from keras_tfmr.export import questions

FILE = pathlib.Path("assets.extra", "tf_serving_warmup_requests")

# The server stops with an error at more.
MOST_RECORDS = 1000


def write(path, requests):
    """Writes a warm-up file.

    Args:
        path: the version's folder.
        requests: a list of (signature, {input name: list of strings}).

    Raises:
        ValueError: for more requests than the server accepts.
    """
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

    requests = list(requests)
    if len(requests) > MOST_RECORDS:
        raise ValueError(
            f"A warm-up file holds at most {MOST_RECORDS} requests. Received: {len(requests)}"
        )
    file = pathlib.Path(path) / FILE
    file.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(file)) as writer:
        for signature, inputs in requests:
            request = predict_pb2.PredictRequest()
            request.model_spec.signature_name = signature
            for name, values in inputs.items():
                request.inputs[name].CopyFrom(tf.make_tensor_proto(values, tf.string))
            log = prediction_log_pb2.PredictionLog(
                predict_log=prediction_log_pb2.PredictLog(request=request)
            )
            writer.write(log.SerializeToString())


def requests(translator, texts, batches):
    """Requests for every signature of a translator and every batch size.

    A compiled decoder is one program for each size of batch and source: the requests of the first
    signature meet them all. What other signatures add to it is not compiled.

    Args:
        translator: a `Translator`.
        texts: a list of strings such as will be asked.
        batches: the batch sizes.

    Returns:
        A list for `write`.
    """
    groups = [list(texts)]
    if translator.xla:
        groups = [[text] for text in translator.graph.text_per_bucket(texts)]
    found = []
    for name in ("translate", "translate_nbest", "score", "explain"):
        inputs = [spec.name for spec in translator.signatures[name].input_signature]
        for group in groups if name == "translate" else groups[:1]:
            for batch in batches:
                column = [group[i % len(group)] for i in range(batch)]
                found.append((name, dict.fromkeys(inputs, column)))
    return found


class Request(NamedTuple):
    """A request of a warm-up file: its place in it, its signature, {input name: array}."""

    number: int
    signature: str
    inputs: dict


def read(path, problems):
    """The requests of a version's warm-up file, without records of kinds that ask no signature.

    Args:
        path: the version's folder.
        problems: a list to which what goes wrong is added, as sentences.

    Returns:
        A list of `Request`, up to the first record that is none.
    """
    import tensorflow as tf

    file = pathlib.Path(path) / FILE
    if not file.exists():
        return []
    try:
        from tensorflow_serving.apis import prediction_log_pb2
    except ImportError:
        problems.append("the warm-up file cannot be read without tensorflow-serving-api")
        return []
    found, number = [], 0
    try:
        for record in tf.data.TFRecordDataset(str(file)).as_numpy_iterator():
            log = prediction_log_pb2.PredictionLog.FromString(record)
            if log.WhichOneof("log_type") is None:
                raise ValueError("the record holds no request")
            number += 1
            if log.HasField("predict_log"):
                asked = log.predict_log.request
                inputs = {alias: tf.make_ndarray(value) for alias, value in asked.inputs.items()}
                name = asked.model_spec.signature_name or "serving_default"
                found.append(Request(number, name, inputs))
    except Exception as error:  # the server, too, refuses the version whatever the error is
        problems.append(f"warm-up request {number + 1} fails: {questions.first_lines(error)}")
    if number > MOST_RECORDS:
        problems.append(f"the warm-up file has {number} requests, the server takes {MOST_RECORDS}")
    return found


def replay(session, requests, problems):
    """Runs warm-up requests until one fails, as the server does.

    Args:
        session: a `SavedSession`.
        requests: a list of `Request`.
        problems: a list to which what goes wrong is added, as a sentence.
    """
    for request in requests:
        try:
            _replay_one(session, request)
        except Exception as error:  # whatever it is, the server refuses the version
            said = questions.first_lines(error)
            problems.append(f"warm-up request {request.number} fails: {said}")
            return


def _replay_one(session, request):
    if request.signature not in session.signatures:
        raise ValueError(f"there is no signature {request.signature}")
    expected = set(session.signatures[request.signature].inputs)
    if set(request.inputs) != expected:
        raise ValueError(
            f"{request.signature} takes {sorted(expected)}, the request has "
            f"{sorted(request.inputs)}"
        )
    session.run(request.signature, request.inputs)
