"""What the tests of training share beside the finished run `whole`."""

import pytest

from training import report


@pytest.fixture
def unevaluated(monkeypatch):
    """Trainings in this process end after the last update: no evaluation, report or pictures."""
    monkeypatch.setattr(report, "finish", lambda *arguments: None)
