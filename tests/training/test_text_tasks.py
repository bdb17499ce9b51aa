"""Classifiers, taggers and language models, from text to an export: the same program."""

import json
import random
from pathlib import Path

import keras
import numpy as np
import pytest
from scipy.special import log_softmax
from tiny_runs import history, train

if keras.backend.backend() != "tensorflow":
    pytest.skip("text needs TensorFlow", allow_module_level=True)

from keras_tfmr.export.saved_session import SavedSession
from serving import export
from training.command_line import parse_arguments
from training.config import TEXT_TASKS, TextConfig
from training.evaluate import accuracy_and_f1, class_scores, confusion
from training.init_from import Start
from training.prepare import prepare
from training.run import RunFolder
from training.sources import LONGEST_LINE, CorpusError, Labels, Source
from training.tasks import MASKED, SHARE, TASKS

SMALL = (
    "--preset", "tiny", "--vocab_size", "330", "--tokens_per_batch", "192",
    "--validate_steps", "20", "--set", "d_model=16", "encoder_layers=1", "decoder_layers=1",
    "warmup_steps=5", "log_steps=10", "validation_pairs=20",
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


def blocks(tmp_path, task, *rows):
    source = Source(str(write(tmp_path / "corpus", rows)), task=task)
    (block,) = source.blocks("train", [])
    texts = [text.decode().splitlines() for text in block.texts]
    return list(zip(*texts, strict=True))


def test_files_of_labels_and_tags(tmp_path):
    assert blocks(tmp_path, "classify", "a b\tx", "c\ty") == [("a b", "x"), ("c", "y")]
    assert blocks(tmp_path, "tag", "a  b \tX  Y") == [("a b", "X Y")]
    with pytest.raises(CorpusError, match=r"corpus, line 2.*2 tokens and 1 tags"):
        blocks(tmp_path, "tag", "a\tX", "a b\tX")
    with pytest.raises(CorpusError, match=r"corpus, line 2.*without spaces.*two words"):
        blocks(tmp_path, "classify", "a\tx", "b\ttwo words")
    with pytest.raises(CorpusError, match=r"line 1.*found 1 column"):
        blocks(tmp_path, "classify", "no label")


def test_plain_text_is_cut_between_words_and_nothing_is_lost(tmp_path):
    long = " ".join(f"word{i}" for i in range(400))
    found = [text for _, text in blocks(tmp_path, "language", "a\tb", long, "x" * 1500)]
    assert found[0] == "a b"
    assert " ".join(found[1:-3]) == long and "".join(found[-3:]) == "x" * 1500
    assert max(map(len, found)) <= LONGEST_LINE


def test_labels_are_numbered_behind_padding():
    labels = Labels.learn(["b a", "c"])
    values, offsets = labels.encode_lines(["c", "a b"])
    assert values.tolist() == [3, 1, 2] and offsets.tolist() == [0, 1, 3]
    assert Labels.of_bytes(labels.model_bytes).names == ["a", "b", "c"]
    assert Labels.of_bytes(b"\n\x0e") is None
    with pytest.raises(CorpusError, match="2 to 1000 classes"):
        Labels.learn(["only"])
    with pytest.raises(CorpusError, match="no other line"):
        labels.encode_lines(["d"])


def test_scores_of_labels():
    wanted, found = [0, 0, 0, 1, 1, 2], [0, 0, 1, 1, 2, 0]
    table = confusion(wanted, found, 4)
    scores = class_scores(table)
    for label in range(4):
        hits = sum(w == f == label for w, f in zip(wanted, found, strict=True))
        recall = hits / wanted.count(label) if label in wanted else 0
        precision = hits / found.count(label) if label in found else 0
        f1 = 2 * precision * recall / (precision + recall) if hits else 0
        np.testing.assert_allclose(scores[label], [precision, recall, f1, wanted.count(label)])
    measured = accuracy_and_f1(table)
    assert measured["accuracy"] == pytest.approx(50)
    assert measured["macro_f1"] == pytest.approx(100 * scores[:3, 2].mean())


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """Each task with a model and a batch, as a run has them."""
    folder, found = tmp_path_factory.mktemp("tasks"), {}
    for name in TEXT_TASKS:
        data = write(folder / f"{name}.txt", lines(name))
        words = ["--task", name, "--data", str(data), *SMALL, "--dropout_rate", "0"]
        settings = parse_arguments("", words, TextConfig)
        prepared = prepare(settings, RunFolder(folder / name), None)
        keras.utils.set_random_seed(1)
        inputs, labels = next(iter(prepared.batches.dataset()))
        task = prepared.task
        found[name] = task, task.model(task.config()), inputs.numpy(), labels.numpy()
    return found


def check_loss(task, model, inputs, labels, pairs):
    """The compiled loss against NumPy: sums over (log-probabilities, right class) of the labels."""
    loss = sum(-0.9 * log_probs[right] - 0.1 * log_probs.mean() for log_probs, right in pairs)
    hits = np.mean([log_probs.argmax() == right for log_probs, right in pairs])
    model.compile(loss=task.loss(7.0), metrics=task.metrics())
    found = model.test_on_batch(inputs, labels, return_dict=True)
    assert found["loss"] == pytest.approx(loss / 7, rel=1e-4)
    assert found["accuracy"] == pytest.approx(hits, rel=1e-4)


def test_loss_of_a_classifier(tasks):
    task, model, inputs, labels = tasks["classify"]
    log_probs = log_softmax(model(inputs).numpy(), axis=-1)
    assert labels.min() >= 1 and labels.max() == 2
    pairs = list(zip(log_probs, labels - 1, strict=True))
    check_loss(task, model, inputs, labels, pairs)


def test_loss_of_a_tagger(tasks):
    """Tag k of a text is at the k-th piece that begins with a space."""
    task, model, inputs, labels = tasks["tag"]
    pieces = task.tokenizers[0].pieces(inputs).numpy()
    begins = np.array([[p.decode().startswith("\u2581") for p in row] for row in pieces])
    np.testing.assert_array_equal(labels > 0, begins)
    names = [task.tokenizers[1].names[i - 1] for i in labels[0][labels[0] > 0]]
    assert names == ["N", "V", "#", "N"]
    log_probs = log_softmax(model(inputs).numpy(), axis=-1)
    places = np.argwhere(labels)
    found = [(log_probs[r, t], labels[r, t] - 1) for r, t in places]
    check_loss(task, model, inputs, labels, found)


def test_loss_of_a_language_model(tasks):
    task, model, inputs, labels = tasks["language"]
    np.testing.assert_array_equal(inputs[:, 1:], labels[:, :-1])
    log_probs = log_softmax(model(inputs).numpy(), axis=-1)
    places = np.argwhere(labels)
    check_loss(task, model, inputs, labels, [(log_probs[r, t], labels[r, t]) for r, t in places])


def test_masks(tasks):
    """How many, and what replaces them; the same for the same seed."""
    task = tasks["masked"][0]
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
def runs(tmp_path_factory):
    """A finished run of each task; the classifier begins from the encoder of the masked one."""
    folder = tmp_path_factory.mktemp("runs")
    for name in ("masked", "classify", "tag", "language"):
        data = write(folder / f"{name}.txt", lines(name))
        more = ["--init_from", folder / "masked"] if name == "classify" else []
        steps = 60 if name in ("classify", "tag") else 20
        words = ["--task", name, "--data", data, "--output", folder / name, "--steps", steps]
        assert train(*words, *SMALL, *more, "--no_export", text=True) == 0
    return folder


def test_a_run_folder_has_what_a_translators_has(runs):
    for name in TEXT_TASKS:
        path = runs / name
        files = {file.name for file in path.iterdir()}
        assert files >= {"config.json", "history.csv", "curves.png", "report.md", "results.json",
                         "predictions.tsv", "attention.png", "weights", "checkpoints"}  # fmt: skip
        assert ("confusion.png" in files) == (name in ("classify", "tag"))
        results = json.loads((path / "results.json").read_text())
        assert all(f"validation_{score}" in results for score in TASKS[name].scores)
        report = (path / "report.md").read_text()
        assert ("## Labels" in report) == (name in ("classify", "tag"))
        columns = list(history(path)[0])
        assert len({*columns}) == len(columns)  # the training's accuracy and the validation's
        assert {"loss", *(f"val_{score}" for score in TASKS[name].scores)} <= {*columns}
        for odd in ("None", "[]", "nan"):
            assert odd not in report


def test_what_follows_from_the_words_is_learned(runs):
    results = json.loads((runs / "tag" / "results.json").read_text())
    assert results["validation_accuracy"] > 90
    tagger = RunFolder(runs / "tag").text_model()
    [found] = tagger.tag(["cat sleeps 12 times"])
    assert found.tags == ["N", "V", "#", "N"]


def test_the_measure_of_the_run_is_that_of_the_served_model(runs):
    """Bits per byte and accuracy from the in-process text models, text by text."""
    folder = RunFolder(runs / "language")
    texts = folder.sources(10**6)
    log_prob = sum(found.log_prob for found in folder.text_model().log_prob(texts))
    count = sum(len(text.encode()) + 1 for text in texts)
    results = json.loads(folder.results.read_text())
    expected = -log_prob / np.log(2) / count
    assert results["validation_bits_per_byte"] == pytest.approx(expected, rel=1e-3)
    folder = RunFolder(runs / "classify")
    rows = folder.rows()
    found = folder.text_model().classify([row["text"] for row in rows])
    assert [one.label for one in found] == [row["found"] for row in rows]
    right = np.mean([row["found"] == row["expected"] for row in rows])
    results = json.loads(folder.results.read_text())
    assert results["validation_accuracy"] == pytest.approx(100 * right, abs=0.01)


def test_a_start_gives_subwords_sizes_and_encoder(runs, tmp_path):
    mine, its = RunFolder(runs / "classify"), RunFolder(runs / "masked")
    assert mine.tokenizers()[0].model_bytes == its.tokenizers()[0].model_bytes
    data = write(tmp_path / "few.tsv", lines("classify", 60))
    words = ["--task", "classify", "--data", str(data), "--init_from", str(its.path), *SMALL]
    settings, begun = parse_arguments("", words, TextConfig), Start(its.path)
    task = prepare(settings, RunFolder(tmp_path / "run"), None, begun.tokenizers()).task
    model = task.model(begun.config_for(task))
    begun.assign(model, task)
    for weight, other in zip(model.encoder.weights, its.model().encoder.weights, strict=True):
        np.testing.assert_array_equal(weight.numpy(), other.numpy())


def test_starts_that_do_not_fit_are_errors(runs, tmp_path, capsys):
    data = write(tmp_path / "text.txt", lines("language", 60))
    common = ("--data", data, "--steps", 1, "--output", tmp_path / "run", *SMALL)
    words = ("--task", "language", *common, "--init_from")
    assert train(*words, runs / "masked", text=True) == 1
    assert "a run of masked" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        train(*words, tmp_path / "none", text=True)
    assert "Cannot read" in capsys.readouterr().err


def test_export_of_a_run(runs, tmp_path, capsys):
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
    assert "--num_beams" in capsys.readouterr().err


def test_a_label_that_is_only_measured_on_is_a_label(tmp_path):
    data = write(tmp_path / "few.tsv", ["a cat\tx", "a dog\ty", "a bird\tx", "a cow\ty"])
    test = write(tmp_path / "test.tsv", ["the fish\tz", "a horse\tx"])
    words = ["--data", str(data), "--validation", str(test), *SMALL]
    settings = parse_arguments("", words, TextConfig)
    prepared = prepare(settings, RunFolder(tmp_path / "run"), None)
    assert prepared.task.tokenizers[1].names == ["x", "y", "z"]
    assert prepared.validation == [("the fish", "z"), ("a horse", "x")]
