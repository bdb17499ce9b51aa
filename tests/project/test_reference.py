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
MARKDOWN = sorted(
    set(ROOT.glob("*.md"))
    | {path for name in ("benchmarks", "docs", "serving", "training") for path in
       (ROOT / name).rglob("*.md") if "_build" not in path.parts}
)  # fmt: skip


def public_names():
    """The names of the package, and of the parts that a user imports from."""
    names = {f"keras_tfmr.{name}" for name in dir(keras_tfmr) if name in keras_tfmr._HOMES}
    for part in ("layers", "models", "decoding", "recurrent", "client"):
        module = importlib.import_module(f"keras_tfmr.{part}")
        names |= {f"keras_tfmr.{part}.{name}" for name in module.__all__}
    return names


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The documentation, built; a warning is an error."""
    pytest.importorskip("sphinx")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", DOCS]
    done = subprocess.run([*command, folder], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


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


def dead(page, links):
    """The links of a page of the site that lead nowhere in it, and those to scripts elsewhere."""
    for link in links:
        if re.match(r"(?:https?|mailto|data):", link):
            if link.endswith(".js"):
                yield f"{page.name}: {link}"
            continue
        address, _, anchor = link.partition("#")
        target = (page.parent / address.partition("?")[0]).resolve() if address else page
        target = target / "index.html" if target.is_dir() else target
        known = target.exists() and (
            not anchor or target.suffix != ".html" or anchor in read(target).anchors
        )
        if not known:
            yield f"{page.name}: {link}"


def test_the_site(site):
    """Its links, and the entries of all public names; in one test, because the build takes long."""
    pages = [page for page in sorted(site.rglob("*.html")) if "_modules" not in page.parts]
    assert len(pages) > 15
    assert [link for page in pages for link in dead(page, read(page).links)] == []
    anchors = set().union(*(read(page).anchors for page in (site / "reference").glob("*.html")))
    documented = {name.rpartition(".")[2] for name in anchors if name.startswith("keras_tfmr.")}
    assert {name for name in public_names() if name.rpartition(".")[2] not in documented} == set()


def anchors_of(path):
    """The anchors that GitHub gives to the headings of a Markdown file."""
    text = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.S | re.M)
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", MARKDOWN, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_of(path):
    text = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.S | re.M)
    missing = []
    for link in re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", text):
        address, _, anchor = link.partition("#")
        target = (path.parent / address).resolve() if address else path
        if not target.exists() or (
            anchor and target.suffix == ".md" and anchor not in anchors_of(target)
        ):
            missing.append(link)
    assert missing == []


def test_every_page_is_in_the_index():
    index = (DOCS / "index.md").read_text()
    for folder in ("guide", "reference"):
        pages = {f"{folder}/{page.stem}" for page in (DOCS / folder).glob("*.md")}
        assert pages == set(re.findall(rf"^{folder}/\w+$", index, re.MULTILINE))


@pytest.mark.parametrize("diagram", sorted((DOCS / "pictures").glob("*.svg")))
def test_the_boxes_of_diagrams_link_to_public_classes(diagram):
    links = re.findall(r'href="\.\./reference/(\w+)\.html#([\w.]+)\.(\w+)"', diagram.read_text())
    assert links
    for page, module, name in links:
        assert module == f"keras_tfmr.{page}"
        assert name in importlib.import_module(module).__all__
