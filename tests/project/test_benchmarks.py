"""The page of the benchmarks is short and true to its files; every script runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.py") if path.name != "harness.py")


def test_every_script_has_its_row_in_a_short_page_and_every_row_its_script():
    page = (FOLDER / "README.md").read_text()
    assert sorted(set(re.findall(r"benchmarks/(\w+\.py)", page))) == SCRIPTS
    assert len(page.split()) <= 600


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_the_quick_run_of(name):
    """Sides whose library is not installed are left out."""
    if name == "imported.py":
        pytest.importorskip("transformers")
        pytest.importorskip("torch")
    command = [sys.executable, FOLDER / name, "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "\n| --- " in done.stdout and "keras_tfmr" in done.stdout + name
