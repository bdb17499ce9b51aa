"""Stopped at any moment and repeated: bit for bit the weights of a run that nobody disturbed."""

import random
import signal
import time

import numpy as np
import pytest
from tiny_runs import TINY, finished, history, last_arrays, start, write_pairs

STEPS = 60
STATUS = {signal.SIGKILL: -signal.SIGKILL, signal.SIGINT: 128 + signal.SIGINT}


def newest_step(run):
    paths = sorted((run / "checkpoints").glob("step-*.npz"))
    return int(paths[-1].stem.removeprefix("step-")) if paths else 0


def stopped(process, run, least, how):
    """Sends a signal some time after the checkpoint of an update; what the process said."""
    while newest_step(run) < least:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.005)
    time.sleep(random.random() / 10)  # between two checkpoints, or within one
    process.send_signal(how)
    return finished(process, STATUS[how])


def check_same(whole, stopped):
    one, other = last_arrays(whole), last_arrays(stopped)
    assert one.keys() == other.keys() and any("seed_generator" in name for name in one)
    for name, array in one.items():
        np.testing.assert_array_equal(other[name], array, err_msg=name)
    rows = [history(run) for run in (whole, stopped)]
    for row in [*rows[0], *rows[1]]:
        del row["minutes"], row["tokens_per_second"]
    assert rows[0] == rows[1]


def test_a_stopped_run_ends_like_an_undisturbed_one(whole, tmp_path):
    """Killed, then stopped by Ctrl-C; its settings are those in the other's config.json."""
    run, environment = tmp_path / "run", {"KERAS_BACKEND": "tensorflow"}
    words = ("--config", whole / "config.json", "--output", run, "--no_export")
    stopped(start(*words, **environment), run, 5, signal.SIGKILL)
    assert newest_step(run) < STEPS, "the kill came too late"
    said = stopped(start(*words, **environment), run, 25, signal.SIGINT)
    assert "Stopping soon, with a checkpoint" in said and "Run the same command to resume" in said
    assert newest_step(run) < STEPS, "Ctrl-C came too late"
    assert "Resuming from update" in finished(start(*words, **environment))
    check_same(whole, run)
    assert (whole / "translations.tsv").read_bytes() == (run / "translations.tsv").read_bytes()


def test_a_killed_run_on_jax_ends_like_an_undisturbed_one(tmp_path):
    """TensorFlow makes the evaluation and the report; texts of one length compile once."""
    pytest.importorskip("jax")
    words = ("--data", write_pairs(tmp_path / "pairs.tsv", words=(5, 5)), *TINY)
    words += ("--validate_steps", STEPS, "--steps", STEPS, "--dropout_rate", "0.2")
    words += ("--no_export", "--output")
    environment = {"KERAS_BACKEND": "jax", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    whole, run = tmp_path / "whole", tmp_path / "run"
    undisturbed = start(*words, whole, **environment)
    stopped(start(*words, run, **environment), run, 5, signal.SIGKILL)
    assert newest_step(run) < STEPS, "the kill came too late"
    stopped(start(*words, run, **environment), run, STEPS, signal.SIGKILL)
    finished(undisturbed)
    check_same(whole, run)
    assert (whole / "translations.tsv").exists() and (whole / "report.md").exists()
