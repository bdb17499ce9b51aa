"""Small SavedModels to serve in tests, written as tf.Modules: no library of ours is involved."""

import pathlib

import tensorflow as tf
from server_process import ServerProcess
from tensorflow.core.framework import tensor_pb2
from tensorflow_serving.apis import model_pb2, predict_pb2, prediction_log_pb2


def save(module, base_path, version, **signatures):
    """Saves a module as one version, complete before its directory has its name."""
    base_path = pathlib.Path(base_path)
    base_path.mkdir(parents=True, exist_ok=True)
    temporary = base_path / f"writing-{version}"
    tf.saved_model.save(module, str(temporary), signatures=signatures)
    temporary.rename(base_path / str(version))
    return base_path / str(version)


class HalfPlus(tf.Module):
    """y = x / 2 + constant, for any shape; the model of TensorFlow Serving's own tests."""

    def __init__(self, constant):
        super().__init__()
        self.constant = tf.Variable(float(constant))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x")])
    def half_plus(self, x):
        return {"y": x / 2 + self.constant}


class Compiled(tf.Module):
    """y = 2 x, compiled by XLA."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x")])
    def double(self, x):
        return {"y": tf.function(lambda x: x + x, jit_compile=True)(x)}


class Echo(tf.Module):
    """Strings in, strings out; `boom` fails its whole batch; `pair` has two inputs and outputs."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def echo(self, text):
        return {"text": tf.identity(text), "bytes": tf.strings.length(text)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def raw(self, text):
        return {"text_bytes": tf.identity(text)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def boom(self, text):
        with tf.control_dependencies(
            [tf.debugging.assert_equal(tf.reduce_any(text == "boom"), False, "boom was asked for")]
        ):
            return {"text": tf.identity(text)}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.int32, "number"),
            tf.TensorSpec([None, None], tf.float32, "vector"),
        ]
    )
    def pair(self, number, vector):
        return {
            "sum": tf.cast(number, tf.float32) + tf.reduce_sum(vector, axis=-1),
            "vector": vector * 2.0,
        }

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x")])
    def total(self, x):
        return {"total": tf.reduce_sum(x)}

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string, name) for name in ("first", "second")]
    )
    def joined(self, first, second):
        return {"joined": tf.strings.reduce_join(first + second)}


class Slow(tf.Module):
    """Answers after the most milliseconds of its inputs; tells how many rows its batch had."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32, "ms")])
    def slow(self, ms):
        longest = tf.reduce_max(tf.concat([ms, [0]], 0))
        end = tf.timestamp() + tf.cast(longest, tf.float64) / 1000
        rounds = tf.while_loop(lambda i: tf.timestamp() < end, lambda i: [i + 1], [0])[0]
        rows = tf.shape(ms)[0]
        return {"rows": tf.fill([rows], rows) + 0 * rounds, "ms": ms}


CONFIG = """
model_config_list {{
  config {{
    name: "half" base_path: "{0}/half" model_platform: "tensorflow"
    model_version_policy {{ all {{}} }}
    version_labels {{ key: "stable" value: 1 }}
    version_labels {{ key: "canary" value: 2 }}
  }}
  config {{ name: "echo" base_path: "{0}/echo" model_platform: "tensorflow" }}
  config {{ name: "slow" base_path: "{0}/slow" model_platform: "tensorflow" }}
}}
"""


def half_plus(base_path, version, constant=2.0):
    module = HalfPlus(constant)
    return save(module, base_path, version, serving_default=module.half_plus)


def compiled(base_path, version=1):
    module = Compiled()
    return save(module, base_path, version, serving_default=module.double)


def echo(base_path, version=1):
    module = Echo()
    return save(
        module,
        base_path,
        version,
        serving_default=module.echo,
        raw=module.raw,
        boom=module.boom,
        pair=module.pair,
        total=module.total,
        joined=module.joined,
    )


def slow(base_path, version=1):
    module = Slow()
    return save(module, base_path, version, serving_default=module.slow)


def warmup(path, *requests):
    """Writes a warm-up file into a version's directory; a `bytes` request is written as it is."""
    folder = pathlib.Path(path) / "assets.extra"
    folder.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(folder / "tf_serving_warmup_requests")) as writer:
        for request in requests:
            if not isinstance(request, bytes):
                log = prediction_log_pb2.PredictLog(request=request)
                request = prediction_log_pb2.PredictionLog(predict_log=log).SerializeToString()
            writer.write(request)


def request(model="default", signature="", version=None, label="", output_filter=(), **inputs):
    """A PredictRequest; inputs are whatever tf.make_tensor_proto takes, or TensorProtos."""
    spec = model_pb2.ModelSpec(name=model, signature_name=signature)
    if version is not None:
        spec.version.value = version
    if label:
        spec.version_label = label
    message = predict_pb2.PredictRequest(model_spec=spec, output_filter=output_filter)
    for name, value in inputs.items():
        if not isinstance(value, tensor_pb2.TensorProto):
            value = tf.make_tensor_proto(value)
        message.inputs[name].CopyFrom(value)
    return message


def three_models(folder):
    """A running server of `half` (two versions, two labels), `echo` and `slow`."""
    half_plus(folder / "half", "00000001", 2.0)
    half_plus(folder / "half", 2, 3.0)
    echo(folder / "echo")
    slow(folder / "slow")
    (folder / "models.config").write_text(CONFIG.format(folder))
    (folder / "monitoring.config").write_text("prometheus_config { enable: true }")
    return ServerProcess(
        folder,
        f"--model_config_file={folder}/models.config",
        f"--monitoring_config_file={folder}/monitoring.config",
        "--allow_version_labels_for_unavailable_models=true",
        "--enable_grpc_healthcheck_service",
        "--rest_api_enable_cors_support=true",
        "--rest_api_timeout_in_ms=2000",
        "--per_process_gpu_memory_fraction=0.5",
    )
