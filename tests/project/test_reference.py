"""The reference has every public name; the site and all Markdown files link to what exists."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

from sphinx.util.inventory import InventoryFile

import keras_tfmr

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FOLDERS = ("benchmarks", "docs", "serving", "training")
MARKDOWN = [*ROOT.glob("*.md"), *(p for name in FOLDERS for p in (ROOT / name).rglob("*.md"))]


def public_names():
    """The names of the package, and of the parts that a user imports from."""
    names = set(keras_tfmr._HOMES)
    for part in ("layers", "models", "decoding", "recurrent", "client"):
        names.update(importlib.import_module(f"keras_tfmr.{part}").__all__)
    return names


def test_the_site_has_every_public_name(tmp_path):
    """It is built without a warning: what a page links to is there."""
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", DOCS]
    done = subprocess.run([*command, tmp_path], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    inventory = InventoryFile.loads((tmp_path / "objects.inv").read_bytes(), uri="").data
    documented = {
        name.rpartition(".")[2]
        for kind in inventory
        if kind != "py:module"
        for name in inventory[kind]
    }
    assert public_names() <= documented
    scripts = r'<script[^>]*src="https?:'  # nothing is loaded from elsewhere
    assert not any(re.search(scripts, page.read_text()) for page in tmp_path.rglob("*.html"))


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
