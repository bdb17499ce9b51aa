"""The code of README.md and of the guides, extracted and run; commands with a small model."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import create_autospec

import pytest
from tiny_runs import ROOT, free_ports, small_phrasebook, train, write_pairs

from keras_tfmr import Translator
from training import train_pt_en, translate
from training.run.run_folder import RunFolder

PAGES = ["README.md", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs/guide").glob("*.md"))]
# Ask a server: see `test_commands_train_serve_and_translate`.
ASK = ("docs/guide/serving.md", "docs/guide/documents.md", "docs/guide/client.md")


def blocks(page, language):
    """The fenced code blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), re.S | re.M)


@pytest.mark.parametrize("page", [p for p in PAGES if p not in ASK and blocks(p, "python")])
def test_python_blocks_run(page, tmp_path, monkeypatch, translator, version):
    """With a tiny translator in place of others, and its export in place of theirs."""
    monkeypatch.chdir(tmp_path)
    export = create_autospec(Translator.export)
    export.side_effect = lambda self, folder: shutil.copytree(version, Path(folder) / "1")
    monkeypatch.setattr(Translator, "export", export)
    monkeypatch.setattr(Translator, "from_preset", lambda preset: translator)
    exec("\n".join(blocks(page, "python")), {"__name__": "__main__"})


def test_commands_name_files_that_exist():
    text = "\n".join(block for page in PAGES for block in blocks(page, "sh"))
    scripts = re.findall(r"(?:serving|training|benchmarks)/[\w/]+\.(?:py|yaml)", text)
    assert scripts and [s for s in scripts if not (ROOT / s).exists()] == []


def shell(command, folder, timeout=60):
    environment = {**os.environ, "PYTHON": sys.executable}
    options = {"cwd": folder, "env": environment, "capture_output": True, "text": True}
    return subprocess.run(["bash", "-c", command], **options, timeout=timeout)


def lines(command, folder, timeout=60):
    """What a command prints; it must succeed."""
    done = shell(command, folder, timeout)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A folder like a clone of the project."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("training", "serving", "keras_tfmr", "README.md"):
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv/bin").mkdir(parents=True)
    python = folder / ".venv/bin/python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return folder


def command(word):
    """The README's command that has `word` in it."""
    (found,) = [b.strip() for b in blocks("README.md", "sh") if word in b]
    return found


def program(page, port):
    """A command that runs the page's programs that ask the server on `port`."""
    found = "".join(block for block in blocks(page, "python") if "8500" in block)
    assert found
    return f"{sys.executable} - <<'END'\n{found.replace('8500', str(port))}END"


SMALL = """--steps 4 --preset tiny --vocab_size 500 --num_beams 1 --no_export
    --set validation_pairs=8 d_model=16 encoder_layers=1 decoder_layers=1"""


def test_commands_train_serve_and_translate(clone, whole, monkeypatch, capsys):
    """The trainer on a small phrasebook, in this process; then, with the export of another run, the
    server, the client, curl and the guides' programs, word for word but for the ports."""
    assert command("-r serving/requirements.txt").endswith("/python training/train_pt_en.py")
    monkeypatch.chdir(clone)
    small_phrasebook(monkeypatch, clone / "phrasebook", to_learn=2000, others=16)
    assert train_pt_en.main(SMALL.split()) == 0
    told = capsys.readouterr().out
    assert re.search(r"\neveryday: BLEU .*on 16 texts\n( +.*->.*\n){10}validation: BLEU", told)
    report = Path("runs/phrasebook/report.md").read_text("utf-8")
    assert re.search(r"## Everyday sentences\n(.*\n){3}(\|.*\n){12}", report)
    assert "| everyday | validation | test |" in report
    (clone / "runs/phrasebook/saved_model").symlink_to(whole / "saved_model")
    grpc_port, rest_port = free_ports(2)
    serve = command("serving/server.py").replace("8501", str(rest_port)) + f" --port={grpc_port}"
    server = subprocess.Popen(["bash", "-c", "exec " + serve], cwd=clone, stderr=subprocess.PIPE)
    try:
        curl = command("curl").replace("8501", str(rest_port))
        deadline = time.time() + 120
        while '"outputs"' not in (answer := shell(curl, clone)).stdout:
            assert time.time() < deadline, answer  # until then it says that it is loading
            time.sleep(0.5)
        outputs = json.loads(answer.stdout)["outputs"]
        assert sorted(outputs) == ["score", "translation", "truncated"]
        ask = command("serving/client.py") + f" --server 127.0.0.1:{grpc_port}"
        assert lines(ask, clone) == outputs["translation"]
        sentences, document, many = (lines(program(page, grpc_port), clone) for page in ASK)
        assert len(sentences) == 2 and sentences[0].startswith(outputs["translation"][0] + " -")
        assert all(re.search(r" -\d+\.\d+$", sentence) for sentence in sentences)
        assert len(document) == 3 and document[1] == ""
        assert many == ["[(1, 'AVAILABLE', '')]", "True"]
        smoke = f"serving/deploy/smoke.sh http://127.0.0.1:{rest_port} 127.0.0.1:{grpc_port}"
        assert lines(smoke, clone, 200)[-1] == "pass: every check"
        smoke_test_of_an_image(clone, grpc_port, rest_port)
    finally:
        server.terminate()
        assert server.wait(60) == 0
        server.stderr.close()


# In place of docker, whose container is the development server, which batches nothing; and of the
# exports, of which only the second has what int8 needs.
DOCKER = """#!/bin/bash
case $1 in
  run) echo "$@" > started; echo the-container ;;
  port) [ $3 = 8500/tcp ] && echo 127.0.0.1:$GRPC || echo 127.0.0.1:$REST ;;
  logs) [ -e warm ] && echo "Number of warmup records read: 6." || touch warm ;;
  rm) echo "$3" >> removed ;;
esac
"""
EXPORT = """#!/bin/bash
[[ $1 = *export.py ]] || exec "$REAL" "$@"
mkdir -p "$4/1" && [ $6 = int8 ] && echo _QuantizedMatMul > "$4/1/saved_model.pb"; true
"""


def smoke_test_of_an_image(clone, grpc_port, rest_port):
    programs = clone / "programs"
    programs.mkdir()
    for name, text in (("docker", DOCKER), ("python", EXPORT)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    variables = f"GRPC={grpc_port} REST={rest_port} REAL=$PYTHON PYTHON=programs/python"
    smoke = (
        f"PATH=$PWD/programs:$PATH {variables} serving/deploy/smoke.sh an/image:1 runs/phrasebook"
    )
    done = shell(smoke, clone, 200)
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAIL")]
    batching = "FAIL  requests are batched"
    assert failed == [batching, "FAIL  the warm-up was replayed", batching, "FAIL: 3"], done
    assert done.returncode == 3 and done.stdout.count("pass  gRPC, five texts") == 2
    assert "pass  the graph computes in int8" in done.stdout
    started = (clone / "started").read_text()
    assert "an/image:1 --enable_batching=true" in started and "/int8,target=/models/" in started
    assert "the-container" in (clone / "removed").read_text()


TINIER = (
    "--precision", "float32", "--tokens_per_batch", "192", "--steps", "2", "--no_export", "--set",
    "d_model=16", "num_heads=2", "dff=64", "validation_pairs=4", "decoder_layers=1",
)  # fmt: skip


def commands(file, title):
    """The commands of the first block of shell under a heading of a guide."""
    text = (ROOT / "docs" / "guide" / file).read_text(encoding="utf-8")
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
    (tmp_path / "mono.en").write_text("".join(f"{line.split()[-1]} x\n" for line in lines[:20]))
    (tmp_path / "runs").mkdir()
    for name in ("mine", "en-pt"):
        (tmp_path / "runs" / name).symlink_to(whole)
    return tmp_path


def test_the_recipe_of_back_translation(folder, unevaluated):
    reverse, reverse_model, translation, paste, training = commands(
        "fine_tuning.md", "## Few pairs"
    )
    run(reverse)
    assert reverse_model.endswith(" --data reverse.tsv --output runs/en-pt")  # the finished run
    assert run(translation) == 0
    run(paste)
    assert len((folder / "back.tsv").read_text(encoding="utf-8").splitlines()) == 20
    assert run(training, "--vocab_size", "320", *TINIER, "encoder_layers=1") == 0
    assert RunFolder("runs/pt-en").read_config()["arguments"]["tag"] == ["back.tsv=>>bt<<"]
