"""The command line: defaults, ranges, files of settings."""

import dataclasses
import json

import pytest
import yaml

from training.settings.command_line import assigned, parse_arguments
from training.settings.fields import what_is_wrong
from training.settings.recipes import PRESETS, noam_peak
from training.settings.training_config import (
    PHRASEBOOK_STEPS,
    SIZES,
    TEXT_TASKS,
    TextConfig,
    TrainingConfig,
)


def parse(*words, config_class=TrainingConfig):
    return parse_arguments("Trains.", list(words), config_class)


@pytest.fixture
def refused(capsys):
    """Runs a command line that is wrong; what it says."""

    def refused(*words, config_class=TrainingConfig):
        with pytest.raises(SystemExit):
            parse(*words, config_class=config_class)
        return " ".join(capsys.readouterr().err.split())

    return refused


def test_defaults_follow_from_data_and_preset():
    demonstration, own = parse(), parse("--data", "a.tsv")
    assert demonstration.minutes is None and demonstration.output == "runs/phrasebook"
    assert demonstration.steps == PHRASEBOOK_STEPS["translation"]  # alike on every machine
    assert own.minutes == 30 and own.output == "runs/translator" and own.validate_steps == 500
    assert own.learning_rate == 3e-3 and own.log_steps == 100
    base = parse("--preset", "base")
    assert base.learning_rate == noam_peak(512, 4000) == pytest.approx(7e-4, rel=0.01)
    assert base.gradient_accumulation_steps == 6 and base.log_steps == 16
    assert parse("--steps", "5").minutes is None
    assert parse("--validate_steps", "10").log_steps == 10
    assert parse("--set", "log_steps=700").validate_steps == 700
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
    longer = dataclasses.replace(first, steps=None, minutes=9.0)
    assert parse("--config", str(path), "--minutes", "9") == longer
    path.write_text(dump({"seed": 3}))
    assert parse("--config", str(path)).seed == 3


def test_lists_add_up():
    several = parse("--data", "a", "--set", "filters=script", "--data", "b", "c", "--set", "seed=2")
    assert several.data == ("a", "b", "c")
    assert several.filters == ("script",) and several.seed == 2
    assert parse("--set", "data=my file,b").data == ("my file", "b")


def test_wrong_settings_are_named(tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    for words, message in (
        (["--steps", "0"], "--steps must be positive. Received: 0"),
        (["--target_score", "101"], "--target_score must be above 0 and at most 100. Received: 1"),
        (["--set", "label_smoothing=1"], "--set label_smoothing must be in [0, 1). Received: 1.0"),
        (["--label_smoothing", "0.2"], "--label_smoothing 0.2: use --set label_smoothing=VALUE"),
        (["--no_joint_vocab"], "unrecognized arguments: --no_joint_vocab: use --set joint_vocab"),
        (["--wings"], "unrecognized arguments: --wings"),
        (["--output", "runs/caf\udce9"], "argument --output: expected UTF-8"),
        (["--data", "a", "--source", "b", "--target", "c"], "--data has no effect beside --source"),
        (["--source", "b"], "--source has no effect without --target"),
        (["--target", "b"], "--target has no effect without --source"),
        (["--minutes", "1", "--steps", "5"], "--minutes has no effect beside --steps"),
        (["--set", "epochs=1", "--steps", "5"], "--set epochs has no effect beside --steps"),
        (["--validation", "v.tsv"], "--validation has no effect without --data"),
        (["--data", "a", "--validation", "a", "b", "c"], "--validation must be one or two files"),
        (["--tag", "a=x"], "--tag has no effect without --data"),
        (
            ["--validate_steps", "10", "--set", "log_steps=20"],
            "effect below log_steps, which is 20",
        ),
        (["--preset", "paper"], "--preset must be one of small"),
        (["--model", "rnnsearch", "--set", "d_model=4"], "no effect with --model rnnsearch"),
        (["--seed", "1", "--set", "seed=1"], "seed is given twice: 1 and 1"),
        (["--set", "wings=2"], "--set needs NAME=VALUE of a setting. Received: 'wings=2'"),
        (["--set", "schedule=steep"], "must be one of noam, cosine. Received: 'steep'"),
        (["--config", "none.yaml"], "none.yaml"),
        (["--config", "{"], "a.json"),
        (["--config", "[1]"], "expected settings by name"),
        (["--config", '{"wings": 2}'], "unknown setting wings"),
        (["--config", '{"seed": 2, "seed": 3}'], "--config a.json: given twice: seed"),
        (["--config", "seed: 2\nseed: 3"], "--config a.yaml: given twice: seed"),
        (["--config", "[a]: 2"], "--config a.yaml: unknown setting ['a']"),
    ):
        option, value = words[0], words[-1]
        if option == "--config" and value != "none.yaml":
            name = "a.yaml" if ": 2" in value and "{" not in value else "a.json"
            (tmp_path / name).write_text(value)
            words = ["--config", name]
        assert message in refused(*words)


WRONG = {  # values of other types, from a file and as texts
    int: ([10.5, "3", True, [1]], ["10.5", "x", ""]),
    float: ([yaml.safe_load("1e-3"), True, [0.5]], ["x", "nan", "inf", ""]),
    bool: (["no", "false", 1], ["yes", "1", ""]),
    str: ([3, yaml.safe_load("no"), ["a"], ""], [""]),
    tuple: (["x.tsv", [1], [["a"]], {"a": 1}], ["", "a,,b"]),
}


@pytest.mark.parametrize("config_class", [TrainingConfig, TextConfig])
def test_a_value_of_another_type_is_refused_by_name(tmp_path, refused, config_class):
    path = tmp_path / "config.json"
    for name, field in config_class.own_fields().items():
        values, texts = WRONG[field.type]
        for value in values:
            path.write_text(json.dumps({name: value}))
            said = refused("--config", str(path), config_class=config_class)
            assert f"error: --config {path}: {name} must be " in said
            assert said.endswith(f"Received: {value!r}")
        for text in texts:
            said = refused("--set", f"{name}={text}", config_class=config_class)
            assert f"error: {config_class.spelt(name)} must be " in said


def example(field):
    """A word NAME=VALUE that is right by itself."""
    texts = field.metadata["choices"] or ("1", "0.5", "true", "a,b")
    words = (f"{field.name}={text}" for text in texts)
    read = {field.name: field}
    return next(word for word in words if not what_is_wrong(field, assigned(word, read)[1]))


@pytest.mark.parametrize("task", TEXT_TASKS)
def test_a_setting_that_a_task_does_not_read_is_refused_by_name(task, refused):
    unread = {
        field.name: field
        for field in dataclasses.fields(TextConfig)
        if task not in (field.metadata["tasks"] or TEXT_TASKS)
    }
    assert {"model", "num_beams"} < {*unread}
    for name, field in unread.items():
        words = ("--task", task, "--set", example(field))
        said = refused(*words, config_class=TextConfig)
        assert f"{TextConfig.spelt(name)} has no effect with --task {task}" in said


@pytest.mark.parametrize("task", ["transformer", *TEXT_TASKS])
def test_a_task_reads_the_sizes_that_its_model_has(task):
    from keras_tfmr.models import TransformerConfig
    from keras_tfmr.presets.models import make_model

    small = dict(
        source_vocab=9, target_vocab=9, encoder_layers=1, decoder_layers=1, d_model=8, num_heads=2,
        dff=16,
    )  # fmt: skip

    def weights(**sizes):
        config = TransformerConfig(**{**small, **sizes})
        return [(w.path, w.shape) for w in make_model(task, config, classes).weights]

    classes = 3 if task == "classify" else None
    own = (TrainingConfig if task == "transformer" else TextConfig).own_fields()
    kind, before = "translation" if task == "transformer" else task, weights()
    sizes = {
        "d_model": 4, "dff": 40, "encoder_layers": 2, "decoder_layers": 2,
        "norm_first": True,
    }  # fmt: skip
    assert {*sizes, "num_heads"} == {*SIZES}  # which changes no shape
    for name, value in sizes.items():
        is_read = name in own and kind in (own[name].metadata["tasks"] or (kind,))
        assert is_read == (weights(**{name: value}) != before), name


def test_every_preset_is_a_model():
    from training.tasks import make_config

    for kind, presets in PRESETS.items():
        for preset in presets:
            settings = TrainingConfig(model=kind, preset=preset).resolved()
            config = make_config(settings, 300, 300)
            assert config.dropout_rate == settings.dropout_rate
