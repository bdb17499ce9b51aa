"""Exports of the TensorFlow that is installed, in the C++ session of TensorFlow Serving 2.20's."""

import subprocess
import sys

import pytest
from text_models import LINES, Plain, allow_int8, tiny_translator

from keras_tfmr import Translator
from keras_tfmr.export import known_answers
from keras_tfmr.export.check import problems_in_new_process
from keras_tfmr.text.spans import SLOTS

PACKAGES = ("tensorflow-cpu", "tensorflow-text", "tensorflow-serving-api")


@pytest.fixture(scope="module")
def server_python(tmp_path_factory):
    """Python with the server's TensorFlow."""
    from uv import find_uv_bin

    folder = tmp_path_factory.mktemp("server")
    (folder / "none.txt").write_text("tensorflow; python_version < '3'\n")  # -cpu is smaller
    python = folder / "venv/bin/python"
    new = [find_uv_bin(), "venv", "-q", "--python", sys.executable, folder / "venv"]
    install = [find_uv_bin(), "pip", "install", "-q", "--python", python]
    install += ["--override", folder / "none.txt", *(f"{name}==2.20.*" for name in PACKAGES)]
    install += ["lazy_loader"]  # of keras_tfmr, whose check runs there
    for command in (new, install):
        subprocess.run(command, check=True, timeout=900)
    said = subprocess.check_output(
        [python, "-c", "import tensorflow; print(tensorflow.__version__)"]
    )
    assert said.startswith(b"2.20.")
    return str(python)


@pytest.mark.needs("uv")
@pytest.mark.parametrize(("kind", "precision"), [(Translator, "float32"), (Plain, "int8")])
def test_it_answers_as_in_this_process(kind, precision, server_python, tmp_path, monkeypatch):
    allow_int8(monkeypatch)
    translator = tiny_translator(kind=kind, symbols=SLOTS if kind is Translator else ())
    options = {"precision": precision, "texts": LINES, "check": False}
    path = translator.export(tmp_path, **options)
    if precision == "int8":
        translator = translator.for_decoding("int8", LINES)
    monkeypatch.setattr(sys, "executable", server_python)
    cases = known_answers.cases(translator, [line.encode() for line in LINES])
    assert problems_in_new_process(path, cases) == []
