"""The reference has every public name; the site and all Markdown files link to what exists."""

import functools
import html.parser
import importlib
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


def public_names():
    """The names of the package, and of the parts that a user imports from."""
    names = set(keras_tfmr._HOMES)
    for part in ("layers", "models", "decoding", "recurrent", "client"):
        names.update(importlib.import_module(f"keras_tfmr.{part}").__all__)
    return names


class Page(html.parser.HTMLParser):
    """What a page links to, and what can be linked to in it."""

    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.links += [found[name] for name in ("href", "src") if found.get(name)]
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}


read = functools.lru_cache(maxsize=None)(Page)


def dead(page):
    """The links of a page of the site that lead nowhere in it, and those to scripts elsewhere."""
    for link in read(page).links:
        if re.match(r"(?:https?|mailto|data):", link):
            if link.endswith(".js"):
                yield f"{page.name}: {link}"
            continue
        address, _, anchor = link.partition("#")
        target = (page.parent / address.partition("?")[0]).resolve() if address else page
        target = target / "index.html" if target.is_dir() else target
        if not target.exists() or (
            anchor and target.suffix == ".html" and anchor not in read(target).anchors
        ):
            yield f"{page.name}: {link}"


def test_the_site(tmp_path):
    """It is built without a warning; its links, and the entries of all public names."""
    pytest.importorskip("sphinx")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", DOCS]
    done = subprocess.run([*command, tmp_path], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    pages = [page for page in sorted(tmp_path.rglob("*.html")) if "_modules" not in page.parts]
    assert len(pages) > 15
    assert [link for page in pages for link in dead(page)] == []
    anchors = set().union(*(read(page).anchors for page in (tmp_path / "reference").glob("*.html")))
    documented = {name.rpartition(".")[2] for name in anchors if name.startswith("keras_tfmr.")}
    assert public_names() <= documented


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
