"""The pages of docs/reference are those of the docstrings, and state what holds."""

import ast
import inspect
import re

import pytest

import keras_tfmr
from docs import make_reference
from keras_tfmr import layers

FOLDER = make_reference.FOLDER
BOX = re.compile(r'"\.\./reference/(\w+)\.html#([\w.]+)"')


def headings(page):
    return re.findall(r"^##+ ([\w.]+)$", (FOLDER / page).read_text("utf-8"), re.M)


def test_the_pages_are_current():
    for page, text in make_reference.pages().items():
        found = (FOLDER / page).read_text("utf-8")
        assert found == text, f"{page} is not current: run `python docs/make_reference.py`"


def test_every_public_name_has_a_heading():
    shown = {name for page in make_reference.PAGES for name in headings(page)}
    names = keras_tfmr.__all__
    assert {name for name in names if not inspect.ismodule(getattr(keras_tfmr, name))} <= shown


def test_boxes_of_pictures_lead_to_headings():
    pictures = FOLDER.parent.glob("pictures/*.svg")
    boxes = {box for each in pictures for box in BOX.findall(each.read_text("utf-8"))}
    assert boxes
    for page, anchor in boxes:
        assert anchor in [name.lower() for name in headings(f"{page}.md")]


@pytest.mark.parametrize("name", ["Encoder", "CausalDecoderLayer", "GatedFeedForward"])
def test_the_defaults_of_options_that_are_handed_on(name):
    """They are those of the config of a layer that is made without options."""
    text = (FOLDER / "layers.md").read_text("utf-8")
    shown = re.search(rf"^keras_tfmr\.{name}(\(.*?^\))", text, re.M | re.S)[1]
    taken = ast.parse(f"def layer{shown}: pass").body[0].args
    config = getattr(layers, name)(**{size.arg: 2 for size in taken.args}).get_config()
    stated = {
        option.arg: ast.literal_eval(default)
        for option, default in zip(taken.kwonlyargs, taken.kw_defaults, strict=True)
    }
    own = stated.keys() & config.keys() - {"name", "dtype", "norm"}
    assert {"dropout_rate", "norm_first", "activation", "use_bias", "trainable"} <= own
    assert {option: config[option] for option in own} == {option: stated[option] for option in own}
