"""Marian itself: its models are imported as they are, and it translates what we write for it.

Marian itself made tests/data/marian_peer.zip; the history has the script:
`git log -p -- tests/peers/marian.py`.
"""

import functools
import json
import os
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from serving import export
from training import import_marian
from training.run import RunFolder

FILE = Path(__file__).resolve().parents[1] / "data" / "marian_peer.zip"
PYTHON = os.environ.get("MARIAN_PYTHON")


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """(What Marian answered, the run folder) of a form."""

    @functools.cache
    def imported(form):
        folder = tmp_path_factory.mktemp("peer")
        with zipfile.ZipFile(FILE) as archive:
            archive.extractall(folder)
        assert import_marian.main([str(folder / form), "--output", str(folder / "run")]) == 0
        return json.loads((folder / f"{form}.json").read_text()), RunFolder(folder / "run")

    return imported


# Marian's beam search is another one where a model is unsure, as so small an SSRU is.
@pytest.mark.parametrize(
    ("form", "search"), [("opus", "greedy"), ("opus", "beam"), ("ssru", "greedy")]
)
def test_translations_and_scores_are_those_of_marian(imported, form, search):
    answers, run = imported(form)
    # As in decoder.yml: 4 beams, scores by length.
    options = {"num_beams": 1, "length_penalty": 0.0} if search == "greedy" else {}
    found = run.translator(num_return_sequences=1, **options).translate_nbest(answers["source"])
    texts, scores, _ = zip(*(nbest[0] for nbest in found), strict=True)
    expected, _, marian_scores = zip(*answers[search], strict=True)
    assert len(found) == 200
    same = np.array(texts) == np.array(expected)
    assert same.mean() >= 0.99, np.array([texts, expected]).T[~same][:5]
    np.testing.assert_allclose(np.array(scores)[same], np.array(marian_scores)[same], atol=1e-3)


# Some texts can be split into subwords in another way than Marian's hypothesis was; references not.
@pytest.mark.parametrize(
    ("form", "what", "share"), [("ssru", "beam", 0.95), ("spm", "references", 1)]
)
def test_log_probabilities_are_those_of_marian(imported, form, what, share):
    answers, run = imported(form)
    texts, log_probs = zip(*(row[:2] for row in answers[what]), strict=True)
    found = np.array([each.log_prob for each in run.translator().score(answers["source"], texts)])
    assert len(found) == 200
    assert np.mean(np.isclose(found, log_probs, atol=1e-3)) >= share


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON, reason="MARIAN_PYTHON is not set")
@pytest.mark.parametrize("beams", [1, 4])
def test_marian_translates_a_written_release_to_the_same_sentences(imported, beams, tmp_path):
    """Run by hand: MARIAN_PYTHON is the interpreter of an environment with pymarian."""
    (answers, run), release = imported("opus"), tmp_path / "release"
    sources = answers["source"]
    assert export.main([str(run.path), "--format", "marian", "--output", str(release)]) == 0
    spms = [
        sentencepiece.SentencePieceProcessor(model_file=str(release / f"{side}.spm"))
        for side in ("source", "target")
    ]
    lines = (" ".join(pieces) for pieces in spms[0].encode(sources, out_type=str))
    (tmp_path / "lines").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    words = f"decode --config decoder.yml --relative-paths --input {tmp_path / 'lines'}"
    words += f" --beam-size {beams} --normalize {beams > 1:d} --mini-batch 1 --cpu-threads 1"
    done = subprocess.run(
        [PYTHON, "-m", "pymarian", *words.split(), "--quiet", "--quiet-translation"],
        cwd=release, capture_output=True, text=True, check=True,
    )  # fmt: skip
    theirs = [spms[1].decode(line.split()) for line in done.stdout.splitlines()]
    search = {"num_beams": beams, "length_penalty": float(beams > 1), "num_return_sequences": 1}
    ours = [n[0].text for n in run.translator(**search).translate_nbest(sources)]
    assert sum(map(str.__eq__, ours, theirs)) >= 0.99 * len(sources)
