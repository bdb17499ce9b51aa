"""A student learns what its teacher translates, in one command that survives a kill."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("training needs TensorFlow", allow_module_level=True)

from test_translate import TEXTS, flat
from translators import LINES, tiny_model, tiny_translator, write_run

from training import distill
from training.report.evaluation import corpus_scores
from training.run.student import Student

ROOT = Path(__file__).resolve().parents[2]
STUDENT = (
    "--steps", "4", "--d_model", "16", "--num_heads", "2", "--dff", "32", "--encoder_layers", "2",
    "--tokens_per_batch", "128", "--warmup_steps", "2", "--no_export",
    "--precision", "float32", "--filters", "identical",
)  # fmt: skip
REFERENCES = LINES[3:]


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """A finished run with a tiny model of random weights."""
    folder = write_run(tmp_path_factory.mktemp("teacher") / "run", beams=3, length_penalty=0.6)
    rows = [f"{a}\t{b}\tx\t0\t0" for a, b in zip(LINES[:3], REFERENCES, strict=True)]
    header = "source\treference\thypothesis\tscore\tchrf"
    (folder / "translations.tsv").write_text("\n".join([header, *rows]) + "\n")
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Two files of sources; the second has other columns, which are of no account."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "1.txt").write_text("".join(f"{i} {text}\n" for i, text in enumerate(TEXTS)))
    (folder / "2.tsv").write_text("".join(f"{text} {i}\tno\n" for i, text in enumerate(TEXTS)))
    return [folder / "1.txt", folder / "2.tsv"]


def command(teacher, data, run, *more):
    words = [teacher, "--data", *data, "--run", run, *STUDENT, *more]
    return [str(word) for word in words]


@pytest.fixture(scope="module")
def student(teacher, data, tmp_path_factory):
    run = tmp_path_factory.mktemp("students") / "student"
    with pytest.MonkeyPatch.context() as patch:
        # TensorFlow is here already; the slow test below has the processes.
        patch.setattr(distill, "alone", lambda function, *arguments: function(*arguments))
        assert distill.main(command(teacher, data, run)) == 0
    return run


def test_the_student_learns_the_teachers_beam(student, teacher, data):
    sources = [line.split("\t")[0] for file in data for line in file.read_text().splitlines()]
    found = [
        line.split("\t")
        for number in (1, 2)
        for line in (student / "distilled" / f"{number}.tsv").read_text().splitlines()
    ]
    translator = tiny_translator(
        length_penalty=0.6, num_return_sequences=1, max_length=128, max_source_length=128
    )
    assert [source for source, _ in found] == sources
    wanted = [flat(text) for text in translator.translate(sources[:4])]
    assert [text for _, text in found[:4]] == wanted
    config = json.loads((student / "config.json").read_text())
    assert config["arguments"]["beams"] == 1, "it decodes greedily"
    sizes = config["model"]["config"]
    assert (sizes["encoder_layers"], sizes["decoder_layers"]) == (2, 1), "of the preset 6-1"
    subwords = [folder / "tokenizer.model" for folder in (student, teacher)]
    assert subwords[0].read_bytes() == subwords[1].read_bytes()
    learned = config["corpus"]["train"]
    assert learned["pairs"] + sum(learned["dropped"].values()) == len(sources)


def begun_by(folder, config, **sizes):
    """The model that a student of these sizes begins with."""
    settings = distill.StudentConfig(data=("none",), d_model=16, num_heads=2, dff=32, **sizes)
    task = Student(settings.resolved(), folder)
    return task.model(config.replace(**sizes))


def test_a_deeper_student_begins_as_its_teacher(tmp_path):
    model = tiny_model(norm_first=True, encoder_layers=2)
    its = begun_by(write_run(tmp_path / "run", model), model.config, encoder_layers=5)
    ids = np.random.default_rng(0).integers(4, model.config.source_vocab, (3, 7))
    wanted, found = (m((ids, ids[:, :4]), training=False) for m in (model, its))
    assert found.shape == wanted.shape
    assert abs(keras.ops.convert_to_numpy(found - wanted)).max() < 1e-5
    assert its.count_params() > model.count_params()


def test_a_student_of_fewer_layers_begins_with_some_of_its_teachers(tmp_path):
    model = tiny_model(norm_first=True, decoder_layers=3)
    its = begun_by(write_run(tmp_path / "run", model), model.config, decoder_layers=2)
    for number, origin in enumerate((0, 2)):
        pairs = zip(
            its.decoder.layers[number].weights, model.decoder.layers[origin].weights, strict=True
        )
        assert all((one.numpy() == other.numpy()).all() for one, other in pairs)


def test_both_are_measured_on_the_teachers_validation_pairs(student, teacher):
    report = json.loads((student / "distillation.json").read_text())
    kinds = [(row["model"], row["beams"]) for row in report["rows"]]
    assert kinds == [("teacher", 3), ("teacher", 1), ("student", 1)]
    assert report["pairs"] == 3
    # Its answers are the same, compiled or not.
    how = {"length_penalty": 0.6, "max_length": 128, "max_source_length": 128}
    greedy = tiny_translator(num_beams=1, num_return_sequences=1, **how)
    bleu, chrf = corpus_scores(greedy.translate(LINES[:3]), list(REFERENCES))
    row = report["rows"][1]
    assert (row["bleu"], row["chrf"]) == (round(bleu, 2), round(chrf, 2))
    assert row["parameters"] == tiny_model().count_params()
    assert row["bytes"] == (teacher / "weights" / "best.weights.h5").stat().st_size
    assert all(row["sentences_per_second"] > 0 for row in report["rows"])
    text = (student / "distillation.md").read_text()
    assert f"| teacher | 1 | {bleu:.2f} | {chrf:.2f} |" in text


def test_what_is_done_is_not_done_again_and_not_for_others(student, teacher, data, capsys):
    names = ("distilled/1.tsv", "distilled/2.tsv", "results.json", "distillation.json")
    before = [(student / name).stat().st_mtime_ns for name in names]
    assert distill.main(command(teacher, data, student)) == 0
    assert "| student | 1 |" in capsys.readouterr().out
    assert [(student / name).stat().st_mtime_ns for name in names] == before
    for words, said in (
        (command(teacher, data[:1], student), "holds translations of something else (sources"),
        (command(teacher, data, student, "--seed", "9"), "holds a finished run"),
        (command(student / "none", data, student), "none"),
    ):
        assert distill.main(words) == 1
        assert said in capsys.readouterr().err


def test_arguments_are_refused_before_anything_is_translated(teacher, data, tmp_path, capsys):
    for words, said in (
        (("--preset", "7-7"), "6-1, 12-1, 6-2"),
        (("--source", "pt.txt"), "unrecognized arguments: --source pt.txt"),
        (("--model", "rnnsearch"), "unrecognized arguments: --model rnnsearch"),
        (("--vocab_size", "500"), "unrecognized arguments: --vocab_size 500"),
    ):
        with pytest.raises(SystemExit):
            distill.main(command(teacher, data, tmp_path / "run", *words))
        assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_kill_at_any_stage_costs_nothing(teacher, student, data, tmp_path):
    """Killed as it translates and as it learns, the same command ends with the same student."""
    run = tmp_path / "student"
    words = [sys.executable, str(ROOT / "training" / "distill.py"), *command(teacher, data, run)]
    stages = (
        run / "distilled" / "1.tsv.progress", run / "distilled" / "2.tsv.progress",
        run / "config.json", run / "results.json",
    )  # fmt: skip
    for file in stages:
        process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL)
        end = time.monotonic() + 200
        while not file.exists():
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.002)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.send_signal(signal.SIGKILL)
        process.wait()
        while any(alive(child) for child in children):
            assert time.monotonic() < end, "a child goes on without its parent"
            time.sleep(0.05)
    assert subprocess.run(words, cwd=tmp_path, stdout=subprocess.DEVNULL).returncode == 0
    for name in ("distilled/1.tsv", "distilled/2.tsv", "distilled/validation.tsv"):
        assert (run / name).read_bytes() == (student / name).read_bytes()
    bleu = [json.loads((each / "distillation.json").read_text()) for each in (run, student)]
    assert [row["bleu"] for row in bleu[0]["rows"]] == [row["bleu"] for row in bleu[1]["rows"]]


def alive(child):
    try:
        return Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
