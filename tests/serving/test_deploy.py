"""The files of serving/deploy, and an export's own, by the server's messages and in a shell."""

import os
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    wrappers_pb2,
)
from tensorflow_serving.config import model_server_config_pb2

from keras_tfmr.export import batching, warmup

DEPLOY = Path(__file__).resolve().parents[2] / "serving" / "deploy"
# Of TensorFlow Serving's main.cc, those that a deployment of one model may need.
FLAGS = """port rest_api_port rest_api_timeout_in_ms model_name model_base_path model_config_file
model_config_file_poll_wait_seconds allow_version_labels_for_unavailable_models enable_batching
enable_per_model_batching_parameters
batching_parameters_file monitoring_config_file ssl_config_file enable_grpc_healthcheck_service
tensorflow_session_parallelism tensorflow_intra_op_parallelism tensorflow_inter_op_parallelism
grpc_channel_arguments grpc_max_threads rest_api_num_threads file_system_poll_wait_seconds"""
# Its BatchingParameters and MonitoringConfig, which no package has, as far as they are used here.
MESSAGES = """syntax = "proto3";
import "google/protobuf/wrappers.proto";
message BatchingParameters {
  google.protobuf.Int64Value max_batch_size = 1;
  google.protobuf.Int64Value batch_timeout_micros = 2;
  google.protobuf.Int64Value max_enqueued_batches = 3;
  google.protobuf.Int64Value num_batch_threads = 4;
  google.protobuf.BoolValue enable_large_batch_splitting = 8;
  google.protobuf.Int64Value max_execution_batch_size = 9;
}
message MonitoringConfig { PrometheusConfig prometheus_config = 1; }
message PrometheusConfig { bool enable = 1; string path = 2; }
"""


def read(file):
    return [*yaml.safe_load_all((DEPLOY / file).read_text())]


COMPOSE = read("compose.yaml")[0]["services"]["translator"]
CONFIG, RUNTIME = read("kserve/runtime.yaml")
OWN_CONFIG = {file.name: file.read_text() for file in (DEPLOY / "config").iterdir()}
(KSERVE,) = RUNTIME["spec"]["containers"]
(POD,) = read("kubernetes/deployment.yaml")
(KUBE,) = POD["spec"]["template"]["spec"]["containers"]
SERVERS = {
    "compose": (COMPOSE["command"], OWN_CONFIG, None),
    "kubernetes": (KUBE["args"], OWN_CONFIG, KUBE["resources"]["limits"]["cpu"]),
    "kserve": (KSERVE["args"], CONFIG["data"], KSERVE["resources"]["limits"]["cpu"]),
}


@pytest.fixture(scope="module")
def parsed(tmp_path_factory):
    """`parsed(text, name)` is a text file of the server as the message of that name."""
    folder = tmp_path_factory.mktemp("messages")
    (folder / "server.proto").write_text(MESSAGES)
    protoc = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", "server.proto"]
    subprocess.run([*protoc, f"--descriptor_set_out={folder / 'set'}"], check=True)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    (file,) = descriptor_pb2.FileDescriptorSet.FromString((folder / "set").read_bytes()).file
    pool.Add(file)

    def parsed(text, name):
        message = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))()
        return text_format.Parse(text, message)

    return parsed


@pytest.mark.parametrize("name", SERVERS)
def test_servers_get_flags_and_files_that_they_know(name, parsed):
    command, files, cores = SERVERS[name]
    flags = dict(word.removeprefix("--").split("=", 1) for word in command)
    assert flags.keys() <= set(FLAGS.split())
    assert flags["enable_batching"] == flags["enable_per_model_batching_parameters"] == "true"

    def file(flag):
        return files[Path(flags[flag]).name]

    server = parsed(file("batching_parameters_file"), "BatchingParameters")
    assert [field.name for field, _ in server.ListFields()] == ["num_batch_threads"]
    assert cores in (None, str(server.num_batch_threads.value))
    monitoring = parsed(file("monitoring_config_file"), "MonitoringConfig")
    assert monitoring.prometheus_config.enable
    if name != "kserve":
        models = model_server_config_pb2.ModelServerConfig()
        text_format.Parse(file("model_config_file"), models)
        assert [one.model_platform for one in models.model_config_list.config] == ["tensorflow"]


def test_an_export_says_how_it_is_batched(tmp_path, parsed):
    """The warm-up's requests fit into a batch. None is split: see tests/export/test_batching.py."""
    batching.write(tmp_path)
    model = parsed((tmp_path / "batching_params.pbtxt").read_text(), "BatchingParameters")
    assert max(warmup.BATCHES) <= model.max_batch_size.value == batching.MAX_BATCH_SIZE
    assert not model.HasField("enable_large_batch_splitting")
    assert not model.HasField("num_batch_threads")  # which the server would ignore


def test_the_container_is_tested_with_the_flags_of_compose():
    smoke = (DEPLOY / "smoke.sh").read_text()
    assert re.search(r"^flags=\(\n(.*?)^\)", smoke, re.M | re.S)[1].split() == COMPOSE["command"]


def test_a_pod_is_ready_and_a_container_healthy_while_a_version_is_available():
    probe = KUBE["readinessProbe"]["exec"]["command"]
    assert probe == COMPOSE["healthcheck"]["test"][1:]
    state = '{{"model_version_status": [{{"version": "1", "state": "{}"}}]}}'
    for name in ("AVAILABLE", "LOADING", "END"):
        page = "HTTP/1.1 200 OK\r\n\r\n" + state.format(name)
        with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
            asked = pool.submit(answer_once, server, page)
            own = probe[2].replace("8501", str(server.getsockname()[1]))
            done = subprocess.run([*probe[:2], own], timeout=30)
            assert (done.returncode == 0) == (name == "AVAILABLE")
            assert asked.result().startswith(b"GET /v1/models/default HTTP/1.1\r\nHost: ")


def answer_once(server, page):
    """Answers one connection with a page; returns what it asked."""
    connection, _ = server.accept()
    asked = b""
    with connection:
        while not asked.endswith(b"\r\n\r\n"):
            asked += connection.recv(4096)
        connection.sendall(page.encode())
    return asked


SECURITY = {
    "runAsNonRoot": True, "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
}  # fmt: skip


def test_each_container_of_a_cluster_is_confined_and_watched():
    pods = [POD["spec"]["template"]["spec"], read("kubernetes/upload.yaml")[0]["spec"]]
    for pod in (*pods, {"containers": [KSERVE]}):
        for container in pod["containers"]:
            context = pod.get("securityContext", {}) | container["securityContext"]
            assert SECURITY.items() <= context.items()
    assert KUBE["livenessProbe"] and KSERVE["livenessProbe"]["httpGet"]["port"] == 8080
    assert RUNTIME["spec"]["protocolVersions"] == ["v1"], "each other one needs a port"
    assert [port["containerPort"] for port in KSERVE["ports"]] == [8080]


# In place of the server; process 1 of the container is the shell that starts it.
STUB = """#!/bin/bash
trap 'echo ended; exit 0' TERM
echo "$@"
while :; do /bin/sleep 0.05; done
"""


def test_sigterm_reaches_the_server_of_kserve_after_a_pause(tmp_path):
    for name, script in (
        ("tensorflow_model_server", STUB),
        ("sleep", "#!/bin/sh\necho pause $1\n"),
    ):
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = [*KSERVE["command"], "--port=9000", "--x=1 2"]
    options = {"stdout": subprocess.PIPE, "text": True, "env": environment}
    with subprocess.Popen(command, **options) as process:
        assert process.stdout.readline() == "--port=9000 --x=1 2\n"
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=30)[0] == "pause 35\nended\n"
