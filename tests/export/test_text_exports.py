"""Exports of classifiers and language models, in a session, in Python and as a layer of Keras."""

import json
import subprocess
import sys

import numpy as np
import pytest
from text_models import LINES, classifier, completer

from keras_tfmr.export import check, known_answers, warmup, write
from keras_tfmr.export.saved_session import SavedSession

pytestmark = pytest.mark.ci
MODELS = {"classifier": classifier, "completer": completer}
WARM = {"classifier": {"classify"}, "completer": {"complete", "complete_greedily"}}


@pytest.fixture(scope="module")
def models():
    return {name: make() for name, make in MODELS.items()}


@pytest.fixture(scope="module")
def exports(models, once):
    """A folder with an export of each."""

    def make(folder):
        for name, model in models.items():
            model.export(folder / name, check=False, texts=LINES[:3])

    return once("text_exports", make)


@pytest.mark.parametrize("name", MODELS)
def test_answers_warm_up_and_metadata(exports, models, name):
    model, path = models[name], exports / name / "1"
    with SavedSession(path) as session:
        for case in known_answers.cases(model, [line.encode() for line in LINES]):
            assert check.differences(session, case, tolerance=1e-3) == []
        asked = warmup.read(path)
        for request in asked:
            if len(next(iter(request.inputs.values()))) < max(warmup.BATCHES):
                warmup.replay(session, request)
    assert set(session.signatures) == {"serving_default", *model.signatures}
    methods = {definition.method_name for definition in session.signatures.values()}
    assert methods == {"tensorflow/serving/predict"}
    assert {request.signature for request in asked} == WARM[name]
    assert len(asked) == len(WARM[name]) * len(warmup.BATCHES)
    metadata = json.loads((path / write.METADATA_FILE).read_text(encoding="utf-8"))
    assert metadata["text_model"] == {
        "class_name": f"keras_tfmr>{type(model).__name__}", "config": model.get_config()
    }  # fmt: skip


# First without Keras, which TensorFlow Text's own Python package imports; its libraries of ops do
# not. Then by Keras's layer.
LOADED = """
import importlib.util, json, pathlib, sys
sys.modules["keras"] = sys.modules["keras_tfmr"] = None
import tensorflow as tf
package = pathlib.Path(importlib.util.find_spec("tensorflow_text").origin).parent
for library in package.glob("python/ops/*.so"):
    tf.load_op_library(str(library))
text = tf.constant(json.loads(sys.argv[2]))
outputs = [tf.saved_model.load(sys.argv[1]).signatures["serving_default"](text=text)]
del sys.modules["keras"]
import keras
outputs.append(keras.layers.TFSMLayer(sys.argv[1])(text))
print(json.dumps([one["probabilities"].numpy().tolist() for one in outputs]))
"""


def test_python_and_keras_load_it_too(exports, models, tmp_path):
    command = [sys.executable, "-c", LOADED, str(exports / "classifier" / "1"), json.dumps(LINES)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "gradient" not in done.stderr, done.stderr
    expected = [[*one.probabilities.values()] for one in models["classifier"].classify(LINES)]
    for found in json.loads(done.stdout.splitlines()[-1]):
        np.testing.assert_allclose(found, expected, atol=1e-5)
