"""Models that Marian trained, imported as they are: its translations and its scores.

tests/peers/marian.py made tests/data/marian_peer.zip with Marian itself.
"""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from training import import_marian
from training.run import RunFolder

FILE = Path(__file__).resolve().parents[1] / "data" / "marian_peer.zip"


def imported(form, folder):
    """(What Marian answered, the run folder)."""
    with zipfile.ZipFile(FILE) as archive:
        archive.extractall(folder)
    run = folder / "run"
    assert import_marian.main([str(folder / form), "--output", str(run)]) == 0
    return json.loads((folder / f"{form}.json").read_text()), RunFolder(run)


@pytest.fixture(scope="module")
def opus(tmp_path_factory):
    return imported("opus", tmp_path_factory.mktemp("peer"))


@pytest.fixture(scope="module")
def ssru(tmp_path_factory):
    return imported("ssru", tmp_path_factory.mktemp("peer"))


# Marian's beam search is another one where a model is unsure, as so small an SSRU is.
@pytest.mark.parametrize(
    ("form", "search"), [("opus", "greedy"), ("opus", "beam"), ("ssru", "greedy")]
)
def test_translations_and_scores_are_those_of_marian(form, search, request):
    answers, run = request.getfixturevalue(form)
    # As in decoder.yml: 4 beams, scores by length.
    options = {"num_beams": 1, "length_penalty": 0.0} if search == "greedy" else {}
    found = run.translator(num_return_sequences=1, **options).translate_nbest(answers["source"])
    assert len(found) == 200
    texts, scores, _ = zip(*(nbest[0] for nbest in found), strict=True)
    expected, _, marian_scores = zip(*answers[search], strict=True)
    same = np.array([a == b for a, b in zip(texts, expected, strict=True)])
    different = [(a, b) for a, b in zip(texts, expected, strict=True) if a != b]
    assert same.mean() >= 0.99, different[:5]
    np.testing.assert_allclose(np.array(scores)[same], np.array(marian_scores)[same], atol=1e-3)


def test_log_probabilities_of_what_marians_beams_found(ssru):
    answers, run = ssru
    texts, log_probs, _ = zip(*answers["beam"], strict=True)
    found = np.array([each.log_prob for each in run.translator().score(answers["source"], texts)])
    # Some texts can be split into subwords in another way than Marian's hypothesis was.
    assert np.mean(np.abs(found - log_probs) < 1e-3) >= 0.95


def test_log_probabilities_of_a_pre_norm_model_are_those_of_marian(tmp_path):
    answers, run = imported("spm", tmp_path)
    references, log_probs = zip(*answers["references"], strict=True)
    found = run.translator().score(answers["source"], references)
    assert len(found) == 200
    np.testing.assert_allclose([each.log_prob for each in found], log_probs, atol=1e-3)
