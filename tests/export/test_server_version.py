"""Exports of the TensorFlow that is installed, in the C++ session of TensorFlow Serving 2.20's."""

import sys

import pytest
from other_python import python_with
from text_models import LINES, Plain, allow_int8, tiny_translator

from keras_tfmr import Translator
from keras_tfmr.export import known_answers
from keras_tfmr.export.check import problems_in_new_process
from keras_tfmr.text.spans import SLOTS
from keras_tfmr.text_models.shortlist import learn_shortlist

PACKAGES = ("tensorflow-cpu", "tensorflow-text", "tensorflow-serving-api")


@pytest.fixture(scope="module")
def server_python(once):
    """Python with the server's TensorFlow."""
    needed = [f"{name}==2.20.*" for name in PACKAGES]
    needed += ["lazy_loader"]  # of keras_tfmr, whose check runs there
    return str(once("server", lambda folder: python_with(folder, *needed)) / "venv/bin/python")


@pytest.mark.needs("uv")
@pytest.mark.filterwarnings("ignore:The shortlist does not pay")
@pytest.mark.parametrize(
    ("kind", "precision", "short"),
    [(Translator, "float32", False), (Plain, "int8", False), (Plain, "int8", True)],
)
def test_it_answers_as_in_this_process(
    kind, precision, short, server_python, tmp_path, monkeypatch
):
    allow_int8(monkeypatch)
    translator = tiny_translator(kind=kind, symbols=SLOTS if kind is Translator else ())
    shortlist = learn_shortlist(translator, LINES[:3], LINES[3:]) if short else None
    options = {"precision": precision, "texts": LINES, "check": False, "shortlist": shortlist}
    path = translator.export(tmp_path, **options)
    if precision == "int8":
        translator = translator.for_decoding("int8", LINES)
    if short:
        translator = translator.with_shortlist(shortlist)
    monkeypatch.setattr(sys, "executable", server_python)
    cases = known_answers.cases(translator, [line.encode() for line in LINES])
    assert problems_in_new_process(path, cases) == []
