"""Every script's `--help` is there at once, and they all speak one dialect; the page of the
benchmarks is short and true to its files, and every benchmark runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
MEASURING = sorted(path.name for path in BENCHMARKS.glob("*.py") if path.name != "harness.py")
SCRIPTS = [
    str(path.relative_to(ROOT))
    for folder in ("training", "serving", "docs")
    for path in sorted((ROOT / folder).glob("*.py"))
    if re.search("(?s)(command_line|parse_arguments).*__main__", path.read_text())
]


@pytest.mark.parametrize("script", [*SCRIPTS, "keras_tfmr.export.check"])
def test_help_names_every_option_with_underscores_and_says_what_it_is(script):
    words = [sys.executable, *([script] if script.endswith(".py") else ["-m", script]), "--help"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and "--help" in done.stdout, done.stderr
    for option in re.findall(r"^  (-.*(?:\n {10,}.*)*)", done.stdout, re.MULTILINE):
        names, _, text = re.sub(r"\s{2,}", "\n", option).partition("\n")
        assert text, f"{names} has no help"
        for name in re.findall(r"--([\w-]+)", names):
            assert re.fullmatch("[a-z0-9]+(_[a-z0-9]+)*", name)


def test_every_script_has_its_row_in_a_short_page_and_every_row_its_script():
    page = (BENCHMARKS / "README.md").read_text()
    assert sorted(set(re.findall(r"benchmarks/(\w+\.py)", page))) == MEASURING
    assert len(page.split()) <= 600


@pytest.mark.slow
@pytest.mark.parametrize("name", MEASURING)
def test_the_quick_run_of(name):
    """Sides whose library is not installed are left out."""
    if name == "imported.py":
        pytest.importorskip("transformers")
        pytest.importorskip("torch")
    command = [sys.executable, BENCHMARKS / name, "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "\n| --- " in done.stdout and "keras_tfmr" in done.stdout + name
