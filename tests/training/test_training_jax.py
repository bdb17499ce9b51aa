"""Training with JAX: the numbers of TensorFlow, on however many devices or processes."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_resume import write_corpus
from test_training_cluster import free_ports

from training.run.checkpoints import Checkpoints, read
from training.run.files import RunError

ROOT = Path(__file__).resolve().parents[2]
STEPS = 20


def start(backend, corpus, run, *more, **environment):
    """The real command on a backend."""
    command = [
        sys.executable, "training/train_pt_en.py", "--data", corpus, "--run", run,
        "--vocab_size", "300", "--preset", "tiny", "--d_model", "16", "--encoder_layers", "1",
        "--decoder_layers", "1", "--tokens_per_batch", "192", "--steps", STEPS, "--warmup_steps",
        "10", "--evaluate_pairs", "8", "--beams", "2", "--precision", "float32", "--accumulate",
        "2", "--clip_norm", "1", "--worker_timeout", "120", "--no_export", *more,
    ]  # fmt: skip
    return subprocess.Popen(
        [str(part) for part in command], cwd=ROOT, stdout=subprocess.PIPE, text=True,
        stderr=subprocess.STDOUT, env={**os.environ, "KERAS_BACKEND": backend, **environment},
    )  # fmt: skip


@pytest.fixture
def corpus(tmp_path):
    write_corpus(tmp_path / "pairs.tsv")
    return tmp_path / "pairs.tsv"


def ended(*processes):
    """What they printed, once all have ended well."""
    texts = [process.communicate(timeout=500)[0] for process in processes]
    for process, text in zip(processes, texts, strict=True):
        assert process.returncode == 0, text
    return texts


def last_row(run):
    with (run / "history.csv").open() as file:
        *_, row = csv.DictReader(file)
    return row


def weights(run):
    """Those that the loss depends on: a bias of keys moves all scores of a query alike."""
    arrays, _ = read(Checkpoints(run / "checkpoints").paths()[-1])
    names = [name for name in arrays if name.startswith("model/") and "key/bias" not in name]
    return {name: arrays[name] for name in names}


def assert_same_weights(run, other, atol):
    found, expected = weights(run), weights(other)
    assert found.keys() == expected.keys()
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], atol=atol, err_msg=name)


def test_it_sums_gradients_in_their_own_type():
    from training.run.on_jax import Workers

    with pytest.raises(RunError, match="needs the TensorFlow backend"):
        Workers.trainer(None, reduce_dtype="bfloat16")


@pytest.mark.slow
def test_learns_as_tensorflow_does_and_is_finished_by_it(corpus, tmp_path):
    """From the same weights, without dropout."""
    first = tmp_path / "first"
    ended(start("tensorflow", corpus, first, "--steps", "1"))
    more = ("--start_from", first, "--dropout_rate", "0")
    ended(start("tensorflow", corpus, tmp_path / "tensorflow", *more))
    (text,) = ended(start("jax", corpus, tmp_path / "jax", *more))
    found, expected = last_row(tmp_path / "jax"), last_row(tmp_path / "tensorflow")
    assert int(found["step"]) == STEPS and found["accuracy"] == expected["accuracy"]
    assert abs(float(found["loss"]) - float(expected["loss"])) < 1e-4
    assert_same_weights(tmp_path / "jax", tmp_path / "tensorflow", atol=1e-4)
    assert "validation: BLEU" in text
    results = json.loads((tmp_path / "jax" / "results.json").read_text())
    assert results["steps"] == STEPS and 0 <= results["validation_bleu"] <= 100


@pytest.mark.slow
def test_two_devices_and_two_processes_learn_what_one_does(corpus, tmp_path):
    """The CPU plays the devices. Where it has much other work, XLA may give one up and abort."""
    ended(start("jax", corpus, tmp_path / "one", "--dropout_rate", "0.2"))
    more = ("--dropout_rate", "0.2", "--devices", "2")
    ended(start("jax", corpus, tmp_path / "devices", *more))
    assert_same_weights(tmp_path / "devices", tmp_path / "one", atol=1e-5)
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]

    def worker(index):
        task = {"type": "worker", "index": index}
        config = json.dumps({"cluster": {"worker": addresses}, "task": task})
        return start("jax", corpus, tmp_path / "two", "--dropout_rate", "0.2", TF_CONFIG=config)

    ended(worker(0), worker(1))
    assert_same_weights(tmp_path / "two", tmp_path / "one", atol=1e-5)
