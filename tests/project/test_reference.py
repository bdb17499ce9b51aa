"""The reference has every public name; pages link to, name and quote what exists."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import keras_tfmr
from training.settings.recipes import RECIPES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FOLDERS = ("benchmarks", "docs", "serving", "training")
MARKDOWN = [*ROOT.glob("*.md"), *(p for name in FOLDERS for p in (ROOT / name).rglob("*.md"))]
MARKDOWN = [path for path in MARKDOWN if "_build" not in path.parts]  # the built site's copies
# Those of results and of deployment also name what is not ours.
PAGES = [
    *ROOT.glob("*.md"),
    ROOT / "benchmarks/README.md",
    *DOCS.glob("*.md"),
    *DOCS.glob("guide/*.md"),
]


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


def test_pages_name_what_the_code_has():
    """Each option, and each name that no English word looks like, in the inline code of a page."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    sources = [ROOT / name for name in listed.stdout.split("\0") if re.search(r"\.\w+$", name)]
    sources = [path for path in sources if path.suffix not in (".md", ".png", ".gz")]
    names = set(
        re.findall(
            r"[A-Za-z_]\w*", "\n".join(path.read_text("utf-8", "ignore") for path in sources)
        )
    )
    names.add("ALL_PROXY")  # which urllib reads
    unknown = []
    for path in PAGES:
        for code in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text_of(path)):
            for name in re.findall(r"(?<![\w:/.-])(?:--)?[A-Za-z_]\w*", code):
                is_name = name.startswith("--") or "_" in name or re.search("[a-z][A-Z]", name)
                if is_name and name.removeprefix("--") not in names:
                    unknown.append(f"{path.relative_to(ROOT)}: {code}")
    assert unknown == []


def figures(text):
    text = re.sub(r"\]\([^)]*\)|\d{4}-\d\d-\d\d(, \w+)?", "", text)  # addresses, dates and commits
    return re.findall(r"(?<![\w.,-])\d[\d,]*(?:\.\d+)?(?!\w)", text)


def number(figure):
    return float(figure.replace(",", ""))


def test_figures_stand_where_their_line_links_to():
    """A line with a link to a page of results has that page's numbers, rounded, or their ratios; so
    has a row that begins with "the same" below one.
    """
    results, unknown = ROOT / "benchmarks" / "results", []
    for path in PAGES:
        above = []
        for line in text_of(path).splitlines():
            links = re.findall(r"results/(\w+)\.md", line)
            if line.startswith("|"):
                links = above = links or (above if line.startswith("| the same") else [])
            measured = [
                p for name in links for p in results.glob(f"{name}.*") if p.suffix != ".png"
            ]
            there = {number(text) for p in measured for text in figures(p.read_text("utf-8"))}
            here = [number(text) for text in figures(line)]
            there |= {one / other for one in here for other in here if other}
            for text in figures(line) if measured else ():
                places = len(text.partition(".")[2])
                if number(text) not in {round(value, places) for value in there}:
                    unknown.append(f"{path.relative_to(ROOT)}: {text} in {line[:80]}")
    assert unknown == []


def test_the_table_of_presets():
    """Each cell of the guide is the recipe's own value."""
    text = (DOCS / "guide/training.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (pre|post) \| (.*) \| [^|]* \|$", text, re.M)
    assert len(rows) == 4
    for name, norm, rest in rows:
        rate, warmup, schedule, positions, dropout = rest.split(" | ")
        accumulated, _, batch = positions.rpartition(" × ")
        recipe = RECIPES["transformer"][name]
        assert number(rate) == pytest.approx(recipe.learning_rate, rel=0.01)
        assert (number(warmup), number(dropout)) == (recipe.warmup_steps, recipe.dropout_rate)
        assert (norm == "pre", schedule) == (recipe.norm_first, f"`{recipe.schedule}`")
        assert int(accumulated or 1) == recipe.gradient_accumulation_steps
        assert number(batch) == recipe.tokens_per_batch
