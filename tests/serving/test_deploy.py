"""Every file of serving/deploy by its own parser or published schema, and all of them together."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import compose_spec
import kubernetes_validate
import pytest
import yaml
from google.protobuf import text_format
from stub_translator import unused_port
from tensorflow_serving.config import model_server_config_pb2

from keras_tfmr.client import Target

DEPLOY = Path(__file__).resolve().parents[2] / "serving" / "deploy"
KUBERNETES = ("1.30", "1.37")  # an old and a new cluster
FILES = sorted((DEPLOY / "kubernetes").glob("*.yaml"))


def named(objects):
    """Kubernetes objects by (kind, name)."""
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}


def read(file):
    return [*yaml.safe_load_all((DEPLOY / file).read_text())]


OBJECTS = named(one for file in FILES for one in read(file))
POD = OBJECTS["Deployment", "translator"]["spec"]["template"]
(SERVER,) = POD["spec"]["containers"]
COMPOSE_TEXT = (DEPLOY / "compose.yaml").read_text()
COMPOSE = yaml.safe_load(COMPOSE_TEXT)["services"]["translator"]


def test_the_compose_file_and_its_image_which_is_that_of_all_files():
    text = re.sub(r"\$\{MODEL_DIR:\?[^}]*\}", "/srv/models", COMPOSE_TEXT)  # as with it set
    compose = compose_spec.PyCompose.from_yaml(re.sub(r"\$\{\w+:-([^}]*)\}", r'"\1"', text))
    compose._inner.validate()
    texts = "".join(file.read_text() for file in DEPLOY.rglob("*.*"))
    images = {compose.to_spec().services["translator"].image}
    assert images == set(re.findall(r"tensorflow/serving:[\w.-]*", texts))
    assert COMPOSE["ports"] == ["127.0.0.1:8500:8500", "127.0.0.1:8501:8501"]


@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_schema(version):
    for one in OBJECTS.values():
        assert kubernetes_validate.validate(one, version, strict=True) == version


def test_objects_name_what_is_there():
    """Selectors the pods, ports the container's, mounts the volumes, and those their claims."""
    labels = POD["metadata"]["labels"]
    ports = {port["name"]: port["containerPort"] for port in SERVER["ports"]}
    assert ports == {"grpc": 8500, "rest": 8501}
    upload = OBJECTS["Pod", "translator-upload"]
    for name in ("translator", "translator-rest"):
        service = OBJECTS["Service", name]["spec"]
        assert service["selector"].items() <= labels.items()
        assert not service["selector"].items() <= upload["metadata"]["labels"].items()
        assert all(ports[port["targetPort"]] == port["port"] for port in service["ports"])
    target = OBJECTS["HorizontalPodAutoscaler", "translator"]["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) in OBJECTS and SERVER["resources"]["requests"]["cpu"]
    for kind in ("Deployment", "PodDisruptionBudget"):
        selector = OBJECTS[kind, "translator"]["spec"]["selector"]["matchLabels"]
        assert selector.items() <= labels.items()
    for pod in (POD, upload):
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        for container in pod["spec"]["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} == volumes.keys()
        claim = volumes["models"]["persistentVolumeClaim"]["claimName"]
        assert ("PersistentVolumeClaim", claim) in OBJECTS
    for probe in ("startupProbe", "readinessProbe"):
        assert SERVER[probe]["httpGet"] == {"path": f"/v1/models/{Target.model}", "port": "rest"}


def test_a_pod_ends_after_its_requests():
    flags = dict(re.findall(r"([\w.]+)=(\d+)", " ".join(SERVER["args"])))
    longest = int(flags["rest_api_timeout_in_ms"])
    kind, pause = SERVER["lifecycle"]["preStop"]["exec"]["command"]
    assert kind == "sleep" and 1000 * int(pause) > longest
    assert POD["spec"]["terminationGracePeriodSeconds"] > int(pause)
    assert int(flags["grpc.max_connection_age_grace_ms"]) >= longest


def built(folder):
    """The objects of a kustomization by (kind, name)."""
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return named(yaml.safe_load_all(done.stdout))


@pytest.mark.skipif(not shutil.which("kubectl"), reason="needs kubectl (no cluster)")
def test_kubectl_builds_it_with_and_without_its_components(tmp_path):
    made = built(DEPLOY)
    assert OBJECTS.keys() - made.keys() == {("Pod", "translator-upload")}
    (config,) = [one for kind, one in made.items() if kind[0] == "ConfigMap"]
    assert config["data"] == {file.name: file.read_text() for file in (DEPLOY / "config").iterdir()}
    folder = shutil.copytree(DEPLOY, tmp_path / "deploy")
    file = folder / "kustomization.yaml"
    commented = r"^# ((?:components:|  - [\w-]+)\n)"
    file.write_text(re.sub(commented, r"\1", file.read_text(), flags=re.MULTILINE))
    assert set(yaml.safe_load(file.read_text())["components"]) == {"object-storage", "latency"}
    made |= (both := built(folder))
    for (kind, _), one in made.items():
        if kind not in ("ScaledObject", "PodMonitor", "PrometheusRule"):
            kubernetes_validate.validate(one, KUBERNETES[-1], strict=True)
    pod = both["Deployment", "translator"]["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert {m["name"] for m in pod["initContainers"][0]["volumeMounts"]} <= volumes.keys()
    assert "emptyDir" in volumes["models"] and "persistentVolumeClaim" not in volumes["models"]
    assert not {"HorizontalPodAutoscaler", "PersistentVolumeClaim"} & {kind for kind, _ in both}
    assert both["ScaledObject", "translator"]["spec"]["scaleTargetRef"]["name"] == "translator"


def test_rules_use_the_metrics_and_labels_that_are_there():
    monitor, rules = read("latency/rules.yaml")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= POD["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] in {port["name"] for port in SERVER["ports"]}
    assert endpoint["path"] == POD["metadata"]["annotations"]["prometheus.io/path"]
    recorded, *alerts = rules["spec"]["groups"][0]["rules"]
    assert ":tensorflow:serving:request_latency_bucket" in recorded["expr"]
    assert recorded["record"] in alerts[0]["expr"]
    (scaling,) = read("latency/scaling.yaml")
    assert recorded["record"] in scaling["spec"]["triggers"][1]["metadata"]["query"]


def test_kserve_runs_this_image_on_a_folder_of_versions():
    (runtime,), (service,) = read("kserve/runtime.yaml"), read("kserve/service.yaml")
    (container,), predictor = runtime["spec"]["containers"], service["spec"]["predictor"]
    assert (container["name"], container["image"]) == ("kserve-container", SERVER["image"])
    assert {"--model_base_path=/mnt/models", "--rest_api_port=8080"} <= set(container["args"])
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    whole = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {}, "spec": spec}
    kubernetes_validate.validate(whole, KUBERNETES[-1], strict=True)
    model = predictor["model"]
    assert model["runtime"] == runtime["metadata"]["name"]
    assert model["modelFormat"] in runtime["spec"]["supportedModelFormats"]
    assert model["protocolVersion"] in runtime["spec"]["protocolVersions"]
    assert model["storageUri"].endswith("/saved_model") and predictor["minReplicas"] == 0
    patch = re.search(r"--patch '(.*?)'", (DEPLOY / "README.md").read_text(), re.DOTALL)
    patch = json.loads(patch[1])["spec"]["predictor"]
    assert patch["canaryTrafficPercent"] == 10 and patch["model"].keys() <= model.keys()


def test_models_config_is_the_servers_message_and_commands_name_their_files():
    config = model_server_config_pb2.ModelServerConfig()
    text_format.Parse((DEPLOY / "config/models.config").read_text(), config)
    (model,) = config.model_config_list.config
    assert (model.name, model.model_platform) == (Target.model, "tensorflow")
    assert model.base_path in {volume["target"] for volume in COMPOSE["volumes"]}
    mounts = [mount["mountPath"] for mount in SERVER["volumeMounts"]]
    assert str(Path(model.base_path).parent) in mounts
    for command in (COMPOSE["command"], SERVER["args"]):
        files = {Path(file) for file in re.findall(r"_file=(\S+)", " ".join(command))}
        assert files == {Path("/config", file.name) for file in (DEPLOY / "config").iterdir()}
        assert {"--port=8500", "--rest_api_port=8501", "--enable_batching=true"} <= set(command)


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
def test_the_smoke_test_fails():
    """It passes in test_readme.py, with a translator's server."""
    with unused_port() as port:
        command = [DEPLOY / "smoke.sh", f"http://127.0.0.1:{port}", "-"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode > 20 and "FAIL  the model is available" in done.stdout
