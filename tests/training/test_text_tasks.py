"""Training of classifiers, taggers and language models: the corpus, the loss, and the command."""

import csv
import json
import random
import re
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

import tensorflow as tf
from formulas import log_softmax

from keras_tfmr.export.saved_session import SavedSession
from serving import export
from training import train_text
from training.corpus.files import CorpusError
from training.corpus.sources import Source
from training.run.checkpoints import Checkpoints
from training.run.claim import Claim
from training.run.folder import RunFolder
from training.run.settings import parse_arguments
from training.text.evaluation import accuracy_and_f1, class_scores, confusion
from training.text.labels import Labels
from training.text.settings import TASKS, TextConfig
from training.text.sources import LONGEST_LINE, Sentences
from training.text.tasks import MASKED, SHARE, make_task, model_of, text_model_of
from training.text.tasks import TASKS as CLASSES

ROOT = Path(__file__).resolve().parents[2]
SMALL = (
    "--preset", "tiny", "--d_model", "16", "--encoder_layers", "1", "--decoder_layers", "1",
    "--vocab_size", "330", "--tokens_per_batch", "192", "--warmup_steps", "5",
    "--evaluate_pairs", "20", "--evaluate_minutes", "0", "--checkpoint_minutes", "0",
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


def run(*arguments):
    return train_text.main([str(argument) for argument in arguments])


def blocks(tmp_path, task, *rows):
    source = Sentences(Source(str(write(tmp_path / "corpus", rows))), task)
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
    """Each task with its data and a model, as a run has them."""
    folder, found = tmp_path_factory.mktemp("tasks"), {}
    for name in TASKS:
        data = write(folder / f"{name}.txt", lines(name))
        arguments = ["--task", name, "--data", data, "--run", folder / name, *SMALL]
        settings = parse_arguments("", [str(a) for a in arguments], TextConfig)
        task = make_task(settings)
        with Claim(RunFolder(folder / name)) as claim:
            prepared = task.prepare(claim)
        keras.utils.set_random_seed(1)
        config = task.config(prepared).replace(dropout_rate=0.0)
        batch = next(iter(prepared.batches.dataset()))
        found[name] = task, task.model(config), [np.array(x) for x in (*batch[0], batch[1])]
    return found


def smoothed(log_probs, right, smoothing=0.1):
    return -(1 - smoothing) * log_probs[right] - smoothing * log_probs.mean()


def sums_of(task, model, batch):
    (source, target_in, target_out) = batch
    return [float(x) for x in task.sums(model, ((source, target_in), target_out))]


def test_sums_of_a_classifier(tasks):
    task, model, batch = tasks["classify"]
    log_probs = log_softmax(model(batch[0]).numpy())
    rows = [row for row in range(len(batch[0])) if batch[2][row].any()]
    right = [batch[2][row, 0] - 1 for row in rows]
    loss = sum(smoothed(log_probs[row], r) for row, r in zip(rows, right, strict=True))
    hits = sum(log_probs[row].argmax() == r for row, r in zip(rows, right, strict=True))
    np.testing.assert_allclose(sums_of(task, model, batch), [loss, len(rows), hits], rtol=1e-4)


def test_sums_of_a_tagger(tasks):
    """Token k of a text is at the k-th piece that begins with a space."""
    task, model, batch = tasks["tag"]
    pieces = task.data.tokenizers[0].pieces(tf.constant(batch[0])).numpy()
    log_probs = log_softmax(model(batch[0]).numpy())
    loss = count = hits = 0
    for row, target in enumerate(batch[2]):
        begins = [i for i, p in enumerate(pieces[row]) if p.decode().startswith("\u2581")]
        if not target.any():
            continue
        for place, tag in zip(begins, target[: len(begins)], strict=True):
            loss += smoothed(log_probs[row, place], tag - 1)
            hits += log_probs[row, place].argmax() == tag - 1
            count += 1
    assert count == 4 * sum(target.any() for target in batch[2])
    np.testing.assert_allclose(sums_of(task, model, batch), [loss, count, hits], rtol=1e-4)


def test_sums_of_a_language_model(tasks):
    task, model, batch = tasks["language"]
    log_probs = log_softmax(model(batch[1]).numpy())
    places = np.argwhere(batch[2])
    loss = sum(smoothed(log_probs[r, t], batch[2][r, t]) for r, t in places)
    hits = sum(log_probs[r, t].argmax() == batch[2][r, t] for r, t in places)
    np.testing.assert_allclose(sums_of(task, model, batch), [loss, len(places), hits], rtol=1e-4)


def test_masks(tasks):
    """How many, what replaces them, and that a batch has the same ones twice."""
    task, _, _ = tasks["masked"]
    tokenizer = task.data.tokenizers[0]
    tokens = np.random.default_rng(0).integers(4, tokenizer.vocab_size, (200, 100)).astype("int32")
    tokens[:, 90], tokens[:, 91:] = tokenizer.end_id, 0
    fed, wanted = (x.numpy() for x in task.masked(tf.constant(tokens), tf.constant([3, 4])))
    again = task.masked(tf.constant(tokens), tf.constant([3, 4]))[0].numpy()
    assert (fed == again).all() and (fed[~wanted] == tokens[~wanted]).all()
    assert not wanted[:, 90:].any(), "neither the end id nor padding"
    assert abs(wanted[:, :90].mean() - SHARE) < 0.01
    assert abs((fed[wanted] == tokenizer.unknown_id).mean() - MASKED) < 0.02
    assert abs((fed[wanted] == tokens[wanted]).mean() - 0.1) < 0.02
    assert fed.min() >= 0 and fed.max() < tokenizer.vocab_size
    seeds = {tuple(task.seed_of(tf.constant(np.roll(tokens, i, 0))).numpy()) for i in range(5)}
    assert len(seeds) == 5, "another order of the rows has other masks"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A finished run of each task; the classifier begins from the encoder of the masked one."""
    folder = tmp_path_factory.mktemp("runs")
    for name in ("masked", "classify", "tag", "language"):
        data = write(folder / f"{name}.txt", lines(name))
        more = ["--start_from", folder / "masked"] if name == "classify" else []
        steps = 60 if name in ("classify", "tag") else 20
        arguments = ["--task", name, "--data", data, "--run", folder / name, "--steps", steps]
        assert run(*arguments, *SMALL, *more, "--no_export") == 0
    return folder


def test_a_run_folder_has_what_a_translators_has(runs):
    for name in TASKS:
        path = runs / name
        files = {file.name for file in path.iterdir()}
        assert files >= {"config.json", "history.csv", "curves.png", "report.md", "results.json",
                         "predictions.tsv", "attention.png", "weights", "checkpoints"}  # fmt: skip
        assert ("confusion.png" in files) == (name in ("classify", "tag"))
        results = json.loads((path / "results.json").read_text())
        assert all(f"validation_{score}" in results for score in CLASSES[name].scores)
        report = (path / "report.md").read_text()
        assert ("## Labels" in report) == (name in ("classify", "tag"))
        with (path / "history.csv").open() as file:
            assert {"loss", *CLASSES[name].scores} <= set(csv.DictReader(file).fieldnames)


def test_what_follows_from_the_words_is_learned(runs):
    results = json.loads((runs / "tag" / "results.json").read_text())
    assert results["validation_accuracy"] > 90
    tagger = text_model_of(RunFolder(runs / "tag"))
    [found] = tagger.tag(["cat sleeps 12 times"])
    assert found.tags == ["N", "V", "#", "N"]


def test_the_measure_of_the_run_is_that_of_the_served_model(runs):
    """Bits per byte and accuracy from the in-process text models, text by text."""
    folder = RunFolder(runs / "language")
    with folder.predictions.open(encoding="utf-8") as file:
        texts = [row["text"] for row in csv.DictReader(file, dialect="excel-tab")]
    log_prob = sum(found.log_prob for found in text_model_of(folder).log_prob(texts))
    count = sum(len(text.encode()) + 1 for text in texts)
    results = json.loads(folder.results.read_text())
    expected = -log_prob / np.log(2) / count
    assert results["validation_bits_per_byte"] == pytest.approx(expected, rel=1e-3)
    folder = RunFolder(runs / "classify")
    with folder.predictions.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, dialect="excel-tab"))
    found = text_model_of(folder).classify([row["text"] for row in rows])
    assert [one.label for one in found] == [row["found"] for row in rows]
    right = np.mean([row["found"] == row["expected"] for row in rows])
    results = json.loads(folder.results.read_text())
    assert results["validation_accuracy"] == pytest.approx(100 * right, abs=0.01)


def test_a_start_takes_subwords_sizes_and_encoder(runs, tmp_path):
    mine, its = RunFolder(runs / "classify"), RunFolder(runs / "masked")
    assert mine.tokenizers()[0].model_bytes == its.tokenizers()[0].model_bytes
    data = write(tmp_path / "few.tsv", lines("classify", 60))
    common = ["--task", "classify", "--data", data, "--start_from", its.path, *SMALL]
    settings = parse_arguments("", [str(a) for a in common], TextConfig)
    task = make_task(settings)
    with Claim(RunFolder(tmp_path / "run")) as claim:
        task.prepare(claim)
    model = task.model(task.config())
    for weight, other in zip(model.encoder.weights, model_of(its).encoder.weights, strict=True):
        np.testing.assert_array_equal(weight, other)


def test_starts_that_do_not_fit_are_errors(runs, tmp_path, capsys):
    data = write(tmp_path / "text.txt", lines("language", 60))
    common = ("--data", data, "--steps", 1, "--run", tmp_path / "run", *SMALL)
    assert run("--task", "language", *common, "--start_from", runs / "masked") == 1
    assert "a run of masked" in capsys.readouterr().err
    assert run("--task", "language", *common, "--start_from", tmp_path / "none") == 1
    assert "Cannot read" in capsys.readouterr().err


def test_export_of_a_run(runs, tmp_path, capsys):
    arguments = [str(runs / "tag"), "--to", str(tmp_path / "out"), "--no_check"]
    assert export.main(arguments) == 0
    path = Path(capsys.readouterr().out.strip())
    with SavedSession(path) as session:
        found = session.run("tag", {"text": np.array([b"dog eats 7 times"], object)})
    assert found["tags"].tolist() == [[b"N", b"V", b"#", b"N"]]
    metadata = json.loads((path / "assets.extra" / "keras_tfmr.json").read_text())
    assert metadata["tags"] == ["#", "N", "V"] and "validation_accuracy" in str(metadata["run"])
    assert export.main([str(runs / "masked"), "--to", str(tmp_path / "out")]) == 1
    assert "cannot be served" in capsys.readouterr().err
    assert export.main([*arguments, "--beams", "4"]) == 1
    assert "--beams" in capsys.readouterr().err


@pytest.mark.slow
def test_a_killed_run_goes_on_and_ends_the_same(tmp_path):
    """The command in its own process, killed after some updates; the same to the last bit."""
    data, ends = write(tmp_path / "text.tsv", lines("masked")), {}
    command = [sys.executable, "training/train_text.py", "--task", "masked", "--data", data,
               "--steps", "40", "--dropout_rate", "0.2", "--no_export", *SMALL]  # fmt: skip
    for name in ("whole", "broken"):
        path = tmp_path / name
        words = [str(word) for word in (*command, "--run", path)]
        if name == "broken":
            process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL)
            while newest_step(path) < 8:
                assert process.poll() is None
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
            process.wait()
            assert 0 < newest_step(path) < 40
        subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        newest = Checkpoints(path / "checkpoints").paths()[-1]
        with np.load(newest, allow_pickle=False) as arrays:
            ends[name] = {key: arrays[key] for key in arrays.files if key.startswith("model/")}
    assert ends["whole"].keys() == ends["broken"].keys() and ends["whole"]
    for key, value in ends["whole"].items():
        np.testing.assert_array_equal(value, ends["broken"][key])


def newest_step(path):
    paths = Checkpoints(path / "checkpoints").paths()
    return int(re.search(r"\d+", paths[-1].name).group()) if paths else 0


def test_help_leaves_out_what_is_for_translators(capsys):
    with pytest.raises(SystemExit):
        train_text.main(["--help"])
    told = capsys.readouterr().out
    assert "--task" in told and "--start_from" in told
    assert "--beams" not in told and "--joint_vocab" not in told


def test_a_label_that_is_only_measured_on_is_a_label(tmp_path):
    data = write(tmp_path / "few.tsv", ["a cat\tx", "a dog\ty", "a bird\tx", "a cow\ty"])
    test = write(tmp_path / "test.tsv", ["the fish\tz", "a horse\tx"])
    arguments = ["--data", data, "--validation", test, "--run", tmp_path / "run", *SMALL]
    settings = parse_arguments("", [str(a) for a in arguments], TextConfig)
    with Claim(RunFolder(tmp_path / "run")) as claim:
        prepared = make_task(settings).prepare(claim)
    assert prepared.tokenizers[1].names == ["x", "y", "z"]
    assert prepared.validation == [("the fish", "z"), ("a horse", "x")]
