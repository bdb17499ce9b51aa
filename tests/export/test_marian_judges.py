"""Marian itself translates what the library writes for it.

Run by hand: MARIAN_PYTHON names the interpreter of an environment with pymarian, sentencepiece.
"""

import json
import os
import subprocess
import zipfile
from pathlib import Path

import pytest
import sentencepiece

from serving import export
from training import import_marian
from training.run import RunFolder

FILE = Path(__file__).resolve().parents[1] / "data" / "marian_peer.zip"
PYTHON = os.environ.get("MARIAN_PYTHON")


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON, reason="MARIAN_PYTHON is not set")
@pytest.mark.parametrize("beams", [1, 4])
def test_marian_translates_a_written_release_to_the_same_sentences(beams, tmp_path):
    with zipfile.ZipFile(FILE) as archive:
        archive.extractall(tmp_path)
    sources = json.loads((tmp_path / "opus.json").read_text())["source"]
    run, release = tmp_path / "run", tmp_path / "release"
    assert import_marian.main([str(tmp_path / "opus"), "--output", str(run)]) == 0
    assert export.main([str(run), "--format", "marian", "--output", str(release)]) == 0
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
    ours = [n[0].text for n in RunFolder(run).translator(**search).translate_nbest(sources)]
    assert sum(map(str.__eq__, ours, theirs)) >= 0.99 * len(sources)
