"""What users call is annotated, and stubs name what their modules give; mypy itself: .ci/run."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

import keras_tfmr
from keras_tfmr import client, decoding, export

TEXT = ("Classifier", "Completer", "SubwordTokenizer", "Tagger", "TransformerConfig", "Translator")
SURFACE = [(module, name) for module in (client, decoding, export) for name in module.__all__]
SURFACE += [(keras_tfmr, name) for name in TEXT]


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


@pytest.mark.parametrize("module", ["keras_tfmr", "keras_tfmr.export"])
def test_stubs_name_what_is_imported_on_demand(module):
    package = importlib.import_module(module)
    stub = Path(package.__file__).with_suffix(".pyi").read_text()
    imports = re.findall(r"^from (\S+) import (\w+) as \2$", stub, re.MULTILINE)
    named = {name: home for home, name in imports}
    wanted = {**getattr(package, "_HOMES", {}), **getattr(package, "_LAZY", {})}
    wanted = {name: f"{module}.{home}" for name, home in wanted.items()}
    wanted |= {name: module for name in getattr(package, "_PACKAGES", ())}
    assert named == wanted
