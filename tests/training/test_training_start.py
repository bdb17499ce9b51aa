"""Runs that begin from another one: from its folder, its export, or a published model."""

import csv
import hashlib
import json
import pickle

import numpy as np
import pytest
import sentencepiece
from marian_models import fixture, spms_and_pieces, write_transformers_folder
from test_training_session import SMALL, pairs, run, write

from keras_tfmr import SubwordTokenizer, TransformerConfig
from training import import_marian
from training.run.files import RunError
from training.run.folder import RunFolder
from training.run.models import make_model
from training.run.settings import TrainingConfig
from training.run.start import LEAST_BIAS, opened
from training.run.vocabulary_transfer import carry_over

TUNING = (
    "--tokens_per_batch", "256", "--evaluate_pairs", "10", "--evaluate_minutes", "0", "--beams",
    "2", "--no_export", "--precision", "float32",
)  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A corpus of other sentences of the same words."""
    return write(tmp_path_factory.mktemp("data") / "new.tsv", pairs(900)[400:])


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A finished run with two vocabularies and an export."""
    path = tmp_path_factory.mktemp("start")
    train = write(path / "train.tsv", pairs(300))
    words = ("--data", train, "--run", path / "first", *SMALL, "--no_joint_vocab", "--steps", "20")
    assert run(*words, "--precision", "float32", "--dropout_rate", "0.3") == 0
    return path / "first"


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """The run folder of a published model of random weights."""
    path = tmp_path_factory.mktemp("published")
    folder = write_transformers_folder(path / "opus", fixture()[1], spms=spms_and_pieces())
    assert import_marian.main([str(folder), "--output", str(path / "run")]) == 0
    return path / "run"


def weights_of(model):
    return {weight.path: np.array(weight) for weight in model.weights}


def test_a_run_begins_with_the_weights_and_tokenizers_of_another(first, data, tmp_path):
    """After one update of a rate that changes nothing; in a model of the same shape."""
    status = run(
        "--start_from", first, "--data", data, "--run", tmp_path / "second", *TUNING,
        "--learning_rate", "1e-12", "--steps", "1",
    )  # fmt: skip
    assert status == 0
    before, now = RunFolder(first), RunFolder(tmp_path / "second")
    expected = weights_of(before.model())
    for name, found in weights_of(now.model()).items():
        np.testing.assert_allclose(found, expected[name], atol=1e-7, rtol=0, err_msg=name)
    for one, other in zip(before.tokenizers(), now.tokenizers(), strict=True):
        assert one.model_bytes == other.model_bytes
    config, other = now.read_config(), before.read_config()
    assert config["model"] == other["model"]
    assert config["training"]["dropout_rate"] == 0.3 and config["training"]["d_model"] == 16
    checksum = hashlib.sha256(before.best.read_bytes()).hexdigest()
    assert config["start"] == {"path": str(first), "weights_sha256": checksum}
    assert checksum in now.report.read_text()
    with now.history.open() as file:
        assert [row["step"] for row in csv.DictReader(file)] == ["1"]


@pytest.mark.slow
def test_a_killed_fine_tuning_goes_on_as_it_began(first, data, tmp_path):
    """Its checkpoint counts, not where it began: 4 updates at once are 2 and 2 more."""
    words = ("--start_from", first, "--data", data, *TUNING, "--learning_rate", "1e-2")
    assert run(*words, "--run", tmp_path / "whole", "--steps", "4", "--schedule", "noam") == 0
    broken = ("--run", tmp_path / "broken", "--schedule", "noam")
    assert run(*words, *broken, "--steps", "2") == 0
    (tmp_path / "broken" / "results.json").unlink()
    for path in (tmp_path / "broken" / "checkpoints").glob("*"):
        forget_the_end(path)
    assert run(*words, *broken, "--steps", "4") == 0
    expected = weights_of(RunFolder(tmp_path / "whole").model(RunFolder(tmp_path / "whole").last))
    found = weights_of(RunFolder(tmp_path / "broken").model(RunFolder(tmp_path / "broken").last))
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


def forget_the_end(path):
    """Makes the last checkpoint of a finished training one of a training under way."""
    with np.load(path) as archive:
        arrays = dict(archive)
    meta = json.loads(arrays["meta"].tobytes())
    arrays["meta"] = np.frombuffer(json.dumps(meta | {"trained": False}).encode(), np.uint8)
    np.savez(path, **arrays)


def test_an_export_holds_all_that_its_run_does(first):
    """The newest version, without loading it."""
    start, export = opened(first), opened(first / "saved_model")
    assert export.path == first / "saved_model" / "1"
    assert (export.kind, export.config, export.settings) == (
        start.kind, start.config, start.settings
    )  # fmt: skip
    assert [one.model_bytes for one in export.tokenizers()] == [
        one.model_bytes for one in start.tokenizers()
    ]
    models = [make_model(one.kind, one.config) for one in (start, export)]
    for one, model in zip((start, export), models, strict=True):
        one.assign(model)
    expected, found = map(weights_of, models)
    assert expected.keys() == found.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.mark.slow
def test_the_vocabulary_of_a_published_model_is_extended(published, data, tmp_path):
    status = run(
        "--start_from", published, "--data", data, "--run", tmp_path / "tuned", *TUNING,
        "--steps", "1", "--learning_rate", "1e-12", "--extend_vocab", "--vocab_size", "300",
    )  # fmt: skip
    assert status == 0
    before, now = RunFolder(published), RunFolder(tmp_path / "tuned")
    for old, new in zip(before.tokenizers(), now.tokenizers(), strict=True):
        assert spellings_of(new)[: old.vocab_size] == spellings_of(old)[: old.vocab_size]
        assert new.vocab_size > old.vocab_size and new.tags == old.tags
    expected, weights = weights_of(before.model()), weights_of(now.model())
    for name, array in expected.items():
        known = tuple(slice(size) for size in array.shape)
        if name == "logits/bias":
            array = np.maximum(array, LEAST_BIAS)
        np.testing.assert_allclose(weights[name][known], array, atol=1e-6, err_msg=name)


@pytest.mark.slow
def test_a_published_model_is_tuned_and_its_licence_kept(published, data, tmp_path):
    status = run(
        "--start_from", published, "--data", data, "--run", tmp_path / "tuned", *TUNING,
        "--steps", "3",
    )  # fmt: skip
    assert status == 0
    tuned = RunFolder(tmp_path / "tuned")
    with tuned.history.open() as file:
        losses = [float(row["loss"]) for row in csv.DictReader(file)]
    assert all(0 < loss < 100 for loss in losses)  # a ban of -1e9 would be in it
    assert tuned.read_config()["start"]["published"]["name"] == "opus"
    assert "CC BY 4.0" in tuned.report.read_text()
    (source, _), before = tuned.tokenizers(), opened(published).tokenizers()[0]
    assert source.model_bytes == before.model_bytes
    lines = ["a casa", "gato preto"]
    for found, expected in zip(
        pickle.loads(pickle.dumps(source)).encode_lines(lines), before.encode_lines(lines),
        strict=True,
    ):  # fmt: skip
        np.testing.assert_array_equal(found, expected)  # in processes of a large corpus


def test_added_subwords_begin_with_the_embeddings_of_their_parts(first, tmp_path):
    """After one update of a rate that changes nothing."""
    texts = [(f"o gato {i} corre devagar", f"the cat {i} runs slowly") for i in range(300)]
    other = write(tmp_path / "other.tsv", [*pairs(300)[:150], *texts])
    words = ("--data", other, "--run", tmp_path / "second", *TUNING, "--learning_rate", "1e-12")
    more = ("--start_from", first, "--extend_vocab", "--vocab_size", "300", "--steps", "1")
    assert run(*words, *more) == 0
    before, now = RunFolder(first), RunFolder(tmp_path / "second")
    expected, weights = weights_of(before.model()), weights_of(now.model())
    tables = [
        "encoder/source_embedding/tokens/embeddings", "decoder/target_embedding/tokens/embeddings",
    ]  # fmt: skip
    for name in set(weights) - set(tables):
        np.testing.assert_allclose(weights[name], expected[name], atol=1e-7, rtol=0, err_msg=name)
    for name, old, new in zip(tables, before.tokenizers(), now.tokenizers(), strict=True):
        pieces, size = spellings_of(new), old.vocab_size
        assert pieces[:size] == spellings_of(old)
        np.testing.assert_allclose(weights[name][:size], expected[name], atol=1e-7)
        ids = {piece: i for i, piece in enumerate(pieces[:size])}
        mixed = 0
        for piece, vector in zip(pieces[size:], weights[name][size:], strict=True):
            halves = [(piece[:n], piece[n:]) for n in range(1, len(piece))]
            sums = [expected[name][[ids[a], ids[b]]] for a, b in halves if a in ids and b in ids]
            mixed += any(np.allclose(vector, pair.mean(0), atol=1e-6) for pair in sums)
        assert mixed > 0


def test_logits_of_added_subwords_are_those_of_their_parts():
    """Of a model whose logits are not tied, as an imported one's can be."""
    known = [SubwordTokenizer.learn([text], vocab_size=270) for text in ("abba ab", "cd dc")]
    larger = [known[0], known[1].extended(SubwordTokenizer.learn(["abcdcd abcd"], vocab_size=280))]
    old, new = (
        make_model("transformer", TransformerConfig.preset(
            "tiny", source_vocab=source.vocab_size, target_vocab=target.vocab_size,
            tied_logits=False, joint_vocab=False,
        ))
        for source, target in (known, larger)
    )  # fmt: skip
    old.logits.dense.bias.assign(np.arange(known[1].vocab_size))
    carry_over(old, known, new, larger)
    columns, biases = np.array(new.logits.dense.kernel).T, np.array(new.logits.dense.bias)
    pieces, size = spellings_of(larger[1]), known[1].vocab_size
    np.testing.assert_array_equal(columns[:size], np.array(old.logits.dense.kernel).T)
    np.testing.assert_array_equal(biases[:size], np.arange(size))
    for piece, parts in (("cd", "cd"), ("▁abcd", "▁cd")):  # it knows neither a nor b
        assert piece in pieces[size:]
        place, ids = pieces.index(piece), [pieces.index(part) for part in parts]
        np.testing.assert_allclose(columns[place], columns[ids].mean(0), atol=1e-6)
        assert biases[place] == pytest.approx(biases[ids].mean())


def spellings_of(tokenizer):
    """The subwords as the SentencePiece model itself spells them."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model_bytes)
    return [processor.id_to_piece(i) for i in range(len(processor))]


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (["--d_model", "32"], "--d_model is that of --start_from"),
        (["--vocab_size", "8000"], "--vocab_size is that of --start_from"),
        (["--joint_vocab"], "--joint_vocab is that of --start_from"),
        (["--preset", "base"], "--preset is that of --start_from"),
        (["--extend_vocab", "--joint_vocab"], "--joint_vocab is that of --start_from"),
        (["--model", "rnnsearch"], "--model is that of --start_from"),
    ],
)
def test_what_contradicts_the_other_run_is_an_error(first, data, capsys, option, said):
    with pytest.raises(SystemExit):
        run("--start_from", first, "--data", data, *option)
    assert said in capsys.readouterr().err


def test_what_agrees_with_the_other_run_is_none(first):
    given = {"start_from": str(first), "d_model": 16, "preset": "tiny", "vocab_size": 320}
    settings = TrainingConfig(**TrainingConfig.completed(given)).resolved()
    assert settings.warmup_steps == 100
    fresh = TrainingConfig(preset="tiny").resolved()
    assert settings.learning_rate == pytest.approx(fresh.learning_rate / 3)


def test_what_is_no_run_is_named(tmp_path, first):
    with pytest.raises(RunError, match=r"config\.json"):
        opened(tmp_path)
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    (unfinished / "config.json").write_text((first / "config.json").read_text())
    with pytest.raises(RunError, match=r"not a finished run: it has no weights/best\.weights"):
        opened(unfinished)
