"""The examples in docstrings print what they say."""

import doctest
import importlib
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = [
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for folder in ("keras_tfmr", "training", "serving")
    for file in sorted((ROOT / folder).rglob("*.py"))
    if ">>> " in file.read_text("utf-8")
]


@pytest.mark.ci
@pytest.mark.parametrize("name", MODULES)
def test_examples(name, without_xla):
    # `np` is understood, as in NumPy's own documentation.
    options = {"extraglobs": {"np": np}, "optionflags": doctest.NORMALIZE_WHITESPACE}
    assert not doctest.testmod(importlib.import_module(name), **options).failed
