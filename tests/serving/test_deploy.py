"""Every file of serving/deploy by its own parser or published schema, and all of them together."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import compose_spec
import kubernetes_validate
import pytest
import translator_model
import yaml
from google.protobuf import text_format
from server_process import ServerProcess
from stub_translator import serving_rest, unused_port
from tensorflow_serving.config import model_server_config_pb2

from keras_tfmr.client import Target

ROOT = Path(__file__).resolve().parents[2]

DEPLOY = ROOT / "serving" / "deploy"
README = (DEPLOY / "README.md").read_text()
IMAGE = "tensorflow/serving:2.20.0"
KUBERNETES = ("1.30", "1.37")  # an old and a new cluster
FILES = sorted((DEPLOY / "kubernetes").glob("*.yaml"))


def objects():
    """Every Kubernetes object by (kind, name)."""
    found = {}
    for file in FILES:
        for one in yaml.safe_load_all(file.read_text()):
            found[one["kind"], one["metadata"]["name"]] = one
    return found


OBJECTS = objects()
POD = OBJECTS["Deployment", "translator"]["spec"]["template"]
(SERVER,) = POD["spec"]["containers"]
COMPOSE_TEXT = (DEPLOY / "compose.yaml").read_text()
COMPOSE = yaml.safe_load(COMPOSE_TEXT)["services"]["translator"]
COMMANDS = {
    "compose": COMPOSE["command"],
    "kubernetes": [argument.replace("$(CPUS)", "4") for argument in SERVER["args"]],
}


def seconds(flag):
    """A flag in milliseconds of the Deployment, in seconds."""
    return int(re.search(rf"{re.escape(flag)}=(\d+)", " ".join(SERVER["args"]))[1]) / 1000


def parse_compose(text):
    """As `docker compose` reads it, with MODEL_DIR set."""
    text = re.sub(r"\$\{MODEL_DIR:\?[^}]*\}", "/srv/models", text)
    text = re.sub(r"\$\{MODEL_OWNER:-([^}]*)\}", r'"\1"', text)
    compose = compose_spec.PyCompose.from_yaml(text)
    compose._inner.validate()
    return compose.to_spec()


def test_compose_file():
    service = parse_compose(COMPOSE_TEXT).services["translator"]
    assert service.image == IMAGE and service.init
    assert all(port.startswith("127.0.0.1:") for port in COMPOSE["ports"])
    assert [port.split(":")[1:] for port in COMPOSE["ports"]] == [["8500"] * 2, ["8501"] * 2]
    assert "${MODEL_DIR:?" in COMPOSE_TEXT


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("key", OBJECTS, ids="-".join)
def test_kubernetes_schema(key, version):
    assert kubernetes_validate.validate(OBJECTS[key], version, strict=True) == version


def test_images_are_pinned_to_one_version():
    texts = [file.read_text() for file in DEPLOY.rglob("*.*")]
    images = set(re.findall(r"tensorflow/serving:[\w.-]*", "\n".join(texts)))
    assert images == {IMAGE}


def test_services_reach_the_pods():
    ports = {port["name"]: port["containerPort"] for port in SERVER["ports"]}
    assert ports == {"grpc": 8500, "rest": 8501}
    for name in ("translator", "translator-rest"):
        service = OBJECTS["Service", name]["spec"]
        assert service["selector"].items() <= POD["metadata"]["labels"].items()
        assert all(ports[port["targetPort"]] == port["port"] for port in service["ports"])
    assert OBJECTS["Service", "translator"]["spec"]["clusterIP"] == "None"
    upload = OBJECTS["Pod", "translator-upload"]["metadata"]["labels"]
    assert not service["selector"].items() <= upload.items()


def test_scaling_and_disruption_name_the_deployment():
    target = OBJECTS["HorizontalPodAutoscaler", "translator"]["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) in OBJECTS
    assert "replicas" not in OBJECTS["Deployment", "translator"]["spec"]
    assert "cpu" in SERVER["resources"]["requests"]
    for kind in ("Deployment", "PodDisruptionBudget"):
        selector = OBJECTS[kind, "translator"]["spec"]["selector"]["matchLabels"]
        assert selector.items() <= POD["metadata"]["labels"].items()


@pytest.mark.parametrize(
    "pod", [POD, OBJECTS["Pod", "translator-upload"]], ids=["server", "upload"]
)
def test_volumes_are_there(pod):
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    for container in pod["spec"]["containers"]:
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes.keys()
    claim = volumes["models"]["persistentVolumeClaim"]["claimName"]
    assert ("PersistentVolumeClaim", claim) in OBJECTS


def test_a_pod_ends_after_its_requests():
    longest = seconds("--rest_api_timeout_in_ms")
    kind, pause = SERVER["lifecycle"]["preStop"]["exec"]["command"]
    assert kind == "sleep" and int(pause) > longest
    assert POD["spec"]["terminationGracePeriodSeconds"] > int(pause)
    assert seconds("grpc.max_connection_age_grace_ms") >= longest


def test_probes_ask_for_what_is_there():
    for probe in ("startupProbe", "readinessProbe"):
        assert SERVER[probe]["httpGet"] == {"path": f"/v1/models/{Target.model}", "port": "rest"}
    assert SERVER["livenessProbe"]["grpc"] == {"port": 8500}
    patience = SERVER["startupProbe"]
    assert patience["periodSeconds"] * patience["failureThreshold"] >= 300


def test_kustomization_takes_every_file():
    kustomization = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())
    taken = {DEPLOY / file for file in kustomization["resources"]}
    assert set(FILES) - taken == {DEPLOY / "kubernetes" / "upload.yaml"}
    (generated,) = kustomization["configMapGenerator"]
    assert generated["name"] == volume_named("config")["configMap"]["name"]
    files = {DEPLOY / file for file in generated["files"]}
    assert files == set((DEPLOY / "config").iterdir())


def volume_named(name):
    return next(volume for volume in POD["spec"]["volumes"] if volume["name"] == name)


def built(folder):
    """The objects of a kustomization by (kind, name)."""
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(done.stdout)}


@pytest.mark.skipif(not shutil.which("kubectl"), reason="needs kubectl (no cluster)")
def test_kubectl_builds_it_with_and_without_its_components(tmp_path):
    made = built(DEPLOY)
    (config,) = [one for kind, one in made.items() if kind[0] == "ConfigMap"]
    assert config["data"]["batching.config"] == (DEPLOY / "config/batching.config").read_text()
    folder = shutil.copytree(DEPLOY, tmp_path / "deploy")
    file = folder / "kustomization.yaml"
    commented = re.search(r"(?:^# (?:components:|  - [\w-]+)\n)+", file.read_text(), re.MULTILINE)[
        0
    ]
    file.write_text(file.read_text().replace(commented, commented.replace("# ", "")))
    assert set(yaml.safe_load(file.read_text())["components"]) == {"object-storage", "latency"}
    made = made | (both := built(folder))
    for (kind, _), one in made.items():
        if kind not in ("ScaledObject", "PodMonitor", "PrometheusRule"):
            kubernetes_validate.validate(one, KUBERNETES[-1], strict=True)
    pod = both["Deployment", "translator"]["spec"]["template"]["spec"]
    (fetch,) = pod["initContainers"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert {mount["name"] for mount in fetch["volumeMounts"]} <= volumes.keys()
    assert "emptyDir" in volumes["models"] and "persistentVolumeClaim" not in volumes["models"]
    assert both["NetworkPolicy", "translator"]["spec"]["egress"]
    assert not {"HorizontalPodAutoscaler", "PersistentVolumeClaim"} & {kind for kind, _ in both}
    assert both["ScaledObject", "translator"]["spec"]["scaleTargetRef"]["name"] == "translator"


def test_rules_use_the_metrics_and_labels_that_are_there():
    monitor, rules = yaml.safe_load_all((DEPLOY / "latency/rules.yaml").read_text())
    chosen = monitor["spec"]["selector"]["matchLabels"]
    assert chosen.items() <= POD["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] in {port["name"] for port in SERVER["ports"]}
    assert endpoint["path"] == POD["metadata"]["annotations"]["prometheus.io/path"]
    recorded, *alerts = rules["spec"]["groups"][0]["rules"]
    assert ":tensorflow:serving:request_latency_bucket" in recorded["expr"]
    assert recorded["record"] in alerts[0]["expr"]
    scaling = yaml.safe_load((DEPLOY / "latency/scaling.yaml").read_text())["spec"]
    assert recorded["record"] in scaling["triggers"][1]["metadata"]["query"]


def test_kserve_runs_this_image_on_a_folder_of_versions():
    runtime = yaml.safe_load((DEPLOY / "kserve/runtime.yaml").read_text())
    predictor = yaml.safe_load((DEPLOY / "kserve/service.yaml").read_text())["spec"]["predictor"]
    (container,) = runtime["spec"]["containers"]
    assert (container["name"], container["image"]) == ("kserve-container", IMAGE)
    assert {"--model_base_path=/mnt/models", "--rest_api_port=8080"} <= set(container["args"])
    pod = {"containers": [{**container, "args": []}]}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod}
    deployment = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    whole = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {}, "spec": deployment}
    kubernetes_validate.validate(whole, KUBERNETES[-1], strict=True)
    model = predictor["model"]
    assert model["runtime"] == runtime["metadata"]["name"]
    assert model["modelFormat"] in runtime["spec"]["supportedModelFormats"]
    assert model["protocolVersion"] in runtime["spec"]["protocolVersions"]
    assert model["storageUri"].endswith("/saved_model") and predictor["minReplicas"] == 0
    patch = json.loads(re.search(r"--patch '(.*?)'", README, re.DOTALL)[1])["spec"]["predictor"]
    assert patch["canaryTrafficPercent"] == 10 and patch["model"].keys() <= model.keys()


def test_models_config_is_the_servers_message():
    config = model_server_config_pb2.ModelServerConfig()
    text_format.Parse((DEPLOY / "config/models.config").read_text(), config)
    (model,) = config.model_config_list.config
    assert (model.name, model.model_platform) == (Target.model, "tensorflow")
    assert model.base_path in {volume["target"] for volume in COMPOSE["volumes"]}
    mounts = [mount["mountPath"] for mount in SERVER["volumeMounts"]]
    assert str(Path(model.base_path).parent) in mounts


@pytest.mark.parametrize("command", [COMPOSE["command"], SERVER["args"]], ids=["compose", "pod"])
def test_commands_name_files_that_are_there(command):
    files = {Path(file) for file in re.findall(r"_file=(\S+)", " ".join(command))}
    assert files == {Path("/config", file.name) for file in (DEPLOY / "config").iterdir()}
    assert {"--port=8500", "--rest_api_port=8501", "--enable_batching=true"} <= set(command)


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
def test_the_smoke_test_passes_and_fails(tmp_path):
    def smoke(rest_port, port):
        command = [DEPLOY / "smoke.sh", f"http://127.0.0.1:{rest_port}", f"127.0.0.1:{port}"]
        environment = {**os.environ, "PYTHON": sys.executable}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)

    translator_model.save(tmp_path / "models", 1)
    with ServerProcess(tmp_path, f"--model_base_path={tmp_path / 'models'}") as server:
        done = smoke(server.rest_port, server.port)
        assert done.returncode == 0, done.stdout
        assert done.stdout.endswith("pass: every check\n") and "FAIL" not in done.stdout
    with serving_rest() as stub, unused_port() as port:  # it has no answer for what is wrong
        done = smoke(stub.server_port, port)
        assert done.returncode > 0 and "FAIL  gRPC" in done.stdout
