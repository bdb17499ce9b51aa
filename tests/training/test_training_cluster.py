"""Several workers on one machine: the weights of one process, one writer, and what a kill does."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import kubernetes_validate
import numpy as np
import pytest
import yaml
from kubeflow.training import models as kubeflow_models
from test_resume import history, newest_step, write_corpus

from training.run.checkpoints import Checkpoints, read
from training.run.cluster import ONE_TASK_OF_SLURM, Cluster, cluster_of
from training.run.files import RunError
from training.run.watchdog import Watchdog

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "training" / "deploy"
STEPS = 50


def free_ports(count):
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def start(corpus, run, workers, *more):
    """The real command once for each worker; their output goes to files beside the run."""
    command = [
        sys.executable, "training/train_pt_en.py", "--data", corpus, "--run", run,
        "--vocab_size", "300", "--preset", "tiny", "--d_model", "16", "--encoder_layers", "1",
        "--decoder_layers", "1", "--dropout_rate", "0.2", "--tokens_per_batch", "192",
        "--steps", STEPS, "--warmup_steps", "10", "--evaluate_minutes", "0", "--evaluate_steps",
        "25", "--evaluate_pairs", "8", "--beams", "1", "--checkpoint_minutes", "0",
        "--precision", "float32", "--worker_timeout", "120", "--no_export", *more,
    ]  # fmt: skip
    addresses = [f"127.0.0.1:{port}" for port in free_ports(workers)]
    processes = []
    for index in range(workers):
        task = {"type": "worker", "index": index}
        config = {"cluster": {"worker": addresses}, "task": task}
        output = (run.parent / f"{run.name}-{index}.txt").open("a")
        processes.append(
            subprocess.Popen(
                [str(part) for part in command], cwd=ROOT, stdout=output, stderr=output,
                env={**os.environ, "TF_CONFIG": json.dumps(config)},
            )
        )  # fmt: skip
    return processes


def finish(processes, run, status=0):
    """Waits until all have ended, and expects this exit status of them."""
    try:
        found = [process.wait(timeout=600) for process in processes]
    finally:
        for process in processes:
            process.kill()
    said = "".join(path.read_text()[-2000:] for path in run.parent.glob(f"{run.name}-*.txt"))
    assert found == [status] * len(processes), said


def last_weights(run):
    """Those of the last checkpoint, but key biases: their gradient is nothing but rounding."""
    arrays, meta = read(Checkpoints(run / "checkpoints").paths()[-1])
    assert meta["step"] == STEPS
    return {
        name: array
        for name, array in arrays.items()
        if name.startswith("model/") and not name.endswith("key/bias")
    }


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("cluster") / "corpus.tsv"
    write_corpus(path)
    return path


@pytest.fixture(scope="module")
def alone(corpus):
    run = corpus.parent / "alone"
    finish(start(corpus, run, 1), run)
    return run


def check_equal(run, other, atol):
    one, two = last_weights(run), last_weights(other)
    assert one.keys() == two.keys()
    for name, array in one.items():
        np.testing.assert_allclose(two[name], array, atol=atol, rtol=0, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 4])
def test_the_weights_do_not_depend_on_the_number_of_workers(corpus, alone, workers):
    """Dropout, padding of rows and evaluation included; one of them writes."""
    run = corpus.parent / f"of-{workers}"
    finish(start(corpus, run, workers), run)
    check_equal(alone, run, 1e-5)
    assert (run / "translations.tsv").exists()
    for index in range(1, workers):
        said = (run.parent / f"{run.name}-{index}.txt").read_text()
        assert "Epoch" not in said and "BLEU" not in said


@pytest.mark.slow
def test_accumulated_batches_give_the_same_too(corpus):
    runs = [corpus.parent / f"accumulated-{workers}" for workers in (1, 2)]
    for run, workers in zip(runs, (1, 2), strict=True):
        finish(start(corpus, run, workers, "--accumulate", "3"), run)
    check_equal(*runs, 1e-5)


@pytest.mark.slow
def test_gradients_sent_in_bfloat16_are_rounded_and_train_as_well(corpus, alone):
    run = corpus.parent / "bfloat16"
    finish(start(corpus, run, 2, "--reduce_dtype", "bfloat16"), run)
    for one, two in zip(history(alone), history(run), strict=True):
        assert float(two["loss"]) == pytest.approx(float(one["loss"]), rel=0.01)
    with pytest.raises(AssertionError):
        check_equal(alone, run, 1e-5)


def wait_for(run, step, processes):
    deadline = time.monotonic() + 300
    while newest_step(run) < step:
        assert time.monotonic() < deadline and all(one.poll() is None for one in processes)
        time.sleep(0.05)


@pytest.mark.slow
def test_killed_workers_that_are_started_again_end_in_the_same_weights(corpus):
    """One of them, then all of them; bit for bit, as the number of workers is the same."""
    whole, broken = corpus.parent / "whole", corpus.parent / "broken"
    finish(start(corpus, whole, 2), whole)
    processes = start(corpus, broken, 2)
    wait_for(broken, 7, processes)
    processes[1].kill()
    assert processes[0].wait(timeout=240) != 0  # an error, not a hang
    processes = start(corpus, broken, 2)
    wait_for(broken, 25, processes)
    for process in processes:
        process.kill()
        process.wait()
    finish(start(corpus, broken, 2), broken)
    check_equal(whole, broken, 0)


@pytest.mark.slow
def test_a_signal_to_one_worker_ends_all_of_them_with_a_checkpoint(corpus):
    run = corpus.parent / "signalled"
    processes = start(corpus, run, 2, "--steps", "2000")
    wait_for(run, 5, processes)
    processes[1].send_signal(signal.SIGTERM)
    finish(processes, run, status=128 + signal.SIGTERM)
    step = newest_step(run)
    assert 5 <= step < 2000
    assert f"Stopped at step {step}" in (run.parent / "signalled-0.txt").read_text()


def test_tf_config_names_the_workers_and_this_one():
    hosts = {"chief": ["a:1"], "worker": ["b:1", "c:1"]}
    for kind, index, expected in (("chief", 0, 0), ("worker", 0, 1), ("worker", 1, 2)):
        text = json.dumps({"cluster": hosts, "task": {"type": kind, "index": index}})
        assert cluster_of({"TF_CONFIG": text}) == Cluster(("a:1", "b:1", "c:1"), expected)
    assert cluster_of({}) is None
    one = json.dumps({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}})
    assert cluster_of({"TF_CONFIG": one}) is None


def test_slurm_names_them_too():
    environment = {
        "SLURM_NTASKS": "5", "SLURM_PROCID": "3", "SLURM_STEP_NODELIST": "gpu[09-10],login",
        "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
    }  # fmt: skip
    expected = ("gpu09:8888", "gpu09:8889", "gpu10:8888", "gpu10:8889", "login:8888")
    assert cluster_of(environment, "slurm") == Cluster(expected, 3)
    assert cluster_of(ONE_TASK_OF_SLURM, "slurm") is None
    with pytest.raises(RunError, match="srun"):
        cluster_of({}, "slurm")


@pytest.mark.parametrize(
    "text",
    [
        "no JSON",
        '{"cluster": {}}',
        '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 2}}',
        '{"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": "worker", "index": 0}}',
    ],
)
def test_a_tf_config_that_is_not_understood_is_shown(text):
    with pytest.raises(RunError, match="TF_CONFIG"):
        cluster_of({"TF_CONFIG": text})


def test_a_worker_that_does_not_answer_is_an_error_in_the_stated_time(capfd):
    ended = []
    watchdog = Watchdog(0.2, exit=ended.append)
    with watchdog:
        time.sleep(0.05)
    time.sleep(0.4)
    assert not ended
    with watchdog:
        time.sleep(1.0)
    assert ended == [1] and "no answer from another worker for 0.2 s" in capfd.readouterr().err


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
    expected = (f"{name}-0.{name}:8888", f"{name}-1.{name}:8888")
    assert cluster_of({"TF_CONFIG": done.stdout}) == Cluster(expected, 1)


@pytest.mark.parametrize("file", ["kubernetes.yaml", "kubeflow.yaml", "slurm.sh"])
def test_manifests_run_the_command_with_options_it_has(file):
    from training.run.settings import TrainingConfig

    text = (DEPLOY / file).read_text()
    assert "training/train_pt_en.py" in text
    words = text[text.index("train_pt_en.py") :].replace("=", " ").split()
    options = [word.removeprefix("--") for word in words if word.startswith("--")]
    assert options and all(hasattr(TrainingConfig, name) for name in options)


def test_the_batch_script_is_a_shell_script():
    done = subprocess.run(["bash", "-n", DEPLOY / "slurm.sh"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
