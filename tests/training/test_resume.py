"""Stopped at any moment and repeated: bit for bit the weights of a run that nobody disturbed."""

import random
import signal
import time

import numpy as np
import pytest
from tiny_runs import TINY, finished, history, last_arrays, start, train, write_pairs

from training.run import report


def newest_step(run):
    paths = sorted((run / "checkpoints").glob("step-*.npz"))
    return int(paths[-1].stem.removeprefix("step-")) if paths else 0


def check_same(whole, stopped):
    one, other = last_arrays(whole), last_arrays(stopped)
    assert one.keys() == other.keys() and any("seed_generator" in name for name in one)
    for name, array in one.items():
        np.testing.assert_array_equal(other[name], array, err_msg=name)
    rows = [history(run) for run in (whole, stopped)]
    for row in [*rows[0], *rows[1]]:
        del row["minutes"], row["tokens_per_second"]
    assert rows[0] == rows[1]


@pytest.mark.ci
def test_a_stopped_run_ends_like_an_undisturbed_one(whole, tmp_path, monkeypatch, capfd, optimized):
    """Killed; then in a process that has built other models."""
    monkeypatch.setattr(report, "finish", lambda *arguments: None)  # validations count
    run = tmp_path / "run"
    words = ("--config", whole / "config.json", "--output", run, "--no_export")
    killed = start(*words, KERAS_BACKEND="tensorflow")
    while newest_step(run) < 5:
        assert killed.poll() is None, killed.communicate()[0]
        time.sleep(0.005)
    time.sleep(random.random() / 10)  # between two checkpoints, or within one
    killed.kill()
    finished(killed, -signal.SIGKILL)
    before = newest_step(run)
    assert before < 60 and train(*words) == 0
    assert f"Resuming from update {before}" in capfd.readouterr().out
    check_same(whole, run)


COMPILED_ONCE = {
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    "JAX_LOG_COMPILES": "1",
}
ON_JAX = """
import sys
from training import train_pt_en
from training.run import report
from training.run.checkpoints import Checkpoints

whole, run, *words = sys.argv[1:]
save, finish = Checkpoints.save, report.finish_on_tensorflow

def command(output):
    sys.argv = ["training/train_pt_en.py", *words, "--output", output]
    return train_pt_en.main()

def save_and_interrupt(*given):
    save(*given)
    raise KeyboardInterrupt

report.finish_on_tensorflow = lambda folder: None
assert command(whole) == 0
Checkpoints.save = save_and_interrupt
try:
    command(run)
except KeyboardInterrupt:
    pass
Checkpoints.save = save
report.finish_on_tensorflow = finish
assert command(run) == 0
"""


@pytest.mark.ci
def test_a_stopped_run_on_jax_ends_like_an_undisturbed_one(tmp_path):
    """On two devices; TensorFlow evaluates and reports. Batches of one shape compile once."""
    words = (
        "--data",
        write_pairs(tmp_path / "pairs.tsv", 1000, (5, 5)),
        *TINY,
        "max_tokens=7",
        "dropout_rate=0.2",
    )
    words += ("--validate_steps", 40, "--steps", 30, "--no_export")
    words += ("--devices", 2, "--overwrite")
    whole, run = tmp_path / "whole", tmp_path / "run"
    environment = {"KERAS_BACKEND": "jax", **COMPILED_ONCE}
    environment["JAX_COMPILATION_CACHE_DIR"] = str(tmp_path / "compiled")
    said = finished(start(whole, run, *words, script=("-c", ON_JAX), **environment))
    assert "Resuming from update 10" in said
    ahead, *trained = said.split("Compiled for all shapes")
    assert "compilation of jit(train_step)" in ahead and len(trained) == 3
    for later in trained:
        assert "compilation of jit(train_step)" not in later.split("Run folder")[0]
    check_same(whole, run)
    for folder in (whole, run):
        for name in ("results.json", "report.md"):
            assert (folder / name).exists() == (folder == run)
