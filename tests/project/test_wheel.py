"""The wheel holds the package alone, and its client works where nothing else is installed."""

import subprocess
import zipfile

import pytest
from other_python import python_with
from tiny_runs import ROOT


@pytest.mark.needs("uv")
def test_the_wheel(tmp_path):
    from uv import find_uv_bin

    subprocess.run([find_uv_bin(), "build", "-q", "--out-dir", tmp_path, ROOT], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    suffixes = {".py", ".pyi", ".typed", ".txt"}
    files = [path for path in (ROOT / "keras_tfmr").rglob("*") if path.suffix in suffixes]
    installed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert installed == {str(path.relative_to(ROOT)) for path in files}
    python = python_with(tmp_path, f"{wheel}[client]")
    code = "from keras_tfmr.client import ServingClient; print(ServingClient.__name__)"
    said = subprocess.check_output([python, "-c", code], cwd=tmp_path, env={})
    assert said == b"ServingClient\n"
