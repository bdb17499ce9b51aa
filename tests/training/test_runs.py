"""One run from a corpus to a SavedModel: its files, its console, who may write in its folder."""

import csv
import io
import json
import re
import time
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from tiny_runs import TINY, WORDS, history, last_arrays, small_phrasebook, train, write_pairs

from serving import export
from training import train_pt_en, translate
from training.command.disk import RunError, replacing, write_atomically
from training.command.process import Stop, peak_memory_mib
from training.corpus.sources import check_apart
from training.run import callbacks
from training.run.checkpoints import Checkpoints, damage, restore
from training.run.optimizer import Adam, WarmupCosine, assign_average, make_optimizer
from training.run.run_folder import RunFolder, begin, run_lock
from training.settings import training_config
from training.settings.training_config import FREE, TrainingConfig

MODEL = {"kind": "transformer", "config": {}}


@pytest.fixture
def words(whole, tmp_path):
    """A command that trains on the corpus of the finished run."""
    corpus = whole.parent / "pairs.tsv"
    return ("--data", corpus, "--output", tmp_path / "run", "--no_export", *TINY)


def test_the_console_says_what_happens_and_what_to_do_next(whole):
    said = (whole.parent / "said.txt").read_text(encoding="utf-8")
    *_, report, translate, serve = said.splitlines()
    assert report.split() == ["Report:", str(whole / "report.md")]
    assert translate.endswith(f"python training/translate.py {whole} < in.txt > out.txt")
    assert f"serving/server.py --model_base_path={whole / 'saved_model'} " in serve
    assert re.search(r"update 40: BLEU \d+\.\d\d, chrF \d+\.\d\d on 8 validation texts", said)
    for noise in ("cuda", "cpu_feature_guard", "absl", "oneDNN", "Warning", "\r"):
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
    assert len(pairs) == 40 and folder.sources(2) == [pair["source"] for pair in pairs[:2]]
    for file in (folder.curves, folder.attention):
        assert file.read_bytes().startswith(b"\x89PNG")
    assert any(folder.tensorboard.rglob("events*")) and (folder.saved_model / "1").exists()
    assert not list(folder.path.glob(".*"))  # neither a lock nor a partial file
    text = folder.report.read_text(encoding="utf-8")
    for part in ("# run", "## Results", "| BLEU |", "made 60 updates in", "with beam 2"):
        assert part in text
    for gap in ("None", "[]", "()", "| |", "nan"):
        assert gap not in text


def test_minutes_become_updates_of_several_batches(
    words, tmp_path, unevaluated, capsys, monkeypatch
):
    monkeypatch.setattr(callbacks, "SAID", 0.01)
    words = (*words, "--minutes", "0.2", "--gradient_accumulation_steps", "3", "--ema", "0")
    assert train(*words) == 0
    said = capsys.readouterr().out
    (steps,) = re.findall(r"are ([\d,]+) updates; --steps (\d+) repeats", said)
    lines = re.findall(r"update (\d+)(?: of (\d+))?, loss \S+, .* (\d\.\d) minutes left", said)
    assert lines[0][1] == "" and lines[-1][1:] == (steps[1], "0.0")
    config = RunFolder(tmp_path / "run").read_config()
    found = int(history(tmp_path / "run")[-1]["step"])
    assert config["arguments"]["steps"] == found == int(steps[1]) >= 10
    assert config["arguments"]["minutes"] is None and config["asked"]["minutes"] == 0.2
    arrays = last_arrays(tmp_path / "run")
    (batches,) = (array for name, array in arrays.items() if name.endswith("/iteration"))
    assert batches == 3 * found


def test_a_slow_machine_does_not_shorten_the_first_run(tmp_path, unevaluated, capsys, monkeypatch):
    """The phrasebook's number of updates belongs to its recipe; here both are short."""
    small_phrasebook(monkeypatch, tmp_path / "phrasebook", to_learn=200, others=20)
    monkeypatch.setitem(training_config.PHRASEBOOK_STEPS, "translation", 40)
    clock = SimpleNamespace(monotonic=lambda: 20_000 * time.monotonic())
    monkeypatch.setattr(callbacks, "time", clock)
    assert train("--output", tmp_path / "run", *TINY, "--vocab_size", 400) == 0
    assert history(tmp_path / "run")[-1]["step"] == "40"
    said = capsys.readouterr().out
    assert re.search(r"40 updates: about \d\d[\d.,]+ minutes at the present pace", said)


def test_a_loss_that_is_not_finite_ends_the_run(words, tmp_path, capsys):
    assert train(*words, "--steps", "40", "--learning_rate", "1e30") == 1
    assert "The loss was not finite at update" in capsys.readouterr().err
    assert not list((tmp_path / "run" / "checkpoints").glob("*"))


def test_a_command_that_fails_leaves_no_folder(tmp_path, capsys):
    folder = tmp_path / "run"
    words = ("--data", tmp_path / "none.tsv", "--output", folder, *TINY)
    assert train(*words) == 1
    assert "none.tsv: No such file or directory" in capsys.readouterr().err
    assert not folder.exists()
    folder.mkdir()
    (folder / "history.csv").touch()
    assert train(*words) == 1
    assert "would be overwritten" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["history.csv"]


def test_a_run_never_deletes_what_it_is_to_read(tmp_path, capsys):
    folder = RunFolder(tmp_path / "run")
    folder.write_config({"model": MODEL, "arguments": {}})
    write_pairs(folder.translations)
    (tmp_path / "link.tsv").symlink_to(folder.translations)
    aligned = ("--source", folder.config, "--target", folder.config)
    for data in (("--data", tmp_path / "l*.tsv"), aligned):
        assert train(*data, "--output", folder.path, "--overwrite", *TINY) == 1
        assert "which the run reads: move it away" in capsys.readouterr().err
    settings = TrainingConfig(init_from=str(folder.path), output=f"{tmp_path}/./run")
    with pytest.raises(RunError, match="must not be the run of --init_from"):
        check_apart(settings, folder)
    assert folder.translations.exists()


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


def test_one_process_at_a_time_writes_in_a_folder(tmp_path):
    with run_lock(RunFolder(tmp_path / "run")):
        with (
            pytest.raises(RunError, match="Another process"),
            run_lock(RunFolder(tmp_path / "run")),
        ):
            pass
        (tmp_path / "run" / "config.json").touch()
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["config.json"]


def test_what_stands_against_a_run_is_said(tmp_path):
    """What a repeat does is in test_killed.py."""
    folder, settings = RunFolder(tmp_path), TrainingConfig(minutes=9).resolved()
    folder.write_config(
        {"model": MODEL, "arguments": settings.to_dict() | {"precision": "float32"}}
    )
    for changes, message in (
        ({"seed": 2}, r"an unfinished run with other settings \(seed: 1, now 2\): repeat its"),
        ({"minutes": 8.0}, r"minutes: 9, now 8\.0.*; --steps N changes its length"),
        ({"precision": "mixed_bfloat16"}, "precision: float32, now mixed_bfloat16"),
    ):
        with pytest.raises(RunError, match=message):
            begin(folder, settings.to_dict() | changes, FREE)
    folder.results.touch()
    with pytest.raises(RunError, match="holds the finished run of this command"):
        begin(folder, settings.to_dict(), FREE, overwrite=True)
    (tmp_path / "mine").touch()
    assert begin(folder, settings.to_dict() | {"seed": 2}, FREE, overwrite=True) is None
    assert folder.results.exists()  # until the new run has read its corpus
    folder.clear()
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_an_earlier_run_stays_until_the_new_one_is_on_the_disk(tmp_path):
    folder, tokenizers = RunFolder(tmp_path), [SimpleNamespace(model_bytes=b"a")] * 2
    folder.begin({"model": MODEL, "arguments": {"data": ["caf\udce9.tsv"]}}, tokenizers, new=True)
    assert folder.read_config()["arguments"]["data"] == ["caf\udce9.tsv"]
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(TypeError):
        folder.begin({"model": MODEL}, [SimpleNamespace(model_bytes=None)] * 2, new=True)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    folder.begin({"model": MODEL, "arguments": {}}, tokenizers, new=True)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "tokenizer.model"}


def test_files_have_their_old_content_or_their_new_one(tmp_path):
    path = tmp_path / "a" / "file"
    write_atomically(path, "old")
    with pytest.raises(ZeroDivisionError), replacing(path) as temporary:
        temporary.write_text("new")
        1 / 0  # noqa: B018
    assert path.read_text() == "old" and len(list(path.parent.iterdir())) == 1
    with pytest.raises(RunError, match="Cannot write"):
        write_atomically(path / "file", "x")


def test_checkpoints_are_checked_before_they_are_used(tmp_path):
    checkpoints, said = Checkpoints(tmp_path, keep=2), []
    assert checkpoints.newest() is None
    variable = keras.Variable(np.zeros(3, "float32"))
    for step in (1, 2, 3):
        checkpoints.save(step, {"a": np.full(3, step, "float32")}, {"step": step})
    first, last = checkpoints.paths()
    assert (first.name, last.name) == ("step-000000002.npz", "step-000000003.npz")
    content = bytearray(last.read_bytes())
    content[content.index(np.float32(3).tobytes())] ^= 1
    last.write_bytes(content)
    assert damage(last) and checkpoints.newest(said.append) == first and "damaged" in said[0]
    restore(first, {"a": variable})
    assert keras.ops.convert_to_numpy(variable).tolist() == [2, 2, 2]
    for other in ({"b": variable}, {"a": keras.Variable(np.zeros(4, "float32"))}):
        with pytest.raises(RunError, match="another model"):
            restore(first, other)
    Checkpoints(tmp_path, keep=1).save(2, {"a": variable}, {"step": 2})
    assert checkpoints.paths() == [first] and checkpoints.newest() == first
    first.write_bytes(b"")
    with pytest.raises(RunError, match="All checkpoints"):
        checkpoints.newest(said.append)


@pytest.mark.parametrize("total", [100, 20])
def test_the_rate_warms_up_and_falls_to_zero_at_the_end(total):
    schedule, begin = WarmupCosine(2.0, 10, total_steps=total), min(10, total / 4)
    steps = np.arange(total + 1)
    fall = 0.5 + np.cos(np.pi * np.maximum(steps - begin, 0) / (total - begin)) / 2
    found = [float(schedule(n)) for n in steps]
    np.testing.assert_allclose(found, 2 * np.minimum((steps + 1) / 10, fall), atol=1e-6)


@pytest.mark.parametrize(
    ("batches", "warmup", "decided"), [(1, 800, 54), (3, 800, 54), (1, 50, 50)]
)
def test_a_busy_start_does_not_decide_how_many_updates_minutes_are(
    batches, warmup, decided, tmp_path, monkeypatch
):
    """By a quarter of the time or the end of the warm-up; no rate before depends on the number."""
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(callbacks, "time", clock)
    settings = TrainingConfig(
        minutes=4, warmup_steps=warmup, gradient_accumulation_steps=batches, data=("a",)
    ).resolved()
    folder, said = RunFolder(tmp_path), []
    folder.write_config({"model": MODEL, "arguments": settings.to_dict()})
    model = keras.Sequential([keras.layers.Dense(1)])
    model.config = type("Config", (), {"d_model": 2})
    model.build((None, 2))
    model.compile(make_optimizer(settings, model))
    rate, total = model.optimizer._learning_rate, model.optimizer.total_batches
    state = callbacks.RunState()
    budget = callbacks.Budget(state, settings, folder, 0.0, Stop(), said.append)
    budget.set_model(model)
    budget.on_train_begin()
    rates = []
    while not state.steps:
        rates.append(float(rate(batches * state.step)))
        clock.now += 2.0 if state.step < 20 else 0.6  # 40 s busy
        for batch in range(batches):
            budget.on_train_batch_end(batch)
    assert state.step == decided
    assert state.steps == 20 + int((240 - 40) / 0.6)
    assert f"{state.steps:,} updates" in said[0] and "minutes at the present pace" in said[1]
    assert float(total) == batches * state.steps
    assert rates == [float(rate(batches * step)) for step in range(decided)]
    assert folder.read_config()["arguments"]["steps"] == state.steps


@pytest.mark.parametrize("accumulated", [1, 2])
def test_averages_follow_the_weights_from_the_start(accumulated):
    """By the recurrence in NumPy; with accumulation they move as much in an update."""
    settings = TrainingConfig(
        steps=9, ema=0.9, gradient_accumulation_steps=accumulated, learning_rate=0.1
    ).resolved()
    layer, copy = (keras.Sequential([keras.layers.Dense(1)]) for _ in range(2))
    for model in (layer, copy):
        model.build((None, 2))
        model.config = type("Config", (), {"d_model": 2})
    optimizer = make_optimizer(settings, layer)
    assert type(optimizer) is Adam
    layer.compile(optimizer, "mse")
    optimizer.build(layer.trainable_variables)
    optimizer.total_batches.assign(100)
    average, kernel = None, layer.trainable_variables[0]
    for n in range(6 * accumulated):
        layer.train_on_batch(np.ones((4, 2), "float32"), np.full((4, 1), 3.0, "float32"))
        update = n // accumulated
        decay = min(0.9, update / (update + 9)) ** (1 / accumulated)
        weight = np.array(kernel)
        average = weight if average is None else decay * average + (1 - decay) * weight
    assign_average(layer, copy)
    np.testing.assert_allclose(np.array(copy.trainable_variables[0]), average, rtol=1e-4)


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
