"""The warm-up file: requests that TensorFlow Serving replays before a version goes into service.

The first request of each signature and batch size is slow, and with XLA very slow, since it is
then that executors are built and kernels compiled. A request in this file that fails keeps the
server from loading the version, so the file is replayed at export.
"""

import pathlib

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

    A compiled decoder also gets texts of every length bucket, each of which it compiles once.

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
    for name, function in translator.signatures.items():
        inputs = [spec.name for spec in function.input_signature]
        # Only what contains the decoder is compiled; of the others one length is enough.
        for group in groups if name != "score" else groups[:1]:
            for batch in batches:
                column = [group[i % len(group)] for i in range(batch)]
                found.append((name, dict.fromkeys(inputs, column)))
    return found


def replay(session, path, problems):
    """Replays a version's warm-up file, if it has one, through a session.

    Args:
        session: a `SavedSession`.
        path: the version's folder.
        problems: a list to which what goes wrong is added, as sentences.

    Returns:
        How many requests were replayed.
    """
    import tensorflow as tf

    file = pathlib.Path(path) / FILE
    if not file.exists():
        return 0
    try:
        from tensorflow_serving.apis import prediction_log_pb2
    except ImportError:
        problems.append("the warm-up file cannot be read without tensorflow-serving-api")
        return 0
    replayed = 0
    try:
        for record in tf.data.TFRecordDataset(str(file)).as_numpy_iterator():
            log = prediction_log_pb2.PredictionLog.FromString(record)
            if log.WhichOneof("log_type") is None:
                raise ValueError("the record holds no request")
            if log.HasField("predict_log"):
                _replay_one(session, log.predict_log.request)
            replayed += 1
    except Exception as error:  # the server, too, refuses the version whatever the error is
        problems.append(f"warm-up request {replayed + 1} fails: {questions.first_lines(error)}")
    if replayed > MOST_RECORDS:
        problems.append(
            f"the warm-up file has {replayed} requests, the server takes {MOST_RECORDS}"
        )
    return replayed


def _replay_one(session, request):
    import tensorflow as tf

    name = request.model_spec.signature_name or "serving_default"
    if name not in session.signatures:
        raise ValueError(f"there is no signature {name}")
    expected = set(session.signatures[name].inputs)
    if set(request.inputs) != expected:
        raise ValueError(
            f"{name} takes {sorted(expected)}, the request has {sorted(request.inputs)}"
        )
    session.run(name, {alias: tf.make_ndarray(value) for alias, value in request.inputs.items()})
