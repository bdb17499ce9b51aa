"""Docstrings, editors and type checkers are told what constructors and calls take."""

import inspect
import re
import typing

import keras
import pytest

from keras_tfmr import layers
from keras_tfmr.layers import block, feed_forward, options

CLASSES = [each for name in layers.__all__ if inspect.isclass(each := getattr(layers, name))]
OF_KERAS = {*options.LayerOptions.__annotations__}


def taken(function):
    """The names that a function takes, without those of Keras: its own and of its `**options`."""
    parameters = inspect.signature(function).parameters
    names = {name for name, each in parameters.items() if each.kind is not each.VAR_KEYWORD}
    for hint in typing.get_type_hints(function).values():
        if typing.get_origin(hint) is typing.Unpack:
            names |= {*typing.get_args(hint)[0].__annotations__}
    return names - {"self"} - OF_KERAS


def documented(docstring, section):
    """The names that a section of a docstring lists."""
    found = re.search(rf"^{section}:\n(.*?)(?=^\S|\Z)", inspect.cleandoc(docstring), re.M | re.S)
    lines = re.findall(r"^    (\w[\w, ]*):", found[1], re.M) if found else []
    return {name for line in lines for name in line.split(", ")}


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_docstrings_name_what_is_taken(kind):
    of_keras = kind.__init__.__module__.startswith("keras.")  # a layer without arguments
    expected = set() if of_keras else taken(kind.__init__)
    of_dropout = {"noise_shape", "seed"}  # one is refused, one is Keras's
    assert documented(kind.__doc__, "Args") == expected - of_dropout
    ours = next(each for each in kind.__mro__ if "Call arguments" in (each.__doc__ or ""))
    call = documented(ours.__doc__, "Call arguments")
    assert call - {"training"} == taken(kind.call) - {"training"}


def test_options_have_the_names_of_the_constructors_with_their_defaults():
    sizes = {"d_model", "num_heads", "dff", "num_layers"}
    for names, hints in (
        (taken(feed_forward.FeedForward.__init__), options.FeedForwardOptions),
        (taken(block.Block.__init__), options.BlockOptions),
    ):
        assert names - sizes == {*hints.__annotations__} - OF_KERAS
    inits = keras.layers.Layer.__init__, keras.layers.Dense.__init__
    known = {name for init in inits for name in inspect.signature(init).parameters}
    assert known > OF_KERAS
