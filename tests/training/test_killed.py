"""No run is ever lost: trainings killed at every moment and repeated with every option. And a stop
stops: a signal at every moment, after which a repeat ends like a run that nobody disturbed.

The command is the real one, with its folder, checkpoints and callbacks; the model, whose weight is
the number of its updates, the corpus and the evaluation are stand-ins, so that a run takes
milliseconds. A moment is a change of the disk: from there on nothing can change it, not even what
cleans up, as if the process had been killed.
"""

import contextlib
import dataclasses
import io
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from keras_tfmr.presets import folder as presets
from training import data, train
from training.command.disk import RunError, sha256, write_atomically, write_json
from training.command.process import Stop
from training.run import callbacks, device, evaluate, optimizer, report, run_folder
from training.run.checkpoints import Checkpoints
from training.settings.training_config import TrainingConfig

CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir")
TINY = {
    "preset": "tiny", "log_steps": 2, "validate_steps": 4, "warmup_steps": 6, "num_beams": 2,
    "checkpoint_minutes": 1e-9, "max_checkpoints": 2,
}  # fmt: skip
RUNS = {
    "updates": {"steps": 8},
    "minutes": {"minutes": 0.08},
    "patience": {"steps": 40, "patience": 1},
    "score": {"steps": 40, "target_score": 36},
}
# The settings of a repeat that differ, None for those of config.json; whether an unfinished run may
# go on with them.
REPEATS = {
    "as before": ({}, True),
    "another evaluation": ({"num_beams": 3, "validate_steps": 2}, True),
    "longer": ({"steps": 14, "minutes": None}, True),
    "shorter": ({"steps": 3, "minutes": None}, True),
    "other minutes": ({"steps": None, "minutes": 0.1}, False),
    "another seed": ({"seed": 2}, False),
    "another corpus": ({"data": ("others.tsv",)}, False),
    "config.json": (None, True),
}
# Each moment is tried with a few of these, in turn, and the end with all; `twice`: the repeat is
# killed too.
WAYS = [*itertools.product(REPEATS, (False, True), (False, True), ("tensorflow", "jax"))]
EACH = 2


class Killed(BaseException):
    """Raised in place of a kill."""


class Disk:
    """Counts the changes of the disk; from number `last` on, it refuses them."""

    count, last = 0, None

    def listen(self, event, about):
        writes = event == "open" and isinstance(about[1], str) and {*about[1]} & {*"wax+"}
        if self.last is not None and (writes or event in CHANGES):
            self.count += 1
            if self.count > self.last:
                raise Killed


DISK = Disk()


class Happening(list):
    """What happens in runs; a signal arrives when it is so long."""

    length, signal = None, None

    def __call__(self, what):
        self.append(what)
        if len(self) == self.length:
            signal.raise_signal(self.signal)


HAPPENS = Happening()


class Weight:
    def __init__(self, path):
        self.path, self.value = path, np.zeros((), "float32")

    shape = ()

    def assign(self, value):
        self.value = np.asarray(value, "float32")

    def __array__(self, dtype=None, copy=None):
        return self.value


class Optimizer:
    use_ema, learning_rate = False, 0.1

    def __init__(self, *about):
        self.total_batches = Weight("total_batches")
        self.variables = [self.total_batches]

    def build(self, variables):
        pass


class Model:
    """Its weight is the number of updates, its loss the sum of these over a row."""

    def __init__(self):
        self.metrics_variables = [Weight("loss")]
        self.metrics = [SimpleNamespace(variables=self.metrics_variables)]
        self.variables = self.trainable_variables = [Weight("weight")]
        self.optimizer, self.stop_training = None, False

    def compile(self, optimizer, **about):
        self.optimizer = optimizer

    def count_params(self):
        return 1

    def save_weights(self, path):
        path.write_text(str(int(self.variables[0].value)))

    def fit(self, data, *, steps_per_epoch, initial_epoch, epochs, callbacks, **about):
        def call(name, *given):
            for callback in callbacks:
                getattr(callback, name)(*given)

        (weight,), (loss,) = self.variables, self.metrics_variables
        assert weight.value == callbacks[0].state.step
        call("set_model", self)
        call("on_train_begin")
        for epoch in range(initial_epoch, epochs):
            loss.assign(0.0)
            call("on_epoch_begin", epoch)
            for batch in range(steps_per_epoch):
                HAPPENS("update")
                weight.assign(weight.value + 1)
                loss.assign(loss.value + weight.value)
                logs = {"loss": float(loss.value), "accuracy": 0.5}
                call("on_train_batch_end", batch, logs)
                if self.stop_training:
                    break
            call("on_epoch_end", epoch, logs)
            if self.stop_training:
                return


def score(step):
    """The score of the weights after so many updates: the best ones are not the last."""
    return 30 + 7 * step % 11


class Evaluator:
    def __init__(self, task, model, *about):
        self.task, self.model = task, model

    def measure(self):
        HAPPENS("validation")
        return {"bleu": score(int(self.model.variables[0].value))}, ["text"]

    def sample(self, *about):
        return "text"


class Task:
    kind, classes, scores = "transformer", None, ("bleu",)

    def __init__(self, tokenizers):
        self.tokenizers = tokenizers

    def config(self):
        return SimpleNamespace(to_dict=lambda: {"d_model": 1})

    def model(self, *about):
        return Model()

    def loss(self, tokens):
        pass

    def metrics(self):
        return []


def read_corpus(settings, folder, before, *about):
    HAPPENS("corpus")
    known = folder.tokenizers() if before else None
    tokenizers = known or (SimpleNamespace(model_bytes=b"a"), SimpleNamespace(model_bytes=b"b"))
    write_json(folder.encoded / "store.json", {})
    files = [{"path": path, "sha256": sha256(path)} for path in settings.data]
    batches = SimpleNamespace(
        nominal_tokens=1, dataset=lambda skip: skip, empty=list, buckets=[], batches_in=lambda n: 5
    )
    about = ([], [], settings.steps or 0, {"train": {"files": files}}, "")
    return data.Data(Task(tokenizers), batches, *about)


def finish(settings, task, folder, data, state):
    """Writes what the real one does, in its order."""
    HAPPENS("evaluation")
    write_atomically(folder.report, "report")
    folder.clear_exports()
    unfinished = folder.saved_model / ".unfinished-1"
    unfinished.mkdir(parents=True)
    HAPPENS("export")
    (unfinished / "saved_model.pb").write_text("export")
    unfinished.rename(folder.saved_model / "1")
    best = score(int(folder.best.read_text()))
    write_json(folder.results, {"steps": state.step, "best": best, "num_beams": settings.num_beams})


def finish_on_tensorflow(folder):
    config = folder.read_config()
    state = callbacks.RunState.of(Checkpoints(folder.checkpoints).newest(), 0)
    finish(SimpleNamespace(**config["arguments"]), None, folder, None, state)


@pytest.fixture
def stand_ins(monkeypatch):
    """The stand-ins in the places of the slow parts."""
    ticks = itertools.count()
    for module, name, value in (
        (data, "prepare", read_corpus),
        (evaluate, "Evaluator", Evaluator),
        (optimizer, "make_optimizer", Optimizer),
        (report, "finish", finish),
        (report, "finish_on_tensorflow", finish_on_tensorflow),
        (device, "compile_ahead", lambda *about: 0.0),
        (run_folder, "versions", lambda *names: {}),
        (presets, "load_tokenizer", lambda path: SimpleNamespace(model_bytes=path.read_bytes())),
        (keras.utils, "set_random_seed", lambda seed: None),
        (keras.callbacks, "TensorBoard", lambda *about, **more: keras.callbacks.Callback()),
        (os, "fsync", lambda handle: None),
        (callbacks, "time", SimpleNamespace(monotonic=lambda: next(ticks) / 8)),
        (callbacks, "MEASURED", 2),
    ):
        monkeypatch.setattr(module, name, value)
    if not hasattr(sys, "_killed_runs"):
        sys.addaudithook(DISK.listen)  # which cannot be taken away again
        sys._killed_runs = True


def start(settings, monkeypatch, backend="tensorflow", last=sys.maxsize):
    """Trains until so many changes of the disk; whether it ended well, None if it was refused."""
    monkeypatch.setattr(keras.backend, "backend", lambda: backend)
    monkeypatch.setattr(train, "STARTED", callbacks.time.monotonic())
    DISK.count, DISK.last = 0, last
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            train.train(settings, Stop())
        return True
    except RunError:
        return None
    except Killed:
        return False
    finally:
        DISK.last = None


def left(path):
    """What is left of a run: its config, best score, last update and results."""
    folder = run_folder.RunFolder(path)
    newest = Checkpoints(folder.checkpoints).newest()
    return SimpleNamespace(
        config=folder.read_config() if folder.config.exists() else None,
        best=score(int(folder.best.read_text())) if folder.best.exists() else -1,
        step=callbacks.RunState.of(newest, 0).step,
        results=json.loads(folder.results.read_text()) if folder.results.exists() else None,
    )


def repeated(first, name, overwrite):
    """The settings of a repeat."""
    changes, config = REPEATS[name][0], run_folder.RunFolder(first.output).config
    if changes is None:
        known = json.loads(config.read_text())["arguments"] if config.exists() else {}
        changes = known | {"data": first.data, "output": first.output, "filters": ()}
        changes = {n: tuple(v) if isinstance(v, list) else v for n, v in changes.items()}
    return TrainingConfig(**first.to_dict() | changes | {"overwrite": overwrite}).resolved()


def check(first, name, overwrite, backend, whole, monkeypatch):
    """Repeats a command, and holds the disk against what the folder promises.

    `whole`: the results of a run that nobody disturbed.
    """
    before, settings = left(first.output), repeated(first, name, overwrite)
    changes = run_folder._changes(before.config, settings.to_dict()) if before.config else {}
    fresh = not before.config or (overwrite and changes)
    refused = not fresh and (before.results or (changes and not REPEATS[name][1]))
    assert bool(changes) <= (name not in ("as before", "config.json"))
    done = start(settings, monkeypatch, backend)
    now = left(first.output)
    if refused:
        assert done is None and now == before
        return
    assert done and now.results == {
        "best": now.best, "steps": now.step, "num_beams": settings.num_beams
    }  # fmt: skip
    assert now.config["arguments"]["num_beams"] == settings.num_beams, "what translate.py reads"
    if not fresh:
        assert now.best >= before.best and now.step >= before.step
    if not changes:
        assert not [*Path(first.output).rglob(".*")], "partial files"
    if name in ("as before", "config.json"):
        fixed = before.config and before.config["arguments"]["steps"]
        assert now.results["steps"] == fixed if first.minutes and fixed else now.results == whole


@pytest.mark.parametrize("kind", RUNS)
def test_whatever_the_moment_of_a_kill_and_the_repeat(kind, stand_ins, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("pairs", "others"):
        Path(f"{name}.tsv").write_text(f"{name}\t{name}\n")
    fields = {**TINY, "data": ("pairs.tsv",), "output": "run", **RUNS[kind]}
    first, ways, tried = TrainingConfig(**fields).resolved(), itertools.cycle(WAYS), 0
    assert start(first, monkeypatch)
    changes, whole = DISK.count, left("run").results
    for moment in range(changes + 1):
        shutil.rmtree("run")
        start(first, monkeypatch, last=moment)
        Path("run").mkdir(exist_ok=True)
        shutil.copytree("run", "killed")
        for name, overwrite, twice, backend in itertools.islice(
            ways, EACH if moment < changes else len(WAYS)
        ):
            shutil.rmtree("run")
            shutil.copytree("killed", "run")
            if twice:
                start(first, monkeypatch, backend, last=(moment + tried) % 19)
            try:
                check(first, name, overwrite, backend, whole, monkeypatch)
            except AssertionError as error:
                way = (moment, name, overwrite, twice, backend)
                raise AssertionError(f"{way}: {error}") from error
            tried += 1
        shutil.rmtree("killed")
    print(f"{tried} combinations")
    assert tried > 150


AFTER = ([], ["checkpoint"], ["update", "checkpoint"])


def rows_of(path):
    """history.csv, without what a clock says."""
    lines = run_folder.RunFolder(path).history.read_text().splitlines()
    return [line.split(",")[:1] + line.split(",")[2:5] + line.split(",")[6:] for line in lines]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_any_moment_stops_and_loses_nothing(number, stand_ins, monkeypatch, tmp_path):
    """An update and a checkpoint at most follow it, and a repeat makes no update twice."""
    monkeypatch.chdir(tmp_path)
    Path("pairs.tsv").write_text("a\tb\n")
    fields = {**TINY, "data": ("pairs.tsv",), "steps": 12, "log_steps": 4, "output": "whole"}
    whole = TrainingConfig(**fields).resolved()
    save = Checkpoints.save
    monkeypatch.setattr(Checkpoints, "save", lambda *about: [HAPPENS("checkpoint"), save(*about)])
    HAPPENS.length, HAPPENS.signal = None, number
    HAPPENS.clear()
    assert start(whole, monkeypatch)
    moments, settings = [*HAPPENS], dataclasses.replace(whole, output="run")
    assert {*moments} == {"corpus", "update", "checkpoint", "validation", "evaluation", "export"}
    for HAPPENS.length, moment in enumerate(moments, 1):
        HAPPENS.clear()
        assert train.command("train", settings) == 128 + number, moment
        assert HAPPENS[HAPPENS.length :] in AFTER, moment
        assert train.command("train", settings) == 0
        assert HAPPENS.count("update") == moments.count("update"), moment
        assert rows_of("run") == rows_of("whole"), moment
        assert left("run").results == left("whole").results
        shutil.rmtree("run")


DEAF = """
import hashlib, sys
from training.command import process
process.GRACE = 0.2
def work():
    print("begun", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
sys.exit(process.command("deaf", work))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_ends_whatever_it_is_in_the_middle_of(number):
    """Here in C code of an hour, which no exception reaches."""
    with subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"begun\n"
        begun = time.monotonic()
        process.send_signal(number)
        assert process.wait(60) == 128 + number and time.monotonic() - begun < 5
