"""The phrasebook's files: each task reads them; what is measured on is nowhere else."""

import collections
import re

import pytest

from training import phrasebook
from training.corpus.filter import cleaned
from training.corpus.sources import corpora_of
from training.settings.training_config import TrainingConfig

TYPES = "compound doing order owning person phrase place quality question taste time wish"


def rows_of(settings, split):
    """The rows of a split as a run gets them; a line that is not of the task's form is an error."""
    counts = collections.Counter()
    corpora = [c for c in corpora_of(settings) if split == "train" or split in c.splits()]
    rows = [r for c in corpora for r in cleaned(c.rows(settings, split), settings, counts)]
    assert counts == {"lines": len(rows)}
    return rows


def bare(text):
    """A sentence without what makes no difference: case and marks."""
    return re.sub(r"[\W_]+", " ", text).strip().casefold()


def test_what_is_measured_on_is_in_no_other_file():
    parts = [rows_of(TrainingConfig(), split) for split in ("train", "validation", "test")]
    parts.append(phrasebook.everyday())
    assert [len(part) for part in parts[1:]] == [500, 500, 400]
    assert len(parts[0]) > 40_000 and set(phrasebook.pairs()) < set(parts[0])
    for part in parts:
        assert len(set(part)) == len(part)
    texts = [{bare(text) for pair in part for text in pair} for part in parts]
    for number, measured in enumerate(texts[1:], 1):
        for other in texts[:number]:
            assert not measured & other


def test_a_portuguese_sentence_has_one_translation():
    sentences = [bare(portuguese) for portuguese, _ in phrasebook.pairs()]
    assert len(set(sentences)) == len(sentences)


@pytest.mark.parametrize("task, column, expected", [("classify", 1, TYPES), ("language", 0, "-")])
def test_the_text_tasks_read_labels_and_english(task, column, expected):
    for split in ("train", "validation"):
        rows = rows_of(TrainingConfig(task=task), split)
        labels = {label for row in rows for label in row[column].split()}
        assert " ".join(sorted(labels)) == expected
