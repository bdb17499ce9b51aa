"""Every script's `--help` is there at once, and they all speak one dialect."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(
    str(path.relative_to(ROOT))
    for folder in ("training", "serving", "docs")
    for path in (ROOT / folder).glob("*.py")
    if re.search("(?s)(command_line|parse_arguments).*__main__", path.read_text())
)
NAME = re.compile(r"--[a-z0-9]+(_[a-z0-9]+)*")


@pytest.fixture(scope="module", params=[*SCRIPTS, "keras_tfmr.export.check"])
def options(request):
    """[(its names, its help)] of what a script's `--help` lists."""
    command = [request.param] if request.param.endswith(".py") else ["-m", request.param]
    done = subprocess.run(
        [sys.executable, *command, "--help"],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "1000"},  # an option's help on one line
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    # "  --name N, --other N  help", the help on a line of its own where the names are long.
    rows = re.sub(r"\n {10,}", "  ", done.stdout).splitlines()
    rows = [re.split(" {2,}", row.strip(), maxsplit=1) for row in rows if row.startswith("  -")]
    found = [(re.findall(r"--[\w-]+", row[0]), " ".join(row[1:])) for row in rows]
    assert found.pop(0)[0] == ["--help"]
    return found


def test_names_have_underscores(options):
    names = [name for names, _ in options for name in names]
    assert [name for name in names if not NAME.fullmatch(name)] == []


def test_names_of_benchmarks_have_underscores():
    """Read from their text: most import TensorFlow before they answer."""
    scripts = sorted((ROOT / "benchmarks").glob("*.py"))
    names = re.findall(r'add_argument\(\s*"(--[^"]*)"', "".join(s.read_text() for s in scripts))
    assert names
    assert [name for name in names if not NAME.fullmatch(name)] == []


def test_help_is_a_phrase(options):
    """Each option has some; no capital letter at its beginning, no stop at its end."""
    for names, text in options:
        assert text, f"{names} has no help"
        assert not re.match(r"[A-Z][a-z]", text) and not text.endswith("."), text


def test_defaults_are_named_in_one_form(options):
    """As the last words of the help, in parentheses; a default is not a range, so no brackets."""
    for names, text in options:
        assert not re.search(r"\[[^\]]*\]$", text), f"{names}: {text}"
        assert len(re.findall("default", text)) <= 1 or "(default: default)" in text, text
        if "default" in text:
            assert re.search(r"\(default: [^()]+\)$", text), f"{names}: {text}"
