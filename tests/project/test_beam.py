"""docs/examples/translate_with_beam.py, with the packages that its workers have."""

import subprocess

import pytest
import tensorflow as tf
from other_python import python_with
from tiny_runs import ROOT

pytestmark = [pytest.mark.ci, pytest.mark.needs("uv")]

PACKAGES = ("apache-beam", "tensorflow-cpu==2.21.*", "tensorflow-text==2.21.*,!=2.21.0")
SCRIPT = ROOT / "docs/examples/translate_with_beam.py"


class Fussy(tf.Module):
    """Upper-cases texts; a batch with the text `bad` fails, as none does in an export."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def translate(self, text):
        good = tf.debugging.Assert(tf.reduce_all(text != "bad"), ["a bad text"])
        with tf.control_dependencies([good]):
            return {"translation": tf.strings.upper(text)}


@pytest.fixture(scope="module")
def python(once):
    return once("beam", lambda folder: python_with(folder, *PACKAGES)) / "venv/bin/python"


def translated(python, export, lines, folder, *options):
    """The lines of the output and of the failed texts, and what the command says."""
    (folder / "in.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = [python, SCRIPT, export, folder / "in.txt", folder / "out.tsv", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = []
    for name in ("out.tsv-*", "out.tsv.failed-*"):
        parts = [part.read_text("utf-8") for part in sorted(folder.glob(name))]
        found.append("".join(parts).splitlines())
    return *found, done.stderr


def test_an_export_translates(python, version, translator, tmp_path):
    """Each line is a text and its translation, as in this process."""
    texts = ["um dois três", "", "quatro nove", "dez um sete seis"]
    done, failed, _ = translated(python, version, texts, tmp_path, "--batch_size=2")
    expected = map("\t".join, zip(texts, translator.translate(texts), strict=True))
    assert sorted(done) == sorted(expected) and failed == []


def test_a_text_that_fails_is_said_and_the_others_are_kept(python, tmp_path):
    module = Fussy()
    tf.saved_model.save(module, tmp_path / "fussy", signatures={"translate": module.translate})
    texts = ["a", "bad", "b\tc", "d", "e"]
    done, failed, said = translated(python, tmp_path / "fussy", texts, tmp_path)
    assert sorted(done) == ["a\tA", "b c\tB C", "d\tD", "e\tE"] and failed == ["bad"]
    assert "not translated: b'bad'" in said and "a bad text" in said
