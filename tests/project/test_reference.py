"""The reference lists the modules that there are, each once; diagrams link into it."""

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import keras_tfmr

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def test_every_public_module_has_its_place():
    found = pkgutil.walk_packages(keras_tfmr.__path__, "keras_tfmr.")
    # What protoc wrote has no docstrings of its own.
    modules = [name for _, name, _ in found if "._" not in name and not name.endswith("_pb2")]
    pages = [page.read_text() for page in REFERENCE.glob("*.md")]
    listed = [name for page in pages for name in re.findall(r"automodule:: (\S+)", page)]
    assert sorted(listed) == sorted(["keras_tfmr", *modules])


def test_every_page_is_in_the_index():
    index = (REFERENCE.parent / "index.md").read_text()
    for folder in ("guide", "reference"):
        pages = {f"{folder}/{page.stem}" for page in (REFERENCE.parent / folder).glob("*.md")}
        assert pages == set(re.findall(rf"^{folder}/\w+$", index, re.MULTILINE))


@pytest.mark.parametrize("diagram", sorted((REFERENCE.parent / "pictures").glob("*.svg")))
def test_the_boxes_of_diagrams_link_to_classes(diagram):
    links = re.findall(r'href="\.\./reference/(\w+)\.html#([\w.]+)\.(\w+)"', diagram.read_text())
    assert links
    for page, module, name in links:
        assert f"automodule:: {module}\n" in (REFERENCE / f"{page}.md").read_text()
        assert hasattr(importlib.import_module(module), name), f"{module}.{name}"
