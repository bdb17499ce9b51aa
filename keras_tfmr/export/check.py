"""Checks that a stock TensorFlow Serving 2.20 will load and serve a SavedModel, whoever made it.

    python -m keras_tfmr.export.check MODEL/1

It checks, in a process of its own and through the server's own loader, that every op is one the
server has, that nothing is pinned to a device, that each variable is stored once, that every
signature runs for batches of 1, 3 and 0 rows with valid UTF-8 in its strings, and that the warm-up
file replays. Given answers of the model it was exported from, it compares them with the file's.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from keras_tfmr import _command_line
from keras_tfmr.export import compile_cache

# Questions with known answers, as `questions.record` makes them, or a function that returns them.
Cases = Iterable[dict[str, Any]] | Callable[[], Iterable[dict[str, Any]]]

BATCHES = (1, 3, 0)

# Sessions of one check, each with a share of the signatures: they are prepared, compiled and asked
# side by side. One session compiles a function for one size after the other.
SESSIONS = 2


class ExportError(RuntimeError):
    """A SavedModel that TensorFlow Serving would not serve rightly; the message says why."""


@dataclasses.dataclass
class Report:
    """What a check found.

    Attributes:
        problems: what keeps the server from loading the model or from answering rightly.
        notes: what whoever runs the server should know.
        facts: sizes and counts, by name.
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
    path: str | os.PathLike[str],
    cases: Cases = (),
    tolerance: float = 1e-4,
    xla: bool = False,
) -> Report:
    """Checks a SavedModel in this process, which must not have loaded op libraries of its own.

    Args:
        path: the folder that holds `saved_model.pb`.
        cases: questions with known answers, as `questions.record` makes them, or a function that
            returns them, called when they are needed.
        tolerance: how far a float may be from its known answer.
        xla: whether the server will be started with `--xla_cpu_compilation_enabled`.

    Returns:
        A `Report`.
    """
    from keras_tfmr.export import graph_checks, saved_session

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
    # A graph the server has no ops for could at best run here by accident.
    if not report.problems:
        with contextlib.ExitStack() as stack:
            if not xla:
                with _noted(report, "XLA could not be turned off, as the server has it"):
                    stack.enter_context(saved_session.without_compilation())
            _check_running(path, cases, tolerance, report)
    return report


@contextlib.contextmanager
def _noted(report, what):
    """Turns what this TensorFlow cannot be asked for into a note."""
    from keras_tfmr.export import saved_session

    try:
        yield
    except saved_session.NotExportedError as error:
        report.notes.append(f"{what}: {error}")


def _check_running(path, cases, tolerance, report):
    from keras_tfmr.export import questions, saved_session, warmup

    error = None
    with _noted(report, "the server's own loader could not be asked"):
        error = saved_session.native_load_error(path)
    if error:
        report.problems.append(f"the server's loader says: {error}")
        return
    with contextlib.ExitStack() as stack, concurrent.futures.ThreadPoolExecutor(SESSIONS) as pool:
        try:
            loaded = pool.map(saved_session.SavedSession, [path] * SESSIONS)
            sessions = [stack.enter_context(session) for session in loaded]
        except Exception as error:  # what TensorFlow says of a model it cannot load is the finding
            report.problems.append(f"it does not load: {questions.first_lines(error)}")
            return
        signatures = sessions[0].signatures
        report.facts["signatures"] = len(signatures)
        if not signatures:
            report.problems.append("it has no signature to call")
        warm = warmup.read(path, report.problems)
        parts = range(SESSIONS)
        if compile_cache.folder_in_use():
            # The requests of one signature are one for each program; the rest finds them there.
            programs = [request for request in warm if request.signature == warm[0].signature]
            shares = [programs[part::SESSIONS] for part in parts]
            list(pool.map(warmup.replay, sessions, shares, [[] for _ in parts]))
        known = cases() if callable(cases) else cases
        ask = functools.partial(_ask, known, warm, tolerance, _parts(signatures))
        for problems in pool.map(ask, sessions, parts):
            report.problems += problems
        report.facts["warm-up requests"] = len(warm)


def _parts(signatures):
    """{signature: which session it is asked of}: the same tensors are prepared in one alone."""
    groups = {}
    for name, definition in signatures.items():
        tensors = (*definition.inputs.values(), *definition.outputs.values())
        groups.setdefault(frozenset(info.name for info in tensors), []).append(name)
    return {name: place % SESSIONS for place, names in enumerate(groups.values()) for name in names}


def _ask(cases, warm, tolerance, parts, session, part):
    """Asks a session for its part of the signatures; returns the problems."""
    from keras_tfmr.export import questions, warmup

    def mine(name):
        return parts.get(name, 0) == part

    problems = []
    for name in filter(mine, session.signatures):
        problems += questions.run_batches(session, name, BATCHES)
    own = [case for case in cases if mine(case["signature"])]
    problems += questions.compare(session, own, tolerance)
    warmup.replay(session, [each for each in warm if mine(each.signature)], problems)
    return problems


def check_in_fresh_process(
    path: str | os.PathLike[str],
    cases: Cases = (),
    tolerance: float = 1e-4,
    xla: bool = False,
    timeout: float = 1800,
    cache: str | os.PathLike[str] | None = None,
) -> Report:
    """`check_saved_model` in a new Python process, as a server would meet the SavedModel.

    Args:
        path: the folder that holds `saved_model.pb`.
        cases: questions with known answers, as `questions.record` makes them, or a function that
            returns them, called while the process starts and compiles.
        tolerance: how far a float may be from its known answer.
        xla: whether the server will be started with `--xla_cpu_compilation_enabled`.
        timeout: seconds after which the check counts as failed.
        cache: a folder for the programs that XLA compiles, or None.

    Returns:
        A `Report`. A crash or a hang of the process is a problem like any other.
    """
    command = [sys.executable, "-m", "keras_tfmr.export.check", str(path), "--json"]
    command += ["--tolerance", str(tolerance), "--cases", "-", *(["--xla"] if xla else [])]
    # The package is found from where it was imported, whatever the working directory is.
    root = str(pathlib.Path(__file__).resolve().parents[2])
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=_environment(root, cache),
    )  # fmt: skip
    try:
        known = list(cases() if callable(cases) else cases)
        output, errors = process.communicate(json.dumps(known), timeout=timeout)
    except subprocess.TimeoutExpired:
        return Report([f"the check did not end within {timeout} s"])
    finally:
        process.kill()  # if it is still there
        process.wait()
    try:
        return Report(**json.loads(output.splitlines()[-1]))
    except (IndexError, ValueError, TypeError):
        ending = "\n".join(errors.splitlines()[-10:])
        return Report([f"the check's process died with code {process.returncode}: {ending}"])


def _environment(root, cache):
    paths = [root, os.environ.get("PYTHONPATH", "")]
    # A GPU belongs to the process that exports; the check needs none.
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "CUDA_VISIBLE_DEVICES": "-1",
        "KERAS_BACKEND": "tensorflow",
        **({} if cache is None else {"TF_XLA_FLAGS": compile_cache.flags(cache)}),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: prints a report and returns 0 for a sound SavedModel, 1 for another."""
    parser = _command_line.parser(__doc__, prog="python -m keras_tfmr.export.check")
    parser.add_argument("path", help="the version's folder, with saved_model.pb in it")
    parser.add_argument("--cases", help="JSON file of known answers; -: standard input")
    parser.add_argument(
        "--tolerance", type=float, default=1e-4, help="how far a float may be from its known answer"
    )
    parser.add_argument(
        "--xla", action="store_true", help="for a server with --xla_cpu_compilation_enabled"
    )
    parser.add_argument("--json", action="store_true", help="one line of JSON instead of text")
    options = parser.parse_args(arguments)
    report = check_saved_model(
        options.path, lambda: _read_cases(options.cases), options.tolerance, options.xla
    )
    if options.json:
        print(json.dumps(dataclasses.asdict(report)))
    else:
        print(report.text(options.path))
    return 1 if report.problems else 0


def _read_cases(source):
    if source is None:
        return []
    text = sys.stdin.read() if source == "-" else pathlib.Path(source).read_text(encoding="utf-8")
    return json.loads(text)


if __name__ == "__main__":
    sys.exit(main())
