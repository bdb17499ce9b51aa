"""The pictures of the guides: each is on a page, and shows what there is."""

import re
from pathlib import Path

import keras_tfmr
from docs import diagrams

ROOT = Path(__file__).resolve().parents[2]


def test_every_picture_is_on_a_page_and_every_page_has_its_pictures():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("*/*.md")]
    texts = "".join(page.read_text(encoding="utf-8") for page in pages)
    shown = set(re.findall(r"pictures/(\w+\.\w+)", texts))
    assert shown == {path.name for path in diagrams.PICTURES.iterdir()}


def test_diagrams_are_as_drawn_and_name_public_classes():
    for drawing in (diagrams.request(), diagrams.nesting()):
        file = diagrams.PICTURES / f"{drawing.name}.svg"
        assert file.read_text(encoding="utf-8") == drawing.svg(), "run docs/diagrams.py"
    names = set(re.findall(r"\b[A-Z][a-z]+[A-Z]\w+", diagrams.nesting().svg()))
    assert len(names) >= 10 and not [name for name in names if not hasattr(keras_tfmr, name)]
