"""The models on Keras's other backends, in processes of their own, against the one in use here.

torch is no dependency: where it is not installed, that part is skipped.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import backend_answers
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("backend", [pytest.param("jax", marks=pytest.mark.slow), "torch"])
def test_answers_do_not_depend_on_the_backend(backend, tmp_path):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    file, environment = tmp_path / "answers.npz", {**os.environ, "KERAS_BACKEND": backend}
    environment["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # it would compile for minutes
    run = subprocess.run(
        [sys.executable, ROOT / "tests" / "backend_answers.py", file],
        env=environment, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout.split()[-1] == "False", "TensorFlow was imported"
    expected = backend_answers.answers()
    with np.load(file) as found:
        assert set(found) == set(expected)
        for name, array in expected.items():
            assert found[name].shape == array.shape, name
            np.testing.assert_allclose(found[name], array, atol=1e-4, err_msg=name)
