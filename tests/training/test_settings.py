"""The command line: defaults, ranges, files of settings."""

import dataclasses
import json
import re

import pytest
import yaml

from keras_tfmr.models import TransformerConfig
from training.settings.command_line import parse_arguments
from training.settings.models import config_of
from training.settings.recipes import RECIPES, noam_peak
from training.settings.training_config import (
    FIELDS,
    PHRASEBOOK_STEPS,
    TEXT_TASKS,
    TRANSLATION,
    TrainingConfig,
)


def parse(*words, tasks=TRANSLATION):
    return parse_arguments("Trains.", list(words), tasks)


@pytest.fixture
def refused(capsys):
    """Runs a command line that is wrong; what it says."""

    def refused(*words, tasks=TRANSLATION):
        with pytest.raises(SystemExit):
            parse(*words, tasks=tasks)
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
        assert parse("--task", task, tasks=TEXT_TASKS).output == f"runs/{task}"
    assert parse(tasks=TEXT_TASKS).task == "classify"


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


def test_help_and_config_json_have_every_setting(capsys):
    for tasks, absent in ((TRANSLATION, "task"), (TEXT_TASKS, "source")):
        with pytest.raises(SystemExit):
            parse("--help", tasks=tasks)
        said = capsys.readouterr().out
        names = {name for name, field in FIELDS.items() if {*tasks} & {*field.metadata["tasks"]}}
        for name in names:
            assert re.search(rf"^  (--(no_)?{name}\b|{name}: )", said, re.MULTILINE), name
        own = {*parse("--steps", "1", tasks=tasks).to_dict()}
        assert absent not in names and names - own <= {"decoder_layers"}  # none of a classifier


def test_lists_add_up():
    several = parse("--data", "a", "--set", "seed=2", "--data", "b", "c", "--set", "languages=a,b")
    assert several.data == ("a", "b", "c")
    assert several.languages == ("a", "b") and several.seed == 2
    assert parse("--set", "data=my file,b").data == ("my file", "b")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--steps 0", "steps must be positive. Received: 0"),
        (
            "--label_smoothing 0.2 --norm_first=true",
            "unrecognized arguments: --label_smoothing 0.2 --norm_first=true; --set NAME=VALUE",
        ),
        ("--data a --source b --target c", "data has no effect beside source and target"),
        ("--minutes 1 --steps 5", "minutes has no effect beside steps"),
        ("--validation v.tsv", "validation has no effect without a corpus"),
        ("--data a --validation a b c", "validation must be one or two files"),
        ("--tag a=x", "tag has no effect without data"),
        ("--filters spam", "filters must be some of identical, length_ratio, language. Rec"),
        ("--filters language", "the filter language needs languages"),
        ("--validate_steps 10 --set log_steps=20", "must be log_steps, which is 20, or more"),
        ("--set source_vocab=9", "source_vocab follows from the vocabulary: give vocab_size"),
        ("--seed 1 --set seed=1", "seed is given twice: 1 and 1"),
        ("--set schedule=steep", "schedule must be one of noam, cosine. Received: 'steep'"),
        ("--config none.yaml", "none.yaml"),
    ],
)
def test_wrong_settings_are_named(words, said, refused):
    assert said in refused(*words.split())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "--config a.json"),
        ("[1]", "expected settings by name"),
        ('{"seed": true}', "seed must be a whole number. Received: True"),
        ('{"ema": NaN}', "ema must be in [0, 1). Received: nan"),
        ('{"data": "x.tsv"}', "data must be a list of texts. Received: 'x.tsv'"),
    ],
)
def test_wrong_files_of_settings_are_named(content, said, tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.json").write_text(content)
    assert said in refused("--config", "a.json")


def test_a_setting_that_a_task_does_not_read_is_refused_by_name(refused):
    for words, said in (
        ("--set num_beams=2", "num_beams has no effect with task classify"),
        ("--source a", "unrecognized arguments: --source a"),
        ("--set decoder_layers=2", "decoder_layers has no effect with task classify"),
        ("--task language --set encoder_layers=2", "encoder_layers has no effect with task lang"),
        ("--task tag", "task must be one of classify, language. Received: 'tag'"),
    ):
        assert said in refused(*words.split(), tasks=TEXT_TASKS)


def test_any_field_of_the_models_config_is_set_and_checked_by_it(refused):
    """Of each kind of model and from a file too; what the command repeats is the same."""
    words = {
        "norm": "rms", "norm_first": "true", "dropout_rate": "0.2", "max_wavelength": "1e3",
        "d_model": "64", "positions": "none",
    }  # fmt: skip
    settings = parse("--set", *(f"{name}={text}" for name, text in words.items()), "seed=5")
    config = config_of(settings, source_vocab=90, target_vocab=90)
    expected = TransformerConfig.preset(
        "small", source_vocab=90, target_vocab=90, norm="rms", norm_first=True, dropout_rate=0.2,
        max_wavelength=1000.0, d_model=64, positions="none",
    )  # fmt: skip
    assert config == expected and settings.seed == 5
    assert TrainingConfig.from_dict(json.loads(json.dumps(settings.to_dict()))) == settings
    recurrent = parse("--model", "rnnsearch", "--set", "units=24")
    assert config_of(recurrent).units == 24 != config_of(parse("--model", "rnnsearch")).units
    for words, said in (
        (
            "--set wings=2",
            "Unknown fields of a TransformerConfig: ['wings']. Expected some of: ['a",
        ),
        ("--set num_heads=5", "`num_heads` must divide `d_model`"),
        ("--set dropout_rate=much", "`dropout_rate` must be a number in [0, 1)"),
        ("--model rnnsearch --set d_model=4", "Unknown fields of a RNNSearchConfig: ['d_model']"),
    ):
        assert said in refused(*words.split())


def test_every_recipe_has_a_config():
    for kind, recipes in RECIPES.items():
        configs = [config_of(parse("--model", kind, "--preset", preset)) for preset in recipes]
        assert len({*map(str, configs)}) == len(recipes)
