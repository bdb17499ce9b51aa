"""The wheel: what is in it, what its extras install, and that it works where nothing else is."""

import ast
import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from marian_models import fixture, write_transformers_folder
from text_models import write_run

from training import phrasebook, translate

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
    "text_models": {"tensorflow"},
    "presets": {"tensorflow", "hub", "formats"},
    "export": {"tensorflow"},
    "markup": {"markup"},
    "plots.py": {"plots"},
    "signatures": {"tensorflow"},
    "compat.py": {"tensorflow"},
    "faster": {"tensorflow"},
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
        # Formats of protobuf messages come with TensorFlow. The arrays that the client gets
        # or the server makes come with NumPy; without them nothing imports it.
        found = imported(path) - ({"protobuf"} if "tensorflow" in extras else set())
        found -= {"numpy"} if path.name == "tensors.py" else set()
        assert found <= allowed, path
        used |= found
    assert used == set().union(*wanted.values())


# What the guide's three lines are followed by.
REST = """
import json, sys
texts = json.loads(sys.argv[1])
again = Translator.from_preset(sys.argv[2])
tokens = [one.target_tokens for one in translator.explain(texts)]
print(json.dumps([translator.translate(texts), tokens, again.translate(texts)]))
"""


def by_transformers(folder, texts, tag):
    """The translations of each text, and their tokens, by transformers."""
    from transformers import MarianMTModel, MarianTokenizer

    tokenizer, model = (kind.from_pretrained(folder) for kind in (MarianTokenizer, MarianMTModel))
    rows = [model.generate(**tokenizer([f"{tag} {t}"], return_tensors="pt"))[0] for t in texts]
    translations = [tokenizer.decode(row, skip_special_tokens=True) for row in rows]
    return translations, [tokenizer.convert_ids_to_tokens(row)[1:] for row in rows]


@pytest.mark.needs("uv", "torch", "transformers")
def test_the_guide_s_three_lines_work_from_it_alone(wheel, tmp_path, capsys):
    """A published model translates as in transformers, token by token; a run as by the script."""
    from uv import find_uv_bin

    texts = [text for text, _ in phrasebook.pairs(24)]
    # Greedily: transformers' beam search can end before the best hypothesis.
    marian = write_transformers_folder(
        tmp_path / "opus-mt-pt-en", fixture()[1], generation={"num_beams": 1}
    )
    run_folder = write_run(tmp_path / "a run", num_beams=2, max_length=12)
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    assert translate.main([str(run_folder), "--input", str(tmp_path / "in.txt")]) == 0
    of_script = capsys.readouterr().out.splitlines()
    page = (ROOT / "docs/guide/pretrained.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"^```py\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    for ours, there in (
        ("hf://Helsinki-NLP/opus-mt-tc-big-en-pt", marian), ('"por"', '"eng"'),
        ("models/en-pt", tmp_path / "models"),
    ):  # fmt: skip
        assert ours in lines
        lines = lines.replace(ours, str(there))
    run([find_uv_bin(), "venv", "-q", "--python", sys.executable, tmp_path / "venv"])
    python = tmp_path / "venv/bin/python"
    install = [find_uv_bin(), "pip", "install", "-q", "--python", python]
    run([*install, f"{wheel}[tensorflow]"], timeout=900)
    command = [python, "-c", lines + REST, json.dumps(texts), run_folder]
    output = run(command, cwd=tmp_path, timeout=900).splitlines()[-1]
    translations, tokens, of_run = json.loads(output)
    assert (translations, tokens) == by_transformers(marian, texts, ">>eng<<")
    assert len({*translations}) > 5
    assert [" ".join(text.split()) for text in of_run] == of_script
    assert (tmp_path / "models/1/saved_model.pb").is_file(), "checked by a process of its own"


@pytest.mark.needs("uv")
def test_the_line_for_uv_finds_all_that_training_needs():
    from uv import find_uv_bin

    page = (ROOT / "docs/guide/getting_started.md").read_text()
    (line,) = re.findall(r"^uv run .*$", page, re.MULTILINE)
    *words, _ = [find_uv_bin(), *line.split()[1:]]
    imports = "import keras_tfmr.text_models.translator, training.train_pt_en; print('found')"
    assert run([*words, "python", "-c", imports], cwd=ROOT, timeout=900) == "found\n"
