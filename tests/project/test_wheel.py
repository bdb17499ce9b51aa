"""The wheel holds the package alone, and its client works where nothing else is installed."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*command, **options):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.needs("uv")
def test_the_wheel(tmp_path):
    from uv import find_uv_bin

    uv, python = find_uv_bin(), tmp_path / "venv/bin/python"
    run(uv, "build", "-q", "--out-dir", tmp_path, ROOT)
    (wheel,) = tmp_path.glob("*.whl")
    suffixes = {".py", ".pyi", ".typed", ".txt"}
    files = [path for path in (ROOT / "keras_tfmr").rglob("*") if path.suffix in suffixes]
    installed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert installed == {str(path.relative_to(ROOT)) for path in files}
    run(uv, "venv", "-q", "--python", sys.executable, tmp_path / "venv")
    run(uv, "pip", "install", "-q", "--python", python, f"{wheel}[client]")
    code = "from keras_tfmr.client import ServingClient; print(ServingClient.__name__)"
    assert run(python, "-c", code, cwd=tmp_path, env={}) == "ServingClient\n"
