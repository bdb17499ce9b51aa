"""Classifiers and language models, from text to an export: the same program."""

import contextlib
import json
import random

import numpy as np
import pytest
from scipy.special import log_softmax
from tiny_runs import history, train

from keras_tfmr import Classifier, Completer
from keras_tfmr.export.saved_session import SavedSession
from keras_tfmr.text.labels import Labels
from serving import export
from training.command.disk import RunError
from training.corpus.read import LONGEST_LINE
from training.corpus.sources import Corpus
from training.data import prepare
from training.run.run_folder import RunFolder
from training.scores import accuracy_and_f1, class_scores, confusion
from training.settings.command_line import parse_arguments
from training.settings.training_config import TEXT_TASKS, TrainingConfig
from training.tasks import TASKS

pytestmark = pytest.mark.ci
SMALL = (
    "--preset", "tiny", "--vocab_size", "330", "--tokens_per_batch", "192",
    "--validate_steps", "20", "--set", "d_model=16", "norm_first=true", "warmup_steps=5",
    "log_steps=10", "validation_pairs=20",
)  # fmt: skip
NOUNS, VERBS = ("cat", "dog", "bird", "horse"), ("sleeps", "eats", "runs", "waits")


def lines(task, labels=("animal", "other"), count=240):
    """Sentences, whose label follows from the first word."""
    draw, found = random.Random(3), {}
    while len(found) < count:
        words = [draw.choice(NOUNS), draw.choice(VERBS), str(draw.randint(1, 999)), "times"]
        text = " ".join(words)
        label = labels[NOUNS.index(words[0]) % len(labels)]
        found[text] = f"{text}\t{label}" if task == "classify" else text
    return list(found.values())


def write(path, rows):
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return path


def prepared(folder, data, *words):
    """What a run has after it read its data."""
    settings = parse_arguments("", ["--data", str(data), *words, *SMALL], TEXT_TASKS)
    return prepare(settings, RunFolder(folder / "prepared"), None)


def read(tmp_path, task, *rows):
    source = Corpus(str(write(tmp_path / "corpus", rows)))
    return [*source.rows(TrainingConfig(task=task))]


def test_files_of_labels(tmp_path):
    assert read(tmp_path, "classify", "a b\tx", "c\ty") == [("a b", "x"), ("c", "y")]
    for last, message in (
        ("b\ttwo words", r"corpus, line 2.*without spaces.*two words"),
        ("no label", r"line 2.*found 1 column"),
    ):
        with pytest.raises(RunError, match=message):
            read(tmp_path, "classify", "a\tX", last)


def test_a_label_of_a_table_may_be_a_number_and_a_text_may_not(tmp_path):
    path = write(tmp_path / "a.jsonl", ['{"text": "a", "label": 1}', '{"text": 2, "label": "b"}'])
    rows = Corpus(str(path)).rows(TrainingConfig(task="classify"))
    assert next(rows) == ("a", "1")
    with pytest.raises(RunError, match=r"a\.jsonl, line 2: expected texts. Received: \[2, 'b'\]"):
        next(rows)


def test_plain_text_is_cut_between_words_and_nothing_is_lost(tmp_path):
    long = " ".join(f"word{i}" for i in range(400))
    found = [text for _, text in read(tmp_path, "language", "a\tb", long, "x" * 1500)]
    assert found[0] == "a b"
    assert " ".join(found[1:-3]) == long and "".join(found[-3:]) == "x" * 1500
    assert max(map(len, found)) <= LONGEST_LINE


def test_labels_are_numbered_behind_padding():
    labels = Labels.learn(["b", "a", "c"])
    values, offsets = labels.encode_lines(["c", "a"])
    assert values.tolist() == [3, 1] and offsets.tolist() == [0, 1, 2]
    assert Labels.from_config(labels.get_config()).names == ["a", "b", "c"]
    with pytest.raises(RunError, match="2 to 1000 classes"):
        Labels.learn(["only"])
    with pytest.raises(RunError, match="no other line"):
        labels.encode_lines(["d"])


def test_a_label_that_is_only_measured_on_is_a_label(tmp_path):
    data = write(tmp_path / "few.tsv", ["a cat\tx", "a dog\ty", "a bird\tx", "a cow\ty"])
    test = write(tmp_path / "test.tsv", ["the fish\tz", "a horse\tx"])
    found = prepared(tmp_path, data, "--validation", str(test))
    assert found.task.tokenizers[1].names == ["x", "y", "z"]
    assert found.encoded.held_out["validation"] == [("the fish", "z"), ("a horse", "x")]


def test_scores_of_labels():
    wanted, found = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 2, 0])
    table = confusion(wanted, found, 4)
    scores = class_scores(table)
    for label in range(4):
        hits = np.sum((wanted == label) & (found == label))
        counts = np.sum(found == label), np.sum(wanted == label)
        expected = [hits / max(count, 1) for count in counts] + [2 * hits / max(sum(counts), 1)]
        np.testing.assert_allclose(scores[label], [*expected, counts[1]])
    measured = accuracy_and_f1(table)
    assert measured["accuracy"] == pytest.approx(50)
    assert measured["macro_f1"] == pytest.approx(100 * scores[:3, 2].mean())


@pytest.mark.parametrize("name", TEXT_TASKS)
def test_losses(tmp_path, name):
    """The compiled ones against NumPy, by the log-probabilities at each label."""
    words = ("--task", name, "--set", "dropout_rate=0")
    found = prepared(tmp_path, write(tmp_path / "corpus", lines(name)), *words)
    task = found.task
    model = task.model(task.config())
    inputs, labels = (array.numpy() for array in next(iter(found.batches.dataset())))
    if name == "classify":
        assert labels.min() >= 1 and labels.max() == 2
    else:
        np.testing.assert_array_equal(inputs[:, 1:], labels[:, :-1])
    log_probs = log_softmax(model(inputs).numpy(), axis=-1)[labels > 0]  # [labels, classes]
    right = labels[labels > 0] - (name == "classify")
    of_right = log_probs[np.arange(len(right)), right]
    loss = -(0.9 * of_right + 0.1 * log_probs.mean(axis=-1)).sum()
    model.compile(loss=task.loss(7.0), metrics=task.metrics())
    measured = model.test_on_batch(inputs, labels, return_dict=True)
    assert measured["loss"] == pytest.approx(loss / 7, rel=1e-4)
    assert measured["accuracy"] == pytest.approx(np.mean(log_probs.argmax(-1) == right), rel=1e-4)


def make_runs(folder):
    for name, task, steps, labels, more in (
        ("classify", "classify", 60, ("animal", "other"), ()),
        # One update of a rate that changes nothing.
        ("few", "classify", 1, NOUNS, ("learning_rate=1e-12", "--init_from", folder / "classify",
                                       "--no_export")),
        ("language", "language", 10, NOUNS, ("--no_export",)),
    ):  # fmt: skip
        folder.mkdir(exist_ok=True)
        data = write(folder / f"{name}.txt", lines(task, labels))
        words = ("--task", task, "--data", data, "--output", folder / name, *SMALL, *more)
        said = folder / f"{name}.said"
        with said.open("w", encoding="utf-8") as file, contextlib.redirect_stdout(file):
            assert train(*words, "--steps", steps, text=True) == 0


@pytest.fixture(scope="module")
def runs(once):
    """A finished run of each task, and `few`, a classifier that began from the first one's."""
    return once("text_tasks", make_runs)


@pytest.mark.parametrize("name", TEXT_TASKS)
def test_the_files_of_a_run(runs, name):
    path, labelled = runs / name, name == "classify"
    files = {file.name for file in path.iterdir()}
    assert files >= {"config.json", "history.csv", "curves.png", "report.md", "results.json",
                     "predictions.tsv", "attention.png", "weights", "checkpoints"}  # fmt: skip
    assert ("confusion.png" in files) == labelled
    results = json.loads((path / "results.json").read_text())
    assert all(f"validation_{score}" in results for score in TASKS[name].scores)
    columns = list(history(path)[0])
    assert len({*columns}) == len(columns)  # the training's accuracy and the validation's
    assert {"loss", *(f"val_{score}" for score in TASKS[name].scores)} <= {*columns}
    report = (path / "report.md").read_text()
    assert ("## Labels" in report) == labelled
    for odd in ("None", "[]", "nan"):
        assert odd not in report


def test_what_follows_from_the_words_is_learned_and_exported(runs, tmp_path, capsys):
    results = json.loads((runs / "classify" / "results.json").read_text())
    assert results["validation_accuracy"] > 90
    models = runs / "classify" / "saved_model"
    last = (runs / "classify.said").read_text(encoding="utf-8").splitlines()[-1]
    assert f"serving/server.py --model_base_path={models} " in last
    path = models / "1"
    with SavedSession(path) as session:
        texts = np.array([b"dog eats 7 times", b"cat runs 9 times"], object)
        found = session.run("classify", {"text": texts})
    assert found["label"].tolist() == [b"other", b"animal"]
    metadata = json.loads((path / "assets.extra" / "keras_tfmr.json").read_text())
    assert "validation_accuracy" in str(metadata["run"])
    arguments = [str(runs / "classify"), "--output", str(tmp_path / "out"), "--num_beams", "4"]
    assert export.main(arguments) == 1
    assert "Unknown options of a Classifier: ['num_beams']" in capsys.readouterr().err


def cells(path):
    """The rows of a table of predictions."""
    return [line.split("\t") for line in path.read_text(encoding="utf-8").split("\n")[1:-1]]


def test_the_measure_of_the_run_is_that_of_the_served_model(runs):
    """Bits per byte and accuracy from the in-process text models, text by text."""
    folder = RunFolder(runs / "language")
    texts = [text for text, _ in cells(folder.predictions)]
    log_prob = sum(found.log_prob for found in Completer.from_preset(folder.path).log_prob(texts))
    expected = -log_prob / np.log(2) / sum(len(text.encode()) + 1 for text in texts)
    results = json.loads(folder.results.read_text())
    assert results["validation_bits_per_byte"] == pytest.approx(expected, rel=1e-3)
    folder = RunFolder(runs / "classify")
    texts, expected, labels = zip(*cells(folder.predictions), strict=True)
    found = Classifier.from_preset(folder.path).classify(texts)
    assert [one.label for one in found] == [*labels] and folder.sources() == [*texts[:256]]
    right = np.mean(np.array(labels) == np.array(expected))
    results = json.loads(folder.results.read_text())
    assert results["validation_accuracy"] == pytest.approx(100 * right, abs=0.01)


def test_a_start_gives_subwords_and_encoder_to_other_labels(runs, tmp_path, capsys):
    mine, its = RunFolder(runs / "few"), RunFolder(runs / "classify")
    assert mine.tokenizers()[0].model_bytes == its.tokenizers()[0].model_bytes
    assert mine.tokenizers()[1].names == sorted(NOUNS)
    models = [folder.model() for folder in (mine, its)]
    for name in ("embedding", "encoder"):
        weights = [model.get_layer(name).weights for model in models]
        for weight, other in zip(*weights, strict=True):
            np.testing.assert_allclose(weight.numpy(), other.numpy(), atol=1e-7)
    for task, start, said in (
        ("language", "classify", "can begin from a keras_tfmr>Completer. Received: --init_from"),
        ("classify", "none", "Cannot read"),
    ):
        with pytest.raises(SystemExit):
            train("--task", task, "--init_from", runs / start, text=True)
        assert said in capsys.readouterr().err
