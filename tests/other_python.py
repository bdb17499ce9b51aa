"""Environments with packages that the one of the tests lacks, or has in another version."""

import subprocess
import sys


def python_with(folder, *packages):
    """The interpreter of a new environment in a folder; TensorFlow is `tensorflow-cpu` in it."""
    from uv import find_uv_bin

    folder.mkdir(exist_ok=True)
    (folder / "none.txt").write_text("tensorflow; python_version < '3'\n")  # -cpu is smaller
    python = folder / "venv/bin/python"
    new = [find_uv_bin(), "venv", "-q", "--python", sys.executable, folder / "venv"]
    install = [find_uv_bin(), "pip", "install", "-q", "--python", python]
    for command in (new, [*install, "--override", folder / "none.txt", *packages]):
        subprocess.run(command, check=True, timeout=900)
    return str(python)
