"""Rooms: no package imports one that imports it, however long the way, nor within a function."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECTS = ("keras_tfmr", "training", "serving")
# What still points upwards. This list only shrinks: an entry without such an import fails, too.
UPWARDS = {
    ("keras_tfmr.models", "keras_tfmr.faster"),  # dtype policies
    ("keras_tfmr.markup", "keras_tfmr.signatures"),  # the check of texts
    # The files of `training/run` stand below all, its folder and its callbacks above.
    ("training.corpus", "training.run"),
    ("training.data", "training.run"),
    ("training.tasks", "training.run"),
    ("training.settings", "training.run"),
    ("training.optimizer", "training.run"),
    # Batches and tasks are made while a corpus is prepared.
    ("training.corpus", "training.data"),
    ("training.corpus", "training.tasks"),
}


def room(module):
    """The package or module below a project that a module is in."""
    return ".".join(module.split(".")[:2])


def modules(node, names):
    """The modules that a statement imports, if it is one, among these names."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:  # else it is within its room: `from .`
        whole = [f"{node.module}.{alias.name}" for alias in node.names]
        return [name if name in names else node.module for name in whole]
    return []


def imports():
    """{room: the other rooms that statements anywhere in its files import}."""
    files = [file for project in PROJECTS for file in (ROOT / project).rglob("*.py")]
    names = {file: ".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files}
    names = {file: name.removesuffix(".__init__") for file, name in names.items()}
    graph = {}
    for file, name in names.items():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            for module in modules(node, names.values()):
                if module.split(".")[0] in PROJECTS and room(module) != room(name):
                    graph.setdefault(room(name), set()).add(room(module))
    return graph


def reached(graph, begin):
    """All rooms that a room imports, directly or by others."""
    known, waiting = set(), [begin]
    while waiting:
        new = graph.get(waiting.pop(), set()) - known
        known |= new
        waiting += new
    return known


def test_no_room_imports_one_that_imports_it():
    graph = imports()
    assert all(there in graph.get(here, ()) for here, there in UPWARDS), "shorten the list"
    downwards = {
        here: {there for there in others if (here, there) not in UPWARDS}
        for here, others in graph.items()
    }
    circles = [here for here in downwards if here in reached(downwards, here)]
    assert not circles
