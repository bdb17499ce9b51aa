"""The development server with the flags and files of serving/deploy, asked by the client.

Two real processes and two real sockets; the model has a translator's signatures and capitals for
English.
"""

import re
import shutil
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import translator_model
import yaml
from server_process import ServerProcess

from keras_tfmr.client import (
    ModelNotFoundError,
    ServingError,
    TranslatorClient,
)

ROOT = Path(__file__).resolve().parents[2]

DEPLOY = ROOT / "serving" / "deploy"
TEXTS = ["bom dia", "", "olá 🙂", "שלום", "a\tb", "x" * 201]


def compose_flags():
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return compose["services"]["translator"]["command"]


def kubernetes_flags():
    deployment = yaml.safe_load((DEPLOY / "kubernetes" / "deployment.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return [flag.replace("$(CPUS)", "2") for flag in container["args"]]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    translator_model.save(folder / "default", 1)
    return folder


@pytest.fixture(scope="module", params=[compose_flags, kubernetes_flags])
def ports(request, models, tmp_path_factory):
    """Ports (gRPC, REST) of a server started as the deployment starts it, paths and ports aside."""
    config = tmp_path_factory.mktemp("config")
    for file in (DEPLOY / "config").iterdir():
        (config / file.name).write_text(file.read_text().replace('"/models/', f'"{models}/'))
    flags = [flag.replace("=/config/", f"={config}/") for flag in request.param()]
    flags = [flag for flag in flags if not flag.startswith(("--port", "--rest_api_port"))]
    with ServerProcess(config, *flags) as server:
        yield server.port, server.rest_port
        assert server.terminate() == 0, server.stderr()


def test_labels_of_the_readme_outlive_the_start_of_a_pod(models, tmp_path):
    """Version 1 and 2, each under its label, from the first request on."""
    for version in ("1", "2"):
        shutil.copytree(models / "default" / "1", tmp_path / "default" / version)
    readme = (DEPLOY / "README.md").read_text()
    labels = re.search(r"^model_version_policy .*?```", readme, re.DOTALL | re.MULTILINE)[0][:-3]
    config = (DEPLOY / "config" / "models.config").read_text()
    config = re.sub(r"model_version_policy .*", lambda _: labels, config)
    (tmp_path / "models.config").write_text(config.replace('"/models/', f'"{tmp_path}/'))
    flag = "--allow_version_labels_for_unavailable_models"
    flags = [one for one in kubernetes_flags() if one.startswith(flag)]
    with (
        ServerProcess(tmp_path, *flags, f"--model_config_file={tmp_path}/models.config") as server,
        TranslatorClient(f"127.0.0.1:{server.port}", label="canary") as client,
    ):
        assert client.translate(["um"])[0].text == "UM"
        assert [version for version, _, _ in client.status()] == [2]


@pytest.fixture(params=["grpc", "rest"])
def settings(request, ports):
    rest = request.param == "rest"
    return {"server": f"127.0.0.1:{ports[rest]}", "rest": rest}


def test_signatures(settings):
    with TranslatorClient(**settings) as client:
        assert client.translate(TEXTS) == [
            (text.upper(), -len(text) / 8, len(text) > 200) for text in TEXTS
        ]
        assert client.translate_nbest(["um"]) == [[("UM", 0.0, False), ("UM!", -0.25, False)]]
        assert client.score(["um", "dois"], ["one", "two of it"]) == [
            (-0.5, 1, False),
            (-1.5, 3, False),
        ]
        one, two = client.explain(["a b", "c d e"])
    assert one.source_tokens == ["a", "b"] and one.attention == [[1, 0], [0, 1]]
    assert two.target_tokens == ["C", "D", "E"] and two.heads[1][0][2] == [0, 0, 1]


def test_single_sentences_of_many_clients(settings):
    """Batched across requests, filled up to an allowed size: each gets its own answer."""

    def ask(n):
        return client.translate([f"texto {n}"])[0].text == f"TEXTO {n}"

    with TranslatorClient(**settings) as client, ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(200)))


def test_more_sentences_than_a_batch_holds(settings):
    texts = [f"texto {n}" for n in range(150)]  # cut into batches of 64
    with TranslatorClient(**settings) as client:
        assert [one.text for one in client.translate(texts)] == [text.upper() for text in texts]
        with pytest.raises(ServingError, match=r"257.*256"):
            client.translate(["um"] * 257)


def test_unknown_names(settings):
    with (
        TranslatorClient(**settings, model="nobody") as client,
        pytest.raises(ModelNotFoundError, match="nobody"),
    ):
        client.translate(["um"])
    with TranslatorClient(**settings, version=7) as client, pytest.raises(ModelNotFoundError):
        client.translate(["um"])


def test_five_thousand_lines_through_the_command(settings):
    lines = [f"linha {n}" for n in range(5000)]
    command = [
        sys.executable,
        str(ROOT / "serving" / "client.py"),
        f"--server={settings['server']}",
    ]
    done = subprocess.run(
        [*command, *["--rest"] * settings["rest"]],
        input="\n".join(lines).encode(),
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().splitlines() == [line.upper() for line in lines]


def test_metrics_count_the_requests(ports):
    with TranslatorClient(f"127.0.0.1:{ports[0]}") as client:
        client.translate(["um"])
    address = f"http://127.0.0.1:{ports[1]}/monitoring/prometheus/metrics"
    with urllib.request.urlopen(address, timeout=10) as page:
        text = page.read().decode()
    assert ":tensorflow:serving:request_count" in text
