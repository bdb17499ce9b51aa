"""The code of README.md and of the guides, extracted and run; commands with a small model."""

import ast
import doctest
import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs/guide").glob("*.md"))]


def blocks(page, language):
    """The fenced code blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), re.S | re.M)


# Ask a server: see `test_commands_serve_and_translate`.
ASK = ("docs/guide/serving.md", "docs/guide/documents.md")


@pytest.mark.parametrize("page", [p for p in PAGES if p not in ASK and blocks(p, "python")])
def test_python_blocks_run(page):
    code = "\n".join(blocks(page, "python"))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("page", PAGES)
def test_commands_name_files_that_exist(page):
    text = "\n".join(blocks(page, "sh"))
    scripts = re.findall(r"(?:serving|training|benchmarks)/[\w/]+\.(?:py|yaml)", text)
    assert [s for s in scripts if not (ROOT / s).exists()] == []


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder like a clone of the project in which a few updates of training have been done."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("training", "serving", "keras_tfmr", "README.md"):
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv/bin").mkdir(parents=True)
    python = folder / ".venv/bin/python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    (main,) = re.findall(r"<!-- main command -->\n```sh\n(.*?)^```", read_me(), re.S | re.M)
    train = main.strip().splitlines()[-1]
    small = " --steps 4 --preset tiny --set validation_pairs=8 --vocab_size 800"
    done = shell(train + small, folder, timeout=400)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder, done.stdout


def read_me():
    return (ROOT / "README.md").read_text()


def shell(command, folder, timeout):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def test_main_command_trains_exports_and_translates(trained):
    folder, output = trained
    assert (folder / "runs/phrasebook/saved_model/1/saved_model.pb").exists()
    assert (folder / "runs/phrasebook/report.md").exists()
    assert "The built-in phrasebook is a demonstration" in output


def free_ports():
    with socket.socket() as a, socket.socket() as b:
        a.bind(("127.0.0.1", 0))
        b.bind(("127.0.0.1", 0))
        return a.getsockname()[1], b.getsockname()[1]


def command(word):
    """The README's command that has `word` in it."""
    (found,) = [b.strip() for b in blocks("README.md", "sh") if word in b]
    return found


def run_program(page, port, folder):
    """The lines that the page's program prints when it asks the server on `port`."""
    (program,) = [b for b in blocks(page, "python") if "8500" in b]
    program = program.replace("8500", str(port))
    done = shell(f"{sys.executable} - <<'END'\n{program}END", folder, 60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_commands_serve_and_translate(trained):
    """The server, the client, curl and the guides' programs, word for word but for the ports."""
    folder, _ = trained
    grpc_port, rest_port = free_ports()
    serve = command("serving/server.py").replace("8501", str(rest_port)) + f" --port={grpc_port}"
    server = subprocess.Popen(["bash", "-c", "exec " + serve], cwd=folder, stderr=subprocess.PIPE)
    try:
        curl = command("curl").replace("8501", str(rest_port))
        deadline = time.time() + 120
        while '"outputs"' not in (answer := shell(curl, folder, 60)).stdout:
            assert time.time() < deadline, answer  # until then it says that it is loading
            time.sleep(0.5)
        outputs = json.loads(answer.stdout)["outputs"]
        assert sorted(outputs) == ["score", "translation", "truncated"]
        ask = command("serving/client.py") + f" --server 127.0.0.1:{grpc_port}"
        line = shell(ask, folder, 60)
        assert line.returncode == 0, line.stderr
        assert line.stdout.rstrip("\n") == outputs["translation"][0]
        sentences, document = (run_program(page, grpc_port, folder) for page in ASK)
        assert len(sentences) == 2 and repr(outputs["translation"][0]) in sentences[0]
        assert all(re.match(r"Translation\(text=.*, score=-\d.*, truncated=", s) for s in sentences)
        assert len(document) == 3 and document[1] == ""
    finally:
        server.terminate()
        assert server.wait(60) == 0


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "pycon")])
def test_clients_in_consoles_have_what_they_are_asked(page):
    """Sessions with a server: their statements parse, and the client has the methods they call."""
    from keras_tfmr import client

    for block in blocks(page, "pycon"):
        examples = doctest.DocTestParser().get_examples(block)
        code = "".join(example.source for example in examples)
        (made,) = re.findall(r"import (\w+Client)", code)
        called = [
            node.attr
            for node in ast.walk(ast.parse(code))
            if isinstance(node, ast.Attribute) and getattr(node.value, "id", None) == "client"
        ]
        assert called and all(hasattr(getattr(client, made), name) for name in called)
