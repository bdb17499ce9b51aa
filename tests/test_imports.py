"""What `import keras_tfmr` costs and what it brings along, each in a fresh process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import keras_tfmr

ROOT = Path(__file__).resolve().parent.parent


def python(code, backend):
    """What `code` prints in a process of its own."""
    environment = {**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=500
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


TIMED = """
import time, keras
start = time.process_time()
import keras_tfmr
print(time.process_time() - start)
"""


def test_import_costs_little_beyond_keras():
    """In processor time, and the best of three: other work on the machine shall not fail it."""
    times = []
    while len(times) < 3 and min(times, default=1.0) > 0.3:
        times.append(float(python(TIMED, "tensorflow")))
    assert min(times) <= 0.3, f"import keras_tfmr adds {times} s"


ADDED = """
import sys, keras
before = set(sys.modules)
import keras_tfmr
print(*{name.split(".")[0] for name in set(sys.modules) - before})
"""


@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_what_is_not_imported(backend):
    added = set(python(ADDED, backend).split())
    assert "keras_tfmr" in added
    assert not {"matplotlib", "tensorflow_text", "sentencepiece", "grpc"} & added
    assert not {"training", "serving"} & added


def test_public_names_are_there():
    """Each is importable, documented, and tells where it comes from; the heavy ones on demand."""
    for name in keras_tfmr.__all__:
        if name not in keras_tfmr._LAZY:
            assert getattr(keras_tfmr, name).__doc__, name
    for name in keras_tfmr.layers.__all__:
        assert getattr(keras_tfmr, name) is getattr(keras_tfmr.layers, name)
    with pytest.raises(AttributeError, match="nothing_like_it"):
        keras_tfmr.nothing_like_it  # noqa: B018
