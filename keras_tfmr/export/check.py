"""The check of an export, in a new process: as TensorFlow Serving 2.20 will load and answer it.

Enters: the folder of a finished SavedModel, and requests with the answers of the text model that it
was made from. Leaves: a list of problems, as sentences. The process has loaded nothing of what made
the export. It checks that the server has every operation, that a session as the server's gives the
known answers and replays the warm-up file, and that `tf.saved_model.load` loads it, too.
"""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any

from keras_tfmr.compat import usable_cores

# Requests with their answers, as `known_answers.record` makes them.
Cases = Iterable[dict[str, Any]]

# `FreshProcess` sends this line to its process when the SavedModel is complete.
_BEGIN = b"begin\n"


class FreshProcess:
    """A new Python process that checks a SavedModel once it is complete.

    It imports TensorFlow, which takes seconds, while the SavedModel is still being written. It ends
    with the context.

    Args:
        path: The folder of the SavedModel.
        tolerance: The greatest difference of a float from its known value.
    """

    def __init__(self, path: str | os.PathLike[str], tolerance: float = 1e-4):
        # The package is found from where it was imported, whatever the working directory is.
        root = str(pathlib.Path(__file__).resolve().parents[2])
        paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        # A GPU belongs to the process that exports; the check needs none.
        environment = {
            **os.environ, "PYTHONPATH": paths, "CUDA_VISIBLE_DEVICES": "-1",
            "KERAS_BACKEND": "tensorflow",
        }  # fmt: skip
        self._process = subprocess.Popen(
            [sys.executable, __file__, os.fspath(path), str(tolerance)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
        )  # fmt: skip

    def problems(self, cases: Callable[[], Cases] = list, timeout: float = 1800) -> list[str]:
        """Lets it begin, since the SavedModel is complete, and returns the problems that it finds.

        That the process crashes, or hangs for `timeout` seconds, is a problem. `cases()` is called
        here while the process loads.
        """
        process, begin = self._process, self._process.stdin
        assert begin is not None  # for the type checker: it is a pipe
        try:
            with contextlib.suppress(BrokenPipeError):  # it has died: see below
                # Not by the buffer, from which `communicate` would try to write it once more.
                os.write(begin.fileno(), _BEGIN)
            output, errors = process.communicate(pickle.dumps(list(cases())), timeout=timeout)
        except subprocess.TimeoutExpired:
            return [f"the check did not end within {timeout} s"]
        try:
            return json.loads(output.splitlines()[-1])
        except (IndexError, ValueError):
            ending = "\n".join(errors.decode(errors="replace").splitlines()[-10:])
            return [f"the check's process died with code {process.returncode}: {ending}"]

    def __enter__(self) -> "FreshProcess":
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()  # if it is still there
        self._process.communicate()


def problems_of(
    path: str | os.PathLike[str], cases: Callable[[], Cases], tolerance: float
) -> list[str]:
    """Checks a SavedModel in this process, which must have loaded no operations of others."""
    from keras_tfmr.export import known_answers, served_ops, warmup
    from keras_tfmr.export.saved_session import SavedSession, first_lines

    try:
        session = SavedSession(path)
    except Exception as error:  # any error of the loader is a problem to report
        return [f"it does not load: {first_lines(error)}"]
    with session, concurrent.futures.ThreadPoolExecutor(usable_cores()) as pool:
        # A graph whose operations the server lacks may still run here, which would prove nothing.
        if problems := served_ops.problems_of(session.meta_graph.graph_def):
            return problems
        requests, known = warmup.read(path, problems), list(cases())

        def asked(name):
            """Known answers first, then the warm-up's requests: most are the work of one thread."""
            own = [case for case in known if case["signature"] == name]
            problems = known_answers.compare(session, own, tolerance)
            warm = [request for request in requests if request.signature == name]
            warmup.replay(session, warm, problems)
            return problems

        names = {case["signature"] for case in known} | {each.signature for each in requests}
        for more in pool.map(asked, sorted(names)):
            problems += more
    return problems or known_answers.load_as_users_do(path, known)


def main() -> None:
    """What the process of a `FreshProcess` does: it prints the problems as JSON."""
    path, tolerance = sys.argv[1:]
    from keras_tfmr.export import known_answers, served_ops, warmup  # noqa: F401  while it is written

    if sys.stdin.buffer.readline() == _BEGIN:
        problems = problems_of(path, lambda: pickle.load(sys.stdin.buffer), float(tolerance))
        print(json.dumps(problems))


if __name__ == "__main__":
    main()
