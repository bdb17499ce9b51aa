"""The programs of coming_from.md and engines.md, by other libraries and by this one."""

import re

import pytest
from marian_models import write_published
from pages import PROGRAMS

pytestmark = [pytest.mark.ci, pytest.mark.backends("tensorflow")]

COMING, ENGINES = PROGRAMS["docs/guide/coming_from.md"], PROGRAMS["docs/guide/engines.md"]


def printed(programs, capsys):
    """What each prints; they share their names."""
    names, found = {}, []
    for program in programs:
        exec(program, names)
        found.append(capsys.readouterr().out)
    return found


@pytest.mark.needs("torch", "transformers")
def test_a_published_model_translates_as_in_transformers(tmp_path, monkeypatch, capsys):
    """A small one with random weights, of one target language."""
    vocabulary = write_published(tmp_path / "opus-mt-pt-en") / "vocab.json"
    vocabulary.write_text(re.sub(">>|<<", "", vocabulary.read_text("utf-8")), "utf-8")
    monkeypatch.chdir(tmp_path)
    theirs, ours = printed(COMING[:2], capsys)
    assert theirs == ours and len(ours) > 2


@pytest.mark.needs("keras_hub")
def test_a_language_model_goes_on_as_in_keras_hub(capsys):
    assert printed(COMING[2:], capsys) == ["(1, 6)\n"] * 2


@pytest.mark.needs("ctranslate2")
def test_an_export_for_ctranslate2_translates(translator, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    translator.export("models/ct2", format="ctranslate2")
    (out,) = printed(ENGINES, capsys)
    assert out.strip()
