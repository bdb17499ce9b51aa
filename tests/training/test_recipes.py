"""Recipes of the guides, command by command, with a tiny model: a student, and back-translation."""

import re
import shlex
import subprocess

import pytest
from tiny_runs import ROOT, train, write_pairs

from training import translate
from training.run import RunFolder

GUIDE = ROOT / "docs" / "guide"
SMALL = (
    "--precision", "float32", "--tokens_per_batch", "192", "--steps", "2", "--no_export", "--set",
    "d_model=16", "num_heads=2", "dff=64", "validation_pairs=4", "decoder_layers=1",
)  # fmt: skip


def commands(file, title):
    """The commands of the first block of shell under a heading of a guide."""
    text = (GUIDE / file).read_text(encoding="utf-8")
    block = re.search(r"```sh\n(.*?)```", text[text.index(title) :], re.DOTALL)[1]
    return block.replace("\\\n", " ").splitlines()


def run(command, *more):
    """Runs a command of a guide; `more` makes a training tiny."""
    if not command.startswith("python"):
        return subprocess.run(command, shell=True, check=True)
    _, script, *words = shlex.split(re.sub(r"--(minutes|preset) \S+", "", command))
    if script == "training/translate.py":
        return translate.main([*words, "--max_length", "12"])
    assert script == "training/train_pt_en.py"
    return train(*words, *more)


@pytest.fixture
def folder(tmp_path, monkeypatch, whole):
    """A working folder with the files that the guides name and two finished runs."""
    monkeypatch.chdir(tmp_path)
    write_pairs(tmp_path / "pairs.tsv", 60)
    lines = (tmp_path / "pairs.tsv").read_text(encoding="utf-8").splitlines()
    (tmp_path / "validation.tsv").write_text("\n".join(lines[:8]) + "\n", encoding="utf-8")
    (tmp_path / "mono.en").write_text("".join(f"{line.split()[-1]} x\n" for line in lines[:20]))
    (tmp_path / "runs").mkdir()
    for name in ("mine", "en-pt"):
        (tmp_path / "runs" / name).symlink_to(whole)
    return tmp_path


def test_the_recipe_of_a_student(folder, unevaluated):
    cut, translation, student = commands("faster.md", "## Students")
    run(cut)
    assert run(translation) == 0
    assert run(student, *SMALL, "encoder_layers=3") == 0
    record = RunFolder("runs/student").read_config()
    assert record["model"]["config"]["encoder_layers"] == 3
    assert record["arguments"]["validation"] == ["validation.tsv"]
    assert record["start"]["path"] == "runs/mine"


def test_the_recipe_of_back_translation(folder, unevaluated):
    reverse, reverse_model, translation, paste, training = commands(
        "fine_tuning.md", "## Few pairs"
    )
    run(reverse)
    assert reverse_model.endswith(" --data reverse.tsv --output runs/en-pt")  # the finished run
    assert run(translation) == 0
    run(paste)
    assert len((folder / "back.tsv").read_text(encoding="utf-8").splitlines()) == 20
    assert run(training, "--vocab_size", "300", *SMALL, "encoder_layers=1") == 0
    assert RunFolder("runs/pt-en").read_config()["arguments"]["tag"] == ["back.tsv=<bt>"]
