"""Rooms: the packages and modules of each project, drawn as floors. Every import goes downwards."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# From the roof to the ground. A file imports what is in its room or on a lower floor, wherever the
# statement stands. `keras_tfmr/__init__.py` has no floor: it names what others hold.
FLOORS = """
training.train_pt_en training.train_text serving.load
training.train training.import_marian
training.run
training.data
training.tasks
training.settings training.translate
training.corpus serving.demo serving.server serving.export serving.client
training.command training.phrasebook training.scores serving.devserver serving.demo_api
keras_tfmr.text_models
keras_tfmr.export
keras_tfmr.presets keras_tfmr.client
keras_tfmr.shortlist keras_tfmr.signatures
keras_tfmr.finished keras_tfmr.recurrent
keras_tfmr.models keras_tfmr.text
keras_tfmr.decoding keras_tfmr.metrics keras_tfmr.precision
keras_tfmr.layers keras_tfmr.losses keras_tfmr.schedules
keras_tfmr._checks keras_tfmr._files keras_tfmr.compat keras_tfmr.config keras_tfmr.plots
keras_tfmr.errors
"""
FLOOR_OF = {
    room: number
    for number, rooms in enumerate(reversed(FLOORS.split("\n")))
    for room in rooms.split()
}
FILES = [
    file for name in ("keras_tfmr", "training", "serving") for file in (ROOT / name).rglob("*.py")
]


def name_of(file):
    """The name of a file's module, such as `keras_tfmr.layers` for its `__init__.py`."""
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def room_of(module):
    """The package or module below a project that a module is in."""
    return ".".join(module.split(".")[:2])


def imported(node):
    """The rooms with a floor that a statement imports, if it is one."""
    if isinstance(node, ast.Import):
        modules = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module:  # else it is within its room: `from .`
        modules = [f"{node.module}.{alias.name}" for alias in node.names]
    else:
        modules = []
    return {room_of(module) for module in modules} & FLOOR_OF.keys()


def test_every_room_is_drawn():
    assert {room_of(name) for name in map(name_of, FILES) if "." in name} == FLOOR_OF.keys()


def test_every_import_goes_downwards():
    upwards = [
        f"{file.relative_to(ROOT)}:{node.lineno} imports {there}"
        for file in FILES
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        for there in imported(node)
        if there != (here := room_of(name_of(file))) and FLOOR_OF[there] >= FLOOR_OF.get(here, 99)
    ]
    assert not upwards
