"""The whole command on a small corpus: what it leaves in the run folder, and how it fails."""

import csv
import dataclasses
import json
import random
import re

import numpy as np
import pytest
import sacrebleu
import tensorflow as tf

from keras_tfmr import SubwordTokenizer
from keras_tfmr.decoding import DecodingConfig
from training import train_pt_en
from training.prepare import prepare
from training.report.evaluation import Evaluator, spread
from training.run import session
from training.run.claim import Claim
from training.run.files import RunError
from training.run.folder import RunFolder
from training.run.models import KINDS, make_config
from training.run.on_tensorflow import Workers
from training.run.settings import PRESETS, TrainingConfig, parse_arguments

PORTUGUESE = ("casa", "gato", "livro", "mesa", "flor", "pão", "rio", "sol", "$ 5,00", "água")
ENGLISH = ("house", "cat", "book", "table", "flower", "bread", "river", "sun", "$5", "water")
SMALL = (
    "--preset", "tiny", "--d_model", "16", "--encoder_layers", "1", "--decoder_layers", "1",
    "--vocab_size", "320", "--tokens_per_batch", "256", "--warmup_steps", "5",
    "--evaluate_pairs", "10", "--evaluate_minutes", "0", "--beams", "2",
)  # fmt: skip


def pairs(count):
    """Distinct word-by-word translations."""
    draw, found = random.Random(0), {}
    while len(found) < count:
        words = draw.choices(range(10), k=draw.randint(2, 6))
        found[" ".join(PORTUGUESE[w] for w in words)] = " ".join(ENGLISH[w] for w in words)
    return list(found.items())


def write(path, rows):
    path.write_text("".join(f"{source}\t{target}\n" for source, target in rows))
    return str(path)


def run(*arguments):
    return train_pt_en.main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished run with two vocabularies, an evaluation after each epoch, and its export."""
    path = tmp_path_factory.mktemp("session")
    train = write(path / "train.tsv", pairs(340)[:300])
    validation = write(path / "validation.tsv", pairs(340)[300:])
    status = run(
        "--data", train, "--validation", validation, "--run", path / "run", *SMALL,
        "--no_joint_vocab", "--epochs", "2", "--accumulate", "2",
    )  # fmt: skip
    assert status == 0
    return path / "run"


def test_everything_is_there(folder):
    names = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert names > {
        "config.json", "source.model", "target.model", "weights/best.weights.h5",
        "weights/last.weights.h5", "history.csv", "curves.png", "attention.png",
        "translations.tsv", "report.md", "results.json", "saved_model/1/saved_model.pb",
    }  # fmt: skip
    assert any(name.startswith("tensorboard/events") for name in names)
    for picture in ("curves.png", "attention.png"):
        assert (folder / picture).read_bytes().startswith(b"\x89PNG")


def test_config_says_what_was_learned_from(folder):
    config = json.loads((folder / "config.json").read_text())
    assert config["training"]["accumulate"] == 2 and config["training"]["seed"] == 1
    assert config["arguments"]["epochs"] == 2
    assert config["corpus"]["validation"]["pairs"] == 40
    assert len(config["corpus"]["train"]["files"][0]["sha256"]) == 64
    assert config["versions"]["tensorflow"] == tf.__version__


def translations(folder):
    lines = (folder / "translations.tsv").read_text().splitlines()
    assert lines[0].split("\t") == ["source", "reference", "hypothesis", "score", "chrf"]
    return [line.split("\t") for line in lines[1:]]


def test_the_folder_rebuilds_the_translator_that_was_measured(folder):
    translator = RunFolder(folder).translator(num_return_sequences=1)
    rows = translations(folder)
    assert len(rows) == 40
    found = translator.translate_nbest([row[0] for row in rows])
    for (_, _, hypothesis, score, _), ((text, value),) in zip(rows, found, strict=True):
        assert " ".join(text.split()) == hypothesis
        assert value == pytest.approx(float(score), abs=2e-4)


def test_the_export_translates_alike(folder):
    rows = translations(folder)[:5]
    loaded = tf.saved_model.load(str(folder / "saved_model" / "1"))
    outputs = loaded.signatures["serving_default"](text=tf.constant([row[0] for row in rows]))
    found = [" ".join(text.decode().split()) for text in outputs["translation"].numpy()]
    assert found == [row[2] for row in rows]


def test_results_are_what_sacrebleu_says_of_the_translations(folder):
    rows = translations(folder)
    results = json.loads((folder / "results.json").read_text())
    hypotheses, references = [row[2] for row in rows], [row[1] for row in rows]
    bleu = sacrebleu.corpus_bleu(hypotheses, [references]).score
    assert results["validation_bleu"] == pytest.approx(bleu, abs=0.01)
    assert results["peak_memory_mib"] > 100


def test_history_learns_and_evaluates_after_each_epoch(folder):
    with (folder / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    evaluated = [row for row in rows if row["bleu"]]
    assert [row["epoch"] for row in evaluated] == ["1", "2"]
    assert float(rows[-1]["loss"]) < float(rows[0]["loss"])
    assert float(rows[-1]["learning_rate"]) < float(rows[0]["learning_rate"])
    assert all(float(row["tokens_per_second"]) > 0 for row in rows)


def test_the_report_shows_it_all(folder):
    text = (folder / "report.md").read_text()
    results = json.loads((folder / "results.json").read_text())
    for shown in (f"| validation | {results['validation_bleu']} |", "(curves.png)",
                  "(attention.png)", translations(folder)[0][0], "300 pairs"):  # fmt: skip
        assert shown in text


@pytest.mark.parametrize(
    "lines, message",
    [
        ("um\tone\ndois two\n", r"bad.tsv, line 2: .*column"),
        ("", r"bad.tsv: the file is empty"),
        ("um\tone\n", r"cannot hold out 1 of 1 pairs"),
    ],
)
def test_bad_data_is_one_line_on_stderr(tmp_path, capsys, lines, message):
    (tmp_path / "bad.tsv").write_text(lines)
    assert run("--data", tmp_path / "bad.tsv", "--run", tmp_path / "run") == 1
    error = capsys.readouterr().err
    assert error.startswith("train_pt_en.py: error: ") and error.count("\n") == 1
    assert re.search(message, error), error


def test_a_missing_file_and_a_missing_package_say_what_to_do(tmp_path, capsys):
    assert run("--data", tmp_path / "no.tsv", "--run", tmp_path / "run") == 1
    assert "no.tsv" in capsys.readouterr().err
    assert run("--data", "tfds:ted_hrlr_translate/pt_to_en", "--run", tmp_path / "run") == 1
    assert "--data FILE.tsv" in capsys.readouterr().err


def test_an_unwritable_folder_is_one_line_on_stderr(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert run("--run", tmp_path / "file" / "run") == 1
    assert "Cannot write" in capsys.readouterr().err


def test_a_size_that_cannot_be_is_one_line_on_stderr(tmp_path, capsys):
    data = write(tmp_path / "train.tsv", pairs(200))
    arguments = ("--data", data, "--run", tmp_path / "run", *SMALL)
    assert run(*arguments, "--num_heads", "3") == 1
    assert "num_heads=3" in capsys.readouterr().err
    # It is noticed before the corpus is read.
    assert run("--data", tmp_path / "no.tsv", "--run", tmp_path / "run", "--num_heads", "5") == 1
    assert "num_heads=5" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def stopped(*_):
    raise RunError("stopped")


def test_a_start_that_fails_leaves_nothing_to_the_next(tmp_path, monkeypatch):
    one = write(tmp_path / "one.tsv", pairs(200))
    other = write(tmp_path / "other.tsv", [(b, a) for a, b in pairs(300)])
    path = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(session, "described", stopped)
        assert run("--data", one, "--run", path, *SMALL) == 1
    assert [file.name for file in path.iterdir()] == [".lock"]
    monkeypatch.setattr(session, "make_trainer", stopped)
    changed = ("--data", other, "--run", path, *SMALL, "--vocab_size", "330", "--no_joint_vocab")
    assert run(*changed) == 1
    assert {file.name for file in path.iterdir()} == {
        ".lock", "config.json", "encoded", "source.model", "target.model",
    }  # fmt: skip


def test_a_start_killed_before_the_tokenisers_were_written_goes_on(tmp_path, monkeypatch, capsys):
    data = write(tmp_path / "train.tsv", pairs(200))
    path = tmp_path / "run"
    monkeypatch.setattr(session, "make_trainer", stopped)
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "save_tokenizers", stopped)
        assert run("--data", data, "--run", path, *SMALL) == 1
    assert not (path / "tokenizer.model").exists()
    for _ in range(2):  # learned, and loaded
        assert run("--data", data, "--run", path, *SMALL) == 1
        assert capsys.readouterr().err.endswith("stopped\n")
        assert (path / "tokenizer.model").exists()


def test_tokenisers_are_taken_only_where_a_run_resumes(tmp_path):
    data = write(tmp_path / "train.tsv", pairs(200))
    settings = TrainingConfig(data=data, vocab_size=330, joint_vocab=False)
    claim = Claim(RunFolder(tmp_path / "run"))
    left = SubwordTokenizer.learn(["um dois"], vocab_size=300)
    left.save(claim.folder.path / "tokenizer.model")
    source, target = prepare(settings.resolved(), claim).tokenizers
    assert len({left.model_bytes, source.model_bytes, target.model_bytes}) == 3
    claim.resumes, claim.keep_to = True, lambda *_, **__: None
    source, target = prepare(settings.resolved(), claim).tokenizers
    assert source is target and source.model_bytes == left.model_bytes
    claim.close()


@pytest.mark.parametrize("option", ["--overwrite", "--overw", "--o"])
def test_to_resume_never_says_to_overwrite(option):
    words = ["train_pt_en.py", "--run", "my run", option, "--data=--o.tsv"]
    expected = "python train_pt_en.py --run 'my run' --data=--o.tsv"
    assert session.command_to_resume(words) == expected


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--minutes", "0"], "--minutes must be positive"),
        (["--average", "1"], "--average must be in [0, 1)"),
        (["--source", "a"], "must be given together. Received: --source a, --target None"),
        (["--data", "a", "--source", "a", "--target", "b"], "either --data or --source"),
        (["--validation", "a"], "--validation needs --data"),
        (["--data", "a", "--validation", "a", "b", "c"], "one or two files"),
        (["--accumulate", "0"], "--accumulate must be positive. Received: 0"),
        (["--warmup_steps", "0"], "--warmup_steps must be positive. Received: 0"),
        (["--precision", "float8"], "invalid choice"),
        (["--length_penalty", "-1"], "--length_penalty must be 0 or more. Received: -1.0"),
        (["--length_penalty", "nan"], "--length_penalty must be finite. Received: nan"),
        (["--clip_norm", "-1"], "--clip_norm must be 0 or more. Received: -1.0"),
        (["--seed", "-1"], "--seed must be in [0, 2**32). Received: -1"),
        (["--seed", "4294967296"], "--seed must be in [0, 2**32). Received: 4294967296"),
        (["--evaluate_steps", "-5"], "--evaluate_steps must be positive. Received: -5"),
        (["--checkpoint_minutes", "-3"], "--checkpoint_minutes must be 0 or more. Received: -3.0"),
        (["--evaluate_minutes", "-1"], "--evaluate_minutes must be 0 or more. Received: -1.0"),
        (["--learning_rate", "inf"], "--learning_rate must be finite. Received: inf"),
        (["--minutes", "nan"], "--minutes must be finite. Received: nan"),
        (["--run", ""], "--run must name a file or folder. Received: ''"),
        (["--data", ""], "--data must name a file or folder. Received: ''"),
        (["--data", "a", "--validation", "a", ""], "--validation must name a file or folder"),
        (["--preset", "huge"], "--preset of --model transformer must be one of: small, tiny, tut"),
        (["--preset", "paper"], "Received: 'paper'"),
        (["--model", "rnnsearch", "--preset", "base"], "one of: small, tiny, tutorial, paper."),
        (
            ["--model", "rnnsearch", "--d_model", "64", "--dff", "7", "--norm_first"],
            "--d_model, --dff, --norm_first cannot be set for --model rnnsearch",
        ),
    ],
)
def test_arguments_that_make_no_sense(capsys, arguments, message):
    with pytest.raises(SystemExit) as ended:
        parse_arguments("", arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("kind", KINDS)
def test_every_preset_on_the_command_line_is_one_of_the_model(kind):
    for preset in PRESETS[kind]:
        config = make_config(TrainingConfig(model=kind, preset=preset), 320, 320)
        assert config.target_vocab == 320
    ours = {"small"} | ({"6-1", "12-1", "6-2"} if kind == "transformer" else set())
    assert {*PRESETS[kind]} == {*type(config).presets} | ours
    assert KINDS.keys() == PRESETS.keys()


def test_presets_fill_in_the_recipes_of_their_papers():
    """Attention Is All You Need, 5.3: d_model^-0.5 at most times step^-0.5, 4,000 warm-up steps."""
    for preset, width, dropout in (("base", 512, 0.1), ("big", 1024, 0.3)):
        settings = TrainingConfig(preset=preset).resolved()
        assert settings.learning_rate == pytest.approx(width**-0.5 * 4000**-0.5, rel=1e-4)
        assert (settings.warmup_steps, settings.schedule) == (4000, "noam")
        assert settings.tokens_per_batch * settings.accumulate == pytest.approx(25_000, rel=0.02)
        config = make_config(settings, 320, 320)
        assert not config.norm_first and config.dropout_rate == dropout
    assert TrainingConfig(preset="base", learning_rate=1e-3).resolved().learning_rate == 1e-3
    small = make_config(TrainingConfig(), 320, 320)
    assert small.norm_first and small.d_model == 192


def test_what_may_change_on_resume_is_said_by_the_fields():
    settings = TrainingConfig().resolved()
    longer = dataclasses.replace(settings, minutes=99.0, beams=7, run="elsewhere", keep=1)
    assert longer.identity() == settings.identity()
    for other in ({"seed": 2}, {"accumulate": 2}, {"preset": "tiny"}, {"devices": 2}):
        assert dataclasses.replace(settings, **other).identity() != settings.identity()


def test_defaults_are_those_of_the_dataclass():
    assert parse_arguments("", []) == TrainingConfig().resolved()
    assert parse_arguments("", []).phrasebook
    settings = parse_arguments("", ["--data", "a.tsv", "--no_norm_first", "--steps", "5"])
    assert settings.minutes is None and settings.norm_first is False


class Echo:
    """A model that translates each source into itself."""

    def start(self, source_ids, beams, max_length):
        vocab = 320
        padded = tf.pad(source_ids, [[0, 0], [0, max_length]])

        def step(tokens, state):
            ids = tf.gather(padded, state, axis=1)
            return tf.math.log(tf.one_hot(tf.where(ids == 0, 3, ids), vocab) + 1e-9), state + 1

        return step, tf.constant(0)


def test_the_evaluator_keeps_the_order_and_finds_a_perfect_translation_perfect():
    texts = [source for source, _ in pairs(150)]
    tokenizer = SubwordTokenizer.learn(texts, vocab_size=320)
    same = [(text, text) for text in texts]
    evaluator = Evaluator(
        Echo(), (tokenizer, tokenizer), same, DecodingConfig(num_beams=1), Workers()
    )
    scores, found = evaluator.measure()
    assert found == texts
    assert scores == {"bleu": pytest.approx(100), "chrf": pytest.approx(100)}


def test_a_slice_is_spread_over_all():
    assert spread(range(10), 20) == list(range(10))
    assert np.diff(spread(range(1000), 10)).tolist() == [100] * 9
