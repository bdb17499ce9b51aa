"""Data sets of TensorFlow Datasets and Hugging Face, which these libraries read; none downloads."""

import json
import sys

import datasets
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from training.command.disk import RunError
from training.corpus import data_sets
from training.corpus.pairs import given_sets
from training.corpus.sources import parse
from training.settings.training_config import TrainingConfig

SPLITS = {"train": 3, "validation": 2, "test": 1}


@pytest.fixture(autouse=True)
def kept_nowhere(tmp_path_factory, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
    yield
    data_sets.opened.cache_clear()


def pairs(split, reverse=False):
    return [(f"{split} {i}", f"{i} en")[:: -1 if reverse else 1] for i in range(SPLITS[split])]


def check(name):
    """All splits are read, in the order that is asked for."""
    for codes, reverse in (((), False), (("pt", "en"), False), (("en", "pt"), True)):
        settings = TrainingConfig(data=(name,), languages=codes)
        corpora = parse(settings.data)
        assert [*corpora[0].rows(settings)] == pairs("train", reverse)
        sets = given_sets(settings, corpora)
        assert {n: s.pairs for n, s in sets.items()} == {n: pairs(n, reverse) for n in [*sets]}
        assert [*sets] == ["validation", "test"] and corpora[0].files() == []
    (also,) = given_sets(TrainingConfig(data=("a.tsv",), validation=(name,)), []).values()
    assert also.pairs == pairs("validation")


def test_tensorflow_datasets(tmp_path, monkeypatch):
    """By the library's own declarations of the tutorial's data set and of one with labels."""

    def load(name, with_info):
        info = tfds.builder(name, data_dir=tmp_path).info
        if name == "imdb_reviews":
            return {"train": tf.data.Dataset.from_tensor_slices(texts)}, info
        splits = {}
        for split in SPLITS:
            pt, en = zip(*pairs(split), strict=True)
            splits[split] = tf.data.Dataset.from_tensor_slices({"pt": [*pt], "en": [*en]})
        return splits, info

    texts = {"label": [1, 0], "text": ["a", "b"]}
    monkeypatch.setattr(tfds, "load", load)
    check("tfds:ted_hrlr_translate/pt_to_en")
    assert [*parse(["tfds:imdb_reviews"])[0].rows(TrainingConfig(task="classify"))] == [
        ("a", "pos"),
        ("b", "neg"),
    ]


def test_a_folder_of_hugging_face(tmp_path):
    for split in SPLITS:
        rows = [{"translation": {"pt": pt, "en": en}} for pt, en in pairs(split)]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{split}.jsonl").write_text(text)
    check(f"hf:{tmp_path}")


def test_labels_of_hugging_face(tmp_path):
    label = datasets.ClassLabel(names=["no", "yes"])
    features = datasets.Features({"label": label, "text": datasets.Value("string")})
    rows = datasets.Dataset.from_dict({"label": [1, 0], "text": ["a", "b"]}, features)
    rows.to_parquet(tmp_path / "train.parquet")
    (corpus,) = parse([f"hf:{tmp_path}"])
    assert [*corpus.rows(TrainingConfig(task="classify"))] == [("a", "yes"), ("b", "no")]


def test_what_is_missing_is_said(tmp_path, monkeypatch):
    for name, message in (
        ("tfds:no_such", "tfds:no_such: .*no_such"),
        (f"hf:{tmp_path}/none", f"hf:{tmp_path}/none: "),
    ):
        with pytest.raises(RunError, match=message):
            [*parse([name])[0].rows(TrainingConfig())]
    (tmp_path / "a.csv").write_text("pt,en,de\na,b,c\n")
    with pytest.raises(RunError, match=r"line 1: expected two columns, or --languages.*pt, en, de"):
        [*parse([f"hf:{tmp_path}"])[0].rows(TrainingConfig())]
    with pytest.raises(RunError, match=r"expected a split `test`. Received: train"):
        data_sets.data_set_rows(f"hf:{tmp_path}", "test", TrainingConfig()).__next__()
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    monkeypatch.setitem(sys.modules, "datasets", None)
    for name, package in (("tfds:a", "tensorflow-datasets"), ("hf:a", "datasets")):
        with pytest.raises(RunError, match=f"{name} needs `pip install {package}`"):
            parse([name])[0].splits()
