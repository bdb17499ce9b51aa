"""An export answers, without Keras, what the translator answers in process."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import types
import warnings

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("exports need TensorFlow", allow_module_level=True)

import tensorflow as tf
from helpers import full_disk
from translators import LINES, tiny_model, tiny_translator, tokenizer

from keras_tfmr import _packages, export_text_model
from keras_tfmr.export import golden_cases, warmup, write
from keras_tfmr.export.check import ExportError, Report
from keras_tfmr.export.saved_session import SavedSession

TRANSLATE = {"translation": ("string", 1), "score": ("float32", 1), "truncated": ("bool", 1)}
SIGNATURES = {  # outputs: type and rank
    "serving_default": TRANSLATE,
    "translate": TRANSLATE,
    "translate_nbest": {
        "translations": ("string", 2),
        "scores": ("float32", 2),
        "truncated": ("bool", 1),
    },
    "score": {"log_prob": ("float32", 1), "tokens": ("int32", 1), "truncated": ("bool", 1)},
    "explain": {
        "source_tokens": ("string", 2),
        "target_tokens": ("string", 2),
        "attention": ("float32", 3),
        "attention_heads": ("float32", 5),
        "encoder_heads": ("float32", 5),
        "decoder_heads": ("float32", 5),
    },
}

# TensorFlow Text's own Python package imports Keras; its libraries of ops do not.
WITHOUT_KERAS = """
import importlib.util, json, pathlib, sys
sys.modules["keras"] = sys.modules["keras_tfmr"] = None
import tensorflow as tf
text = pathlib.Path(importlib.util.find_spec("tensorflow_text").origin).parent
for library in text.glob("python/ops/*.so"):
    tf.load_op_library(str(library))
loaded = tf.saved_model.load(sys.argv[1])
outputs = loaded.signatures["serving_default"](text=tf.constant(json.loads(sys.argv[2])))
print(json.dumps([text.decode() for text in outputs["translation"].numpy()]))
"""


@pytest.fixture(scope="module")
def translator():
    return tiny_translator()


@pytest.fixture(scope="module")
def version(translator, tmp_path_factory):
    """An export with its check, which is the slow part of this file."""
    return export_text_model(
        translator,
        tmp_path_factory.mktemp("models") / "translator",
        metadata={"bleu": 12.5, "config": {"seed": 1}},
        warmup_texts=LINES[:3],
    )


@pytest.fixture(scope="module")
def session(version):
    with SavedSession(version) as session:
        yield session


@pytest.fixture
def unchecked(translator, tmp_path, monkeypatch):
    """Exports without waiting for the other process; `unchecked.report` is what it would say."""

    def run(**options):
        process = types.SimpleNamespace(report=lambda *_: run.report)
        monkeypatch.setattr(write, "FreshProcess", lambda *_, **__: contextlib.nullcontext(process))
        return export_text_model(run.translator, tmp_path / "models", **options)

    run.report, run.translator = Report(), translator
    return run


def texts(*values):
    return np.array([v if isinstance(v, bytes) else v.encode() for v in values], object)


def test_a_version_appears_complete_and_alone(version):
    assert version.name == "1"
    assert [path.name for path in version.parent.iterdir()] == ["1"]
    files = {str(path.relative_to(version)) for path in version.rglob("*") if path.is_file()}
    assert files >= {
        "saved_model.pb",
        "variables/variables.index",
        "assets.extra/tf_serving_warmup_requests",
        "assets.extra/keras_tfmr.json",
    }
    assert os.stat(version).st_mode & 0o055 == os.stat(version.parent).st_mode & 0o055


def test_signatures_are_what_was_promised(session):
    found = {
        name: {
            alias: (tf.as_dtype(info.dtype).name, len(info.tensor_shape.dim))
            for alias, info in signature.outputs.items()
        }
        for name, signature in session.signatures.items()
    }
    assert found == SIGNATURES
    for name, signature in session.signatures.items():
        expected = {"text", "reference"} if name == "score" else {"text"}
        assert set(signature.inputs) == expected
        for info in [*signature.inputs.values(), *signature.outputs.values()]:
            assert info.tensor_shape.dim[0].size == -1


def test_answers_are_those_given_in_process(session, translator):
    outputs = session.run("translate", {"text": texts(*LINES, "")})
    assert [t.decode() for t in outputs["translation"]] == translator.translate([*LINES, ""])
    outputs = session.run("translate_nbest", {"text": texts(*LINES)})
    for row, hypotheses in enumerate(translator.translate_nbest(LINES)):
        assert [t.decode() for t in outputs["translations"][row]] == [h.text for h in hypotheses]
        np.testing.assert_allclose(outputs["scores"][row], [h.score for h in hypotheses], atol=1e-4)
    long = {"text": texts("", " ".join(LINES))}
    assert session.run("translate_nbest", long)["truncated"].tolist() == [False, True]
    outputs = session.run("score", {"text": texts(*LINES[:3]), "reference": texts(*LINES[3:])})
    expected = translator.score(LINES[:3], LINES[3:])
    np.testing.assert_allclose(outputs["log_prob"], [e.log_prob for e in expected], atol=1e-4)
    both = {"text": texts("a", "a", " ".join(LINES)), "reference": texts("b", " ".join(LINES), "b")}
    assert session.run("score", both)["truncated"].tolist() == [False, True, True]
    outputs = session.run("explain", {"text": texts(LINES[0])})
    [explanation] = translator.explain(LINES[:1])
    assert [t.decode() for t in outputs["target_tokens"][0]] == explanation.target_tokens
    np.testing.assert_allclose(
        outputs["attention_heads"][0], explanation.attention_heads, atol=1e-4
    )
    for side in ("encoder", "decoder"):
        found = getattr(explanation, f"{side}_heads")
        np.testing.assert_allclose(outputs[f"{side}_heads"][0], found, atol=1e-4)


def test_adversarial_texts_do_not_touch_their_neighbours(session):
    plain = session.run("translate", {"text": texts(*LINES)})
    mixed = session.run("translate", {"text": texts(*LINES, *golden_cases.ADVERSARIAL)})
    assert (mixed["translation"][: len(LINES)] == plain["translation"]).all()
    np.testing.assert_allclose(mixed["score"][: len(LINES)], plain["score"], atol=1e-4)
    for translation in mixed["translation"]:
        translation.decode("utf-8")
    assert mixed["translation"][len(LINES)] == b"" and mixed["score"][len(LINES)] == 0


@pytest.mark.parametrize("shape", [(), (1, 1)])
def test_the_graph_refuses_a_wrong_rank(session, shape):
    # The server does not look at the signature's shapes, nor does this session.
    with pytest.raises(tf.errors.InvalidArgumentError):
        session.run("translate", {"text": np.full(shape, b"bom", object)})


def test_rows_of_text_and_reference_are_counted(session):
    with pytest.raises(tf.errors.InvalidArgumentError, match="same batch size"):
        session.run("score", {"text": texts("a", "b"), "reference": texts("c")})


def test_it_holds_one_copy_of_each_weight_and_no_device(version, translator, session):
    reader = tf.train.load_checkpoint(str(version / "variables" / "variables"))
    shapes = reader.get_variable_to_shape_map()
    shapes.pop("_CHECKPOINTABLE_OBJECT_GRAPH")
    stored = sorted(tuple(shape) for shape in shapes.values())
    # And the transposed table of the logits, which a server would transpose in every search.
    table = tuple(translator.model.logits.embedding.tokens.embeddings.shape)[::-1]
    assert stored == sorted([table, *(tuple(w.shape) for w in translator.model.weights)])
    pinned = {
        function.signature.name
        for function in session.meta_graph.graph_def.library.function
        for node in function.node_def
        if node.device
    }
    assert all("traced_save" in name or "traced_restore" in name for name in pinned)
    ops = {
        node.op
        for function in session.meta_graph.graph_def.library.function
        for node in function.node_def
    }
    assert not [op for op in ops if "Xla" in op], "these need XLA even outside of it"


def test_it_needs_no_keras(version, translator, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_KERAS, str(version), json.dumps(LINES[:3])],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout.splitlines()[-1]) == translator.translate(LINES[:3])


def test_warmup_holds_every_signature_and_batch_size(version):
    from tensorflow_serving.apis import prediction_log_pb2

    met = set()
    for record in tf.data.TFRecordDataset(str(version / warmup.FILE)).as_numpy_iterator():
        request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
        rows = tf.make_ndarray(request.inputs["text"])
        assert set(rows) <= set(texts(*LINES[:3]))
        met.add((request.model_spec.signature_name, len(rows)))
    assert met == {
        (name, rows) for name in set(SIGNATURES) - {"serving_default"} for rows in warmup.BATCHES
    }


def test_metadata_says_how_it_was_made(version):
    metadata = json.loads((version / write.METADATA_FILE).read_text(encoding="utf-8"))
    assert metadata["decoding"]["num_beams"] == 3 and metadata["decoding"]["max_length"] == 12
    assert metadata["run"] == {"bleu": 12.5, "config": {"seed": 1}}
    assert metadata["precision"] == "float32"
    assert metadata["versions"]["tensorflow"] == tf.__version__
    assert metadata["model"]["d_model"] == 16 and metadata["model"]["tied_logits"]


def test_a_failing_check_leaves_nothing_behind(unchecked, tmp_path, monkeypatch):
    # What would be written and asked does not matter here, and takes its time.
    monkeypatch.setattr(write, "_save", lambda *given: (given[-1] / "saved_model.pb").touch())
    monkeypatch.setattr(golden_cases, "record", lambda translator: [])
    unchecked.report = Report(problems=["it does not load", "nor run"])
    with pytest.raises(ExportError, match=r"(?s)not kept.*- it does not load\n- nor run"):
        unchecked()
    assert list((tmp_path / "models").iterdir()) == []
    unchecked.report = Report()
    assert unchecked() == tmp_path / "models" / "1"


def test_a_full_disk_is_one_error_and_leaves_nothing(translator, tmp_path):
    with (
        full_disk(),
        pytest.raises(ExportError, match=r"Cannot write .*models: .*[Ff]ile too large"),
    ):
        export_text_model(translator, tmp_path / "models", check=False)
    assert list((tmp_path / "models").iterdir()) == []


def test_an_unwritable_folder_is_named(translator, tmp_path):
    (tmp_path / "models").touch()
    with pytest.raises(ExportError, match=r"Cannot write .*models: Not a directory"):
        export_text_model(translator, tmp_path / "models", check=False)


def test_the_next_free_number_is_taken(tmp_path):
    for name in ("3", "00000007", ".unfinished-x", "9x", "latest"):
        (tmp_path / name).mkdir()
    published = []

    def publish(name):
        (tmp_path / name / "variables").mkdir(parents=True)
        published.append(write._publish(tmp_path / name, tmp_path).name)

    threads = [threading.Thread(target=publish, args=(f".unfinished-{i}",)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(published, key=int) == [str(number) for number in range(8, 16)]


def test_bfloat16_is_stored_and_served(unchecked, translator):
    path = unchecked(precision="bfloat16", check=False)
    reader = tf.train.load_checkpoint(str(path / "variables" / "variables"))
    types = reader.get_variable_to_dtype_map()
    types.pop("_CHECKPOINTABLE_OBJECT_GRAPH")
    assert set(types.values()) == {tf.bfloat16}
    with SavedSession(path) as session:
        outputs = session.run("score", {"text": texts(*LINES[:3]), "reference": texts(*LINES[3:])})
    expected = [found.log_prob for found in translator.score(LINES[:3], LINES[3:])]
    np.testing.assert_allclose(outputs["log_prob"], expected, rtol=0.05)


def test_a_quantised_model_is_exported_in_integers(unchecked):
    model = tiny_model()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras names each layer with nothing to quantise
        model.quantize("int8")
    unchecked.translator = tiny_translator(model)
    with pytest.raises(ValueError, match=r"stays in its precision, float32.*bfloat16"):
        unchecked(precision="bfloat16")
    path = unchecked(check=False)
    reader = tf.train.load_checkpoint(str(path / "variables" / "variables"))
    assert tf.int8 in reader.get_variable_to_dtype_map().values()
    with SavedSession(path) as session:
        found = session.run("translate", {"text": texts(*LINES[:3])})["translation"]
    assert [text.decode() for text in found] == unchecked.translator.translate(LINES[:3])


def test_the_translators_own_ways_are_kept(unchecked, monkeypatch):
    """In its own precision, whatever the defaults of an export are."""
    monkeypatch.setattr(write, "_save", lambda translator, *_: saved.append(translator))
    saved = []
    unchecked.translator = tiny_translator().replace(precision="bfloat16")
    unchecked(check=False)
    unchecked(check=False, precision="float32")
    found = [each.model.dtype_policy.name for each in saved]
    assert found == ["bfloat16", "float32"]


def test_blank_texts_do_not_warm_up(unchecked, monkeypatch):
    monkeypatch.setattr(write, "_save", lambda *_: None)
    for blank in ([], ["", " \n"], None):
        path = unchecked(check=False, warmup_texts=blank)
        assert (path / warmup.FILE).stat().st_size > 0


def test_two_vocabularies_and_greedy(unchecked, tmp_path):
    from keras_tfmr import SubwordTokenizer, Translator
    from keras_tfmr.decoding import DecodingConfig

    other = SubwordTokenizer.learn(LINES[3:] * 3, vocab_size=300)
    model = tiny_model(joint_vocab=False, target_vocab=other.vocab_size)
    unchecked.translator = Translator(
        model, tokenizer(), other, DecodingConfig(num_beams=1, max_length=8), max_source_length=16
    )
    path = unchecked(check=False)
    with SavedSession(path) as session:
        outputs = session.run("translate", {"text": texts(*LINES[:3])})
    translations = [text.decode() for text in outputs["translation"]]
    assert translations == unchecked.translator.translate(LINES[:3])


def test_a_recurrent_model_is_exported_alike(unchecked):
    from keras_tfmr.recurrent import RNNSearchConfig, RNNSearchModel

    size = tokenizer().vocab_size
    config = RNNSearchConfig.preset("tiny", source_vocab=size, target_vocab=size)
    unchecked.translator = tiny_translator(RNNSearchModel(config))
    path = unchecked(check=False)
    with SavedSession(path) as session:
        outputs = session.run("translate", {"text": texts(*LINES[:3])})
        explained = session.run("explain", {"text": texts(LINES[0])})
    translations = [text.decode() for text in outputs["translation"]]
    assert translations == unchecked.translator.translate(LINES[:3])
    assert explained["attention_heads"].shape[1:3] == (1, 1), "one layer, one head"
    assert "encoder_heads" not in explained, "it has no self-attention"


def test_versions_are_those_of_the_modules_whatever_package_holds_them(monkeypatch):
    """tensorflow-cpu holds `tensorflow`, of which there is no metadata then."""
    module = types.ModuleType("held_by_another")
    module.__version__ = "2.21.0"
    monkeypatch.setitem(sys.modules, "held_by_another", module)
    found = _packages.versions("held-by-another", "no-such-package")
    python = ".".join(map(str, sys.version_info[:3]))
    assert found == {"python": python, "held-by-another": "2.21.0", "no-such-package": None}
