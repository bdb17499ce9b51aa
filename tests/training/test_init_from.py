"""Runs that begin from another one: from its folder, or a published model."""

import hashlib
import json
import pickle

import numpy as np
import pytest
import sentencepiece
from marian_models import fixture, write_transformers_folder
from tiny_runs import history, train, write_pairs

from keras_tfmr import SubwordTokenizer, TransformerConfig
from keras_tfmr.presets.models import make_model
from keras_tfmr.text.spans import SLOTS
from training import import_marian
from training.command.disk import RunError
from training.run.run_folder import RunFolder
from training.run.transfer import LEAST_BIAS, carry_over, config_for, spread_layers
from training.settings.command_line import completed
from training.settings.init_from import Start
from training.settings.training_config import TrainingConfig
from training.tasks import TranslationTask, make_config

TUNING = (  # one update of a rate that changes nothing
    "--learning_rate", "1e-12", "--steps", "1", "--tokens_per_batch", "256", "--num_beams", "1",
    "--no_export", "--precision", "float32", "--set", "validation_pairs=5", "log_steps=1",
)  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A corpus of other sentences of the same words, and some new ones."""
    path = write_pairs(tmp_path_factory.mktemp("data") / "new.tsv", 100)
    texts = (f"um gato {i} corre devagar\tdevagar corre {i} gato um\n" for i in range(100))
    path.write_text(path.read_text(encoding="utf-8") + "".join(texts), encoding="utf-8")
    return path


def weights_of(model):
    return {weight.path: np.array(weight) for weight in model.weights}


def spellings_of(tokenizer):
    """The subwords as the SentencePiece model itself spells them."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model_bytes)
    return [processor.id_to_piece(i) for i in range(len(processor))]


def test_a_run_begins_with_the_weights_and_tokenizers_of_another(
    whole, data, tmp_path, unevaluated
):
    words = ("--init_from", whole, "--data", data, "--output", tmp_path / "second")
    assert train(*words, *TUNING) == 0
    before, now = RunFolder(whole), RunFolder(tmp_path / "second")
    expected = weights_of(before.model())
    for name, found in weights_of(now.model()).items():
        np.testing.assert_allclose(found, expected[name], atol=1e-7, rtol=0, err_msg=name)
    for one, other in zip(before.tokenizers(), now.tokenizers(), strict=True):
        assert one.model_bytes == other.model_bytes
    config = now.read_config()
    assert config["model"] == before.read_config()["model"]
    assert config["arguments"]["dropout_rate"] == 0.3 and config["arguments"]["d_model"] == 16
    checksum = hashlib.sha256(before.best.read_bytes()).hexdigest()
    assert config["start"] == {"path": str(whole), "weights_sha256": checksum}
    assert [row["step"] for row in history(now.path)] == ["1"]


@pytest.mark.slow
def test_a_published_model_is_tuned_with_more_subwords_and_its_licence_kept(data, tmp_path, capsys):
    folder = write_transformers_folder(tmp_path / "opus", fixture()[1])
    command = [str(folder), "--output", str(tmp_path / "published")]
    assert import_marian.main(command) == 0
    before, tuned = RunFolder(tmp_path / "published"), RunFolder(tmp_path / "tuned")
    words = ("--init_from", before.path, "--data", data, "--output", tuned.path, *TUNING)
    assert train(*words) == 1
    assert "import_marian.py with --language, one of eng, fra" in capsys.readouterr().err
    assert import_marian.main([*command, "--language", "eng", "--overwrite"]) == 0
    assert train(*words, "--extend_vocab", "--vocab_size", "330") == 0
    for old, new in zip(before.tokenizers(), tuned.tokenizers(), strict=True):
        assert spellings_of(new)[: old.vocab_size] == spellings_of(old)[: old.vocab_size]
        assert new.vocab_size > old.vocab_size
        assert new.target_languages == old.target_languages
        rows = [row[-1:] for row in new.encode(SLOTS).to_list()]
        assert tuple(text.decode() for text in new.decode(rows).numpy()) == SLOTS
        lines = ["a casa", f"gato{SLOTS[1]}preto {SLOTS[0]}"]
        pickled = pickle.loads(pickle.dumps(new))  # for the processes of a large corpus
        for found, wanted in zip(pickled.encode_lines(lines), new.encode_lines(lines), strict=True):
            np.testing.assert_array_equal(found, wanted)
    weights = weights_of(tuned.model())
    for name, array in weights_of(before.model()).items():
        known = tuple(slice(size) for size in array.shape)
        if name == "logits/bias":
            array = np.maximum(array, LEAST_BIAS)
        np.testing.assert_allclose(weights[name][known], array, atol=1e-6, err_msg=name)
    assert all(0 < float(row["loss"]) < 100 for row in history(tuned.path))
    assert tuned.read_config()["start"]["published"]["name"] == "opus"
    assert "CC BY 4.0" in tuned.report.read_text()


def test_added_subwords_begin_with_the_weights_of_their_parts():
    """Of a model whose logits are not tied, as an imported one's can be."""
    known = [SubwordTokenizer.learn([text], vocab_size=270) for text in ("ab ba 1", "cd dc 1")]
    texts = ("cdabab cdab", "abcdcd abcd")
    more = [SubwordTokenizer.learn([text], vocab_size=280, symbols=SLOTS[:2]) for text in texts]
    larger = [old.extended(new) for old, new in zip(known, more, strict=True)]
    old, new = (
        make_model("transformer", TransformerConfig.preset(
            "tiny", source_vocab=source.vocab_size, target_vocab=target.vocab_size,
            tied_logits=False, joint_vocab=False,
        ))
        for source, target in (known, larger)
    )  # fmt: skip
    old.logits.dense.bias.assign(np.arange(known[1].vocab_size))
    carry_over(old, known, new, larger)
    before, after = weights_of(old), weights_of(new)
    # The parts of subwords in the old vocabulary, which lacks two of their four letters.
    parts = {"ab": "ab", "▁cdab": "▁ab"}, {"cd": "cd", "▁abcd": "▁cd"}
    parts = [{**side, SLOTS[1]: "1"} for side in parts]
    for name, array in after.items():
        if "embeddings" not in name and "logits" not in name:
            np.testing.assert_array_equal(array, before[name], err_msg=name)
            continue
        side = "source" not in name
        found, old_rows = (x.T if "kernel" in name else x for x in (array, before[name]))
        pieces, size = spellings_of(larger[side]), known[side].vocab_size
        np.testing.assert_array_equal(found[:size], old_rows, err_msg=name)
        for piece, old_pieces in parts[side].items():
            assert piece in pieces[size:]
            mean = old_rows[[pieces.index(part) for part in old_pieces]].mean(axis=0)
            np.testing.assert_allclose(found[pieces.index(piece)], mean, atol=1e-6, err_msg=name)


def test_what_contradicts_the_other_run_is_an_error(whole, data, capsys):
    for option, said in (
        (["--set", "d_model=32"], "--set d_model is that of --init_from"),
        (["--vocab_size", "8000"], "--vocab_size is that of --init_from"),
        (
            ["--extend_vocab", "--set", "joint_vocab=true"],
            "--set joint_vocab is that of --init_from",
        ),
        (["--model", "rnnsearch"], "--model is that of --init_from"),
    ):
        with pytest.raises(SystemExit):
            train("--init_from", whole, "--data", data, *option)
        assert said in capsys.readouterr().err


def test_what_agrees_with_the_other_run_is_none(whole):
    given = {"init_from": str(whole), "d_model": 16, "preset": "tiny", "vocab_size": 300}
    settings = TrainingConfig(**completed(given, TrainingConfig)).resolved()
    assert settings.warmup_steps == 100
    fresh = TrainingConfig(preset="tiny").resolved()
    assert settings.learning_rate == pytest.approx(fresh.learning_rate / 3)


def test_a_student_has_the_layers_of_its_preset(whole):
    given = {"init_from": str(whole), "preset": "12-1-ssru"}
    settings = TrainingConfig(**completed(given, TrainingConfig)).resolved()
    tokenizers = RunFolder(whole).tokenizers()
    config = config_for(Start(whole), TranslationTask(settings, tokenizers))
    assert (config.encoder_layers, config.decoder_layers) == (12, 1)
    assert (config.decoder_self, config.d_model) == ("ssru", 192)
    assert config.target_vocab == tokenizers[1].vocab_size


def test_what_is_no_run_is_named(tmp_path, whole):
    with pytest.raises(RunError, match=r"config\.json"):
        Start(tmp_path)
    text = (whole / "config.json").read_text()
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(RunError, match=r"not a finished run: it has no weights/best\.weights"):
        Start(tmp_path)
    for part, names in (("arguments", ["preset", "vocab_size", "protect"]), ("model", ["config"])):
        for name in names:
            for value in (None, {}, "a", -1, 1.5, True, {"d_model": "a"}):
                config = json.loads(text)
                config[part][name] = value
                (tmp_path / "config.json").write_text(json.dumps(config))
                said = rf"config\.json: {part}\.{name}|not a finished run"
                with pytest.raises(RunError, match=said if value is None else said[:-19]):
                    Start(tmp_path)


def test_a_student_with_an_ssru_begins_with_everything_else(
    whole, data, tmp_path, unevaluated, capsys
):
    words = ("--init_from", whole, "--data", data, "--output", tmp_path / "student")
    assert train(*words, *TUNING, "decoder_self=ssru") == 0
    said = "The decoder's first sublayers begin with random weights: ssru, not attention."
    assert said in capsys.readouterr().out
    known, student = weights_of(RunFolder(whole).model()), RunFolder(tmp_path / "student")
    fresh = set()
    for name, found in weights_of(student.model()).items():
        if "/ssru/" in name:
            fresh.add(name.rsplit("/ssru/")[1])
        else:
            np.testing.assert_allclose(found, known[name], atol=1e-7, rtol=0, err_msg=name)
    assert fresh >= {"forget/kernel", "forget/bias", "candidate/kernel"}
    assert student.read_config()["model"]["config"]["decoder_self"] == "ssru"


@pytest.mark.parametrize("layers", [(1, 1), (5, 2)])
def test_a_student_begins_with_its_teachers_layers(layers):
    """One of fewer layers has some of them; in one of more, new layers change nothing at first."""
    teacher, student = (
        make_model("transformer", make_config(
            TrainingConfig(preset="tiny", encoder_layers=e, decoder_layers=d).resolved(), 50, 50
        ))
        for e, d in ((2, 2), layers)
    )  # fmt: skip
    spread_layers(teacher, student)
    known = weights_of(teacher)
    for name, array in weights_of(student).items():
        if "layer_0/" in name or "embeddings" in name:
            np.testing.assert_array_equal(array, known[name], err_msg=name)
    if layers[0] > 2:
        ids = np.array([[5, 6, 7, 3]])
        expected, found = teacher.encoder(ids), student.encoder(ids)
        np.testing.assert_allclose(np.array(found), np.array(expected), atol=1e-5)
