"""Every script explains its options, and accepts the commands that pages show."""

import argparse
import importlib
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "benchmarks/README.md", "docs/claims.md")),
    *sorted(ROOT.glob("docs/guide/*.md")), *sorted(ROOT.glob("serving/*/README.md")),
]  # fmt: skip
SCRIPTS = [
    str(path.relative_to(ROOT))
    for folder in ("training", "serving", "benchmarks")
    for path in sorted((ROOT / folder).glob("*.py"))
    if "__main__" in path.read_text("utf-8")
]


class Parsed(BaseException):
    """Ends a script whose command line is parsed."""


@pytest.fixture
def parse(monkeypatch):
    """`parse(script, *words)` runs a script until its command line is parsed."""

    def parse_known_args(self, *arguments):
        _, unknown = original(self, *arguments)
        assert not unknown
        raise Parsed

    original = argparse.ArgumentParser.parse_known_args
    monkeypatch.setattr(argparse.ArgumentParser, "parse_known_args", parse_known_args)
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))

    def parse(script, *words):
        monkeypatch.setattr("sys.argv", [script, *words])
        name = script.removesuffix(".py").removeprefix("benchmarks/").replace("/", ".")
        importlib.import_module(name).main()

    return parse


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_says_what_every_option_is(script, parse, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(script, "--help")
    assert ended.value.code == 0
    for option in re.findall(r"^  (-.*(?:\n {10,}.*)*)", capsys.readouterr().out, re.MULTILINE):
        names, _, text = re.sub(r"\s{2,}", "\n", option).partition("\n")
        assert text, f"{names} has no help"
        assert all("-" not in name for name in re.findall(r"--([\w-]+)", names))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_a_page(page, parse):
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for script, rest in re.findall(r"python ((?:training|serving|benchmarks)/\w+\.py)(.*)", text):
        words = shlex.split(re.split(r"[<>|&;`)](?![^']*')", rest)[0], comments=True)
        try:
            parse(script, *words)
        except Parsed:
            continue
        except SystemExit:
            pytest.fail(f"{page.name}: {script}{rest}")


# The script, which gets a signal where any exception is swallowed, as TensorFlow does with some.
INTERRUPTED = """
import contextlib, runpy, signal, sys

class Interrupting:
    def find_spec(name, path=None, target=None):
        if name == "tensorflow":
            with contextlib.suppress(BaseException):
                signal.raise_signal(number)

number = int(sys.argv.pop(1))
sys.meta_path.insert(0, Interrupting)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_tensorflow_is_imported_ends_with_a_line(number, tmp_path):
    words = [str(int(number)), "training/train_pt_en.py", "--output", tmp_path / "run"]
    command = [sys.executable, "-c", INTERRUPTED, *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 128 + number
    assert done.stderr == "Stopped. Run the same command to resume.\n"
    assert not (tmp_path / "run").exists()
