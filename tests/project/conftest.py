"""What programs of pages and of examples get in place of what takes minutes."""

import shutil
from functools import partialmethod
from pathlib import Path
from unittest.mock import create_autospec

import pytest
from tiny_runs import ROOT

from keras_tfmr import Translator
from keras_tfmr.models import LanguageModel, TranslationModel


@pytest.fixture
def without_xla(monkeypatch):
    """XLA would compile searches for longer than few texts take."""
    for kind in (LanguageModel, TranslationModel):
        monkeypatch.setattr(kind, "generate", partialmethod(kind.generate, jit_compile=False))


@pytest.fixture
def short(tmp_path, monkeypatch, version, without_xla):
    """The folder in which programs run, like a clone; what they export is the export of a run."""
    for folder in ("training", "serving"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    monkeypatch.chdir(tmp_path)
    export = create_autospec(Translator.export)
    export.side_effect = lambda self, folder: shutil.copytree(version, Path(folder) / "1")
    monkeypatch.setattr(Translator, "export", export)
    return tmp_path
