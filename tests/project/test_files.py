"""Files that other programs read, by those programs' schemas and checkers."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import keras_tfmr

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = {
    "CITATION.cff": "citation-file-format",
    ".github/workflows/ci.yml": "github-workflows",
    "serving/deploy/compose.yaml": "compose-spec",
}


def check(*command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", SCHEMAS)
def test_schema(file):
    schema = f"vendor.{SCHEMAS[file]}"
    check(sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, file)


def test_shell_scripts():
    scripts = [str(path) for path in ROOT.glob("[dst]*/**/*.sh")]
    check(Path(sys.executable).with_name("shellcheck"), "--severity=warning", ".ci/run", *scripts)


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == keras_tfmr.__version__
