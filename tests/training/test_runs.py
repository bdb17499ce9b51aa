"""One run from a corpus to a SavedModel: its files, its console, its length."""

import csv
import io
import json
import math
import re
from types import SimpleNamespace

import keras
import pytest
from tiny_runs import TINY, WORDS, history, last_arrays, train, write_pairs

from serving import export
from training import train_pt_en, translate
from training.command.disk import RunError, write_json
from training.command.scripts import peak_memory_mib
from training.run import budget, callback
from training.run.optimizer import make_optimizer
from training.run.run_folder import RunFolder
from training.settings.training_config import TrainingConfig

ENTRIES = {"model": {}, "text_model": {}, "tokenizers": {}}


@pytest.fixture
def words(whole, tmp_path):
    """A command that trains on the corpus of the finished run."""
    corpus = whole.parent / "pairs.tsv"
    return ("--data", corpus, "--output", tmp_path / "run", "--no_export", *TINY)


def test_the_console_says_what_happens_and_what_to_do_next(whole):
    said = (whole.parent / "said.txt").read_text(encoding="utf-8")
    first, *_, report, translate = said.splitlines()
    assert first == f"Run folder: {whole}"  # nothing of TensorFlow's log
    assert report.split() == ["Report:", str(whole / "report.md")]
    assert translate.endswith(f"python training/translate.py {whole} < in.txt > out.txt")
    assert re.search(r"update 40: BLEU \d+\.\d\d, chrF \d+\.\d\d on 8 validation texts", said)
    for noise in ("Traceback", "Warning", "\r"):
        assert noise not in said


def test_the_files_of_a_run(whole):
    folder, rows = RunFolder(whole), history(whole)
    assert [row["step"] for row in rows] == ["10", "20", "30", "40", "50", "60"]
    assert [bool(row["val_bleu"]) for row in rows] == [True, True, False, True, False, True]
    assert len(set(rows[0])) == len(rows[0]) == 8  # no column twice
    for row in rows:
        assert 0 < float(row["loss"]) < 10 and 0 < float(row["accuracy"]) <= 100
    assert float(rows[-1]["loss"]) < float(rows[0]["loss"])
    results = json.loads(folder.results.read_text())
    assert results["steps"] == 60 and results["peak_memory_mib"] > 100
    with folder.translations.open(encoding="utf-8") as lines:
        pairs = list(csv.DictReader(lines, delimiter="\t"))
    assert len(pairs) == 40 and folder.sources()[:2] == [pair["source"] for pair in pairs[:2]]
    for file in (folder.curves, folder.attention):
        assert file.read_bytes().startswith(b"\x89PNG")
    assert any(folder.tensorboard.rglob("events*"))
    assert [path.name for path in folder.path.glob(".*")] == [".lock"]  # and no partial file
    text = folder.report.read_text(encoding="utf-8")
    for part in ("# run", "## Results", "| BLEU |", "made 60 updates in", "with beam 2"):
        assert part in text
    for gap in ("None", "[]", "()", "| |", "nan"):
        assert gap not in text


@pytest.mark.ci
def test_minutes_become_updates_of_several_batches(
    words, tmp_path, unevaluated, capsys, monkeypatch
):
    monkeypatch.setattr(callback, "SAID", 0.01)
    words = (*words, "--minutes", "0.1", "--gradient_accumulation_steps", "3", "--ema", "0")
    words += ("--set", "warmup_steps=15")  # a row is of 10 updates
    assert train(*words) == 0
    said = capsys.readouterr().out
    (steps,) = re.findall(r"are ([\d,]+) updates; --steps (\d+) repeats", said)
    lines = re.findall(r"update (\d+)(?: of (\d+))?, loss \S+, .* (\d\.\d) minutes left", said)
    assert lines[0][1] == "" and lines[-1][1:] == (steps[1], "0.0")
    config = RunFolder(tmp_path / "run").read_config()
    found = int(history(tmp_path / "run")[-1]["step"])
    assert config["arguments"]["steps"] == found == int(steps[1]) >= 10
    assert config["arguments"]["minutes"] is None and config["minutes"] == 0.1
    arrays = last_arrays(tmp_path / "run")
    (batches,) = (array for name, array in arrays.items() if name.endswith("/iteration"))
    assert batches == 3 * found


def test_memory_is_counted_in_the_units_of_the_system(monkeypatch):
    used = peak_memory_mib()
    monkeypatch.setattr("sys.platform", "darwin")
    assert used // 1024 <= peak_memory_mib() <= used // 1024 + 1


def test_a_script_that_a_backend_cannot_run_says_so(whole, words, monkeypatch, capsys):
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"um\n")))
    for main, given in (
        (train_pt_en.main, words), (translate.main, [whole]), (export.main, [whole])
    ):  # fmt: skip
        assert main([str(word) for word in given]) == 1
        said, error = capsys.readouterr()
        assert re.search(r"error: \w+ing.* runs? on TensorFlow.* KERAS_BACKEND=torch\n$", error)
        assert not said and error.count("\n") == 1


@pytest.mark.parametrize(
    ("batches", "warmup", "decided"), [(1, 800, 54), (3, 800, 54), (1, 50, 50)]
)
def test_a_busy_start_does_not_decide_how_many_updates_minutes_are(
    batches, warmup, decided, tmp_path, monkeypatch
):
    """By a quarter of the time or the end of the warm-up; no rate before depends on the number."""
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(budget, "time", clock)
    settings = TrainingConfig(
        minutes=4, warmup_steps=warmup, gradient_accumulation_steps=batches, data=("a",)
    ).resolved()
    folder, said = RunFolder(tmp_path), []
    write_json(folder.config, {**ENTRIES, "arguments": settings.to_dict()})
    model = keras.Sequential([keras.layers.Dense(1)])
    model.build((None, 2))
    model.compile(make_optimizer(settings, 2))
    rate, total = model.optimizer._learning_rate, model.optimizer.total_batches
    state = budget.RunState()
    length = budget.Budget(state, settings, folder, 0.0, said.append)
    counted = callback.RunCallback(length, None, None, 9.0)
    counted.set_model(model)
    counted.on_train_begin()
    rates = []
    while not state.steps:
        rates.append(float(rate(batches * state.step)))
        clock.now += 2.0 if state.step < 20 else 0.6  # 40 s busy
        for batch in range(batches):
            counted.on_train_batch_end(batch)
    assert state.step == decided
    assert state.steps == 20 + int((240 - 40) / 0.6)
    assert f"{state.steps:,} updates" in said[0] and "minutes at the present pace" in said[1]
    assert float(total) == batches * state.steps
    assert rates == [float(rate(batches * step)) for step in range(decided)]
    assert folder.read_config()["arguments"]["steps"] == state.steps


@pytest.fixture
def validating(tmp_path):
    """The callback of a run, at its first update, whose validations give `scores` in turn."""
    settings = TrainingConfig(
        data=("a",), steps=90, patience=2, log_steps=10, validate_steps=10
    ).resolved()
    state, scores = budget.RunState(steps=90), []
    length = budget.Budget(state, settings, RunFolder(tmp_path), 0.0, lambda line: None)
    evaluator = SimpleNamespace(
        task=SimpleNamespace(scores=("bleu",)), sample=lambda *about: "", scores=scores,
        model=SimpleNamespace(trainable_variables=[]),
        measure=lambda: ({"bleu": scores.pop(0)}, ["text"]),
    )  # fmt: skip
    found = callback.RunCallback(length, evaluator, None, 9.0)
    optimizer = SimpleNamespace(variables=[], use_ema=False)
    model = SimpleNamespace(optimizer=optimizer, trainable_variables=[], stop_training=False)
    found.set_model(model)
    return found


@pytest.mark.parametrize(
    ("scores", "ended", "best"),
    [
        ([0, 0, 0, 0], None, 3),  # it has not begun to learn; the later weights
        ([0, 3, 3, 3, 3], None, 1),  # ties are no worse
        ([5, 0, 6, 4, 3], 4, 2),
        ([5, 4, 3, 9], 2, 0),
    ],
)
def test_patience_ends_a_run_after_two_worse_scores(scores, ended, best, validating):
    validating.evaluator.scores += scores
    chosen = []
    for number in range(len(scores)):
        validating.state.step += 10
        chosen += [number] * validating.validate({})
        if validating.model.stop_training:
            break
    assert (number if validating.model.stop_training else None, chosen[-1]) == (ended, best)


def test_a_loss_that_is_not_finite_ends_the_run(validating):
    """Before it is validated or saved."""
    validating.on_epoch_begin(0)
    validating.state.step += 10
    with pytest.raises(RunError, match=r"not finite at update 10: lower --learning_rate"):
        validating.on_epoch_end(0, {"loss": math.nan})


@pytest.mark.slow
def test_the_default_recipe_learns_a_toy(tmp_path):
    """A floor for BLEU in a short form; the README's figure is measured by its own command."""
    names = "one two three four five six seven eight nine ten"
    english = dict(zip(WORDS, names.split(), strict=True))
    data = write_pairs(tmp_path / "pairs.tsv", 4000, translate=lambda text: map(english.get, text))
    words = ("--data", data, "--output", tmp_path / "run", *TINY, "d_model=64")
    more = ("checkpoint_minutes=1", "validation_pairs=40", "log_steps=100")
    assert train(*words, *more, "--no_export", "--steps", "500", "--validate_steps", "500") == 0
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["validation_bleu"] > 40
