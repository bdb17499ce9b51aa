"""Runs that begin from another one: from its folder, or a published model."""

import hashlib
import shutil

import numpy as np
import pytest
from marian_models import write_published
from tiny_runs import history, train, write_pairs

from training import import_marian
from training.command.disk import RunError
from training.run.run_folder import RunFolder
from training.settings.init_from import Start
from training.settings.training_config import TrainingConfig
from training.tasks import TranslationTask
from training.train import LEAST_BIAS

TUNING = (  # one update of a rate that changes nothing
    "--learning_rate", "1e-12", "--steps", "1", "--tokens_per_batch", "256", "--num_beams", "1",
    "--no_export", "--precision", "float32", "--set", "validation_pairs=5", "log_steps=1",
)  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A corpus of other sentences of the same words."""
    return write_pairs(tmp_path_factory.mktemp("data") / "new.tsv", 100)


def weights_of(model):
    return {weight.path: np.array(weight) for weight in model.weights}


@pytest.mark.ci
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
    assert config["model"]["config"]["dropout_rate"] == 0.3
    checksum = hashlib.sha256(before.best.read_bytes()).hexdigest()
    assert config["start"] == {"path": str(whole), "weights_sha256": checksum}
    assert [row["step"] for row in history(now.path)] == ["1"]


@pytest.mark.slow
def test_a_published_model_is_tuned_and_its_licence_kept(data, tmp_path, capsys):
    folder = write_published(tmp_path / "opus")
    command = [str(folder), "--output", str(tmp_path / "published")]
    assert import_marian.main(command) == 0
    before, tuned = RunFolder(tmp_path / "published"), RunFolder(tmp_path / "tuned")
    words = ("--init_from", before.path, "--data", data, "--output", tuned.path, *TUNING)
    assert train(*words) == 1
    assert "import_marian.py with --language, one of eng, fra" in capsys.readouterr().err
    assert import_marian.main([*command, "--language", "eng", "--overwrite"]) == 0
    assert train(*words) == 0
    weights = weights_of(tuned.model())
    for name, array in weights_of(before.model()).items():
        array = np.maximum(array, LEAST_BIAS) if name.endswith("bias") else array
        np.testing.assert_allclose(weights[name], array, atol=1e-6, err_msg=name)
    assert all(0 < float(row["loss"]) < 100 for row in history(tuned.path))
    assert tuned.read_config()["start"]["published"]["name"] == "opus"
    assert "CC BY 4.0" in tuned.report.read_text()


def test_what_contradicts_the_other_run_is_an_error(whole, data, capsys):
    for name, *option in (
        ("d_model", "--set", "d_model=32"), ("vocab_size", "--vocab_size", "8000"),
        ("preset", "--preset", "big"), ("model", "--model", "rnnsearch"),
    ):  # fmt: skip
        with pytest.raises(SystemExit):
            train("--init_from", whole, "--data", data, *option)
        assert f"{name} is that of --init_from" in capsys.readouterr().err


def test_ids_beyond_the_other_runs_model_are_an_error_and_no_loss_of_nan(whole):
    start = Start(whole)
    settings = TrainingConfig(init_from=str(whole)).resolved()
    task = TranslationTask(settings, start.tokenizers())
    assert task.config(start.config).to_dict() == start.config
    with pytest.raises(RunError, match="tokenizers of 300 and 300 ids, and a model of 300 and 99"):
        task.config(start.config | {"target_vocab": 99})


def test_what_agrees_with_the_other_run_is_none_and_the_rate_is_lower(whole):
    given = {"init_from": str(whole), "d_model": 16, "preset": "tiny", "vocab_size": 300}
    given = Start(whole).settings_for({"task": "translation", **given})
    settings = TrainingConfig.from_dict(given).resolved()
    assert settings.warmup_steps == 100
    fresh = TrainingConfig(preset="tiny").resolved()
    assert settings.learning_rate == pytest.approx(fresh.learning_rate / 3)


def test_what_is_no_run_is_named(tmp_path, whole):
    with pytest.raises(RunError, match=r"config\.json"):
        Start(tmp_path)
    shutil.copy(whole / "config.json", tmp_path)
    with pytest.raises(RunError, match=r"not a finished run: it has no weights/best\.weights"):
        Start(tmp_path)
