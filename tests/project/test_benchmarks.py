"""The page of the benchmarks is short and true to its files; the harness; every script runs."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
PAGE = (FOLDER / "README.md").read_text()
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.py") if path.name != "harness.py")


@pytest.fixture(scope="module")
def harness():
    spec = importlib.util.spec_from_file_location("harness", FOLDER / "harness.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_script_has_its_row_in_a_short_page_and_every_row_its_script():
    assert sorted(set(re.findall(r"benchmarks/(\w+\.py)", PAGE))) == SCRIPTS
    assert len(PAGE.split()) <= 600


def test_the_best_setting_takes_the_turns(harness):
    calls = []

    def side(name, *rates):
        rates = iter(rates)

        def run():
            calls.append(name)
            return {"rate": next(rates), "text": name}

        return run

    sides = {
        "a": {"slow": side("a slow", 1.0, 1.0), "fast": side("a fast", 5.0, 3.0, 4.0)},
        "b": {"only": side("b", 2.0, 2.0, 8.0, 1.0)},
    }
    found = harness.compare(sides, 3)
    best = {"rate": 4.0, "rates": [5.0, 3.0, 4.0], "setting": "fast", "text": "a fast"}
    assert found["a"] == best and found["b"]["rate"] == 2.0
    # All settings once; then the sides alternate, and neither is always first.
    assert calls == ["a slow", "a fast", "b", "b", "a fast", "a fast", "b"]
    harness.compare(sides, 3, quick=True)
    assert calls[7:] == ["a slow", "b"]


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
