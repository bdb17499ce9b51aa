"""A model by its name, from the cache of the Hub's own library; nothing here reaches the Hub."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_runs import ROOT

from training import import_marian

SHA = "a" * 40
CODE = """
import sys
from keras_tfmr.presets.find import PresetError, find
try:
    print(find(sys.argv[1]))
except PresetError as error:
    print(error)
"""


@pytest.fixture
def found(tmp_path):
    """The folder of a model in a new process, which has a cache of its own, or what is wrong."""

    def found(name, **settings):
        environment = {**os.environ, "HF_HOME": str(tmp_path), "HF_TOKEN": "hf_none", **settings}
        command = [sys.executable, "-c", CODE, name]
        return subprocess.check_output(command, cwd=ROOT, env=environment, text=True).strip()

    return found


def test_a_model_is_found_by_its_name_and_revision(tmp_path, found):
    cache = tmp_path / "hub" / "models--owner--model"
    (cache / "refs").mkdir(parents=True)
    (cache / "refs" / "v1").write_text(SHA)
    (cache / "snapshots" / SHA).mkdir(parents=True)
    (cache / "snapshots" / SHA / "config.json").write_text("{}")
    assert Path(found("hf://owner/model@v1", HF_HUB_OFFLINE="1")) == cache / "snapshots" / SHA


def test_what_cannot_be_downloaded_is_one_line(found):
    said = found("hf://owner/model@v2", HF_ENDPOINT="http://127.0.0.1:9")
    assert said.startswith("cannot download hf://owner/model@v2 from the Hugging Face Hub: ")
    assert said.endswith("Without a network, give a folder of the model") and "\n" not in said


def test_without_the_package_the_line_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    output = str(tmp_path / "run")
    assert import_marian.main(["hf://owner/model", "--output", output]) == 1
    assert "pip install 'keras_tfmr[hub]'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
