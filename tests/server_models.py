"""Small SavedModels to serve in tests, written as tf.Modules: no library of ours is involved."""

import pathlib

import tensorflow as tf
from tensorflow_serving.apis import model_pb2, predict_pb2, prediction_log_pb2


def spec(dtype, name, *shape):
    return tf.TensorSpec([None, *shape], dtype, name)


class Toys(tf.Module):
    """A signature for each thing that a server has to get right."""

    def __init__(self, version):
        super().__init__()
        self.version = tf.Variable(version)

    @tf.function(input_signature=[spec(tf.string, "text")])
    def echo(self, text):
        return {"text": tf.identity(text), "bytes": tf.strings.length(text)}

    @tf.function(input_signature=[spec(tf.string, "text")])
    def raw(self, text):
        return {"text_bytes": tf.identity(text)}

    @tf.function(input_signature=[spec(tf.string, "text")])
    def boom(self, text):
        wrong = tf.reduce_any(text == "boom")
        with tf.control_dependencies([tf.debugging.assert_equal(wrong, False, "asked for")]):
            return {"text": tf.identity(text)}

    @tf.function(input_signature=[spec(tf.int32, "number"), spec(tf.float32, "vector", None)])
    def pair(self, number, vector):
        total = tf.cast(number, tf.float32) + tf.reduce_sum(vector, axis=-1)
        return {"sum": total, "twice": vector * 2.0}

    @tf.function(input_signature=[spec(tf.float32, "x")])
    def total(self, x):
        return {"total": tf.reduce_sum(x)}

    @tf.function(input_signature=[spec(tf.float64, "x")])
    def double(self, x):
        return {"y": 2 * x}

    @tf.function(input_signature=[spec(tf.int64, "x"), spec(tf.bool, "negate")])
    def sign(self, x, negate):
        return {"x": tf.where(negate, -x, x), "negate": negate}

    @tf.function(input_signature=[spec(tf.int32, "ms")])
    def slow(self, ms):
        """Answers after the largest of `ms`; tells the rows of its run and the model's version."""
        end = tf.timestamp() + tf.cast(tf.reduce_max(ms), tf.float64) / 1000
        rounds = tf.while_loop(lambda i: tf.timestamp() < end, lambda i: [i + 1], [0])[0]
        rows = tf.fill(tf.shape(ms), tf.size(ms)) + 0 * rounds
        return {"rows": rows, "version": tf.fill(tf.shape(ms), self.version)}


SIGNATURES = ("echo", "raw", "boom", "pair", "total", "double", "sign", "slow")


def save(base_path, version=1, warmup=None):
    """Saves `Toys` as one version, complete before its folder has its name.

    Args:
        warmup: Requests of the warm-up file, or `bytes` for its records as they are.
    """
    base_path = pathlib.Path(base_path)
    toys, temporary = Toys(version), base_path / f"writing-{version}"
    signatures = {name: getattr(toys, name) for name in SIGNATURES}
    tf.saved_model.save(toys, str(temporary), {"serving_default": toys.echo, **signatures})
    if warmup is not None:
        (temporary / "assets.extra").mkdir()
        file = temporary / "assets.extra" / "tf_serving_warmup_requests"
        with tf.io.TFRecordWriter(str(file)) as writer:
            for record in warmup:
                if not isinstance(record, bytes):
                    log = prediction_log_pb2.PredictLog(request=record)
                    record = prediction_log_pb2.PredictionLog(predict_log=log).SerializeToString()
                writer.write(record)
    return temporary.rename(base_path / str(version))


def request(signature="", version=None, model="default", output_filter=(), **inputs):
    """A PredictRequest; inputs are whatever tf.make_tensor_proto takes, or TensorProtos."""
    spec = model_pb2.ModelSpec(name=model, signature_name=signature)
    if version is not None:
        spec.version.value = version
    message = predict_pb2.PredictRequest(model_spec=spec, output_filter=output_filter)
    for name, value in inputs.items():
        proto = value if hasattr(value, "tensor_shape") else tf.make_tensor_proto(value)
        message.inputs[name].CopyFrom(proto)
    return message
