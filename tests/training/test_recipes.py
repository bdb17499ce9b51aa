"""Recipes of the guides, command by command, with a tiny model: a student, and back-translation."""

import re

import pytest
from tiny_runs import ROOT, TINY, finished, history, start, write_pairs

GUIDE = ROOT / "docs" / "guide"
SMALL = (*TINY, "validation_pairs=4", "--steps", "10", "--no_export")


def commands(file, title):
    """The commands of the first block of shell under a heading of a guide."""
    text = (GUIDE / file).read_text(encoding="utf-8")
    block = re.search(r"```sh\n(.*?)```", text[text.index(title) :], re.DOTALL)[1]
    return [line.split() for line in block.replace("\\\n", " ").splitlines() if line.strip()]


@pytest.mark.parametrize(
    "file, title, steps",
    [("students.md", "# A small, fast model", 3), ("own_corpus.md", "## Back-translation", 5)],
)
def test_the_recipe_of_a_guide(tmp_path, file, title, steps):
    found = commands(file, title)
    assert len(found) == steps
    write_pairs(tmp_path / "pairs.tsv", 120)
    lines = (tmp_path / "pairs.tsv").read_text(encoding="utf-8").splitlines()
    (tmp_path / "mono.en").write_text("".join(line.split("\t")[1] + "\n" for line in lines))
    for words in found:
        if words[0] != "python":
            done = start("-c", f"import os; os.chdir({str(tmp_path)!r}); "
                         f"raise SystemExit(os.system({' '.join(words)!r}))", script="-")  # fmt: skip
