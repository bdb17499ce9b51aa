"""The reference has every public name; the site and all Markdown files link to what exists."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import keras_tfmr

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FOLDERS = ("benchmarks", "docs", "serving", "training")
MARKDOWN = [*ROOT.glob("*.md"), *(p for name in FOLDERS for p in (ROOT / name).rglob("*.md"))]
MARKDOWN = [path for path in MARKDOWN if "_build" not in path.parts]  # the built site's copies


def public_names():
    """The names of the package, and of the parts that a user imports from."""
    names = {name for name, home in keras_tfmr._HOMES.items() if home != "keras_tfmr"}
    for part in ("layers", "models", "decoding", "recurrent", "client"):
        names.update(importlib.import_module(f"keras_tfmr.{part}").__all__)
    return names


@pytest.mark.needs("sphinx", "furo", "myst_parser", "latex2mathml")
def test_the_site_has_every_public_name():
    """It is built without a warning: what a page links to is there."""
    from sphinx.util.inventory import InventoryFile

    build = ["bash", DOCS / "build.sh"]
    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run(build, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with (DOCS / "_build" / "objects.inv").open("rb") as file:
        objects = InventoryFile.load(file, "", lambda *parts: "/".join(parts))
    documented = {n for kind, names in objects.items() if kind != "py:module" for n in names}
    assert public_names() <= {name.rpartition(".")[2] for name in documented}
    assert (DOCS / "_build/serving/deploy/README.html").exists()
    assert not list((DOCS / "_build").rglob("_downloads/**/*.md"))  # they are pages of the site


def text_of(path):
    """A Markdown file without its blocks of code."""
    return re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.S | re.M)


def anchors_of(path):
    """The anchors that GitHub gives to the headings of a Markdown file."""
    headings = re.findall(r"^#+ (.*)$", text_of(path), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_of_markdown_files():
    missing = []
    for path in MARKDOWN:
        for link in re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", text_of(path)):
            address, _, anchor = link.partition("#")
            target = (path.parent / address).resolve() if address else path
            if not target.exists() or (
                anchor and target.suffix == ".md" and anchor not in anchors_of(target)
            ):
                missing.append(f"{path.relative_to(ROOT)}: {link}")
    assert missing == []


def test_the_boxes_of_diagrams_link_to_public_classes():
    for diagram in (DOCS / "pictures").glob("*.svg"):
        text = diagram.read_text()
        links = re.findall(r'href="\.\./reference/(\w+)\.html#([\w.]+)\.(\w+)"', text)
        assert links
        for page, module, name in links:
            assert module == f"keras_tfmr.{page}"
            assert name in importlib.import_module(module).__all__
