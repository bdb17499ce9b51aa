"""The check of an export, in a new process: as TensorFlow Serving 2.20 will load and answer it.

Enters: the folder of a SavedModel, and requests with the answers of the text model that it was made
from. Leaves: a list of problems, as sentences. The process has loaded nothing of what made the
export. It checks that the server has every operation, and that a session as the server's gives the
known answers and replays the warm-up file.

A stock server has the operations of TensorFlow core and TensorFlow Text. They are read from the
registry of the installed TensorFlow, without those that are newer than the server, those whose
kernels need Python, and XLA, which the server does not enable.
"""

import concurrent.futures
import json
import os
import pathlib
import pickle
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_tfmr import compat
from keras_tfmr.export import warmup
from keras_tfmr.export.saved_session import SavedSession, first_lines

Outputs = dict[str, np.ndarray]  # by name
# A request with its answer, (signature, inputs, outputs): see `known_answers.cases`.
Case = tuple[str, dict[str, np.ndarray], Outputs]

# Registered in TensorFlow 2.21, unknown to 2.20.
_YOUNGER = frozenset({"DecodeJxl", "_CopyFromGpuToHost", "_CopyFromHostToGpu"})
# Attributes that 2.21 added to older operations. SavedModels omit them if they have their default.
_YOUNGER_ATTRIBUTES = {"TensorListGetItem": frozenset({"Tshape"})}
# The server has these, but only a Python process has kernels for them.
_OF_PYTHON = frozenset({"PyFunc", "EagerPyFunc", "PyFuncStateless"})


def problems_in_new_process(
    path: str | os.PathLike[str],
    cases: Sequence[Case],
    tolerance: float = 1e-4,
    timeout: float = 1800,
) -> list[str]:
    """The problems that a new Python process finds with a SavedModel.

    That the process crashes, or hangs for `timeout` seconds, is a problem. The tolerance is the
    greatest difference of a float from its known value.
    """
    # The package is found from where it was imported, whatever the working directory is.
    root = str(pathlib.Path(__file__).resolve().parents[2])
    paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    # A GPU belongs to the process that exports; the check needs none, nor Keras 3, which
    # TensorFlow imports for a second unless it is told that models are of the Keras before.
    own = {"PYTHONPATH": paths, "CUDA_VISIBLE_DEVICES": "-1", "TF_USE_LEGACY_KERAS": "1"}
    environment = {**os.environ, **own}
    command = [sys.executable, "-m", "keras_tfmr.export.check", os.fspath(path), str(tolerance)]
    sent = pickle.dumps(cases)
    try:
        done = subprocess.run(
            command, input=sent, capture_output=True, env=environment, timeout=timeout
        )
    except subprocess.TimeoutExpired:
        return [f"the check did not end within {timeout} s"]
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        ending = "\n".join(done.stderr.decode(errors="replace").splitlines()[-10:])
        return [f"the check's process died with code {done.returncode}: {ending}"]


def main() -> None:
    """The new process: prints the problems as JSON."""
    path, tolerance = sys.argv[1:]
    cases = pickle.load(sys.stdin.buffer)
    print(json.dumps(problems_of(pathlib.Path(path), cases, float(tolerance))))


def problems_of(path: pathlib.Path, cases: Sequence[Case], tolerance: float) -> list[str]:
    """Checks a SavedModel in this process, which must have loaded no operations of others."""
    try:
        session = SavedSession(path)
    except Exception as error:  # any error of the loader is a problem to report
        return [f"it does not load: {first_lines(error)}"]
    # Most of an answer is the work of one thread.
    with session, concurrent.futures.ThreadPoolExecutor(compat.usable_cores()) as pool:
        # A graph whose operations the server lacks may still run here, which would prove nothing.
        if problems := missing_operations(session.meta_graph.graph_def):
            return problems
        answers = pool.map(lambda case: differences(session, case, tolerance), cases)
        problems = [problem for found in answers for problem in found]
        try:
            list(pool.map(lambda request: warmup.replay(session, request), warmup.read(path)))
        except ValueError as error:
            problems.append(str(error))
        return problems


def missing_operations(graph: Any) -> list[str]:
    """Why the server would refuse a `GraphDef`: sentences, one for each kind of operation.

    TensorFlow Text's operations must have been loaded, and none of others.
    """
    served = compat.registered_ops() - _YOUNGER - _OF_PYTHON
    problems: dict[str, str] = {}
    parts = [("the main graph", graph.node)]
    parts += [(part.signature.name, part.node_def) for part in graph.library.function]
    functions = {name for name, _ in parts}
    for where, nodes in parts:
        for node in nodes:
            # In old graphs, the name of an operation can be that of a function.
            if node.op not in functions and (problem := _problem(node, served)):
                problems.setdefault(problem, f"{problem} (node {node.name} in {where})")
    for part in graph.library.function:
        if part.attr[compat.MUST_COMPILE].b:
            problems["XLA"] = f"{part.signature.name} needs XLA, which the server does not enable"
    return list(problems.values())


def _problem(node, served):
    if node.op in _OF_PYTHON:
        return f"{node.op} calls Python, which the server does not have"
    if node.op not in served:
        return f"{node.op} is not an operation of TensorFlow Serving 2.20"
    if node.op.startswith("Xla"):
        return f"{node.op} needs XLA, which the server does not enable"
    younger = _YOUNGER_ATTRIBUTES.get(node.op, frozenset()) & set(node.attr)
    return f"the server does not know {node.op}'s {', '.join(sorted(younger))}" if younger else None


def differences(session: SavedSession, case: Case, tolerance: float) -> list[str]:
    """The differences between a session's answer and the known one."""
    name, inputs, known = case
    try:
        found = session.run(name, inputs)
    except Exception as error:  # any error of a kernel is a problem to report
        return [f"signature {name} fails: {first_lines(error)}"]
    return unlike(name, found, known, tolerance, "in process")


def unlike(name: str, found: Outputs, known: Outputs, tolerance: float, where: str) -> list[str]:
    """The differences between two answers of a signature to one request; texts must be equal.

    Args:
        name: The name of the signature.
        found, known: The answers.
        tolerance: The greatest difference of a float.
        where: The origin of the known answer, such as "in process".
    """
    if missing := sorted(known.keys() - found.keys()):
        return [f"signature {name} has no output {', '.join(missing)}"]
    return [
        f"signature {name}: output {alias} is {_short(found[alias])}, but {where} it is "
        f"{_short(expected)}"
        for alias, expected in known.items()
        if not _same(found[alias], expected, tolerance)
    ]


def _same(found, known, tolerance):
    if known.dtype == object:
        return np.array_equal(found, known)
    return found.shape == known.shape and np.allclose(found, known, tolerance, tolerance)


def _short(value: Any) -> str:
    return f"{' '.join(str(value).split()):.200}"


if __name__ == "__main__":
    main()
