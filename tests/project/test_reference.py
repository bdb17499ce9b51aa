"""The reference has every public name; pages link to, name and quote what exists."""

import importlib
import inspect
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import keras_tfmr
from keras_tfmr import TransformerConfig
from keras_tfmr.client import ServingClient
from keras_tfmr.export import int8_agreement
from keras_tfmr.export.batching import MAX_BATCH_SIZE
from keras_tfmr.signatures import signature
from keras_tfmr.signatures.signature import Signature
from keras_tfmr.text.spans import SLOTS
from training import tasks
from training.command import process
from training.corpus import batches, protect, read
from training.corpus.filter import CHARACTERS
from training.settings.recipes import RECIPES
from training.settings.training_config import PHRASEBOOK_STEPS, TrainingConfig
from training.translating import windows

ROOT = Path(__file__).parents[2]
DOCS, RESULTS = ROOT / "docs", ROOT / "benchmarks" / "results"
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


COMMIT = r"(?<![\w.,])[0-9a-f]{7}(?![\w.,]*\d)\b"
FIGURE = r"(?<![\w.,-])\d[\d,]*(?:\.\d+)?(?!\w)"


def figures(text):
    """Numbers but those of addresses, dates and commits."""
    text = re.sub(rf"\]\([^)]*\)|\d{{4}}-\d\d-\d\d|{COMMIT}", "", text)
    return re.findall(FIGURE, text)


def number(figure):
    return float(figure.replace(",", ""))


def sentences_and_results(path):
    """The sentences and rows of a page, and for each the texts of the results that it speaks of.

    A row of a table that links to no page of them speaks of those that the table's head links to,
    or, if it begins with "the same", the row above.
    """
    head, above = [], None
    for block in re.split(r"\n(?=\s*\||\s*- |\n)", text_of(path)):
        block, row = " ".join(block.split()), block.lstrip().startswith("|")
        for line in [block] if row else re.split(r"(?<=[.;]) ", block):
            links = re.findall(r"results/(\w+)\.md", line)
            if row:
                head = links if above is None else head
                links = links or head or (above if line.startswith("| the same") else [])
            above = links if row else None
            files = [p for name in links for p in sorted(RESULTS.glob(f"{name}.*"))]
            yield line, [p.read_text("utf-8") for p in files if p.suffix != ".png"]


LINKING = [path for path in PAGES if path.name != "gpu.md"]  # whose ratios no page of results has


@pytest.mark.parametrize("path", LINKING, ids=lambda path: str(path.relative_to(ROOT)))
def test_figures_and_commits_stand_where_their_line_links_to(path):
    """The numbers of the pages of results, rounded, or their ratios; and a commit of theirs."""
    unknown = []
    for line, results in sentences_and_results(path):
        there = {number(text) for page in results for text in figures(page)}
        here = figures(re.sub("`[^`]*`", "", line)) if results else []
        pairs = itertools.permutations(filter(there.__contains__, map(number, here)), 2)
        there |= {one / other for one, other in pairs if other not in (0, 1)}
        for text in here:
            places = len(text.partition(".")[2])
            if number(text) not in {round(value, places) for value in there}:
                unknown.append(f"{text} in {line[:80]}")
        known = re.findall(r'[Cc]ommit[": ]+([0-9a-f]{7})', "".join(results))
        named = set(re.findall(COMMIT, line)) if known else set()
        unknown += [f"{commit} in {line[:80]}" for commit in named.difference(known)]
    assert unknown == []


def test_the_page_of_claims_has_readmes_other_figures():
    """Those that no page of results has: sizes, times and versions, with what they rest on."""
    pages = (DOCS / "claims.md", ROOT / "CITATION.cff")
    known = {number(text) for page in pages for text in figures(page.read_text("utf-8"))}
    others = [line for line, results in sentences_and_results(ROOT / "README.md") if not results]
    text = re.sub("<[^>]*>", "", "\n".join(others))
    assert {figure for figure in figures(text) if number(figure) not in known} == set()


def defaults():
    """{page: {sentence, with # for each number: these numbers in the code}}."""
    small = TransformerConfig.preset("small", source_vocab=9, target_vocab=9)
    recipe = RECIPES["transformer"]["small"]
    client = inspect.signature(ServingClient).parameters
    tuning = recipe.for_tuning()
    return {
        "guide/client.md": {
            "at most # texts and # KiB, four at a time": (
                client["batch_texts"].default, client["batch_bytes"].default / 1024
            ),
        },
        "guide/training.md": {
            "A side may have # tokens and # characters": (batches.LONGEST, CHARACTERS),
            "It has # *slots*": (len(SLOTS),),
            "# % of the words that both sides share": (100 * protect.SHARE,),
            "measured on the first # lines": (read.LINES,),
            "# + # layers of width #, # heads, feed-forward layers of width #, and a joint "
            "vocabulary of #": (
                small.encoder_layers, small.decoder_layers, small.d_model, small.num_heads,
                small.dff, TrainingConfig.vocab_size,
            ),
            "A batch has # target positions": (recipe.tokens_per_batch,),
            "the rate rises to # in # updates": (recipe.learning_rate, recipe.warmup_steps),
            "Whatever still runs # seconds later is killed": (process.GRACE,),
        },
        "guide/gpu.md": {
            "are six batches of #": (RECIPES["transformer"]["base"].tokens_per_batch,),
        },
        "guide/fine_tuning.md": {
            "(# for `small`), reached after # updates": (
                tuning["learning_rate"], tuning["warmup_steps"]
            ),
            "at the default rate of #": (tuning["learning_rate"],),
        },
        "guide/getting_started.md": {
            "the built-in phrasebook in # updates": (PHRASEBOOK_STEPS["translation"],),
        },
        "guide/translate_files.md": {"windows of # lines": (windows.WINDOW,)},
        "guide/language_model.md": {"A line of more than # characters": (read.LONGEST_LINE,)},
        "guide/protect.md": {"one of # private-use characters": (len(SLOTS),)},
        "guide/faster.md": {"by more than # nats": (int8_agreement.MOST,)},
        "guide/classify.md": {"hides # % of the tokens": (100 * tasks.SHARE,)},
        "../serving/devserver/README.md": {"`--max_batch_size` (#)": (MAX_BATCH_SIZE,)},
    }  # fmt: skip


def test_defaults_that_pages_state():
    """Those above, and no guide has another sentence with a figure that it calls a default."""
    stated = {page: " ".join(text_of(DOCS / page).split()) for page in defaults()}
    for page, sentences in defaults().items():
        for sentence, values in sentences.items():
            pattern = r"(\d[\d,.e-]*)".join(map(re.escape, sentence.split("#")))
            numbers = re.search(pattern, stated[page])
            assert numbers, f"{page}: {sentence}"
            assert [*map(number, numbers.groups())] == pytest.approx(values), sentence
            stated[page] = stated[page].replace(numbers[0], "")
    for path in DOCS.glob("guide/*.md"):
        text = stated.get(f"guide/{path.name}") or " ".join(text_of(path).split())
        for sentence in re.split(r"(?<=[.:;]) (?=[A-Z`*])| \| ", text):
            called = re.search(r"\b(by )?default\b", sentence, re.IGNORECASE)
            assert not (called and figures(re.sub("`[^`]*`", "", sentence))), sentence


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


def test_the_tables_of_signatures():
    """Every signature has its row in a guide, with its inputs and outputs."""
    rows = {}
    for page in ("serving", "classify", "language_model"):
        for row in re.findall(r"^\| (`.*) \|$", text_of(DOCS / f"guide/{page}.md"), re.M):
            cells = row.split(" | ")
            rows |= dict.fromkeys(re.findall(r"`(\w+)`", cells[0]), cells[1:])
    for known in filter(lambda value: isinstance(value, Signature), vars(signature).values()):
        inputs, outputs = rows[known.name]
        if known.method == "predict":
            assert set(known.inputs) == set(re.findall(r"`(\w+)`", inputs)), known.name
        names = {*known.outputs, *known.optional}
        assert (
            "the same" in outputs
            or "as `" in outputs
            or names <= set(re.findall(r"`(\w+)`", outputs))
        ), known.name
