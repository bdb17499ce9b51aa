"""The code of README.md and of the guides, extracted and run; commands with a small model."""

import functools
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiny_runs import free_ports

from training import phrasebook, train_pt_en

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs/guide").glob("*.md"))]
# Ask a server: see `test_commands_train_serve_and_translate`.
ASK = ("docs/guide/serving.md", "docs/guide/documents.md")


def blocks(page, language):
    """The fenced code blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), re.S | re.M)


@pytest.mark.parametrize("page", [p for p in PAGES if p not in ASK and blocks(p, "python")])
def test_python_blocks_run(page):
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
    """A command that runs the page's program that asks the server on `port`."""
    (found,) = [b for b in blocks(page, "python") if "8500" in b]
    return f"{sys.executable} - <<'END'\n{found.replace('8500', str(port))}END"


SMALL = """--steps 4 --preset tiny --vocab_size 500 --num_beams 1
    --set validation_pairs=8 d_model=16 encoder_layers=1 decoder_layers=1"""


def test_commands_train_serve_and_translate(clone, whole, monkeypatch, capsys, unevaluated):
    """The trainer on a small phrasebook, in this process; then, with the export of another run, the
    server, the client, curl and the guides' programs, word for word but for the ports."""
    assert command("-r serving/requirements.txt").endswith("/python training/train_pt_en.py")
    monkeypatch.chdir(clone)
    split = functools.partial(phrasebook.split, train=2000, validation=20, test=20)
    monkeypatch.setattr(phrasebook, "split", split)
    assert train_pt_en.main(SMALL.split()) == 0
    assert "The built-in phrasebook is a demonstration" in capsys.readouterr().out
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
        sentences, document = (lines(program(page, grpc_port), clone) for page in ASK)
        assert len(sentences) == 2 and repr(outputs["translation"][0]) in sentences[0]
        assert all(re.match(r"Translation\(text=.*, score=-\d.*, truncated=", s) for s in sentences)
        assert len(document) == 3 and document[1] == ""
        smoke = f"serving/deploy/smoke.sh http://127.0.0.1:{rest_port} 127.0.0.1:{grpc_port}"
        assert lines(smoke, clone, 200)[-1] == "pass: every check"
    finally:
        server.terminate()
        assert server.wait(60) == 0
