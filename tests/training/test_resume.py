"""Killed at any moment and repeated: bit for bit the weights of a run that nobody disturbed."""

import os
import random
import signal
import time

import keras
import numpy as np
import pytest
from tiny_runs import TINY, finished, history, last_arrays, start, write_pairs

STEPS = 60


def newest_step(run):
    paths = sorted((run / "checkpoints").glob("step-*.npz"))
    return int(paths[-1].stem.removeprefix("step-")) if paths else 0


@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_a_killed_run_ends_like_an_undisturbed_one(tmp_path, backend):
    if backend != keras.backend.backend() and os.environ.get("KERAS_BACKEND"):
        pytest.skip("each backend's tests try their own")
    if backend == "jax":
        pytest.importorskip("jax")
    corpus = write_pairs(tmp_path / "pairs.tsv")
    words = ("--data", corpus, *TINY, "--dropout_rate", "0.2", "--steps", STEPS, "--no_export")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    undisturbed = start(*words, "--output", whole, KERAS_BACKEND=backend)
    for least in (5, 25):
        process = start(*words, "--output", killed, KERAS_BACKEND=backend)
        while newest_step(killed) < least:
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.005)
        time.sleep(random.random() / 10)  # at any moment between two checkpoints, or within one
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert newest_step(killed) < STEPS, "the kill came too late"
    said = finished(start(*words, "--output", killed, KERAS_BACKEND=backend))
    assert "Resuming from update" in said
    finished(undisturbed)
    one, other = last_arrays(whole), last_arrays(killed)
    assert one.keys() == other.keys() and any("seed_generator" in name for name in one)
    for name, array in one.items():
        np.testing.assert_array_equal(other[name], array, err_msg=name)
    assert (whole / "translations.tsv").read_bytes() == (killed / "translations.tsv").read_bytes()
    rows = [
        [
            {n: v for n, v in row.items() if n not in ("minutes", "tokens_per_second")}
            for row in history(run)
        ]
        for run in (whole, killed)
    ]
    assert rows[0] == rows[1]
