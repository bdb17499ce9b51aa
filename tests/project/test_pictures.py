"""The pictures of the guides: each is on a page, and shows what there is."""

import re
from pathlib import Path

import pytest

import keras_tfmr
from docs import diagrams, svg

ROOT = Path(__file__).resolve().parents[2]


def test_every_picture_is_on_a_page_and_every_page_has_its_pictures():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("*/*.md")]
    texts = "".join(page.read_text(encoding="utf-8") for page in pages)
    shown = set(re.findall(r"pictures/(\w+\.\w+)", texts))
    assert shown == {path.name for path in diagrams.PICTURES.iterdir()}


def test_diagrams_are_as_drawn_and_name_public_classes():
    for drawing in (diagrams.request(), diagrams.nesting()):
        file = diagrams.PICTURES / f"{drawing.name}.svg"
        assert file.read_text(encoding="utf-8") == drawing.svg(), "run python -m docs.diagrams"
    names = set(re.findall(r"\b[A-Z][a-z]+[A-Z]\w+", diagrams.nesting().svg()))
    assert len(names) >= 10 and not [name for name in names if not hasattr(keras_tfmr, name)]


BOX = re.compile(
    r'<rect [^>]*?x="(?P<x>[\d.]+)"[^>]*? width="(?P<width>[\d.]+)"[^>]*/>\n?'
    r'<text [^>]*?x="(?P<middle>[\d.]+)"[^>]*text-anchor="middle"[^>]*textLength="(?P<text>\d+)"'
)


@pytest.mark.parametrize("name", (*diagrams.BY_HAND, "request", "nesting"))
def test_a_text_fits_its_box_in_any_font(name):
    """A browser draws a text as wide as its `textLength`, whatever fonts there are."""
    drawn = (diagrams.PICTURES / f"{name}.svg").read_text(encoding="utf-8")
    assert svg.fitted(drawn) == drawn, "run python -m docs.diagrams"
    boxes = [{key: float(cell) for key, cell in box.items()}
             for box in map(re.Match.groupdict, BOX.finditer(drawn))]  # fmt: skip
    assert len(boxes) > 4
    for box in boxes:
        assert box["middle"] == box["x"] + box["width"] / 2
        assert box["text"] + 8 <= box["width"]
