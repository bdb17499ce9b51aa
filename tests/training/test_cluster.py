"""Several devices and several workers: the weights of one device, and scripts that start them."""

import json
import os
import re
import subprocess
from functools import partial

import keras
import numpy as np
import pytest
import yaml
from tiny_runs import ROOT, TINY, finished, free_ports, last_arrays, start, train, write_pairs

from training.command.disk import RunError
from training.run.distributed import connect
from training.settings.training_config import TrainingConfig

DEPLOY = ROOT / "training" / "deploy"


def weights_of(run):
    """Those of the last checkpoint, but key biases: their gradient is nothing but rounding."""
    return {
        re.sub(r"/\d+/", "/", name, count=1): array
        for name, array in last_arrays(run).items()
        if name.startswith("model/") and not name.endswith("key/bias") and "seed" not in name
    }


UNEVALUATED = """
from training import train_pt_en
from training.run import report
report.finish = lambda *arguments: None
raise SystemExit(train_pt_en.main())
"""


@pytest.mark.slow
def test_the_weights_do_not_depend_on_devices_and_workers(tmp_path, unevaluated):
    """Without dropout and clipping, and to rounding; only the first worker writes and prints."""
    words = ("--data", write_pairs(tmp_path / "pairs.tsv"), *TINY, "clip_norm=0")
    words += ("dropout_rate=0", "--steps", 10, "--output")
    begin = partial(start, *words, script=("-c", UNEVALUATED))
    devices = begin(tmp_path / "devices", "--devices", "2")
    cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports(2)]}
    tasks = [{"cluster": cluster, "task": {"type": "worker", "index": i}} for i in range(2)]
    workers = [begin(tmp_path / "workers", TF_CONFIG=json.dumps(task)) for task in tasks]
    assert train(*words, tmp_path / "alone") == 0
    finished(devices)
    assert ["BLEU" in finished(worker) for worker in workers] == [True, False]
    expected = weights_of(tmp_path / "alone")
    for name in ("devices", "workers"):
        found = weights_of(tmp_path / name)
        assert found.keys() == expected.keys()
        for path, array in expected.items():
            np.testing.assert_allclose(found[path], array, atol=2e-5, rtol=0, err_msg=path)


HOSTS = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"index": 0}}'
# The backend, TF_CONFIG, the settings, and what is said of them.
REFUSED = (
    ("tensorflow", "no JSON", {"minutes": 1}, "Cannot read TF_CONFIG"),
    ("tensorflow", HOSTS, {"minutes": 1}, "give --steps"),
    ("tensorflow", HOSTS, {"steps": 1, "devices": 2}, "start a worker for each device"),
    ("tensorflow", HOSTS, {"steps": 1, "cluster": "slurm"}, "no effect beside --cluster slurm"),
    ("tensorflow", "", {"steps": 1, "cluster": "slurm"}, "SLURM_PROCID"),
    ("tensorflow", HOSTS, {"steps": 1}, "give --set clip_norm=0"),
    ("jax", HOSTS, {"steps": 1}, "train on TensorFlow only. Received: KERAS_BACKEND=jax"),
    ("torch", HOSTS, {"steps": 1}, "Training runs on TensorFlow and JAX. Received: KERAS_BACKEND"),
)


@pytest.mark.parametrize(("backend", "environment", "settings", "said"), REFUSED)
def test_what_cannot_be_is_refused(backend, environment, settings, said, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: backend)
    monkeypatch.setenv("TF_CONFIG", environment)
    with pytest.raises(RunError, match=said):
        connect(TrainingConfig(**settings).resolved())


def test_one_host_is_no_cluster(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", HOSTS.replace(', "b:1"', ""))
    assert connect(TrainingConfig().resolved()).chief


def test_the_indexed_job_makes_a_tf_config(tmp_path):
    """By its own shell script, with a stand-in for Python that prints what it is given."""
    _, job = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    name = job["metadata"]["name"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    (tmp_path / "python").write_text('#!/bin/sh\necho "$TF_CONFIG"\n')
    (tmp_path / "python").chmod(0o755)
    environment = {one["name"]: one["value"] for one in container["env"]}
    environment |= {"JOB_COMPLETION_INDEX": "1", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert json.loads(subprocess.check_output(container["command"], env=environment)) == {
        "cluster": {"worker": [f"{name}-0.{name}:8888", f"{name}-1.{name}:8888"]},
        "task": {"type": "worker", "index": 1},
    }
