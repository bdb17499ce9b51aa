"""What users import: cheap, documented with examples that run, annotated and named in stubs."""

import doctest
import importlib
import inspect
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import keras_tfmr
from keras_tfmr import client, decoding, export, layers, models, recurrent

ROOT = Path(__file__).resolve().parents[2]
OTHERS = (
    "Classifier", "Completer", "LabelSmoothedCrossEntropy", "NoamSchedule", "Perplexity",
    "SubwordTokenizer", "Tagger", "TokenAccuracy", "Translator", "smoothed_cross_entropy",
)  # fmt: skip
PACKAGES = (client, decoding, export, layers, models, recurrent)
SURFACE = [(module, name) for module in PACKAGES for name in module.__all__]
SURFACE += [(keras_tfmr, name) for name in OTHERS]
ON_JAX = """
import sys, time
sys.modules["tensorflow"] = None  # whoever imports it fails
import keras
before, start = set(sys.modules), time.process_time()
import keras_tfmr
print(time.process_time() - start, *{name.split(".")[0] for name in set(sys.modules) - before})
print(type(keras.models.load_model(sys.argv[1])).__name__)
from keras_tfmr import *
print(TranslationModel(TransformerConfig.preset("tiny")).count_params() > 0)
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("imports") / "model.keras"
    config = keras_tfmr.TransformerConfig.preset("tiny", source_vocab=9, target_vocab=9)
    keras_tfmr.TranslationModel(config).save(path)
    return path


def test_the_import_costs_little_beyond_keras_and_makes_models_load(saved):
    """In processor time, and the best of three: other work on the machine shall not fail it."""
    times, heavy = [], {"matplotlib", "tensorflow_text", "sentencepiece", "grpc"}
    while len(times) < 3 and min(times, default=1.0) > 0.3:
        command = [sys.executable, "-c", ON_JAX, saved]
        environment = {**os.environ, "KERAS_BACKEND": "jax"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        (seconds, *added), *rest = map(str.split, done.stdout.splitlines())
        assert "keras_tfmr" in added and not {"training", "serving", *heavy} & set(added)
        assert rest == [["TranslationModel"], ["True"]]
        times.append(float(seconds))
    assert min(times) <= 0.3, f"import keras_tfmr adds {times} s"


BEFORE_KERAS = """
import sys
import keras_tfmr
assert "keras" not in sys.modules
import {first}
import keras
print(type(keras.models.load_model(sys.argv[1])).__name__)
"""


@pytest.mark.parametrize("first", ["keras", "keras_tfmr.faster.precision", "keras_tfmr.layers"])
def test_models_load_too_when_it_is_imported_before_keras(saved, first):
    """Also when a module that the classes need is the first to import Keras."""
    command = [sys.executable, "-c", BEFORE_KERAS.format(first=first), saved]
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout == "TranslationModel\n", done.stderr


def test_public_names_are_there():
    for name in keras_tfmr._HOMES:
        assert hasattr(keras_tfmr, name) and name in dir(keras_tfmr)
    for name in keras_tfmr.layers.__all__:
        assert getattr(keras_tfmr, name) is getattr(keras_tfmr.layers, name)
    with pytest.raises(AttributeError, match="nothing_like_it"):
        keras_tfmr.nothing_like_it  # noqa: B018


def test_dir_shows_what_is_public_and_nothing_else():
    public = {"__version__", *keras_tfmr._HOMES}
    assert {*dir(keras_tfmr)} == public and public > {*keras_tfmr.__all__}
    for package in PACKAGES:
        assert dir(package) == sorted(package.__all__)


def modules():
    """All of keras_tfmr, and what shows examples of the two folders that are no packages."""
    found = [info.name for info in pkgutil.walk_packages(keras_tfmr.__path__, "keras_tfmr.")]
    for folder in ("training", "serving"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            if ">>> " in file.read_text():
                parts = file.relative_to(ROOT).with_suffix("").parts
                found.append(".".join(part for part in parts if part != "__init__"))
    return found


@pytest.mark.parametrize("name", modules())
def test_examples(name):
    # `np` is understood, as in NumPy's own documentation.
    options = {"extraglobs": {"np": np}, "optionflags": doctest.NORMALIZE_WHITESPACE}
    assert not doctest.testmod(importlib.import_module(name), **options).failed


def test_public_objects_have_an_example():
    for name in keras_tfmr.__all__:
        public = getattr(keras_tfmr, name)
        if inspect.isclass(public) or inspect.isfunction(public):
            assert ">>>" in inspect.getdoc(public), f"{name} shows no example"


def functions(name, value):
    """{name: function} of a function, or of a class and its bases in this package."""
    if inspect.isfunction(value):
        return {name: value}
    return {
        f"{name}.{attribute}": inspect.unwrap(getattr(member, "__func__", member))
        for base in getattr(value, "__mro__", ())
        if base.__module__.startswith("keras_tfmr.")
        for attribute, member in vars(base).items()
        if inspect.isfunction(getattr(member, "__func__", member))
        and (not attribute.startswith("_") or attribute in ("__init__", "__call__"))
    }


def test_what_users_call_is_annotated():
    for module, name in SURFACE:
        for place, function in functions(name, getattr(module, name)).items():
            if not Path(function.__code__.co_filename).exists():
                continue  # written by dataclasses or NamedTuple
            signature = inspect.signature(function)
            annotations = {p.name: p.annotation for p in signature.parameters.values()}
            annotations["return"] = signature.return_annotation
            missing = {n for n, a in annotations.items() if a is inspect.Parameter.empty}
            assert missing <= {"self", "cls"}, f"{place} does not say of what type: {missing}"
