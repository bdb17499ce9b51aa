"""What `import keras_tfmr` costs and what it brings along, each in a fresh process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import keras_tfmr

ROOT = Path(__file__).resolve().parents[2]


def python(code, backend, *arguments):
    """What `code` prints in a process of its own."""
    environment = {**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
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
    for name in [*keras_tfmr.__all__, "Translator", "SubwordTokenizer", "export_text_model"]:
        assert getattr(keras_tfmr, name).__doc__, name
        assert name in dir(keras_tfmr)
    for name in keras_tfmr.layers.__all__:
        assert getattr(keras_tfmr, name) is getattr(keras_tfmr.layers, name)
    with pytest.raises(AttributeError, match="nothing_like_it"):
        keras_tfmr.nothing_like_it  # noqa: B018


LIGHT = """
import sys, keras_tfmr, keras_tfmr.client
client = keras_tfmr.client.ServingClient
print(*{name.split(".")[0] for name in sys.modules})
"""


def test_the_package_and_its_client_import_no_keras():
    loaded = set(python(LIGHT, "tensorflow").split())
    assert "keras_tfmr" in loaded and not {"keras", "tensorflow", "jax", "torch"} & loaded


STAR = """
import sys
sys.modules["tensorflow"] = None  # whoever imports it fails
from keras_tfmr import *
print(TranslationModel(TransformerConfig.preset("tiny")).count_params() > 0)
"""


def test_a_star_import_needs_no_tensorflow():
    assert python(STAR, "jax").splitlines()[-1] == "True"


LOADED = """
import sys
{first}
import keras
print(type(keras.models.load_model(sys.argv[1])).__name__)
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("imports") / "model.keras"
    config = keras_tfmr.TransformerConfig.preset("tiny", source_vocab=9, target_vocab=9)
    keras_tfmr.TranslationModel(config).save(path)
    return path


@pytest.mark.parametrize(
    "first", ["import keras, keras_tfmr", "from keras_tfmr import LabelSmoothedCrossEntropy"]
)
def test_models_load_once_the_package_is_imported(first, saved):
    """`import keras_tfmr` after Keras, or any name of it: then Keras knows all its classes."""
    printed = python(LOADED.format(first=first), "tensorflow", saved)
    assert printed.splitlines()[-1] == "TranslationModel"
