"""Fixtures every test file may use; which tests run here.

Keras is imported by the tests that need it, so that the others start at once.
"""

import fcntl
import gc
import importlib.util
import multiprocessing
import os
import pathlib
import random
import shutil
import signal
import sys
from concurrent import futures

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("MPLBACKEND", "Agg")
# As many workers of pytest-xdist run as there are cores.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Scripts and processes that tests start run this checkout, wherever the project is installed from.
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(pathlib.Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH")])
)

import fresh_process
import pytest

# A shell that starts the tests in the background has Ctrl-C ignored, which tests send to processes.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    parser.addoption("--no_skips", action="store_true", help="a skipped test fails")


def pytest_collection_modifyitems(config, items):
    """Leaves out what is of another backend; skips what needs something that is not installed."""
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    others = [item for item in items if backend not in backends_of(item)]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if backend in backends_of(item)]
    for item in items:
        needed = {name for mark in item.iter_markers("needs") for name in mark.args}
        missing = [n for n in needed if not (importlib.util.find_spec(n) or shutil.which(n))]
        if missing:
            reason = f"needs {', '.join(missing)}: see CONTRIBUTING.md"
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish():
    """TensorFlow leaves the graphs of this process as they are traced, as most run once or twice.

    Those of scripts, servers and the checks of exports are optimised as ever.
    """
    if "tensorflow" in sys.modules:
        optimize_graphs(False)


def optimize_graphs(wanted):
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": not wanted})


def backends_of(item):
    mark = item.get_closest_marker("backends")
    return mark.args if mark else ("tensorflow", "jax", "torch")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    if report.skipped and item.config.getoption("no_skips"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped: {report.longrepr[-1]}"
    return report


@pytest.fixture(scope="module", autouse=True)
def little_to_collect():
    """What earlier files left is out of later collections: Keras asks for one per layer."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def seed():
    """Each test draws the same numbers whichever tests ran before it."""
    random.seed(0)
    if keras := sys.modules.get("keras"):
        keras.utils.set_random_seed(0)
        if keras.backend.backend() == "torch":  # see `helpers.learning`
            import torch

            torch.set_grad_enabled(False)
    yield
    if keras:
        keras.config.set_dtype_policy("float32")


@pytest.fixture
def optimized():
    """Graphs are optimised as in other processes: the numbers are theirs to the bit."""
    optimize_graphs(True)
    yield
    optimize_graphs(False)


@pytest.fixture(scope="session")
def fresh():
    """`fresh(path, arrays)` gives the outputs and weights of a saved model in another process."""
    spawn = multiprocessing.get_context("spawn")
    with futures.ProcessPoolExecutor(1, spawn, fresh_process.start) as pool:

        def there(path, arrays):
            return pool.submit(fresh_process.outputs_and_weights, path, arrays).result()

        yield there


@pytest.fixture(scope="session")
def once(tmp_path_factory):
    """`once(name, make)` is a folder that `make(folder)` fills, in one worker for all of them."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent

    def made(name, make):
        folder, done = base / f"once-{name}", base / f"once-{name}.done"
        with open(base / f"once-{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                make(folder)
                done.touch()
            return folder

    return made


def make_whole(folder):
    from tiny_runs import TINY, finished, start, write_pairs

    folder.mkdir()
    corpus = write_pairs(folder / "pairs.tsv")
    words = ("--data", corpus, "--output", folder / "run", *TINY, "joint_vocab=false")
    words += ("dropout_rate=0.3", "--vocab_size", "300", "--steps", "60", "--num_beams", "2")
    process = start(*words, "--no_export", KERAS_BACKEND="tensorflow")
    (folder / "said.txt").write_text(finished(process), encoding="utf-8")


@pytest.fixture(scope="session")
def whole(once):
    """The folder of a finished run of a tiny translator.

    Beside it are said.txt, what the command printed, and pairs.tsv, what it learned from.
    """
    return once("whole", make_whole) / "run"


@pytest.fixture
def unevaluated(monkeypatch):
    """Trainings in this process translate nothing: no scores, report or pictures."""
    from training.run import evaluate, report

    def measure(evaluator):
        return dict.fromkeys(evaluator.task.scores, 0.0), [""] * len(evaluator.rows)

    monkeypatch.setattr(evaluate.Evaluator, "measure", measure)
    monkeypatch.setattr(report, "finish", lambda *arguments: None)


@pytest.fixture(scope="session")
def translator(whole):
    from keras_tfmr import Translator

    return Translator.from_preset(whole)


@pytest.fixture(scope="session")
def version(once, whole):
    """The folder of the version that was exported from the finished run, and checked."""
    from serving import export

    def make(folder):
        assert export.main([str(whole), "--output", str(folder)]) == 0

    return once("saved_model", make) / "1"


@pytest.fixture(scope="module")
def session(version):
    from keras_tfmr.export.saved_session import SavedSession

    with SavedSession(version) as session:
        yield session
