"""What users call is annotated, and stubs name what their modules give; mypy itself: .ci/run."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

import keras_tfmr
from keras_tfmr import client, decoding, export

ROOT = Path(__file__).resolve().parents[2]
SURFACE = {
    **{name: getattr(client, name) for name in client.__all__},
    **{name: getattr(decoding, name) for name in decoding.__all__},
    **{name: getattr(export, name) for name in export.__all__},
    **{name: getattr(keras_tfmr, name) for name in ("SubwordTokenizer", "TransformerConfig")},
    **{
        name: getattr(keras_tfmr, name)
        for name in ("Classifier", "Completer", "Tagger", "Translator")
    },
}


def functions(name, value):
    """{name: function} of a function, or of a class and its bases in this package."""
    if inspect.isfunction(value):
        return {name: value}
    if not inspect.isclass(value):
        return {}
    return {
        f"{name}.{attribute}": inspect.unwrap(getattr(member, "__func__", member))
        for base in value.__mro__
        if base.__module__.startswith("keras_tfmr.")
        for attribute, member in vars(base).items()
        if inspect.isfunction(getattr(member, "__func__", member))
        and (not attribute.startswith("_") or attribute in ("__init__", "__call__"))
    }


@pytest.mark.parametrize("name", sorted(SURFACE))
def test_what_users_call_is_annotated(name):
    for place, function in functions(name, SURFACE[name]).items():
        if not function.__code__.co_filename.startswith(str(ROOT)):
            continue  # written by dataclasses or NamedTuple
        signature = inspect.signature(function)
        parameters = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
        missing = [p.name for p in parameters if p.annotation is inspect.Parameter.empty]
        assert not missing, f"{place} does not say of what type these are: {missing}"
        assert signature.return_annotation is not inspect.Signature.empty, place


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
