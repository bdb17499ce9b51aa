"""An export answers, with and without Keras, what the translator answers in process."""

import concurrent.futures
import json
import os
import subprocess
import sys
import warnings
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from helpers import full_disk
from text_models import (
    ADVERSARIAL,
    LINES,
    Plain,
    classifier,
    tiny_translator,
    tokenizer,
    write_run,
)

from keras_tfmr import Translator, _files, compat
from keras_tfmr.errors import ExportError
from keras_tfmr.export import check, known_answers, warmup, write
from keras_tfmr.export.saved_session import SavedSession
from keras_tfmr.finished import int8
from keras_tfmr.presets.folder import PresetFolder
from keras_tfmr.recurrent import RNNSearchConfig, RNNSearchModel
from serving import export as command

TRANSLATE = {"translation": ("string", 1), "score": ("float32", 1), "truncated": ("bool", 1)}
SIGNATURES = {  # outputs: type and rank
    "serving_default": TRANSLATE,
    "translate": TRANSLATE,
    "translate_nbest": {
        "translations": ("string", 2), "scores": ("float32", 2), "truncated": ("bool", 1),
    },
    "translate_document": {
        "translation": ("string", 1), "sentences": ("int32", 1), "truncated": ("bool", 1),
        "source_pieces": ("string", 2), "target_pieces": ("string", 2),
    },
    "translate_with_terms": TRANSLATE,
    "score": {"log_prob": ("float32", 1), "tokens": ("int32", 1), "truncated": ("bool", 1)},
    "explain": {
        "source_tokens": ("string", 2), "target_tokens": ("string", 2),
        "attention": ("float32", 3), "attention_heads": ("float32", 5),
        "encoder_heads": ("float32", 5), "decoder_heads": ("float32", 5),
    },
}  # fmt: skip


def texts(*values):
    return np.array([v if isinstance(v, bytes) else v.encode() for v in values], object)


def stored(path):
    """{name: (shape, dtype)} of the variables in the checkpoint."""
    reader = tf.train.load_checkpoint(str(path / "variables" / "variables"))
    kinds = reader.get_variable_to_dtype_map()
    shapes = reader.get_variable_to_shape_map()
    return {n: (shapes[n], kinds[n]) for n in shapes if n != "_CHECKPOINTABLE_OBJECT_GRAPH"}


@pytest.mark.ci
def test_a_version_appears_complete_and_alone(version, whole):
    assert [path.name for path in version.parent.iterdir()] == ["1"]
    files = {str(path.relative_to(version)) for path in version.rglob("*") if path.is_file()}
    assert files >= {"saved_model.pb", "variables/variables.index", "batching_params.pbtxt"}
    assert os.stat(version).st_mode & 0o055 == os.stat(version.parent).st_mode & 0o055
    metadata = json.loads((version / write.METADATA_FILE).read_text(encoding="utf-8"))
    results = json.loads((whole / "results.json").read_text())
    assert metadata["run"]["results"]["validation_bleu"] == results["validation_bleu"]
    assert metadata["text_model"]["class_name"] == "keras_tfmr>Translator"
    assert metadata["text_model"]["config"]["num_beams"] == 2
    assert metadata["precision"] == "float32"
    assert metadata["versions"]["tensorflow"] == tf.__version__
    assert metadata["examples"] == PresetFolder(whole).sources()[:5]


@pytest.mark.ci
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
        more = {"score": {"reference"}, "translate_with_terms": {"terms"}}
        assert set(signature.inputs) == {"text"} | more.get(name, set())
        for info in [*signature.inputs.values(), *signature.outputs.values()]:
            assert info.tensor_shape.dim[0].size == -1
        assert all(len(info.tensor_shape.dim) == 1 for info in signature.inputs.values())


@pytest.mark.ci
def test_the_graph_refuses_a_wrong_shape(session):
    # The server does not look at the signature's shapes, nor does this session.
    for signature, inputs in (
        ("translate", {"text": np.full((), b"bom", object)}),
        ("translate", {"text": np.full((1, 1), b"bom", object)}),
        ("score", {"text": texts("a", "b"), "reference": texts("c")}),
        ("translate_with_terms", {"text": texts("a", "b"), "terms": texts("a\tb")}),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run(signature, inputs)


@pytest.mark.ci
def test_it_holds_one_copy_of_each_weight_and_no_device(version, translator, session):
    sizes = [np.prod(shape) for shape, _ in stored(version).values()]
    # And the table of the logits; norms and biases may be part of other weights.
    table = np.prod(translator.model.get_layer("target_embedding").tokens.embeddings.shape)
    assert sum(sizes) == pytest.approx(translator.model.count_params() + table, rel=0.05)
    functions = session.meta_graph.graph_def.library.function
    nodes = [(one.signature.name, node) for one in functions for node in one.node_def]
    pinned = {name for name, node in nodes if node.device}
    assert all("traced_save" in name or "traced_restore" in name for name in pinned)
    assert not [node.op for _, node in nodes if "Xla" in node.op], "they need XLA outside it, too"


@pytest.mark.ci
def test_a_failing_check_leaves_nothing_behind(tmp_path, monkeypatch):
    # What would be written and asked does not matter here, and takes its time.
    translator = tiny_translator(kind=Plain)
    monkeypatch.setattr(write, "_save", lambda *given: (given[-1] / "saved_model.pb").touch())
    monkeypatch.setattr(known_answers, "cases", lambda translator: [])
    problems = ["it does not load", "nor run"]
    monkeypatch.setattr(write, "problems_in_new_process", lambda *_: problems)
    with pytest.raises(ExportError, match=r"(?s)not kept.*- it does not load\n- nor run"):
        translator.export(tmp_path)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):  # Ctrl-C
        patched.setattr(write.batching, "write", mock.Mock(side_effect=KeyboardInterrupt))
        translator.export(tmp_path)
    assert list(tmp_path.iterdir()) == []
    problems = []
    for number, blank in enumerate(([], ["", " \n"], None), 1):
        path = translator.export(tmp_path, texts=blank)
        assert path == tmp_path / str(number)
        assert (path / warmup.FILE).stat().st_size > 0, "blank texts do not warm up"


@pytest.mark.ci
def test_every_signature_answers_as_the_layers_do(session, translator):
    """The command's check compares `translate` alone with them."""
    for case in known_answers.cases(translator, [*map(str.encode, LINES), *ADVERSARIAL]):
        assert check.differences(session, case, tolerance=1e-3) == []


def test_a_copy_that_strays_from_the_layers_is_refused(tmp_path, monkeypatch):
    exact, other = classifier(), classifier()
    other.model.set_weights([2 * weight for weight in other.model.get_weights()])
    monkeypatch.setattr(exact, "for_decoding", lambda: other)
    monkeypatch.setattr(write, "_save", lambda *given: None)
    monkeypatch.setattr(write, "problems_in_new_process", lambda *_: [])
    with pytest.raises(ExportError, match=r"output probabilities .* but by the model's own layers"):
        exact.export(tmp_path)


def test_servers_warm_up_what_they_are_asked_most():
    translator = tiny_translator()
    for names, expected in (
        (None, {"translate", "translate_nbest"}),
        (["explain", "score"], {"explain", "score"}),
        ([], set()),
    ):
        asked = known_answers.warm_ups(translator, names, LINES)
        assert {name for name, _ in asked} == expected
    with pytest.raises(ValueError, match=r"of translate, .*explain\. Received: 'classify'"):
        known_answers.warm_ups(translator, ["classify"], LINES)


def test_what_cannot_be_written_is_one_error_and_leaves_nothing(tmp_path):
    with (
        full_disk(),
        pytest.raises(ExportError, match=r"Cannot write .*models: .*[Ff]ile too large"),
    ):
        classifier().export(tmp_path / "models", check=False)
    (tmp_path / "file").touch()
    with pytest.raises(ExportError, match=r"Cannot write .*file: (File exists|Not a directory)"):
        classifier().export(tmp_path / "file", check=False)
    assert list((tmp_path / "models").iterdir()) == []


KILLED = """
import pathlib, sys
from keras_tfmr import _files
with _files.unfinished(pathlib.Path(sys.argv[1])) as folder:
    print(folder.name, flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_export_left_goes_with_the_next_one(tmp_path):
    command = [sys.executable, "-c", KILLED, str(tmp_path / "a path")]
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **options) as one, subprocess.Popen(command, **options) as two:
        names = [each.stdout.readline().strip() for each in (one, two)]
        assert {path.name for path in (tmp_path / "a path").iterdir()} == {*names}
        two.kill()
        two.wait()
        with _files.unfinished(tmp_path / "a path") as folder:
            left = {path.name for path in (tmp_path / "a path").iterdir()} - {folder.name}
            assert left == {names[0]}, "one still runs"
            _files.publish(folder, folder.parent)
    assert [path.name for path in (tmp_path / "a path").iterdir()] == ["1"]


def test_the_next_free_number_is_taken(tmp_path):
    for name in ("3", "00000007", ".unfinished-x", "9x", "latest", "9" * 20):
        (tmp_path / name).mkdir()

    def publish(name):
        (tmp_path / name / "variables").mkdir(parents=True)
        return int(_files.publish(tmp_path / name, tmp_path).name)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        published = pool.map(publish, [f".unfinished-{i}" for i in range(8)])
    assert sorted(published) == [*range(8, 16)]


@pytest.mark.ci
def test_a_rounded_model_is_stored_and_served_in_its_precision(tmp_path):
    exact, quantized = classifier(), classifier()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras names each layer with nothing to quantise
        quantized.model.quantize("int8")
    with pytest.raises(ValueError, match=r"stays in its precision, int8.*bfloat16"):
        quantized.export(tmp_path, precision="bfloat16", check=False)
    for model, precision, kind in ((exact, "bfloat16", tf.bfloat16), (quantized, None, tf.int8)):
        path = model.export(tmp_path, precision=precision, check=False)
        kinds = {kind for _, kind in stored(path).values()}
        assert kinds == {kind} or kind == tf.int8 in kinds
        with SavedSession(path) as session:
            found = session.run("classify", {"text": texts(*LINES)})["probabilities"]
        asked = exact if precision else quantized
        expected = [[*one.probabilities.values()] for one in asked.classify(LINES)]
        np.testing.assert_allclose(found, expected, atol=0.05 if precision else 1e-5)


class Explaining(Plain):
    names = ("translate", "explain")


@pytest.mark.ci
def test_a_recurrent_model_is_exported_alike(tmp_path):
    size = tokenizer().vocab_size
    config = RNNSearchConfig.preset("tiny", source_vocab=size, target_vocab=size)
    options = {"num_beams": 1, "num_return_sequences": 1}
    translator = tiny_translator(RNNSearchModel(config), kind=Explaining, **options)
    with SavedSession(translator.export(tmp_path, check=False)) as session:
        found = session.run("translate", {"text": texts(*LINES)})["translation"]
        explained = session.run("explain", {"text": texts(LINES[0])})
    assert [text.decode() for text in found] == translator.translate(LINES)
    assert explained["attention_heads"].shape[1:3] == (1, 1), "one layer, one head"
    assert "encoder_heads" not in explained, "it has no self-attention"


@pytest.mark.ci
def test_options_of_the_command(tmp_path, capsys, monkeypatch):
    run = write_run(tmp_path, num_beams=2, length_penalty=0.5, languages=["de", "en"])
    asked = []
    with monkeypatch.context() as patched:
        patched.setattr(Translator, "export", lambda own, *_, **how: asked.append(own))
        words = ["--nbest", "1", "--max_length", "10", "--max_source_length", "24"]
        for more in (words, ["--languages", "nl", "en"]):
            assert command.main([str(run), *more]) == 0
    translator, dutch = asked
    decoding = translator.config
    assert (decoding.num_beams, decoding.num_return_sequences, decoding.max_length) == (2, 1, 10)
    assert (decoding.length_penalty, translator.max_source_length) == (0.5, 24)
    assert translator.splitter.abbreviations == "de", "the run's"
    assert dutch.splitter.abbreviations == "nl"
    monkeypatch.setattr(compat, "QUANTIZED_MATMUL", "_NotOnThisMachine")
    int8.check_int8.cache_clear()
    for words, said in (
        (["--nbest", "3"], "must"), (["--precision", "int8"], "int8 needs a TensorFlow for Linux")
    ):  # fmt: skip
        assert command.main([str(run), *words]) == 1
        assert said in capsys.readouterr().err
    assert not (run / "saved_model").exists()
