"""The command line: defaults, ranges, files of settings."""

import dataclasses
import json

import pytest
import yaml

from training.command_line import parse_arguments
from training.config import TEXT_TASKS, TextConfig, TrainingConfig
from training.recipes import PRESETS, noam_peak


def parse(*words, config_class=TrainingConfig):
    return parse_arguments("Trains.", list(words), config_class)


def test_defaults_follow_from_data_and_preset():
    demonstration, own = parse(), parse("--data", "a.tsv")
    assert demonstration.minutes == 4 and demonstration.output == "runs/phrasebook"
    assert own.minutes == 30 and own.output == "runs/translator" and own.validate_steps == 500
    assert own.learning_rate == 3e-3 and own.log_steps == 100
    base = parse("--preset", "base")
    assert base.learning_rate == noam_peak(512, 4000) == pytest.approx(7e-4, rel=0.01)
    assert base.gradient_accumulation_steps == 6 and base.log_steps == 16
    assert parse("--steps", "5").minutes is None
    for task in TEXT_TASKS:
        assert parse("--task", task, config_class=TextConfig).output == f"runs/{task}"


@pytest.mark.parametrize("dump", [json.dumps, yaml.safe_dump])
def test_a_file_of_settings_repeats_a_run_and_options_override_it(tmp_path, dump):
    first = parse("--data", "a.tsv", "b.tsv", "--set", "d_model=32", "--no_export", "--steps", "7")
    described = {"arguments": json.loads(json.dumps(first.to_dict())), "model": {}}
    path = tmp_path / f"config.{'json' if dump is json.dumps else 'yaml'}"
    path.write_text(dump(described))
    assert parse("--config", str(path)) == first
    assert parse("--config", str(path), "--steps", "9") == dataclasses.replace(first, steps=9)
    path.write_text(dump({"seed": 3}))
    assert parse("--config", str(path)).seed == 3


def test_wrong_settings_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for words, message in (
        (["--steps", "0"], "--steps must be positive. Received: 0"),
        (["--set", "label_smoothing=1"], "--label_smoothing must be in [0, 1). Received: 1.0"),
        (["--minutes", "nan"], "--minutes must be finite"),
        (["--data", "a", "--source", "b", "--target", "c"], "either --data or --source"),
        (["--source", "b"], "must be given together"),
        (["--validation", "v.tsv"], "--validation needs --data"),
        (["--data", ""], "--data must name a file or folder. Received: ''"),
        (["--preset", "paper"], "--preset of --model transformer must be one of: small"),
        (["--model", "rnnsearch", "--set", "d_model=4"], "d_model cannot be set for --model"),
        (["--extend_vocab"], "--extend_vocab needs --init_from"),
        (["--set", "wings=2"], "--set needs NAME=VALUE of a setting. Received: 'wings=2'"),
        (["--set", "joint_vocab=maybe"], "must be true or false. Received: 'maybe'"),
        (["--set", "schedule=steep"], "must be one of noam, cosine. Received: 'steep'"),
        (["--config", "none.yaml"], "none.yaml"),
        (["--config", "{"], "a.json"),
        (["--config", "[1]"], "expected settings by name"),
        (["--config", '{"wings": 2}'], "unknown setting wings"),
    ):
        option, value = words[0], words[-1]
        if option == "--config" and value != "none.yaml":
            (tmp_path / "a.json").write_text(value)
            words = ["--config", "a.json"]
        with pytest.raises(SystemExit):
            parse(*words)
        assert message in " ".join(capsys.readouterr().err.split())


def test_every_preset_is_a_model():
    from training.tasks import make_config

    for kind, presets in PRESETS.items():
        for preset in presets:
            settings = TrainingConfig(model=kind, preset=preset).resolved()
            config = make_config(settings, 300, 300)
            assert config.dropout_rate == settings.dropout_rate
