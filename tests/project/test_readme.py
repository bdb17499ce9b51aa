"""README's commands in their order, and the programs of the guides, with tiny models."""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from marian_models import write_published
from tiny_runs import ROOT, free_ports, small_phrasebook

from keras_tfmr import Translator
from training import train_pt_en

pytestmark = pytest.mark.ci


def blocks(page, language):
    """The fenced code blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), re.S | re.M)


PAGES = ["README.md", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/guide/*.md"))]
PROGRAMS = {page: blocks(page, "python") for page in PAGES if blocks(page, "python")}
# [(program, what the page says that it prints)] of a page.
LINES = r"((?:(?!```).*\n)*)```"
SHOWN = re.compile(rf"^```python\n{LINES}\n\n```text\n{LINES}", re.M)
# The programs of these pages ask a server; those of the last train one first.
ASK = [page for page, found in PROGRAMS.items() if any("8500" in block for block in found)]
BOTH = "docs/guide/from_layers.md"
# The programs of these are in pairs, by other libraries and by this one.
PEERS = COMING, ENGINES = ("docs/guide/coming_from.md", "docs/guide/engines.md")
ALONE = [page for page in PROGRAMS if page not in PEERS and (page not in ASK or page == BOTH)]


@pytest.mark.parametrize("page", ALONE)
def test_the_programs_of(page, short, monkeypatch, translator, capsys):
    """With a tiny translator in place of others."""
    monkeypatch.setattr(Translator, "from_preset", lambda preset: translator)
    program = [block for block in PROGRAMS[page] if "8500" not in block]
    shorter = "\n".join(program).replace("epochs=15", "epochs=1")
    exec(shorter, {"__name__": "__main__"})
    out = capsys.readouterr().out
    for program, shown in SHOWN.findall((ROOT / page).read_text()):
        assert "8500" in program or shown in out


def outputs(programs, capsys):
    """What each program prints; they share their names."""
    names, found = {}, []
    for program in programs:
        exec(program, names)
        found.append(capsys.readouterr().out)
    return found


@pytest.mark.needs("torch", "transformers")
def test_a_published_model_translates_as_in_transformers(tmp_path, monkeypatch, capsys):
    """A small one with random weights."""
    write_published(tmp_path / "opus-mt-pt-en", tagged=False)
    monkeypatch.chdir(tmp_path)
    theirs, ours = outputs(PROGRAMS[COMING][:2], capsys)
    assert theirs == ours and len(ours) > 2


@pytest.mark.needs("keras_hub")
def test_a_language_model_goes_on_as_in_keras_hub(capsys):
    assert outputs(PROGRAMS[COMING][2:], capsys) == ["(1, 6)\n"] * 2


@pytest.mark.needs("ctranslate2")
def test_an_export_for_ctranslate2_translates(translator, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    translator.export("models/ct2", format="ctranslate2")
    (out,) = outputs(PROGRAMS[ENGINES], capsys)
    assert out.strip()


def printed(command, folder, timeout=60):
    """The lines that a command prints; it must succeed."""
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, capture_output=True, text=True, timeout=timeout,
        env={**os.environ, "PYTHON": sys.executable},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout.splitlines()


@pytest.fixture
def clone(tmp_path):
    """A folder like a clone of the project, with its environment."""
    for name in ("training", "serving", "keras_tfmr", "README.md"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    python = tmp_path / ".venv/bin/python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return tmp_path


def command(word):
    """The README's command that has `word` in it."""
    (found,) = [block.strip() for block in blocks("README.md", "sh") if word in block]
    return found


def wait_for(port):
    """Returns once a server listens at a port of this machine."""
    deadline = time.time() + 120
    while time.time() < deadline:
        with contextlib.suppress(ConnectionRefusedError):
            return socket.create_connection(("127.0.0.1", port)).close()
        time.sleep(0.1)


SMALL = """--steps 4 --preset tiny --vocab_size 500 --num_beams 1 --no_export
    --set validation_pairs=8 d_model=16 encoder_layers=1 decoder_layers=1"""


def test_train_serve_and_ask(clone, version, monkeypatch, capsys):
    """The training is shortened; what is served is the export of another run."""
    assert command("-r serving/requirements.txt").endswith("/python training/train_pt_en.py")
    monkeypatch.chdir(clone)
    small_phrasebook(monkeypatch, clone / "phrasebook", to_learn=2000, others=16)
    assert train_pt_en.main(SMALL.split()) == 0
    assert re.search(r"\neveryday: BLEU .*on 16 texts\n( +.*->.*\n){10}", capsys.readouterr().out)
    assert "## Everyday sentences\n" in Path("runs/phrasebook/report.md").read_text("utf-8")

    versions = clone / "runs/phrasebook/saved_model"
    shutil.copytree(version.parent, versions)  # which smoke.sh writes to
    grpc_port, rest_port = free_ports(2)
    serve = command("serving/server.py").replace("8501", str(rest_port)) + f" --port={grpc_port}"
    server = subprocess.Popen(["bash", "-c", "exec " + serve], cwd=clone)
    try:
        ask = command("curl").replace("8501", str(rest_port))
        ask = ask.replace("client.py", f"client.py --server 127.0.0.1:{grpc_port}")
        wait_for(rest_port)
        *translations, answer = printed(ask, clone)
        assert translations == json.loads(answer)["outputs"]["translation"]
        for page in ASK:
            program = "".join(block for block in PROGRAMS[page] if "8500" in block)
            program = program.replace("8500", str(grpc_port))
            assert printed(f"{sys.executable} - <<'END'\n{program}END", clone), page
        smoke = f"PATIENCE=120 serving/deploy/smoke.sh http://127.0.0.1:{rest_port}"
        smoke += f" 127.0.0.1:{grpc_port} default {versions}"
        assert printed(smoke, clone, 400)[-1] == "pass: every check"
    finally:
        server.terminate()
        assert server.wait(60) == 0
