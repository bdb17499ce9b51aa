"""Exports of text models, served and asked by the client."""

import json
import subprocess
import sys

import grpc
import numpy as np
import pytest
import tensorflow as tf
from stub_translator import serving
from tensorflow_serving.apis import model_service_pb2_grpc, predict_pb2, prediction_service_pb2_grpc
from text_models import LABELS, LINES, classifier, completer

from keras_tfmr.client import ServingClient, ServingError
from keras_tfmr.export import check, known_answers, warmup, write
from keras_tfmr.export.known_answers import example_of
from keras_tfmr.export.saved_session import SavedSession

MODELS = {"classifier": classifier, "completer": completer}
METHODS = {"classify_examples": "classify", "regress_examples": "regress"}


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


@pytest.fixture(scope="module")
def sessions(exports):
    """A session of each export, by name."""
    found = {name: SavedSession(exports / name / "1") for name in MODELS}
    yield found
    for session in found.values():
        session.close()


class Sessions(
    prediction_service_pb2_grpc.PredictionServiceServicer,
    model_service_pb2_grpc.ModelServiceServicer,
):
    """Sessions by their models' names behind TensorFlow Serving's Predict."""

    def __init__(self, **sessions):
        self.sessions = sessions

    def Predict(self, request, context):  # noqa: N802
        session, name = self.sessions[request.model_spec.name], request.model_spec.signature_name
        if name not in session.signatures:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"signature {name} not found")
        inputs = {alias: tf.make_ndarray(tensor) for alias, tensor in request.inputs.items()}
        response = predict_pb2.PredictResponse()
        for alias, value in session.run(name, inputs).items():
            response.outputs[alias].CopyFrom(tf.make_tensor_proto(value))
        return response


@pytest.mark.parametrize("name", MODELS)
def test_answers_methods_warm_up_and_metadata(exports, models, sessions, name):
    model, session, path = models[name], sessions[name], exports / name / "1"
    for case in known_answers.record(model):
        assert check.differences(session, case, tolerance=1e-3) == []
    assert set(session.signatures) == {"serving_default", *model.signatures}
    for signature, definition in session.signatures.items():
        method = METHODS.get(signature, "predict")
        assert definition.method_name == f"tensorflow/serving/{method}"
    asked = warmup.read(path)
    assert {request.signature for request in asked} == set(model.signatures)
    few = [one for one in asked if len(next(iter(one.inputs.values()))) < max(warmup.BATCHES)]
    for request in few:
        warmup.replay(session, request)
    assert len(asked) == len(model.signatures) * len(warmup.BATCHES)
    metadata = json.loads((path / write.METADATA_FILE).read_text(encoding="utf-8"))
    assert (metadata["kind"], metadata["max_length"]) == (type(model).__name__, 24)


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
    assert done.returncode == 0, done.stderr
    expected = [[*one.probabilities.values()] for one in models["classifier"].classify(LINES)]
    for found in json.loads(done.stdout.splitlines()[-1]):
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_our_client_asks_each_of_them(sessions, models):
    texts = [*LINES, "", b"\xff\xfe", "x" * 5000, "It's (almost) 3.5 km…"]
    classifier, completer = models["classifier"], models["completer"]
    options = {"length": 10, "temperature": 0.9, "top_k": 20, "top_p": 0.95, "seed": 3}
    prompts = ["Bom", "", "The black"]
    with serving(Sessions(**sessions)) as address:
        with ServingClient(address, model="classifier") as client:
            found, expected = client.classify(texts), classifier.classify(texts)
        with ServingClient(address, model="completer") as client:
            completed, likelihoods = client.complete(prompts, **options), client.log_prob(LINES)
            with pytest.raises(ServingError, match="classify"):
                client.classify(texts)
    for one, other in zip(found, expected, strict=True):
        assert one[::2] == other[::2]
        assert one.probabilities == pytest.approx(other.probabilities, abs=1e-5)
    assert [one.truncated for one in found[-4:-1]] == [False, False, True]
    for one, other in zip(completed, completer.complete(prompts, **options), strict=True):
        assert one[:1] + one[2:] == other[:1] + other[2:]
    for one, other in zip(likelihoods, completer.log_prob(LINES), strict=True):
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-3)


def test_the_signature_of_tensorflow_servings_classify(sessions, models):
    examples = {"inputs": np.array([example_of(text) for text in LINES], object)}
    found = sessions["classifier"].run("classify_examples", examples)
    expected = models["classifier"].classify(LINES)
    for classes, scores, one in zip(found["classes"], found["scores"], expected, strict=True):
        assert [label.decode() for label in classes] == LABELS
        np.testing.assert_allclose(scores, [one.probabilities[x] for x in LABELS], atol=1e-5)
    other = tf.train.Example()
    other.features.feature["sentence"].bytes_list.value.append(b"Bom dia")
    with pytest.raises(tf.errors.InvalidArgumentError, match="text"):
        wrong = {"inputs": np.array([other.SerializeToString()], object)}
        sessions["classifier"].run("classify_examples", wrong)
