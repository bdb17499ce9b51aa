"""What `import keras_tfmr` costs and what it brings along, each in a fresh process."""

import os
import subprocess
import sys

import pytest

import keras_tfmr

ON_JAX = """
import sys, time
sys.modules["tensorflow"] = None  # whoever imports it fails
import keras
before, start = set(sys.modules), time.process_time()
import keras_tfmr
print(time.process_time() - start, *{name.split(".")[0] for name in set(sys.modules) - before})
print(type(keras.models.load_model(sys.argv[1])).__name__)
from keras_tfmr import *
print(TranslationModel(TransformerConfig.preset("tiny")).count_params() > 0)
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("imports") / "model.keras"
    config = keras_tfmr.TransformerConfig.preset("tiny", source_vocab=9, target_vocab=9)
    keras_tfmr.TranslationModel(config).save(path)
    return path


def test_the_import_costs_little_beyond_keras_and_makes_models_load(saved):
    """In processor time, and the best of three: other work on the machine shall not fail it."""
    times, heavy = [], {"matplotlib", "tensorflow_text", "sentencepiece", "grpc"}
    while len(times) < 3 and min(times, default=1.0) > 0.3:
        environment, command = (
            {**os.environ, "KERAS_BACKEND": "jax"},
            [sys.executable, "-c", ON_JAX],
        )
        done = subprocess.run([*command, saved], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        (seconds, *added), *rest = map(str.split, done.stdout.splitlines())
        assert "keras_tfmr" in added and not {"training", "serving", *heavy} & set(added)
        assert rest == [["TranslationModel"], ["True"]]
        times.append(float(seconds))
    assert min(times) <= 0.3, f"import keras_tfmr adds {times} s"


def test_public_names_are_there():
    for name in [*keras_tfmr.__all__, "Translator", "SubwordTokenizer", "export_text_model"]:
        assert hasattr(keras_tfmr, name) and name in dir(keras_tfmr)
    for name in keras_tfmr.layers.__all__:
        assert getattr(keras_tfmr, name) is getattr(keras_tfmr.layers, name)
    with pytest.raises(AttributeError, match="nothing_like_it"):
        keras_tfmr.nothing_like_it  # noqa: B018
