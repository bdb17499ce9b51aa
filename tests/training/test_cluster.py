"""Several devices and several workers: the weights of one device, and manifests that fit."""

import json
import os
import re
import socket
import subprocess
from pathlib import Path

import keras
import kubernetes_validate
import numpy as np
import pytest
import yaml
from kubeflow.training import models as kubeflow_models
from tiny_runs import TINY, finished, last_arrays, start, write_pairs

from training.config import TrainingConfig
from training.distributed import connect
from training.files import RunError

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "training" / "deploy"
STEPS = 30


def free_ports(count):
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def weights_of(run):
    """Those of the last checkpoint, but key biases: their gradient is nothing but rounding."""
    arrays = last_arrays(run)
    return {
        re.sub(r"/\d+/", "/", name, count=1): array
        for name, array in arrays.items()
        if name.startswith("model/") and not name.endswith("key/bias") and "seed" not in name
    }


@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_the_weights_do_not_depend_on_devices_and_workers(tmp_path, backend):
    """Without dropout, and to rounding; only the first worker writes and prints."""
    if backend != keras.backend.backend():
        pytest.skip("each backend's tests try their own")
    corpus = write_pairs(tmp_path / "pairs.tsv")
    words = ("--data", corpus, *TINY, "--dropout_rate", "0", "--steps", STEPS, "--no_export")
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    processes = {"alone": [start(*words, "--output", tmp_path / "alone")]}
    processes["devices"] = [start(*words, "--output", tmp_path / "devices", "--devices", "2")]
    processes["workers"] = [
        start(
            *words, "--output", tmp_path / "workers", TF_CONFIG=json.dumps(
                {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
            ),
        )
        for index in range(2)
    ]  # fmt: skip
    said = {name: [finished(one) for one in ones] for name, ones in processes.items()}
    assert "BLEU" in said["workers"][0] and "BLEU" not in said["workers"][1]
    expected = weights_of(tmp_path / "alone")
    for name in ("devices", "workers"):
        found = weights_of(tmp_path / name)
        assert found.keys() == expected.keys()
        for path, array in expected.items():
            np.testing.assert_allclose(found[path], array, atol=2e-5, rtol=0, err_msg=path)


@pytest.mark.parametrize(
    "text, message",
    [
        ("no JSON", "Cannot read TF_CONFIG"),
        ('{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker"}}', "give --steps"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(monkeypatch, text, message):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(RunError, match=message):
        connect(TrainingConfig().resolved())
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a:1"]}}')
    assert connect(TrainingConfig().resolved()).chief


@pytest.mark.parametrize("version", ["1.30", "1.37"])
def test_the_indexed_job_fits_its_schema(version):
    service, job = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    for one in (service, job):
        kubernetes_validate.validate(one, version, strict=True)
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == 2
    assert job["spec"]["template"]["spec"]["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    broken = {**job, "spec": {**job["spec"], "completion_mode": "Indexed"}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, version, strict=True)


def test_the_jobs_that_translate_give_each_part_to_one_task(monkeypatch):
    from training.translate import parse_arguments

    job = yaml.safe_load((DEPLOY / "translate_job.yaml").read_text())
    kubernetes_validate.validate(job, "1.30", strict=True)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    script = (DEPLOY / "translate_array.sh").read_text().replace("\\\n", " ")
    tasks = range(16)
    assert f"--array=0-{tasks[-1]}\n" in script
    assert job["spec"]["completions"] == len(tasks) and job["spec"]["completionMode"] == "Indexed"
    for name, words in (
        ("JOB_COMPLETION_INDEX", container["command"][2:]),
        ("SLURM_ARRAY_TASK_ID", script.split("training/translate.py")[-1].split()),
    ):
        outputs = []
        for index in tasks:
            monkeypatch.setenv(name, str(index))
            outputs.append(parse_arguments(words).output.name)
        monkeypatch.delenv(name)
        assert outputs == sorted({f"out.{index + 1:02}-of-16.txt" for index in tasks})


def check_fields(value, kind):
    """Whether the fields of a value are those of a type of Kubeflow's published API."""
    if inner := re.fullmatch(r"dict\(str, (.*)\)|list\[(.*)\]", kind):
        for one in value.values() if isinstance(value, dict) else value:
            check_fields(one, inner[1] or inner[2])
    elif kind == "V1PodTemplateSpec":
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "worker"}, **value}
        kubernetes_validate.validate(pod, "1.30", strict=True)
    elif kind.startswith("KubeflowOrg"):
        type_of = getattr(kubeflow_models, kind)
        names = {json_name: name for name, json_name in type_of.attribute_map.items()}
        for name, inner in value.items():
            assert name in names, f"{kind} has no {name}"
            check_fields(inner, type_of.openapi_types[names[name]])
    elif kind in ("str", "int", "bool"):
        assert type(value).__name__ == kind


def test_the_kubeflow_job_fits_the_published_api():
    job = yaml.safe_load((DEPLOY / "kubeflow.yaml").read_text())
    check_fields(job, "KubeflowOrgV1TFJob")
    broken = {**job, "spec": {**job["spec"], "replicas": 2}}
    with pytest.raises(AssertionError, match="has no replicas"):
        check_fields(broken, "KubeflowOrgV1TFJob")


def test_the_job_makes_a_tf_config_that_is_understood(tmp_path):
    """Its own shell script, with a stand-in for Python that prints what it is given."""
    _, job = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    (container,) = job["spec"]["template"]["spec"]["containers"]
    (tmp_path / "python").write_text('#!/bin/sh\necho "$TF_CONFIG"\n')
    (tmp_path / "python").chmod(0o755)
    environment = {one["name"]: one["value"] for one in container["env"]}
    environment |= {"JOB_COMPLETION_INDEX": "1", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        container["command"], env=environment, capture_output=True, text=True, check=True
    )
    name = job["metadata"]["name"]
    assert json.loads(done.stdout) == {
        "cluster": {"worker": [f"{name}-0.{name}:8888", f"{name}-1.{name}:8888"]},
        "task": {"type": "worker", "index": 1},
    }


@pytest.mark.parametrize("file", ["kubernetes.yaml", "kubeflow.yaml", "slurm.sh"])
def test_manifests_run_the_command_with_options_it_has(file):
    from training.config import TrainingConfig

    text = (DEPLOY / file).read_text()
    assert "training/train_pt_en.py" in text
    words = text[text.index("train_pt_en.py") :].replace("=", " ").split()
    options = [word.removeprefix("--") for word in words if word.startswith("--")]
    assert options and all(hasattr(TrainingConfig, name) for name in options)


@pytest.mark.parametrize("file", ["slurm.sh", "translate_array.sh"])
def test_the_batch_script_is_a_shell_script(file):
    done = subprocess.run(["bash", "-n", DEPLOY / file], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
