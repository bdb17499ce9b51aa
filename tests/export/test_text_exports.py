"""Exported classifiers, taggers and language models: checked, served, asked by the client."""

import json
import subprocess
import sys
from pathlib import Path

import grpc
import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("exports need TensorFlow", allow_module_level=True)

import tensorflow as tf
from server_process import ServerProcess
from stub_translator import serving
from tensorflow_serving.apis import (
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)
from text_models import LABELS, classifier, completer, tagger
from translators import LINES

from keras_tfmr import export_text_model
from keras_tfmr._inputs import example_of
from keras_tfmr.client import ServingClient, ServingError
from keras_tfmr.export import warmup, write
from keras_tfmr.export.saved_session import SavedSession

COMMAND = [sys.executable, str(Path(__file__).resolve().parents[2] / "serving" / "client.py")]
MODELS = {"classifier": classifier, "tagger": tagger, "completer": completer}
METHODS = {
    "classifier": {"classify_examples": "classify"},
    "tagger": {},
    "completer": {"regress_examples": "regress"},
}


@pytest.fixture(scope="module")
def models():
    return {name: make() for name, make in MODELS.items()}


@pytest.fixture(scope="module")
def exports(models, once):
    """A folder with an export of each; the completer's has passed its check."""

    def make(folder):
        for name, model in models.items():
            check = name == "completer"
            export_text_model(model, folder / name, check=check, warmup_texts=LINES[:3])

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
    """The sessions behind TensorFlow Serving's Predict."""

    def __init__(self, sessions):
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


@pytest.fixture(scope="module")
def address(sessions):
    with serving(Sessions(sessions)) as address:
        yield address


def test_metadata_and_check(exports, models):
    for name, model in models.items():
        file = exports / name / "1" / write.METADATA_FILE
        metadata = json.loads(file.read_text(encoding="utf-8"))
        assert (metadata["kind"], metadata["max_length"]) == (type(model).__name__, 24)


@pytest.mark.parametrize("name", MODELS)
def test_method_names_and_warm_up(exports, models, sessions, name):
    session, problems = sessions[name], []
    for signature, definition in session.signatures.items():
        method = METHODS[name].get(signature, "predict")
        assert definition.method_name == f"tensorflow/serving/{method}"
    assert set(session.signatures) == {"serving_default", *models[name].signatures}
    asked = warmup.read(exports / name / "1", problems)
    assert {request.signature for request in asked} == set(models[name].signatures)
    warmup.replay(session, [request for request in asked if len(request[2]) < 32], problems)
    assert problems == [] and len(asked) == len(models[name].signatures) * len(warmup.BATCHES)


def test_labels_and_tags_by_our_client(address, models):
    texts = [*LINES, "", b"\xff\xfe", "x" * 5000, "It's (almost) 3.5 km…"]
    with ServingClient(address, model="classifier") as client:
        found, expected = client.classify(texts), models["classifier"].classify(texts)
    assert [one[::2] for one in found] == [one[::2] for one in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.probabilities == pytest.approx(other.probabilities, abs=1e-5)
    assert [one.truncated for one in found[-4:-1]] == [False, False, True]
    with ServingClient(address, model="tagger") as client:
        for split in (True, False):
            found = client.tag(texts, split=split)
            for one, other in zip(found, models["tagger"].tag(texts, split=split), strict=True):
                assert (one.words, one.tags) == (other.words, other.tags)
                np.testing.assert_allclose(one.probabilities, other.probabilities, atol=1e-5)
        with pytest.raises(ServingError, match="classify"):
            client.classify(texts)


def test_complete_and_log_prob_by_our_client(exports, models, tmp_path):
    """Through the development server, over both protocols."""
    model, prompts = models["completer"], ["Bom", "", "The black"]
    options = {"length": 10, "temperature": 0.9, "top_k": 20, "top_p": 0.95, "seed": 3}
    with ServerProcess(tmp_path, f"--model_base_path={exports / 'completer'}") as server:
        for port, rest in ((server.port, False), (server.rest_port, True)):
            with ServingClient(f"127.0.0.1:{port}", rest=rest) as client:
                found, scores = client.complete(prompts, **options), client.log_prob(LINES)
                assert client.complete([]) == [] and client.log_prob([]) == []
                with pytest.raises(ValueError, match="top_p must lie"):
                    client.complete(prompts, top_p=0)
            for one, other in zip(found, model.complete(prompts, **options), strict=True):
                assert one[:1] + one[2:] == other[:1] + other[2:]
                assert one.log_prob == pytest.approx(other.log_prob, abs=1e-3)
            for one, other in zip(scores, model.log_prob(LINES), strict=True):
                assert one.log_prob == pytest.approx(other.log_prob, abs=1e-3)
                assert one.tokens == other.tokens


def test_the_command_asks_each_of_them(address, models):
    def command(model, ask):
        words = ["--model", model, "--ask", ask, "--server", address, *LINES[:2]]
        done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    found = models["classifier"].classify(LINES[:2])
    expected = [f"{one.label}\t{one.probabilities[one.label]:.4f}" for one in found]
    assert command("classifier", "classify") == expected
    assert command("tagger", "tag") == [
        " ".join(map("/".join, zip(text.words, text.tags, strict=True)))
        for text in models["tagger"].tag(LINES[:2])
    ]
    scores = [line.split("\t") for line in command("completer", "log_prob")]
    for (log_prob, tokens), other in zip(
        scores, models["completer"].log_prob(LINES[:2]), strict=True
    ):
        assert float(log_prob) == pytest.approx(other.log_prob, abs=1e-3)
        assert int(tokens) == other.tokens
    assert len(command("completer", "complete")) == 2


def test_the_signatures_of_tensorflow_servings_classify_and_regress(sessions, models):
    examples = {"inputs": np.array([example_of(text) for text in LINES], object)}
    found = sessions["classifier"].run("classify_examples", examples)
    expected = models["classifier"].classify(LINES)
    for classes, scores, one in zip(found["classes"], found["scores"], expected, strict=True):
        assert [label.decode() for label in classes] == LABELS
        np.testing.assert_allclose(scores, [one.probabilities[x] for x in LABELS], atol=1e-5)
    found = sessions["completer"].run("regress_examples", examples)
    expected = [one.log_prob for one in models["completer"].log_prob(LINES)]
    np.testing.assert_allclose(np.ravel(found["outputs"]), expected, atol=1e-3)
    other = tf.train.Example()
    other.features.feature["sentence"].bytes_list.value.append(b"Bom dia")
    with pytest.raises(tf.errors.InvalidArgumentError, match="text"):
        wrong = {"inputs": np.array([other.SerializeToString()], object)}
        sessions["classifier"].run("classify_examples", wrong)
