"""Checks that a stock TensorFlow Serving 2.20 will load and serve a SavedModel.

    python -m keras_tfmr.export.check MODEL/1

The SavedModel may come from any exporter. In a separate process, and in a session as the server has
one, it checks that the server has every op, that no op is pinned to a device, that each variable is
stored once, that every signature runs for batches of 1, 3 and 0 rows and returns valid UTF-8, that
the warm-up file replays, and that `tf.saved_model.load` loads it, too.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from keras_tfmr import _command_line
from keras_tfmr.compat import usable_cores

# Requests with their answers, as `known_answers.record` makes them, or a function that gives them.
Cases = Iterable[dict[str, Any]] | Callable[[], Iterable[dict[str, Any]]]

BATCHES = (1, 3, 0)

# `FreshProcess` sends this line to its process when the SavedModel is complete.
_BEGIN = b"begin\n"


class ExportError(RuntimeError):
    """A model cannot be exported, or TensorFlow Serving would not serve the export correctly."""


@dataclasses.dataclass
class Report:
    """The result of a check.

    Attributes:
        problems: Reasons for which the server would not load the model or not answer correctly.
        notes: Information for those who run the server.
        facts: Sizes and counts, by name.
    """

    problems: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)

    def text(self, path: str | os.PathLike[str]) -> str:
        facts = ", ".join(f"{name} {value}" for name, value in self.facts.items())
        lines = [f"{path}: {'refused' if self.problems else 'sound'} ({facts})"]
        lines += [f"  problem: {problem}" for problem in self.problems]
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)


def check_saved_model(
    path: str | os.PathLike[str], cases: Cases = (), tolerance: float = 1e-4
) -> Report:
    """Checks a SavedModel in this process, which must not have loaded other op libraries.

    Args:
        path: The folder that holds `saved_model.pb`.
        cases: Requests with known answers, as `known_answers.record` makes them, or a function that
            returns them, called when they are needed.
        tolerance: The greatest difference of a float from its known value.

    Returns:
        A `Report`.
    """
    from keras_tfmr.export import graph_checks

    path = pathlib.Path(path)
    report = Report()
    if not (path / "saved_model.pb").is_file():
        report.problems.append(f"there is no saved_model.pb in {path}")
        return report
    meta_graph = graph_checks.read_meta_graph(path, report)
    if meta_graph is None:
        return report
    graph_checks.check_ops(meta_graph, report)
    graph_checks.check_devices(meta_graph, report)
    graph_checks.check_variables(path, meta_graph, report)
    # A graph whose ops the server lacks may still run here, which would prove nothing.
    if not report.problems:
        _check_running(path, cases, tolerance, report)
    return report


def _check_running(path, cases, tolerance, report):
    import tensorflow as tf

    from keras_tfmr.export import known_answers, saved_session, warmup

    report.facts["TensorFlow"] = tf.__version__
    try:
        session = saved_session.SavedSession(path)
    except Exception as error:  # any error of the loader is a problem to report
        report.problems.append(f"it does not load: {saved_session.first_lines(error)}")
        return
    with session, concurrent.futures.ThreadPoolExecutor(usable_cores()) as pool:
        report.facts["signatures"] = len(session.signatures)
        if not session.signatures:
            report.problems.append("it has no signature to call")
            return
        warm = warmup.read(path, report.problems)
        known = list(cases() if callable(cases) else cases)
        absent = {case["signature"] for case in known} - session.signatures.keys()
        report.problems += [f"there is no signature {name}" for name in sorted(absent)]
        ask = functools.partial(_ask, session, known, warm, tolerance)
        names = {*session.signatures, *(each.signature for each in warm)}
        # The first request to a signature is mostly work of one thread.
        for problems in pool.map(ask, _by_tensors(session, names)):
            report.problems += problems
        if not report.problems:
            report.problems += known_answers.load_as_users_do(session, path)
        report.facts["warm-up requests"] = len(warm)


def _by_tensors(session, names):
    """Lists of names; those of one list are signatures of the same tensors, prepared together."""
    lists = {}
    for name in sorted(names):
        tensors = session.tensors(name) if name in session.signatures else name
        lists.setdefault(tensors, []).append(name)
    return lists.values()


def _ask(session, cases, warm, tolerance, names):
    """Queries signatures one after the other; returns the problems."""
    from keras_tfmr.export import known_answers, warmup

    problems = []
    for name in names:
        if name in session.signatures:
            problems += known_answers.run_batches(session, name, BATCHES)
            own = [case for case in cases if case["signature"] == name]
            problems += known_answers.compare(session, own, tolerance)
        warmup.replay(session, [each for each in warm if each.signature == name], problems)
    return problems


class FreshProcess:
    """A new Python process that checks a SavedModel once it is complete.

    It imports TensorFlow, which takes seconds, while the SavedModel is still being written. Leaving
    the context ends it. The arguments are those of `check_saved_model`.
    """

    def __init__(self, path: str | os.PathLike[str], tolerance: float = 1e-4):
        command = [sys.executable, "-m", "keras_tfmr.export.check", str(path)]
        command += ["--child", str(tolerance), "--parent"]
        # The package is found from where it was imported, whatever the working directory is.
        root = str(pathlib.Path(__file__).resolve().parents[2])
        paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        # A GPU belongs to the process that exports; the check needs none.
        environment = {
            **os.environ, "PYTHONPATH": paths, "CUDA_VISIBLE_DEVICES": "-1",
            "KERAS_BACKEND": "tensorflow",
        }  # fmt: skip
        # The process ends when this end of a pipe is closed, however this process ends.
        watched, self._alive = os.pipe()
        self._process = subprocess.Popen(
            [*command, str(watched)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env=environment, pass_fds=[watched],
        )  # fmt: skip
        os.close(watched)

    def report(self, cases: Cases = (), timeout: float = 1800) -> Report:
        """Lets it begin, since the SavedModel is complete, and returns what it found.

        If the process crashes, or hangs for `timeout` seconds, this is a problem in the report.
        """
        process, begin = self._process, self._process.stdin
        assert begin is not None  # for the type checker: it is a pipe
        try:
            with contextlib.suppress(BrokenPipeError):  # it has died: see below
                # Not by the buffer, from which `communicate` would try to write it once more.
                os.write(begin.fileno(), _BEGIN)
            known = list(cases() if callable(cases) else cases)
            output, errors = process.communicate(pickle.dumps(known), timeout=timeout)
        except subprocess.TimeoutExpired:
            return Report([f"the check did not end within {timeout} s"])
        try:
            return Report(**json.loads(output.splitlines()[-1]))
        except (IndexError, ValueError, TypeError):
            ending = "\n".join(errors.decode(errors="replace").splitlines()[-10:])
            code = process.returncode
            return Report([f"the check's process died with code {code}: {ending}"])

    def __enter__(self) -> "FreshProcess":
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()  # if it is still there
        self._process.communicate()
        os.close(self._alive)


def _end_with(descriptor):
    """Ends this process as soon as the other end of a pipe is closed, that of its parent."""

    def watch():
        os.read(descriptor, 1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: prints a report; returns 0, or 1 if there are problems."""
    parser = _command_line.parser(__doc__, prog="python -m keras_tfmr.export.check")
    parser.add_argument("path", help="folder of the version, which holds saved_model.pb")
    # Of a `FreshProcess`: the tolerance; cases come through standard input.
    parser.add_argument("--child", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--parent", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child is None:
        report = check_saved_model(options.path)
        print(report.text(options.path))
    else:
        _end_with(options.parent)
        from keras_tfmr.export import graph_checks, known_answers, saved_session, warmup  # noqa: F401

        sys.stdin.buffer.readline()
        cases = functools.partial(pickle.load, sys.stdin.buffer)
        print(json.dumps(dataclasses.asdict(check_saved_model(options.path, cases, options.child))))
        return 0
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
