"""Compiled programs travel in an export, and no machine is handed those of another."""

import os
import subprocess
import sys
from pathlib import Path

import keras
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("exports need TensorFlow", allow_module_level=True)

import tensorflow as tf

from keras_tfmr.export import compile_cache

ROOT = Path(__file__).resolve().parents[2]

# Loads a SavedModel as a server does, takes over its programs, and runs it.
SERVER = """
import sys
import numpy as np
from keras_tfmr.export import compile_cache
from keras_tfmr.export.saved_session import SavedSession
adopted = compile_cache.adopt(sys.argv[1])
with SavedSession(sys.argv[1]) as session:
    outputs = session.run("serving_default", {"x": np.ones([3, 4], "float32")})
print(adopted, float(outputs["y"].sum()))
"""


class Compiled(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, "x")])
    def call(self, x):
        return {"y": self.inner(x)}

    @tf.function(jit_compile=True)
    def inner(self, x):
        return x @ tf.transpose(x) * 2


@pytest.fixture
def version(tmp_path):
    module = Compiled()
    tf.saved_model.save(module, str(tmp_path / "1"), {"serving_default": module.call})
    return tmp_path / "1"


def serve(version, folder):
    """What a new process adopts and answers, and the programs in its folder with their times."""
    environment = {
        **os.environ, "TF_XLA_FLAGS": compile_cache.flags(folder), "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    run = subprocess.run(
        [sys.executable, "-c", SERVER, str(version)], env=environment,
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    return run.stdout.split(), {path.name: path.stat().st_mtime_ns for path in folder.glob("*.pb")}


def test_a_program_is_compiled_once_and_never_for_another_machine(version, tmp_path):
    answers, programs = serve(version, tmp_path / "first")
    assert answers == ["0", "72.0"] and len(programs) == 1
    ours = version / compile_cache.FOLDER / compile_cache.key()
    compile_cache.copy(tmp_path / "first", ours)
    # A second start has it at hand: TensorFlow writes none.
    (tmp_path / "second").mkdir()
    before = {path.name: path.stat().st_size for path in ours.iterdir()}
    answers, _ = serve(version, tmp_path / "second")
    assert answers == ["1", "72.0"]
    found = {path.name: path.stat().st_size for path in (tmp_path / "second").iterdir()}
    assert found == before
    # For a processor of other features, the same program would not even be looked at.
    (program,) = ours.iterdir()
    program.write_bytes(b"machine code of somebody else")
    ours.rename(ours.with_name(compile_cache.key()[:-1] + "x"))
    answers, programs = serve(version, tmp_path / "third")
    assert answers == ["0", "72.0"] and len(programs) == 1


def test_other_flags_are_kept_and_one_folder_is_in_use(monkeypatch, tmp_path):
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_clustering_debug")
    assert compile_cache.folder_in_use() is None and compile_cache.adopt(tmp_path) == 0
    for folder in (tmp_path / "a", tmp_path / "b"):
        monkeypatch.setenv("TF_XLA_FLAGS", compile_cache.flags(folder))
        assert os.environ["TF_XLA_FLAGS"].startswith("--tf_xla_clustering_debug ")
        assert compile_cache.folder_in_use() == folder
