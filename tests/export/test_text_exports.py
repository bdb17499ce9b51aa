"""Exported classifiers, taggers and language models: checked, served, asked by real clients."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("exports need TensorFlow", allow_module_level=True)

import tensorflow as tf
from server_process import ServerProcess
from tensorflow_serving.apis import prediction_log_pb2
from text_models import LABELS, classifier, completer, tagger
from translators import LINES

from keras_tfmr import export_text_model
from keras_tfmr.client import ServingClient, ServingError
from keras_tfmr.export import warmup, write
from keras_tfmr.export.golden_cases import ADVERSARIAL
from keras_tfmr.export.saved_session import SavedSession

ROOT = Path(__file__).resolve().parents[2]
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
def exports(models, tmp_path_factory):
    """A folder with an export of each, as it is written without waiting for its check."""
    folder = tmp_path_factory.mktemp("models")
    for name, model in models.items():
        export_text_model(model, folder / name, check=False, warmup_texts=LINES[:3])
    return folder


@pytest.fixture(scope="module")
def servers(exports):
    """A server of each model, by name."""
    with contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(
                ServerProcess(
                    exports, f"--model_base_path={exports / name}", f"--model_name={name}"
                )
            )
            for name in MODELS
        }


@pytest.fixture(params=["grpc", "rest"])
def connect(request, servers):
    """A function from a model's name to a client of it."""
    rest = request.param == "rest"
    clients = []

    def connected(name):
        port = servers[name].rest_port if rest else servers[name].port
        clients.append(ServingClient(f"127.0.0.1:{port}", rest=rest, model=name))
        return clients[-1]

    yield connected
    for client in clients:
        client.close()


@pytest.mark.parametrize(
    "name",
    [
        "completer",
        pytest.param("classifier", marks=pytest.mark.slow),
        pytest.param("tagger", marks=pytest.mark.slow),
    ],
)
def test_exports_pass_their_check(models, name, tmp_path):
    """In a process of its own: the server's ops and loader, every signature, hostile texts."""
    path = export_text_model(models[name], tmp_path / name)
    metadata = json.loads((path / write.METADATA_FILE).read_text(encoding="utf-8"))
    assert metadata["kind"] == type(models[name]).__name__
    assert metadata["max_length"] == 24


@pytest.mark.parametrize("name", MODELS)
def test_method_names_and_warm_up(exports, models, name):
    with SavedSession(exports / name / "1") as session:
        for signature, definition in session.signatures.items():
            method = METHODS[name].get(signature, "predict")
            assert definition.method_name == f"tensorflow/serving/{method}"
        assert set(session.signatures) == {"serving_default", *models[name].signatures}
        problems = []
        asked = warmup.read(exports / name / "1", problems)
        warmup.replay(session, asked, problems)
    assert problems == []
    assert len(asked) == len(models[name].signatures) * len(warmup.BATCHES)
    records = tf.data.TFRecordDataset(str(exports / name / "1" / warmup.FILE))
    logs = [prediction_log_pb2.PredictionLog.FromString(r) for r in records.as_numpy_iterator()]
    kinds = {f"{method}_log" for method in ("predict", *METHODS[name].values())}
    assert {log.WhichOneof("log_type") for log in logs} == kinds


def test_classify_by_our_client(connect, models):
    found = connect("classifier").classify([*LINES, "", b"\xff\xfe", "x" * 5000])
    expected = models["classifier"].classify([*LINES, "", b"\xff\xfe", "x" * 5000])
    for one, other in zip(found, expected, strict=True):
        assert one.label == other.label and list(one.probabilities) == list(other.probabilities)
        np.testing.assert_allclose(
            list(one.probabilities.values()), list(other.probabilities.values()), atol=1e-5
        )
    assert [one.truncated for one in found[-3:]] == [False, False, True]


def test_tag_by_our_client(connect, models):
    texts = [*LINES, "", "It's (almost) 3.5 km…"]
    for split in (True, False):
        found = connect("tagger").tag(texts, split=split)
        for one, other in zip(found, models["tagger"].tag(texts, split=split), strict=True):
            assert one.words == other.words
            assert one.tags == other.tags
            np.testing.assert_allclose(one.probabilities, other.probabilities, atol=1e-5)


def test_complete_and_log_prob_by_our_client(connect, models):
    client, prompts = connect("completer"), ["Bom", "", "The black"]
    options = {"length": 10, "temperature": 0.9, "top_k": 20, "top_p": 0.95, "seed": 3}
    found = client.complete(prompts, **options)
    for one, other in zip(found, models["completer"].complete(prompts, **options), strict=True):
        assert (one.text, one.tokens, one.finished) == (other.text, other.tokens, other.finished)
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-3)
    scores = client.log_prob(LINES)
    for one, other in zip(scores, models["completer"].log_prob(LINES), strict=True):
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-3)
        assert one.tokens == other.tokens
    assert client.complete([]) == [] and client.log_prob([]) == []
    with pytest.raises(ValueError, match="top_p must lie"):
        client.complete(prompts, top_p=0)


def test_the_command_asks_each_of_them(servers, models):
    def command(model, ask):
        words = [sys.executable, str(ROOT / "serving" / "client.py"), "--model", model]
        words += ["--ask", ask, "--server", f"127.0.0.1:{servers[model].port}", *LINES[:2]]
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
        return done.stdout.splitlines()

    found = models["classifier"].classify(LINES[:2])
    assert command("classifier", "classify") == [
        f"{one.label}\t{one.probabilities[one.label]:.4f}" for one in found
    ]
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


def test_a_signature_that_a_model_has_not_is_named(connect):
    with pytest.raises(ServingError, match="classify"):
        connect("tagger").classify(LINES)


def examples_of(texts):
    features = [
        tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode()])) for text in texts
    ]
    return [
        tf.train.Example(features=tf.train.Features(feature={"text": feature}))
        for feature in features
    ]


def serialized(examples):
    return {"inputs": np.array([example.SerializeToString() for example in examples], object)}


def test_tensorflow_servings_own_classify(exports, models):
    """The signature that the real server's Classify calls, in a session as its own."""
    with SavedSession(exports / "classifier" / "1") as session:
        found = session.run("classify_examples", serialized(examples_of(LINES)))
        other = tf.train.Example()
        other.features.feature["sentence"].bytes_list.value.append(b"Bom dia")
        with pytest.raises(tf.errors.InvalidArgumentError, match="text"):
            session.run("classify_examples", serialized([other]))
    expected = models["classifier"].classify(LINES)
    for classes, scores, one in zip(found["classes"], found["scores"], expected, strict=True):
        assert [label.decode() for label in classes] == LABELS
        np.testing.assert_allclose(scores, [one.probabilities[x] for x in LABELS], atol=1e-5)


def test_tensorflow_servings_own_regress(exports, models):
    with SavedSession(exports / "completer" / "1") as session:
        found = session.run("regress_examples", serialized(examples_of(LINES)))
    expected = [one.log_prob for one in models["completer"].log_prob(LINES)]
    np.testing.assert_allclose(np.ravel(found["outputs"]), expected, atol=1e-3)


def test_hostile_texts_over_the_wire(connect):
    calls = {"classifier": "classify", "tagger": "tag", "completer": "log_prob"}
    for name, call in calls.items():
        answers = getattr(connect(name), call)([*LINES, *ADVERSARIAL])
        alone = getattr(connect(name), call)(LINES[:1])
        assert len(answers) == len(LINES) + len(ADVERSARIAL)
        if name == "tagger":
            assert answers[0].words == alone[0].words and answers[0].tags == alone[0].tags
        if name == "completer":
            assert answers[0].log_prob == pytest.approx(alone[0].log_prob, abs=1e-3)
