"""Classifiers, taggers and language models, from text to an export: the same program."""

import json
import random
import shlex
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import log_softmax
from tiny_runs import history, train

from keras_tfmr import Classifier, Completer, TransformerConfig
from keras_tfmr.export.saved_session import SavedSession
from keras_tfmr.text.labels import Labels
from serving import export
from training.command.disk import RunError
from training.corpus.read import LONGEST_LINE
from training.corpus.read import rows as rows_of
from training.corpus.sources import Corpus
from training.data import prepare
from training.run import report
from training.run.run_folder import RunFolder
from training.scores import accuracy_and_f1, class_scores, confusion
from training.settings.command_line import parse_arguments
from training.settings.recipes import RECIPES
from training.settings.training_config import TEXT_TASKS, TextConfig, TrainingConfig
from training.tasks import MASKED, SHARE, TASKS

SMALL = (
    "--preset", "tiny", "--vocab_size", "330", "--tokens_per_batch", "192",
    "--validate_steps", "20", "--set", "d_model=16", "warmup_steps=5", "log_steps=10",
    "validation_pairs=20",
)  # fmt: skip
NOUNS, VERBS = ("cat", "dog", "bird", "horse"), ("sleeps", "eats", "runs", "waits")


def lines(task, count=240):
    """Sentences of which the label, and each tag, follow from the words."""
    draw, found = random.Random(3), {}
    while len(found) < count:
        words = [draw.choice(NOUNS), draw.choice(VERBS), str(draw.randint(1, 999)), "times"]
        text = " ".join(words)
        right = {"classify": "animal" if words[0] in NOUNS[:2] else "other", "tag": "N V # N"}
        found[text] = f"{text}\t{right[task]}" if task in right else text
    return list(found.values())


def write(path, rows):
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return path


def prepared(folder, data, *words):
    """What a run has after it read its data."""
    settings = parse_arguments("", ["--data", str(data), *words, *SMALL], TextConfig)
    return prepare(settings, RunFolder(folder / "prepared"), None)


def read(tmp_path, task, *rows):
    source = Corpus(str(write(tmp_path / "corpus", rows)))
    (block,) = source.blocks("train", [])
    return [tuple(row) for row in rows_of(block, task)]


def test_files_of_labels_and_tags(tmp_path):
    assert read(tmp_path, "classify", "a b\tx", "c\ty") == [("a b", "x"), ("c", "y")]
    assert read(tmp_path, "tag", "a  b \tX  Y") == [("a b", "X Y")]
    for task, last, message in (
        ("tag", "a b\tX", r"corpus, line 2.*2 tokens and 1 tags"),
        ("classify", "b\ttwo words", r"corpus, line 2.*without spaces.*two words"),
        ("classify", "no label", r"line 2.*found 1 column"),
    ):
        with pytest.raises(RunError, match=message):
            read(tmp_path, task, "a\tX", last)


def test_plain_text_is_cut_between_words_and_nothing_is_lost(tmp_path):
    long = " ".join(f"word{i}" for i in range(400))
    found = [text for _, text in read(tmp_path, "language", "a\tb", long, "x" * 1500)]
    assert found[0] == "a b"
    assert " ".join(found[1:-3]) == long and "".join(found[-3:]) == "x" * 1500
    assert max(map(len, found)) <= LONGEST_LINE


def test_labels_are_numbered_behind_padding():
    labels = Labels.learn(["b a", "c"])
    values, offsets = labels.encode_lines(["c", "a b"])
    assert values.tolist() == [3, 1, 2] and offsets.tolist() == [0, 1, 3]
    assert Labels.of_bytes(labels.model_bytes).names == ["a", "b", "c"]
    with pytest.raises(RunError, match="2 to 1000 classes"):
        Labels.learn(["only"])
    with pytest.raises(RunError, match="no other line"):
        labels.encode_lines(["d"])


def test_a_label_that_is_only_measured_on_is_a_label(tmp_path):
    data = write(tmp_path / "few.tsv", ["a cat\tx", "a dog\ty", "a bird\tx", "a cow\ty"])
    test = write(tmp_path / "test.tsv", ["the fish\tz", "a horse\tx"])
    found = prepared(tmp_path, data, "--validation", str(test))
    assert found.task.tokenizers[1].names == ["x", "y", "z"]
    assert found.validation == [("the fish", "z"), ("a horse", "x")]


def test_a_path_with_a_space_is_quoted(tmp_path, capsys):
    task, folder = SimpleNamespace(exports=True), RunFolder(tmp_path / "my run")
    report._tell_what_next(TrainingConfig(), task, folder)
    _, translate, serve = map(shlex.split, capsys.readouterr().out.splitlines())
    assert translate[3] == str(folder.path)
    assert serve[3] == f"--model_base_path={folder.saved_model}"


def test_each_prediction_is_a_row_whatever_its_text_holds(tmp_path):
    rows, folder = [("a\rb\u2028c\x85d", "x"), ('e "f', "y")], RunFolder(tmp_path)
    report._write_predictions(folder, SimpleNamespace(rows=rows, column=0), ["x", "x"])
    assert folder.sources() == ["a b c d", 'e "f']
    assert [row["expected"] for row in folder.rows()] == ["x", "y"]


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


@pytest.mark.parametrize("name", ["classify", "tag", "language"])
def test_losses(tmp_path, name):
    """The compiled ones against NumPy, by the log-probabilities at each label."""
    words = ("--task", name, "--dropout_rate", "0")
    found = prepared(tmp_path, write(tmp_path / "corpus", lines(name)), *words)
    task = found.task
    model = task.model(task.config())
    inputs, labels = (array.numpy() for array in next(iter(found.batches.dataset())))
    if name == "classify":
        assert labels.min() >= 1 and labels.max() == 2
    elif name == "language":
        np.testing.assert_array_equal(inputs[:, 1:], labels[:, :-1])
    else:  # tag k of a text is at the k-th piece that begins with a space
        pieces = task.tokenizers[0].pieces(inputs).numpy()
        begins = np.array([[p.decode().startswith("\u2581") for p in row] for row in pieces])
        np.testing.assert_array_equal(labels > 0, begins)
        names = [task.tokenizers[1].names[i - 1] for i in labels[0][labels[0] > 0]]
        assert names == ["N", "V", "#", "N"]
    log_probs = log_softmax(model(inputs).numpy(), axis=-1)[labels > 0]  # [labels, classes]
    right = labels[labels > 0] - (name != "language")
    of_right = log_probs[np.arange(len(right)), right]
    loss = -(0.9 * of_right + 0.1 * log_probs.mean(axis=-1)).sum()
    model.compile(loss=task.loss(7.0), metrics=task.metrics())
    measured = model.test_on_batch(inputs, labels, return_dict=True)
    assert measured["loss"] == pytest.approx(loss / 7, rel=1e-4)
    assert measured["accuracy"] == pytest.approx(np.mean(log_probs.argmax(-1) == right), rel=1e-4)


def test_masks(tmp_path):
    """How many, and what replaces them; the same for the same seed."""
    data = write(tmp_path / "corpus", lines("masked"))
    task = prepared(tmp_path, data, "--task", "masked").task
    tokenizer = task.tokenizers[0]
    ids = np.random.default_rng(0).integers(4, tokenizer.vocab_size, (200, 100)).astype("int32")
    ids[:, 90:] = 0
    made = [task.batch(None, ids.copy(), None, np.full(200, 90), seed) for seed in (3, 3, 4)]
    (fed, labels), tokens = made[0], ids.copy()
    tokens[:, 90] = tokenizer.eos_id
    assert (fed == made[1][0]).all() and (fed != made[2][0]).any()
    wanted = labels > 0
    assert (fed[~wanted] == tokens[~wanted]).all() and (labels[wanted] == tokens[wanted] + 1).all()
    assert not wanted[:, 90:].any(), "neither the end id nor padding"
    assert abs(wanted[:, :90].mean() - SHARE) < 0.01
    assert abs((fed[wanted] == tokenizer.unknown_id).mean() - MASKED) < 0.02
    assert abs((fed[wanted] == tokens[wanted]).mean() - 0.1) < 0.02
    assert fed.min() >= 0 and fed.max() < tokenizer.vocab_size


@pytest.fixture(scope="module")
def runs(once):
    """A finished run of each task; the classifier begins from the encoder of the masked one."""

    def make(folder):
        folder.mkdir()
        for name in ("masked", "classify", "tag", "language"):
            data = write(folder / f"{name}.txt", lines(name))
            words = ["--task", name, "--data", data, "--output", folder / name, *SMALL]
            if name == "classify":  # one update of a rate that changes nothing
                words += ["learning_rate=1e-12", "--init_from", folder / "masked", "--steps", 1]
            else:
                words += ["--steps", 60 if name == "tag" else 10]
            words += [] if name == "masked" else ["--no_export"]
            assert train(*words, text=True) == 0

    return once("text_tasks", make)


@pytest.mark.parametrize("name", TEXT_TASKS)
def test_the_files_of_a_run(runs, name):
    path, labelled = runs / name, name in ("classify", "tag")
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
    results = json.loads((runs / "tag" / "results.json").read_text())
    assert results["validation_accuracy"] > 90
    arguments = [str(runs / "tag"), "--output", str(tmp_path / "out"), "--no_check"]
    assert export.main(arguments) == 0
    path = Path(capsys.readouterr().out.strip())
    with SavedSession(path) as session:
        found = session.run("tag", {"text": np.array([b"dog eats 7 times"], object)})
    assert found["tags"].tolist() == [[b"N", b"V", b"#", b"N"]]
    metadata = json.loads((path / "assets.extra" / "keras_tfmr.json").read_text())
    assert metadata["tags"] == ["#", "N", "V"] and "validation_accuracy" in str(metadata["run"])
    assert export.main([str(runs / "masked"), "--output", str(tmp_path / "out")]) == 1
    assert "cannot be served" in capsys.readouterr().err
    assert export.main([*arguments, "--num_beams", "4"]) == 1
    said = "A Tagger has no option num_beams; expected some of: max_length"
    assert said in capsys.readouterr().err


def test_the_measure_of_the_run_is_that_of_the_served_model(runs):
    """Bits per byte and accuracy from the in-process text models, text by text."""
    folder = RunFolder(runs / "language")
    texts = folder.sources(10**6)
    log_prob = sum(found.log_prob for found in Completer.from_preset(folder.path).log_prob(texts))
    expected = -log_prob / np.log(2) / sum(len(text.encode()) + 1 for text in texts)
    results = json.loads(folder.results.read_text())
    assert results["validation_bits_per_byte"] == pytest.approx(expected, rel=1e-3)
    folder = RunFolder(runs / "classify")
    rows = folder.rows()
    found = Classifier.from_preset(folder.path).classify([row["text"] for row in rows])
    assert [one.label for one in found] == [row["found"] for row in rows]
    right = np.mean([row["found"] == row["expected"] for row in rows])
    results = json.loads(folder.results.read_text())
    assert results["validation_accuracy"] == pytest.approx(100 * right, abs=0.01)


def test_a_start_gives_subwords_and_encoder(runs):
    mine, its = RunFolder(runs / "classify"), RunFolder(runs / "masked")
    assert mine.tokenizers()[0].model_bytes == its.tokenizers()[0].model_bytes
    weights = [folder.model().encoder.weights for folder in (mine, its)]
    for weight, other in zip(*weights, strict=True):
        np.testing.assert_allclose(weight.numpy(), other.numpy(), atol=1e-7)


def test_starts_that_do_not_fit_are_errors(runs, tmp_path, capsys):
    data = write(tmp_path / "text.txt", lines("language", 60))
    common = ("--data", data, "--steps", 1, "--output", tmp_path / "run")
    for task, start, more, said in (
        ("language", "masked", (), "begin from a run of language. Received: --init_from"),
        ("classify", "language", (), "begin from a run of masked or classify or tag. Received"),
        ("tag", "none", (), "Cannot read"),
        ("tag", "masked", ("--preset", "big"), "--preset is that of --init_from"),
        ("language", "language", ("--set", "d_model=32"), "--set d_model is that of --init_from"),
    ):
        with pytest.raises(SystemExit):
            train("--task", task, *common, "--init_from", runs / start, *more, text=True)
        assert said in capsys.readouterr().err


def test_a_start_gives_its_recipe_to_text_tasks_as_to_translators(tmp_path):
    """A run of the same task is fine-tuned; one of another task has the whole recipe."""
    config = TransformerConfig.preset("base", source_vocab=500, target_vocab=500)
    for kind, task, tuned in (
        ("transformer", "translation", True), ("language", "language", True),
        ("classify", "classify", True), ("masked", "classify", False),
    ):  # fmt: skip
        folder, recipe = RunFolder(tmp_path / kind), RECIPES["transformer"]["base"]
        folder.best.parent.mkdir(parents=True, exist_ok=True)
        folder.best.touch()
        folder.results.touch()
        about = {"model": {"kind": kind, "config": config.to_dict()}}
        folder.write_config({**about, "arguments": {"preset": "base", "vocab_size": 500}})
        words = ["--init_from", str(folder.path)]
        words += [] if task == "translation" else ["--task", task]
        config_class = TrainingConfig if task == "translation" else TextConfig
        settings = parse_arguments("", words, config_class)
        assert (settings.preset, settings.d_model, settings.vocab_size) == ("base", 512, 500)
        wanted = recipe.defaults() | (recipe.for_tuning() if tuned else {})
        assert {name: getattr(settings, name) for name in wanted} == wanted
