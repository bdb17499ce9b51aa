"""An export answers, with and without Keras, what the translator answers in process."""

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
from server_process import ServerProcess
from translators import LINES, Plain, tiny_model, tiny_translator, tokenizer

from keras_tfmr import export_text_model
from keras_tfmr.client import ServingClient
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
    "translate_document": {
        "translation": ("string", 1),
        "sentences": ("int32", 1),
        "truncated": ("bool", 1),
        "source_pieces": ("string", 2),
        "target_pieces": ("string", 2),
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
loaded = tf.saved_model.load(sys.argv[1])
outputs = [loaded.signatures["serving_default"](text=text), loaded.serve(text)]
del sys.modules["keras"]
import keras
outputs.append(keras.layers.TFSMLayer(sys.argv[1], call_endpoint="serving_default")(text))
outputs.append(keras.layers.TFSMLayer(sys.argv[1])(text))
print(json.dumps([[one.decode() for one in o["translation"].numpy()] for o in outputs]))
"""


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


def translations(path, lines=LINES[:3]):
    with SavedSession(path) as session:
        found = session.run("translate", {"text": texts(*lines)})["translation"]
    return [text.decode() for text in found]


def stored(path):
    """{name: (shape, dtype)} of the variables in the checkpoint."""
    reader = tf.train.load_checkpoint(str(path / "variables" / "variables"))
    kinds = reader.get_variable_to_dtype_map()
    shapes = reader.get_variable_to_shape_map()
    return {n: (shapes[n], kinds[n]) for n in shapes if n != "_CHECKPOINTABLE_OBJECT_GRAPH"}


def test_a_served_document_streams_as_it_is_in_process(version, translator, tmp_path):
    text = f"- {LINES[0]}\r\n\r\n{' '.join(LINES) * 9}\n\tO Sr.\nReis saiu.  {LINES[1]}\n" * 2
    (expected,) = translator.translate_document([text])
    with (
        ServerProcess(tmp_path, f"--model_base_path={version.parent}") as server,
        ServingClient(f"127.0.0.1:{server.port}") as client,
    ):
        assert client.translate_document([text]) == [expected]
        found = [*client.stream_document(text)]
    assert "".join(document.text for document in found) == expected.text
    assert sum(document.sentences for document in found) == expected.sentences
    sources = ["".join(source for source, _ in document.pieces) for document in found]
    assert sources == text.splitlines(keepends=True)


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
    """Of every signature; hostile texts have answers and leave those of the others alone."""
    assert golden_cases.compare(session, golden_cases.record(translator), 1e-4) == []
    alone = session.run("translate", {"text": texts(*LINES)})
    assert [t.decode() for t in alone["translation"]] == translator.translate(LINES)
    mixed = session.run("translate", {"text": texts(*LINES, *golden_cases.ADVERSARIAL)})
    assert (mixed["translation"][: len(LINES)] == alone["translation"]).all()
    np.testing.assert_allclose(mixed["score"][: len(LINES)], alone["score"], atol=1e-4)
    for translation in mixed["translation"]:
        translation.decode("utf-8")
    assert mixed["translation"][len(LINES)] == b"" and mixed["score"][len(LINES)] == 0


def test_what_was_cut_is_said(session):
    long = {"text": texts("", " ".join(LINES))}
    for signature in ("translate", "translate_nbest"):
        assert session.run(signature, long)["truncated"].tolist() == [False, True]
    both = {"text": texts("a", "a", " ".join(LINES)), "reference": texts("b", " ".join(LINES), "b")}
    assert session.run("score", both)["truncated"].tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("signature", "inputs"),
    [
        ("translate", {"text": np.full((), b"bom", object)}),
        ("translate", {"text": np.full((1, 1), b"bom", object)}),
        ("score", {"text": texts("a", "b"), "reference": texts("c")}),
    ],
    ids=["scalar", "matrix", "rows"],
)
def test_the_graph_refuses_a_wrong_shape(session, signature, inputs):
    # The server does not look at the signature's shapes, nor does this session.
    with pytest.raises(tf.errors.InvalidArgumentError):
        session.run(signature, inputs)


def test_it_holds_one_copy_of_each_weight_and_no_device(version, translator, session):
    sizes = [np.prod(shape) for shape, _ in stored(version).values()]
    # And the transposed table of the logits, which a server would transpose in every search.
    table = np.prod(translator.model.logits.embedding.tokens.embeddings.shape)
    assert sum(sizes) == translator.model.count_params() + table
    functions = session.meta_graph.graph_def.library.function
    nodes = [
        (function.signature.name, node) for function in functions for node in function.node_def
    ]
    pinned = {name for name, node in nodes if node.device}
    assert all("traced_save" in name or "traced_restore" in name for name in pinned)
    assert not [node.op for _, node in nodes if "Xla" in node.op], "they need XLA outside it, too"


def test_python_and_keras_load_it_too(version, translator, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LOADED, str(version), json.dumps(LINES[:3])],
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [translator.translate(LINES[:3])] * 4


def test_warmup_holds_every_signature_and_batch_size(version):
    requests = warmup.read(version, problems := [])
    assert problems == []
    for request in requests:
        assert set(request.inputs["text"]) <= set(texts(*LINES[:3]))
    assert {(request.signature, len(request.inputs["text"])) for request in requests} == {
        (name, rows) for name in set(SIGNATURES) - {"serving_default"} for rows in warmup.BATCHES
    }


def test_metadata_says_how_it_was_made(version):
    metadata = json.loads((version / write.METADATA_FILE).read_text(encoding="utf-8"))
    assert metadata["decoding"]["num_beams"] == 3 and metadata["decoding"]["max_length"] == 12
    assert metadata["run"] == {"bleu": 12.5, "config": {"seed": 1}}
    assert metadata["precision"] == "float32"
    assert metadata["versions"]["tensorflow"] == tf.__version__
    assert metadata["model"]["d_model"] == 16 and metadata["model"]["tied_logits"]


def test_lora_is_exported_and_the_check_would_miss_it(unchecked, session):
    model = tiny_model()
    for layer in model.encoder.layers:
        layer.feed_forward.hidden_dense.enable_lora(4)
    trained = [weight for weight in model.trainable_weights if "lora" in weight.name]
    assert trained
    for weight in trained:
        weight.assign(np.random.default_rng(0).normal(size=weight.shape))
    unchecked.translator = tiny_translator(model, kind=Plain)
    cases = golden_cases.record(unchecked.translator)
    with SavedSession(unchecked(check=False)) as adapted:
        assert golden_cases.compare(adapted, cases, 1e-3) == []
    assert golden_cases.compare(session, cases, 1e-3) != [], "an export without the adapters"


def test_a_failing_check_leaves_nothing_behind(unchecked, tmp_path, monkeypatch):
    # What would be written and asked does not matter here, and takes its time.
    monkeypatch.setattr(write, "_save", lambda *given: (given[-1] / "saved_model.pb").touch())
    monkeypatch.setattr(golden_cases, "record", lambda translator: [])
    unchecked.report = Report(problems=["it does not load", "nor run"])
    with pytest.raises(ExportError, match=r"(?s)not kept.*- it does not load\n- nor run"):
        unchecked()
    assert list((tmp_path / "models").iterdir()) == []
    unchecked.report = Report()
    for blank in ([], ["", " \n"], None):
        path = unchecked(warmup_texts=blank)
        assert (path / warmup.FILE).stat().st_size > 0, "blank texts do not warm up"
    assert path == tmp_path / "models" / "3"


def test_what_cannot_be_written_is_one_error_and_leaves_nothing(tmp_path):
    translator = tiny_translator(kind=Plain)
    with (
        full_disk(),
        pytest.raises(ExportError, match=r"Cannot write .*models: .*[Ff]ile too large"),
    ):
        export_text_model(translator, tmp_path / "models", check=False)
    assert list((tmp_path / "models").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(ExportError, match=r"Cannot write .*file: Not a directory"):
        export_text_model(translator, tmp_path / "file", check=False)


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
    unchecked.translator = tiny_translator(kind=Plain)
    path = unchecked(precision="bfloat16", check=False)
    assert {kind for _, kind in stored(path).values()} == {tf.bfloat16}
    with SavedSession(path) as session:
        outputs = session.run("score", {"text": texts(*LINES[:3]), "reference": texts(*LINES[3:])})
    expected = [found.log_prob for found in translator.score(LINES[:3], LINES[3:])]
    np.testing.assert_allclose(outputs["log_prob"], expected, rtol=0.05)


def test_a_quantised_model_is_exported_in_integers(unchecked):
    model = tiny_model()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras names each layer with nothing to quantise
        model.quantize("int8")
    unchecked.translator = tiny_translator(model, kind=Plain)
    with pytest.raises(ValueError, match=r"stays in its precision, float32.*bfloat16"):
        unchecked(precision="bfloat16")
    path = unchecked(check=False)
    assert tf.int8 in {kind for _, kind in stored(path).values()}
    assert translations(path) == unchecked.translator.translate(LINES[:3])


def test_a_recurrent_model_is_exported_alike(unchecked):
    from keras_tfmr.recurrent import RNNSearchConfig, RNNSearchModel

    size = tokenizer().vocab_size
    config = RNNSearchConfig.preset("tiny", source_vocab=size, target_vocab=size)
    unchecked.translator = tiny_translator(
        RNNSearchModel(config), num_beams=1, num_return_sequences=1
    )
    path = unchecked(check=False)
    assert translations(path) == unchecked.translator.translate(LINES[:3])
    with SavedSession(path) as session:
        explained = session.run("explain", {"text": texts(LINES[0])})
    assert explained["attention_heads"].shape[1:3] == (1, 1), "one layer, one head"
    assert "encoder_heads" not in explained, "it has no self-attention"
