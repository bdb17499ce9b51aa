"""Recipes of the guides, command by command, with a tiny model: a student, and back-translation."""

import re
import shlex
import subprocess

from tiny_runs import ROOT, train, write_pairs

from training import translate
from training.run import RunFolder

GUIDE = ROOT / "docs" / "guide"
SMALL = (
    "--precision", "float32", "--tokens_per_batch", "192", "--steps", "4", "--no_export", "--set",
    "d_model=16", "num_heads=2", "dff=32", "encoder_layers=2", "decoder_layers=1",
    "validation_pairs=4",
)  # fmt: skip


def commands(file, title):
    """The commands of the first block of shell under a heading of a guide."""
    text = (GUIDE / file).read_text(encoding="utf-8")
    block = re.search(r"```sh\n(.*?)```", text[text.index(title) :], re.DOTALL)[1]
    return block.replace("\\\n", " ").splitlines()


def run(command):
    """Runs a command of a guide; trainings are made tiny."""
    if not command.startswith("python"):
        return subprocess.run(command, shell=True, check=True)
    _, script, *words = shlex.split(re.sub(r"--(minutes|preset) \S+", "", command))
    if script == "training/translate.py":
        assert translate.main([*words, "--max_length", "12"]) == 0
    else:
        assert script == "training/train_pt_en.py"
        if "--init_from" in words:
            words += [*SMALL, "encoder_layers=3"]
        else:
            words += ["--vocab_size", "300", *SMALL]
        assert train(*words) == 0
    return None


def prepared(folder, monkeypatch):
    """A working folder with the files that the guides name."""
    monkeypatch.chdir(folder)
    write_pairs(folder / "pairs.tsv", 120)
    lines = (folder / "pairs.tsv").read_text(encoding="utf-8").splitlines()
    (folder / "validation.tsv").write_text("\n".join(lines[:8]) + "\n", encoding="utf-8")
    (folder / "mono.en").write_text("".join(f"{line.split()[-1]} x\n" for line in lines[:20]))


def test_the_recipe_of_a_student(tmp_path, monkeypatch):
    prepared(tmp_path, monkeypatch)
    files = "--data pairs.tsv --validation validation.tsv"
    run(f"python training/train_pt_en.py {files} --output runs/mine")
    found = commands("faster.md", "## Students")
    assert len(found) == 3
    for command in found:
        run(command)
    rows = [RunFolder(f"runs/{name}").rows() for name in ("mine", "student")]
    assert [r["source"] for r in rows[0]] == [r["source"] for r in rows[1]]  # and references
    assert [r["reference"] for r in rows[0]] == [r["reference"] for r in rows[1]]
    record = RunFolder("runs/student").read_config()
    assert record["model"]["config"]["encoder_layers"] == 3
    assert record["start"]["path"] == "runs/mine"


def test_the_recipe_of_back_translation(tmp_path, monkeypatch):
    prepared(tmp_path, monkeypatch)
    found = commands("fine_tuning.md", "## Few pairs")
    assert len(found) == 5
    for command in found:
        run(command)
    tagged = (tmp_path / "back.tsv").read_text(encoding="utf-8").splitlines()
    assert len(tagged) == 20
    assert RunFolder("runs/pt-en").read_config()["arguments"]["tag"] == ["back.tsv=<bt>"]
