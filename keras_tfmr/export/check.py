"""The check of an export, in a new process: as TensorFlow Serving 2.20 will load and answer it.

Enters: the folder of a finished SavedModel, and requests with the answers of the text model that it
was made from. Leaves: a list of problems, as sentences. The process has loaded nothing of what made
the export. It checks that the server has every operation, and that a session as the server's gives
the known answers and replays the warm-up file.
"""

import concurrent.futures
import json
import os
import pathlib
import pickle
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from keras_tfmr.compat import usable_cores
from keras_tfmr.export import served_ops, warmup
from keras_tfmr.export.saved_session import SavedSession, first_lines

# (signature, inputs, outputs) of requests with their answers: see `known_answers.record`.
Cases = Iterable[tuple[str, dict, dict]]


class FreshProcess:
    """A new Python process that checks a SavedModel once it is complete.

    It imports TensorFlow, which takes seconds, while the SavedModel is still being written. It ends
    with the context, or with this process, which holds the other end of its standard input.

    Args:
        path: The folder of the SavedModel.
        tolerance: The greatest difference of a float from its known value.
    """

    def __init__(self, path: str | os.PathLike[str], tolerance: float = 1e-4):
        # The package is found from where it was imported, whatever the working directory is.
        root = str(pathlib.Path(__file__).resolve().parents[2])
        paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        # A GPU belongs to the process that exports; the check needs none.
        environment = {**os.environ, "PYTHONPATH": paths, "CUDA_VISIBLE_DEVICES": "-1"}
        command = [sys.executable, "-m", "keras_tfmr.export.check", os.fspath(path), str(tolerance)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment
        )

    def problems(self, cases: Cases, timeout: float = 1800) -> list[str]:
        """The problems that it finds with a SavedModel, which is complete.

        That the process crashes, or hangs for `timeout` seconds, is a problem.
        """
        sent = pickle.dumps([tuple(case) for case in cases])
        try:
            output, errors = self._process.communicate(sent, timeout=timeout)
        except subprocess.TimeoutExpired:
            return [f"the check did not end within {timeout} s"]
        try:
            return json.loads(output.splitlines()[-1])
        except (IndexError, ValueError):
            ending = "\n".join(errors.decode(errors="replace").splitlines()[-10:])
            return [f"the check's process died with code {self._process.returncode}: {ending}"]

    def __enter__(self) -> "FreshProcess":
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()  # if it is still there
        self._process.communicate()


def problems_of(path: pathlib.Path, cases: Cases, tolerance: float) -> list[str]:
    """Checks a SavedModel in this process, which must have loaded no operations of others."""
    try:
        session = SavedSession(path)
    except Exception as error:  # any error of the loader is a problem to report
        return [f"it does not load: {first_lines(error)}"]
    with session, concurrent.futures.ThreadPoolExecutor(usable_cores()) as pool:
        # A graph whose operations the server lacks may still run here, which would prove nothing.
        if problems := served_ops.problems_of(session.meta_graph.graph_def):
            return problems
        try:
            requests = warmup.read(path)
        except ValueError as error:
            return [str(error)]

        def asked(name):
            """Known answers first, then the warm-up's requests: most are the work of one thread."""
            problems = []
            for signature, inputs, outputs in cases:
                if signature == name:
                    problems += differences(session, name, inputs, outputs, tolerance)
            try:
                warmup.replay(session, [each for each in requests if each.signature == name])
            except ValueError as error:
                problems.append(str(error))
            return problems

        names = {name for name, *_ in cases} | {each.signature for each in requests}
        return [problem for problems in pool.map(asked, sorted(names)) for problem in problems]


def differences(
    session: SavedSession,
    name: str,
    inputs: dict[str, np.ndarray],
    known: dict[str, np.ndarray],
    tolerance: float,
) -> list[str]:
    """Where a session's answer differs from the known one; texts must be equal."""
    try:
        found = session.run(name, inputs)
    except Exception as error:  # any error of a kernel is a problem to report
        return [f"signature {name} fails: {first_lines(error)}"]
    if missing := sorted(known.keys() - found.keys()):
        return [f"signature {name} has no output {', '.join(missing)}"]
    return [
        f"signature {name}: output {alias} is {_short(found[alias])}, but in process it is "
        f"{_short(known[alias])}"
        for alias in known
        if not _same(found[alias], known[alias], tolerance)
    ]


def _same(found, known, tolerance):
    if found.shape != known.shape:
        return False
    if known.dtype == object:
        return bool(np.all(found == known))
    return np.allclose(found, known, rtol=tolerance, atol=tolerance)


def _short(value: Any) -> str:
    return f"{' '.join(str(value).split()):.200}"


def main() -> None:
    """What the process of a `FreshProcess` does: it prints the problems as JSON."""
    path, tolerance = sys.argv[1:]
    if sent := sys.stdin.buffer.read():  # after the imports above, when the SavedModel is complete
        print(json.dumps(problems_of(pathlib.Path(path), pickle.loads(sent), float(tolerance))))


if __name__ == "__main__":
    main()
