"""The wheel: what is in it, what its extras install, and that it works where nothing else is."""

import ast
import configparser
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Imported under another name than they are installed by.
NAMES = {
    "google": "protobuf",
    "grpc": "grpcio",
    "huggingface_hub": "huggingface-hub",
    "markdown_it": "markdown-it-py",
    "tensorflow_serving": "tensorflow-serving-api",
    "tensorflow_text": "tensorflow-text",
    "yaml": "pyyaml",
}
# What the parts of the package may import beside Keras and NumPy.
EXTRAS_OF = {
    "client": {"client"},
    "text": {"tensorflow"},
    "presets": {"tensorflow", "hub"},
    "export": {"tensorflow", "formats"},
    "markup": {"markup"},
    "marian": {"tensorflow"},
    "plots.py": {"plots"},
    "_inputs.py": {"tensorflow"},
    "compat.py": {"tensorflow"},
    "int8.py": {"tensorflow"},
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The path of a wheel, built from a copy of the project without what a build left behind."""
    folder = tmp_path_factory.mktemp("wheel")
    project = folder / "project"
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info", "requirements.txt")
    for name in ("keras_tfmr", "training", "serving"):
        shutil.copytree(ROOT / name, project / name, ignore=ignore)
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, project)
    code = f"from setuptools import build_meta; build_meta.build_wheel({str(folder)!r})"
    run([sys.executable, "-c", code], cwd=project)
    (path,) = folder.glob("*.whl")
    return path


def run(command, **options):
    """What a command prints; it must succeed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, env=environment, **options
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_it_holds_the_package_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    installed = {name for name in names if ".dist-info/" not in name}
    suffixes = {".py", ".pyi", ".typed", ".txt"}
    files = [path for path in (ROOT / "keras_tfmr").rglob("*") if path.suffix in suffixes]
    assert installed == {str(path.relative_to(ROOT)) for path in files}
    assert "keras_tfmr/py.typed" in installed


PACKED = """
import keras_tfmr, keras_tfmr.client, keras_tfmr.export
from keras_tfmr.text.sentences import SentenceSplitter
assert ".whl" in keras_tfmr.__file__
print(len(SentenceSplitter("pt").split(["O Sr. Reis saiu. E tu?"])[0].flat_values))
"""


def test_it_is_imported_without_being_unpacked(wheel, tmp_path):
    path = tmp_path / "a path.whl"
    shutil.copy(wheel, path)
    code = f"import sys; sys.path.insert(0, {str(path)!r})\n{PACKED}"
    assert run([sys.executable, "-c", code], cwd=tmp_path) == "3\n"


def requirements():
    """{extra, or "" for what is always installed: names of distributions}."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    groups = dict(config["options.extras_require"])
    groups[""] = config["options"]["install_requires"]
    return {
        name: {re.match(r"[\w-]+", line)[0] for line in lines.split("\n") if line} - {"keras_tfmr"}
        for name, lines in groups.items()
    }


def imported(path):
    """Names of the distributions that a module imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module)
    names = {name.split(".")[0] for name in found} - sys.stdlib_module_names - {"keras_tfmr"}
    return {NAMES.get(name, name) for name in names}


def test_extras_install_what_their_part_imports_and_nothing_else():
    wanted, used = requirements(), set()
    package = ROOT / "keras_tfmr"
    for path in sorted(package.rglob("*.py")):
        extras = EXTRAS_OF.get(path.relative_to(package).parts[0], ())
        keras = set() if "client" in extras else wanted["keras"]
        allowed = keras.union(*(wanted[name] for name in extras))
        # Two engines' formats of protobuf messages come with TensorFlow.
        found = imported(path) - ({"protobuf"} if "tensorflow" in extras else set())
        assert found <= allowed, path
        used |= found
    assert used == set().union(*wanted.values())


LIBRARY = """
import sys
from keras_tfmr import (
    SubwordTokenizer, TransformerConfig, TranslationModel, Translator
)
tokenizer = SubwordTokenizer.learn(["o gato preto", "the black cat"] * 9, vocab_size=300)
size = tokenizer.vocab_size
config = TransformerConfig.preset("tiny", source_vocab=size, target_vocab=size)
translator = Translator(TranslationModel(config), tokenizer)
print(translator.export(sys.argv[1]))
"""


@pytest.mark.needs("uv")
def test_models_and_export_work_from_it_alone(wheel, tmp_path):
    from uv import find_uv_bin

    run([find_uv_bin(), "venv", "-q", "--python", sys.executable, tmp_path / "venv"])
    python = tmp_path / "venv/bin/python"
    install = [find_uv_bin(), "pip", "install", "-q", "--python", python]
    run([*install, f"{wheel}[tensorflow]"], timeout=900)
    output = run([python, "-c", LIBRARY, tmp_path / "models"], cwd=tmp_path, timeout=900)
    assert output.splitlines()[-1] == str(tmp_path / "models/1")
    check = [python, "-m", "keras_tfmr.export.check", tmp_path / "models/1"]
    assert "sound" in run(check, cwd=tmp_path, timeout=600)


@pytest.mark.needs("uv")
def test_the_line_for_uv_finds_all_that_training_needs():
    from uv import find_uv_bin

    page = (ROOT / "docs/guide/getting_started.md").read_text()
    (line,) = re.findall(r"^uv run .*$", page, re.MULTILINE)
    *words, _ = [find_uv_bin(), *line.split()[1:]]
    imports = "import keras_tfmr.text.translator, training.train_pt_en; print('found')"
    assert run([*words, "python", "-c", imports], cwd=ROOT, timeout=900) == "found\n"
