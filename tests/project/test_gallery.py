"""The examples of docs/examples, shortened; what they and their index say that they print.

translate_with_beam.py prints nothing: see test_beam.py.
"""

import itertools
import re

import pytest
from marian_models import write_published
from tiny_runs import ROOT, free_ports

from training import phrasebook

pytestmark = pytest.mark.ci

FOLDER = ROOT / "docs" / "examples"
# The constants of a short run, and what is printed after the training.
SHORT = {
    "lora": (
        'PRESET, EPOCHS = "opus-mt", 1',
        r"[\d,]+ of [\d,]+ weights were trained\n(.* -> .*\n){3}",
    ),
    "pictures_to_words": (
        "EPOCHS = 2",
        r"\d+% of 200 captions are right\n([.rgb]{12}\n){4}[a-z ]+\n",
    ),
    "sentence_classifier": (
        "SENTENCES, EPOCHS = 2_000, 3",
        r"accuracy on 500 other sentences: [3-9]\d\.\d%\n([a-z]+ \(\d+%\): .+\n){3}",
    ),
    "served_translator": (
        'PAIRS, EPOCHS, PORT = "pairs.tsv", 1, {port}',
        r"((O gato|Onde|Como).* -> .*\n){3}",
    ),
    "tiny_gpt": (
        "SENTENCES, EPOCHS = 2_000, 1",
        r"(My sister.*\n){2}(Where.*\n){2}(I would like.*\n){2}",
    ),
}


@pytest.mark.parametrize("name", SHORT)
def test_an_example_runs(name, short, capfd):
    """The published model is a small one with random weights."""
    with (phrasebook.FOLDER / "pairs.tsv").open(encoding="utf-8") as file:
        (short / "pairs.tsv").write_text("".join(itertools.islice(file, 200)), "utf-8")
    write_published(short / "opus-mt", tagged=False)
    constants, printed = SHORT[name]
    [port] = free_ports(1)
    text = (FOLDER / f"{name}.py").read_text("utf-8")
    text, count = re.subn(r"^.*EPOCHS.* = .*", constants.format(port=port), text, flags=re.M)
    assert count == 1
    exec(text, {"__name__": "__main__"})
    assert re.search(rf"^{printed}\Z", capfd.readouterr().out, re.M)


def test_what_they_print():
    """Each ends with what it prints, which the index has too."""
    examples = {path.stem: path.read_text("utf-8") for path in FOLDER.glob("*.py")}
    assert examples.keys() == {*SHORT, "translate_with_beam"}
    assert max(len(text.splitlines()) for text in examples.values()) <= 60
    del examples["translate_with_beam"]
    index = (FOLDER / "README.md").read_text("utf-8")
    for name, text in examples.items():
        shown = re.search(r"(^# .*\n)+\Z", text, re.M)[0].replace("# ", "")
        assert re.fullmatch(SHORT[name][1], shown)
        assert f"```text\n{shown}```" in index, name
