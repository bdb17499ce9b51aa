"""Every example in a docstring runs and prints what it says; every public object has one."""

import doctest
import importlib
import inspect
import pkgutil

import numpy as np
import pytest
from helpers import ON_JAX

import keras_tfmr

pytestmark = pytest.mark.skipif(ON_JAX, reason="the examples print shapes as TensorFlow does")


def modules():
    found = pkgutil.walk_packages(keras_tfmr.__path__, "keras_tfmr.")
    return [info.name for info in found]


@pytest.mark.parametrize("name", modules())
def test_examples(name):
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    # `np` is understood, as in NumPy's own documentation.
    for example in doctest.DocTestFinder(exclude_empty=True).find(module, extraglobs={"np": np}):
        output = []
        runner.run(example, out=output.append)
        assert not "".join(output), "".join(output)


@pytest.mark.parametrize("name", sorted(keras_tfmr.__all__))
def test_public_objects_have_an_example(name):
    public = getattr(keras_tfmr, name)
    if inspect.isclass(public) or inspect.isfunction(public):
        assert ">>>" in inspect.getdoc(public), f"{name} shows no example"
