"""Runs that begin from another one: from its folder, or a published model."""

import csv
import hashlib
import pickle

import numpy as np
import pytest
import sentencepiece
from marian_models import fixture, spms_and_pieces, write_transformers_folder
from tiny_runs import TINY, train, write_pairs

from keras_tfmr import SubwordTokenizer, TransformerConfig
from training import import_marian
from training.command_line import completed
from training.config import TrainingConfig
from training.files import RunError
from training.init_from import LEAST_BIAS, Start, carry_over, spread_layers
from training.run import RunFolder
from training.tasks import make_config, make_model

TUNING = (
    "--tokens_per_batch", "256", "--num_beams", "2", "--no_export", "--precision", "float32",
    "--set", "validation_pairs=10", "log_steps=10",
)  # fmt: skip
PUBLISHED = (*TUNING[:-2], "validation_pairs=5", "log_steps=1")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A corpus of other sentences of the same words, and some new ones."""
    path = write_pairs(tmp_path_factory.mktemp("data") / "new.tsv", 300)
    texts = (f"um gato {i} corre devagar\tdevagar corre {i} gato um\n" for i in range(200))
    path.write_text(path.read_text(encoding="utf-8") + "".join(texts), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A finished run with two vocabularies."""
    path = tmp_path_factory.mktemp("start")
    words = ("--data", write_pairs(path / "train.tsv"), "--output", path / "first", *TINY)
    more = (
        "joint_vocab=false",
        "--no_export",
        "--vocab_size",
        "280",
        "--steps",
        "10",
        "--dropout_rate",
        "0.3",
    )
    assert train(*words, *more, "--dropout_rate", "0.3") == 0
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
    status = train(
        "--init_from", first, "--data", data, "--output", tmp_path / "second", *TUNING,
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
    assert config["arguments"]["dropout_rate"] == 0.3 and config["arguments"]["d_model"] == 16
    checksum = hashlib.sha256(before.best.read_bytes()).hexdigest()
    assert config["start"] == {"path": str(first), "weights_sha256": checksum}
    assert checksum in now.report.read_text()
    with now.history.open() as file:
        assert [row["step"] for row in csv.DictReader(file)] == ["1"]


def test_a_published_model_is_tuned_with_more_subwords_and_its_licence_kept(
    published, data, tmp_path
):
    """After one update of a rate that changes nothing."""
    words = ("--init_from", published, "--data", data, "--output", tmp_path / "tuned")
    more = ("--steps", "1", "--learning_rate", "1e-12", "--extend_vocab", "--vocab_size", "300")
    assert train(*words, *PUBLISHED, *more) == 0
    before, tuned = RunFolder(published), RunFolder(tmp_path / "tuned")
    for old, new in zip(before.tokenizers(), tuned.tokenizers(), strict=True):
        assert spellings_of(new)[: old.vocab_size] == spellings_of(old)[: old.vocab_size]
        assert new.vocab_size > old.vocab_size and new.tags == old.tags
        lines = ["a casa", "gato preto"]
        for found, expected in zip(
            pickle.loads(pickle.dumps(new)).encode_lines(lines), new.encode_lines(lines),
            strict=True,
        ):  # fmt: skip
            np.testing.assert_array_equal(found, expected)  # in processes of a large corpus
    expected, weights = weights_of(before.model()), weights_of(tuned.model())
    for name, array in expected.items():
        known = tuple(slice(size) for size in array.shape)
        if name == "logits/bias":
            array = np.maximum(array, LEAST_BIAS)
        np.testing.assert_allclose(weights[name][known], array, atol=1e-6, err_msg=name)
    with tuned.history.open() as file:
        assert all(0 < float(row["loss"]) < 100 for row in csv.DictReader(file))
    assert tuned.read_config()["start"]["published"]["name"] == "opus"
    assert "CC BY 4.0" in tuned.report.read_text()


def test_added_subwords_begin_with_the_embeddings_of_their_parts(first, data, tmp_path):
    """After one update of a rate that changes nothing."""
    words = ("--data", data, "--output", tmp_path / "second", *TUNING, "--learning_rate", "1e-12")
    more = ("--init_from", first, "--extend_vocab", "--vocab_size", "300", "--steps", "1")
    assert train(*words, *more, "--dropout_rate", "0.3") == 0
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
        (["--set", "d_model=32"], "--d_model is that of --init_from"),
        (["--vocab_size", "8000"], "--vocab_size is that of --init_from"),
        (["--set", "joint_vocab=true"], "--joint_vocab is that of --init_from"),
        (["--extend_vocab", "--set", "joint_vocab=true"], "--joint_vocab is that of --init_from"),
        (["--model", "rnnsearch"], "--model is that of --init_from"),
    ],
)
def test_what_contradicts_the_other_run_is_an_error(first, data, capsys, option, said):
    with pytest.raises(SystemExit):
        train("--init_from", first, "--data", data, *option)
    assert said in capsys.readouterr().err


def test_what_agrees_with_the_other_run_is_none(first):
    given = {"init_from": str(first), "d_model": 16, "preset": "tiny", "vocab_size": 280}
    settings = TrainingConfig(**completed(given, TrainingConfig)).resolved()
    assert settings.warmup_steps == 100
    fresh = TrainingConfig(preset="tiny").resolved()
    assert settings.learning_rate == pytest.approx(fresh.learning_rate / 3)


def test_what_is_no_run_is_named(tmp_path, first):
    with pytest.raises(RunError, match=r"config\.json"):
        Start(tmp_path)
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    (unfinished / "config.json").write_text((first / "config.json").read_text())
    with pytest.raises(RunError, match=r"not a finished run: it has no weights/best\.weights"):
        Start(unfinished)


def test_a_student_with_an_ssru_begins_with_everything_else(first, tmp_path, capsys):
    """After one update of a rate that changes nothing."""
    words = ("--init_from", first, "--data", first.parent / "train.tsv", "--output", tmp_path / "s")
    assert (
        train(*words, *TUNING, "decoder_self=ssru", "--learning_rate", "1e-12", "--steps", "1") == 0
    )
    said = "The decoder's first sublayers begin with random weights: ssru, not attention."
    assert said in capsys.readouterr().out
    before, student = RunFolder(first), RunFolder(tmp_path / "s")
    known, fresh = weights_of(before.model()), []
    for name, found in weights_of(student.model()).items():
        if "/ssru/" in name:
            fresh.append(name.rsplit("/ssru/")[1])
        else:
            np.testing.assert_allclose(found, known[name], atol=1e-7, rtol=0, err_msg=name)
    assert {"forget/kernel", "forget/bias", "candidate/kernel"} <= {*fresh}
    assert student.translator().translate(["um gato"])[0] is not None
    tuned = ("--init_from", tmp_path / "s", *words[2:4], "--output", tmp_path / "t", *TUNING)
    assert train(*tuned, "--steps", "1") == 0
    assert RunFolder(tmp_path / "t").read_config()["model"]["config"]["decoder_self"] == "ssru"


@pytest.mark.parametrize("layers", [(1, 1), (2, 1), (5, 2)])
def test_a_student_begins_with_its_teachers_layers(layers):
    """One of fewer layers has some of them; in one of more, new layers change nothing at first."""
    config = dict(zip(("encoder_layers", "decoder_layers"), layers, strict=True))
    teacher_settings = TrainingConfig(preset="tiny", encoder_layers=2, decoder_layers=2).resolved()
    teacher = make_model("transformer", make_config(teacher_settings, 50, 50))
    settings = TrainingConfig(preset="tiny", **config).resolved()
    student = make_model("transformer", make_config(settings, 50, 50))
    spread_layers(teacher, student)
    known, weights = weights_of(teacher), weights_of(student)
    np.testing.assert_array_equal(
        weights["embedding/tokens/embeddings"] if "embedding/tokens/embeddings" in weights
        else next(w for n, w in weights.items() if n.endswith("tokens/embeddings")),
        next(w for n, w in known.items() if n.endswith("tokens/embeddings")),
    )  # fmt: skip
    for name, array in weights.items():
        if "layer_0/" in name:
            np.testing.assert_array_equal(array, known[name], err_msg=name)
    if layers[0] > 2:
        ids = np.array([[5, 6, 7, 3]])
        expected, found = teacher.encoder(ids), student.encoder(ids)
        np.testing.assert_allclose(np.array(found), np.array(expected), atol=1e-5)
