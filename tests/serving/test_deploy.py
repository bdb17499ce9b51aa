"""The files of serving/deploy, and an export's own: by the server's messages, by the schemas of
Kubernetes, and in a shell."""

import copy
import http.server
import os
import re
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import pytest
import yaml
from batching import parameters_of
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from keras_tfmr.export import batching, warmup
from serving import load

DEPLOY = Path(__file__).resolve().parents[2] / "serving" / "deploy"
# Of TensorFlow Serving's main.cc, those that a deployment of one model may need.
FLAGS = """port rest_api_port rest_api_timeout_in_ms model_name model_base_path model_config_file
model_config_file_poll_wait_seconds allow_version_labels_for_unavailable_models enable_batching
enable_per_model_batching_parameters
batching_parameters_file monitoring_config_file ssl_config_file enable_grpc_healthcheck_service
tensorflow_session_parallelism tensorflow_intra_op_parallelism tensorflow_inter_op_parallelism
grpc_channel_arguments grpc_max_threads rest_api_num_threads num_load_threads"""


def read(file):
    return [*yaml.safe_load_all((DEPLOY / file).read_text())]


COMPOSE = read("compose.yaml")[0]["services"]["translator"]
CONFIG, RUNTIME = read("kserve/runtime.yaml")
(SERVICE,) = read("kserve/service.yaml")
OWN_CONFIG = {file.name: file.read_text() for file in (DEPLOY / "config").iterdir()}
(KSERVE,) = RUNTIME["spec"]["containers"]
(POD,) = read("kubernetes/deployment.yaml")
(KUBE,) = POD["spec"]["template"]["spec"]["containers"]
# The override that turns batching on, as each of them has it.
(COMPONENT,) = read("batching/kustomization.yaml")
KUBE_BATCHING = [step["value"] for step in yaml.safe_load(COMPONENT["patches"][0]["patch"])]
(PATCH,) = read("kserve/batching.yaml")
KSERVE_BATCHING = PATCH["spec"]["predictor"]["model"]["args"]


def expanded(words, **environment):
    """Words in which Compose replaces variables, as a shell does; an error if one is needed."""
    lines = "\n".join(words)
    shell = ["bash", "-c", f"cat <<END\n{lines}\nEND"]
    environment |= {"PATH": os.environ["PATH"]}
    done = subprocess.run(shell, env=environment, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


# The flags without and with batching, the files, the cores.
KUBE_FILES = OWN_CONFIG | {"batching.config": (DEPLOY / "batching/batching.config").read_text()}
SERVERS = {
    "compose": (
        expanded(COMPOSE["command"], CPUS="3"),
        expanded(COMPOSE["command"], CPUS="3", BATCHING="true"), OWN_CONFIG, "3",
    ),
    "kubernetes": (
        KUBE["args"], KUBE["args"] + KUBE_BATCHING, KUBE_FILES, KUBE["resources"]["limits"]["cpu"]
    ),
    "kserve": (
        KSERVE["args"], KSERVE["args"] + KSERVE_BATCHING, CONFIG["data"],
        KSERVE["resources"]["limits"]["cpu"],
    ),
}  # fmt: skip


def flags_of(command):
    return dict(word.removeprefix("--").split("=", 1) for word in command)


@pytest.mark.parametrize("name", SERVERS)
def test_servers_get_flags_and_files_that_they_know(name):
    _, batching, files, cores = SERVERS[name]
    flags = flags_of(batching)
    assert flags.keys() <= set(FLAGS.split())
    assert flags["tensorflow_inter_op_parallelism"] in (cores, "$(CPUS)")

    def file(flag):
        return files[Path(flags[flag]).name]

    if name != "compose":  # where the server counts the machine's cores
        parameters = parameters_of(file("batching_parameters_file"))
        assert parameters == {"num_batch_threads": int(cores)}
    assert re.search(r"^prometheus_config \{\s+enable: true", file("monitoring_config_file"), re.M)
    if name != "kserve":
        models = model_server_config_pb2.ModelServerConfig()
        text_format.Parse(file("model_config_file"), models)
        assert [one.model_platform for one in models.model_config_list.config] == ["tensorflow"]


@pytest.mark.parametrize("name", SERVERS)
def test_batching_is_off_until_an_override_turns_it_on(name):
    off, on = map(flags_of, SERVERS[name][:2])
    for flag in ("enable_batching", "enable_per_model_batching_parameters"):
        assert off.get(flag, "false") == "false" and on[flag] == "true"
    assert "batching_parameters_file" not in off, "the server would not start with it"
    assert int(off["num_load_threads"]) > 1, "a broken version would hold up another"
    assert int(off["grpc_max_threads"]) >= max(load.parse_arguments(["--data=x"]).callers)


def test_an_export_says_how_it_is_batched(tmp_path):
    """The warm-up's requests fit into a batch. None is split: see tests/export/test_batching.py.

    The server would ignore the number of threads.
    """
    batching.write(tmp_path)
    model = parameters_of((tmp_path / batching.FILE).read_text())
    assert model.keys() == {"max_batch_size", "batch_timeout_micros", "max_enqueued_batches"}
    assert max(warmup.BATCHES) <= model["max_batch_size"] == batching.MAX_BATCH_SIZE


def test_the_container_is_tested_with_the_flags_of_compose():
    smoke = (DEPLOY / "smoke.sh").read_text()
    assert re.search(r"^flags=\(\n(.*?)^\)", smoke, re.M | re.S)[1].split() == COMPOSE["command"]


def test_compose_runs_as_nobody_within_limits():
    limits = COMPOSE["deploy"]["resources"]["limits"]
    assert expanded([COMPOSE["user"], limits["memory"]]) == ["65534:65534", "4G"]
    assert "cap_add" not in COMPOSE and COMPOSE["cap_drop"] == ["ALL"]
    assert expanded([limits["cpus"]], CPUS="3") == ["3"]
    with pytest.raises(subprocess.CalledProcessError) as caught:
        expanded([limits["cpus"]])
    assert "CPUS: set CPUS to the cores" in caught.value.stderr


SECURITY = {
    "runAsNonRoot": True, "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
}  # fmt: skip


def test_each_container_of_a_cluster_is_confined_and_watched():
    (check,) = read("kubernetes/check.yaml")
    pods = [POD["spec"]["template"]["spec"], read("kubernetes/upload.yaml")[0]["spec"]]
    pods += [check["spec"]["jobTemplate"]["spec"]["template"]["spec"]]
    for pod in (*pods, {"containers": [KSERVE]}):
        for container in pod["containers"] + pod.get("initContainers", []):
            context = pod.get("securityContext", {}) | container["securityContext"]
            assert SECURITY.items() <= context.items()
    assert KUBE["livenessProbe"] and KSERVE["livenessProbe"]["httpGet"]["port"] == 8080
    assert RUNTIME["spec"]["protocolVersions"] == ["v1"], "each other one needs a port"
    assert [port["containerPort"] for port in KSERVE["ports"]] == [8080]


def test_kserve_is_local_to_its_cluster():
    name, labels = SERVICE["metadata"]["name"], SERVICE["metadata"]["labels"]
    for system in ("knative.dev", "kserve.io"):
        assert labels[f"networking.{system}/visibility"] == "cluster-local"
    (policy,) = read("kserve/network.yaml")
    pods = policy["spec"]["podSelector"]["matchLabels"]
    assert pods == {"serving.kserve.io/inferenceservice": name}
    assert all(rule["from"] for rule in policy["spec"]["ingress"])


COMPONENTS = ("object-storage", "batching", "latency")


def invalid(objects):
    """What is wrong in objects; the kinds of operators, whose schemas Kubernetes does not have."""
    import kubernetes_validate

    wrong, unknown, latest = [], set(), kubernetes_validate.latest_version()
    for each in objects:
        try:
            kubernetes_validate.validate(each, latest, strict=True)
        except kubernetes_validate.SchemaNotFoundError:
            assert each["apiVersion"].count("/") == 1 and each["metadata"]["name"]
            unknown.add(each["kind"])
        except kubernetes_validate.ValidationError as error:
            wrong.append(error.message)
    return wrong, unknown


@pytest.mark.needs("kubectl", "kubernetes_validate")
@pytest.mark.parametrize("components", [(), *((name,) for name in COMPONENTS), COMPONENTS])
def test_what_kubectl_builds_is_valid(components, tmp_path):
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    with (tmp_path / "deploy/kustomization.yaml").open("a") as file:
        yaml.safe_dump({"components": list(components)}, file)
    build = ["kubectl", "kustomize", tmp_path / "deploy"]
    done = subprocess.run(build, check=True, capture_output=True, text=True)
    objects = [*yaml.safe_load_all(done.stdout)]
    found = {(each["kind"], each["metadata"]["name"]): each for each in objects}
    scaled = {"ScaledObject", "PodMonitor", "PrometheusRule"}
    assert invalid(objects) == ([], scaled if "latency" in components else set())
    assert ("HorizontalPodAutoscaler", "translator") in found or "latency" in components
    pod = found["Deployment", "translator"]["spec"]["template"]["spec"]
    assert ("--enable_batching=true" in pod["containers"][0]["args"]) == ("batching" in components)
    assert [one["name"] for one in pod["initContainers"]] == ["model"]
    assert ("rclone" in pod["initContainers"][0]["image"]) == ("object-storage" in components)


@pytest.mark.needs("kubernetes_validate")
def test_other_objects_are_valid_and_a_misspelt_field_is_not():
    files = ("kubernetes/upload", "kserve/runtime", "kserve/service", "kserve/network")
    objects = [each for file in files for each in read(f"{file}.yaml")]
    assert invalid(objects) == ([], {"ServingRuntime", "InferenceService"})
    misspelt = copy.deepcopy(POD)
    misspelt["spec"]["template"]["spec"]["containers"][0]["resorces"] = {}
    (wrong,), _ = invalid([misspelt])
    assert "'resorces' was unexpected" in wrong


class Pod(http.server.BaseHTTPRequestHandler):
    """A REST port with version 2 in a `state`, at which sentences are answered if `answers`."""

    answers, state = True, "AVAILABLE"

    def do_GET(self):
        if self.path == "/v1/models/default":
            status = f'{{\n "version": "2",\n "state": "{self.state}"\n}}'
            self.reply(f'{{"model_version_status": [{status}]}}')

    def do_POST(self):
        if self.answers:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.reply("{}")

    def reply(self, text):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *arguments):
        pass


@pytest.fixture
def port():
    """That of a `Pod`, as a text."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pod) as server:
        threading.Thread(target=server.serve_forever).start()
        yield str(server.server_address[1])
        server.shutdown()


@pytest.mark.parametrize("state", ["AVAILABLE", "LOADING", "END"])
def test_a_pod_is_ready_and_a_container_healthy_while_a_version_is_available(
    state, port, monkeypatch
):
    probe = KUBE["readinessProbe"]["exec"]["command"]
    assert probe == COMPOSE["healthcheck"]["test"][1:]
    monkeypatch.setattr(Pod, "state", state)
    done = subprocess.run([*probe[:2], probe[2].replace("8501", port)], timeout=30)
    assert (done.returncode == 0) == (state == "AVAILABLE")


def test_the_check_says_what_a_pod_lacks(tmp_path, port, monkeypatch):
    def said(port=port):
        check = ["bash", DEPLOY / "kubernetes/check.sh", "127.0.0.1", tmp_path, port, "0"]
        done = subprocess.run(check, capture_output=True, text=True, timeout=60)
        assert done.returncode == bool(done.stdout) and not done.stderr
        return done.stdout

    assert said() == "", "without a folder, any version will do"
    for name in ("1", "2", "incoming", "30x"):
        (tmp_path / name).mkdir()
    assert said() == ""
    (tmp_path / "10").mkdir()
    assert said() == "127.0.0.1 does not serve version 10\n"
    (tmp_path / "10").rmdir()
    monkeypatch.setattr(Pod, "answers", False)
    assert said() == "127.0.0.1 does not answer a sentence\n"
    assert said("9").startswith("127.0.0.1 does not serve version 2\n")


def test_a_pod_waits_for_the_first_upload(tmp_path):
    (waiting,) = POD["spec"]["template"]["spec"]["initContainers"]
    (script,) = waiting["args"]
    (tmp_path / "incoming").mkdir()
    command = [*waiting["command"], script.replace("/models/default", str(tmp_path))]
    with subprocess.Popen(command) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        (tmp_path / "incoming").rename(tmp_path / "1")
        assert process.wait(30) == 0


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
        assert process.communicate(timeout=30)[0] == "pause 25\nended\n"
    assert int(flags_of(KSERVE["args"])["rest_api_timeout_in_ms"]) < 25_000, "requests can finish"
