"""Every example in a docstring runs and prints what it says; every public object has one."""

import doctest
import importlib
import inspect
import pkgutil
from pathlib import Path

import numpy as np
import pytest

import keras_tfmr

ROOT = Path(__file__).resolve().parents[2]


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
