"""The files of serving/deploy by schemas, by kubectl, and by what runs: servers and commands."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import prometheus_client.parser
import pytest
import yaml
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    wrappers_pb2,
)
from stub_translator import unused_port
from tensorflow_serving.config import model_server_config_pb2

from keras_tfmr.export import batching, warmup
from serving.server import parse_arguments

DEPLOY = Path(__file__).resolve().parents[2] / "serving" / "deploy"
KUBERNETES = ("1.30", "1.37")  # an old and a new cluster
WITHOUT_SCHEMA = ("ScaledObject", "PodMonitor", "PrometheusRule")
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


def built(folder):
    """The objects of a kustomization by (kind, name)."""
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    objects = yaml.safe_load_all(done.stdout)
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}


@pytest.fixture(scope="module")
def plain():
    return built(DEPLOY)


@pytest.fixture(scope="module")
def extended(tmp_path_factory):
    """With both components. (Not `whole`: the tests' conftest would begin a training for it.)"""
    folder = shutil.copytree(DEPLOY, tmp_path_factory.mktemp("whole") / "deploy")
    file = folder / "kustomization.yaml"
    commented = r"^# ((?:components:|  - [\w-]+)\n)"
    file.write_text(re.sub(commented, r"\1", file.read_text(), flags=re.MULTILINE))
    return built(folder)


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


@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_schema(version):
    container = {"template": POD["spec"]["template"] | {"spec": {"containers": [KSERVE]}}}
    files = [f"kubernetes/{file.name}" for file in (DEPLOY / "kubernetes").iterdir()]
    objects = [one for file in files for one in read(file)]
    for one in [*objects, CONFIG, POD | {"spec": POD["spec"] | container}]:
        assert kubernetes_validate.validate(one, version, strict=True) == version


@pytest.mark.needs("kubectl")
@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_schema_of_what_kubectl_builds(version, plain, extended):
    for one in [*plain.values(), *extended.values()]:
        if one["kind"] not in WITHOUT_SCHEMA:
            assert kubernetes_validate.validate(one, version, strict=True) == version


@pytest.mark.needs("kubectl")
def test_components_replace_the_volume_and_the_autoscaler(plain, extended):
    gone = {kind for kind, _ in plain} - {kind for kind, _ in extended}
    assert gone == {"HorizontalPodAutoscaler", "PersistentVolumeClaim"}
    pod = extended["Deployment", "translator"]["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {mount["name"] for one in pod["initContainers"] for mount in one["volumeMounts"]}
    assert mounts <= volumes.keys() and "persistentVolumeClaim" not in volumes["models"]


@pytest.mark.needs("kubectl")
def test_services_lead_to_the_server_and_not_to_the_upload(plain):
    template = plain["Deployment", "translator"]["spec"]["template"]
    ports = {port["name"]: port["containerPort"] for port in KUBE["ports"]}
    (upload,) = read("kubernetes/upload.yaml")
    for (kind, _), one in plain.items():
        if kind == "Service":
            selector = one["spec"]["selector"].items()
            assert selector <= template["metadata"]["labels"].items()
            assert not selector <= upload["metadata"]["labels"].items()
            assert all(ports[port["targetPort"]] == port["port"] for port in one["spec"]["ports"])


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
    """As much of a request as the development server takes; and the warm-up's requests fit."""
    batching.write(tmp_path)
    model = parsed((tmp_path / "batching_params.pbtxt").read_text(), "BatchingParameters")
    most = parse_arguments(["--model_base_path=x"]).max_batch_size
    assert model.max_batch_size.value == most and model.enable_large_batch_splitting.value
    assert model.max_execution_batch_size.value == max(warmup.BATCHES) < most
    assert not model.HasField("num_batch_threads")  # which the server would ignore


def test_a_pod_ends_after_its_requests():
    flags = dict(re.findall(r"([\w.]+)=(\d+)", " ".join(KUBE["args"])))
    longest = int(flags["rest_api_timeout_in_ms"])
    pause = int(KUBE["lifecycle"]["preStop"]["exec"]["command"][1])
    assert 1000 * pause > longest <= int(flags["grpc.max_connection_age_grace_ms"])
    assert POD["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > pause


def test_a_running_server_answers_probes_health_checks_and_rules(server):
    server.predict({"inputs": ["a"]})
    for probe in ("startupProbe", "readinessProbe"):
        assert server.http(KUBE[probe]["httpGet"]["path"])[0] == 200
    check = COMPOSE["healthcheck"]["test"][1:]
    for port, status in ((server.rest_port, 0), (1, 1)):
        shell = [word.replace("8501", str(port)) for word in check]
        assert subprocess.run(shell, capture_output=True, timeout=60).returncode == status
    monitor, rules = read("latency/rules.yaml")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    page = server.http(endpoint["path"])[1]
    families = prometheus_client.parser.text_string_to_metric_families(page)
    samples = {one.name: one.labels for family in families for one in family.samples}
    (scaling,) = read("latency/scaling.yaml")
    recorded, *alerts = rules["spec"]["groups"][0]["rules"]
    samples[recorded["record"]] = {}
    asked = [rule["expr"] for rule in (recorded, *alerts)]
    asked.append(scaling["spec"]["triggers"][1]["metadata"]["query"])
    for metric, matchers in re.findall(r"([a-z_]*:[\w:]+)(?:\{(.*?)\})?", " ".join(asked)):
        assert set(re.findall(r"(\w+)!?=", matchers)) <= samples[metric].keys()


def test_the_smoke_test_fails():
    """It passes in test_readme.py, with a translator's server."""
    with unused_port() as port:
        command = [DEPLOY / "smoke.sh", f"http://127.0.0.1:{port}", "-"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode > 20 and "FAIL  the model is available" in done.stdout
