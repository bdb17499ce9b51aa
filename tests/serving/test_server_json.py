"""JSON and tensors of the development server against independent parsers; its flags and configs."""

import json
import pathlib
import tracemalloc

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import predict_pb2

from serving.devserver import configs, flags, json_request, json_response, tensors
from serving.devserver.errors import ServingError

DTYPES = [
    "float32",
    "float64",
    "float16",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
    "complex64",
    "complex128",
    tf.bfloat16.as_numpy_dtype,
]
# Flags of tensorflow_model_server 2.20 that one may find in a script.
REAL_FLAGS = """
force_allow_any_version_labels_for_unavailable_models port grpc_socket_path rest_api_port
rest_api_num_threads rest_api_timeout_in_ms
rest_api_enable_cors_support enable_batching allow_version_labels_for_unavailable_models
batching_parameters_file enable_per_model_batching_parameters model_config_file
model_config_file_poll_wait_seconds model_name model_base_path num_load_threads num_unload_threads
max_num_load_retries load_retry_interval_micros file_system_poll_wait_seconds
flush_filesystem_caches tensorflow_session_parallelism tensorflow_session_config_file
tensorflow_intra_op_parallelism tensorflow_inter_op_parallelism use_alts_credentials
ssl_config_file platform_config_file per_process_gpu_memory_fraction saved_model_tags
grpc_channel_arguments grpc_max_threads enable_model_warmup num_request_iterations_for_warmup
monitoring_config_file enable_signature_method_name_check xla_cpu_compilation_enabled
xla_gpu_compilation_enabled enable_profiler thread_pool_factory_config_file
enable_grpc_healthcheck_service enable_serialization_as_tensor_content
"""


def random_floats(dtype, count=2000):
    """Every bit pattern is as likely as any other: denormals, huge ones, NaN and infinities."""
    bits = np.random.default_rng(0).integers(0, 256, count * np.dtype(dtype).itemsize, np.uint8)
    return bits.view(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.filterwarnings("ignore:overflow")
def test_written_floats_are_read_back_exactly(dtype):
    whole = np.array([0, -0.0, 1, 10, 100000, 999999, 1e6, 123456.7, 1e-5, 2.5e-5], dtype)
    array = np.concatenate([random_floats(dtype), whole])
    text = json_response.format_response({"y": array}, row=False).decode()
    read = np.array(json.loads(text)["outputs"], dtype)
    np.testing.assert_array_equal(read, array)
    numbers = [line.strip(" ,") for line in text.splitlines()[2:-2]]
    assert all(
        "." in number or "e" in number or number.lstrip("-") in ("NaN", "Infinity")
        for number in numbers
    )


@pytest.mark.parametrize("row", [True, False])
@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 0), (0,), (2, 1, 2)])
def test_layouts_are_json(row, shape):
    size = int(np.prod(shape))
    arrays = {
        "integers": np.arange(size).reshape(shape),
        "flags": (np.arange(size) % 2 == 0).reshape(shape),
        "words": np.array([f'"{i}\\\n\t\x01é🙂'.encode() for i in range(size)], object),
    }
    arrays["words"] = arrays["words"].reshape(shape)
    for chosen in (arrays, {"integers": arrays["integers"]}, {"words": arrays["words"]}):
        document = json.loads(json_response.format_response(chosen, row))
        plain = {
            name: [w.decode() for w in a.ravel()] if a.dtype == object else a.ravel().tolist()
            for name, a in chosen.items()
        }
        nested = {name: np.array(p, object).reshape(shape).tolist() for name, p in plain.items()}
        if not row:
            expected = nested if len(nested) > 1 else next(iter(nested.values()))
            assert document == {"outputs": expected}
            continue
        rows = [{name: value[i] for name, value in nested.items()} for i in range(shape[0])]
        if len(nested) == 1:
            rows = [next(iter(item.values())) for item in rows]
        assert document == {"predictions": rows}


def signature(**dtypes):
    inputs = meta_graph_pb2.SignatureDef().inputs
    for name, dtype in dtypes.items():
        inputs[name].dtype = dtype
    return inputs


@pytest.mark.parametrize("shape", [(), (2,), (3, 2), (2, 1, 3), (0,)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", "bool"])
def test_requests_become_tensors(shape, dtype):
    array = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    inputs = signature(x=tf.as_dtype(dtype).as_datatype_enum)
    for key in ("inputs", "instances"):
        if key == "instances" and (not shape or not shape[0]):
            continue
        request = predict_pb2.PredictRequest()
        body = json.dumps({key: array.tolist()}).encode()
        row = json_request.fill_request(json_request.parse(body), inputs, request)
        assert row == (key == "instances")
        read = tf.make_ndarray(request.inputs["x"])
        assert read.dtype == array.dtype and read.shape == array.shape
        np.testing.assert_array_equal(read, array)


def test_more_levels_of_lists_than_a_tensor_has_dimensions():
    value = 1
    for _ in range(64):
        value = [value]
    inputs = signature(x=types_pb2.DT_FLOAT)
    for key in ("inputs", "instances"):
        with pytest.raises(ServingError, match="lists within lists to level 64"):
            document = {key: value if key == "inputs" else [value]}
            json_request.fill_request(document, inputs, predict_pb2.PredictRequest())


def test_a_tensor_type_without_json():
    request = predict_pb2.PredictRequest()
    inputs = signature(x=types_pb2.DT_COMPLEX64)
    with pytest.raises(ServingError, match="Conversion of JSON Value: 1 to type: complex64"):
        json_request.fill_request({"inputs": [1]}, inputs, request)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_protos_hold_what_the_arrays_held(dtype):
    array = np.random.default_rng(0).integers(0, 2, (2, 3)).astype(dtype)
    typed = tensors.to_proto(array)
    assert not typed.tensor_content
    for proto in (typed, tf.make_tensor_proto(array)):
        for read in (tensors.to_array(proto, "x"), tf.make_ndarray(proto)):
            assert read.dtype == array.dtype
            np.testing.assert_array_equal(read, array)


def test_strings_of_every_rank():
    for shape in ((), (0,), (2, 2)):
        array = np.full(shape, b"\xff\0a", object)
        read = tensors.to_array(tensors.to_proto(array), "x")
        assert read.shape == shape and read.tolist() == array.tolist()


def test_flags_of_the_real_server_are_accepted():
    options = flags.parse([f"--{flag}=1" for flag in REAL_FLAGS.split()])
    assert options.enable_batching is True and options.port == 1
    assert "use_alts_credentials" in options.ignored and "port" not in options.ignored
    assert flags.parse(["--model_base_path=x", "--enable_batching"]).enable_batching is True
    assert flags.parse(["--model_base_path=x", "--enable_batching=false"]).enable_batching is False
    defaults = flags.parse(["--model_base_path=x"])
    assert (defaults.port, defaults.rest_api_port, defaults.model_name) == (8500, 0, "default")
    assert defaults.rest_api_timeout_in_ms == 30000 and defaults.enable_model_warmup is True


def test_text_configs_have_their_real_fields():
    ssl = text_format.Parse(
        'server_key: "k" server_cert: "c" custom_ca: "a" client_verify: true', configs.SSLConfig()
    )
    assert (ssl.server_key, ssl.client_verify) == ("k", True)
    monitoring = text_format.Parse(
        'prometheus_config { enable: true path: "/x" }', configs.MonitoringConfig()
    )
    assert monitoring.prometheus_config.path == "/x"
    with pytest.raises(text_format.ParseError):
        text_format.Parse("certificate: 'c'", configs.SSLConfig())
    deploy = pathlib.Path(configs.__file__).parents[1] / "deploy" / "config" / "batching.config"
    found = configs.batch_settings(configs.read(deploy, configs.BatchingParameters))
    assert found.allowed[-1] == found.execution_size <= found.max_size


@pytest.mark.parametrize(
    "value",
    ["x" * 50_000_000, [1.5] * 5_000_000, {"k": [["long"] * 1000] * 1000}, {"k" * 50_000_000: 1}],
    ids=["text", "list", "lists", "name"],
)
def test_an_error_about_a_large_value_is_made_of_its_beginning(value):
    tracemalloc.start()
    with pytest.raises(ServingError, match="must be a string value") as raised:
        json_request.signature_name({"instances": value, "signature_name": 100})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 1000 < len(str(raised.value)) < 2000
    assert peak < 1 << 20


@pytest.mark.parametrize("value", ["é\n" * 300, [[1, "a"], {"b": None}] * 3, {"a": {"b": [1.5]}}])
def test_a_small_value_is_quoted_whole(value):
    assert json_request._text(value) == json.dumps(value, indent=4, ensure_ascii=False)
