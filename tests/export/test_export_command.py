"""`serving/export.py`: from a run folder to a version, or one line that says why not."""

import json
from pathlib import Path

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("exports need TensorFlow", allow_module_level=True)

from translators import LINES, tiny_translator, write_run

from keras_tfmr.export import METADATA_FILE
from keras_tfmr.export.saved_session import SavedSession
from serving import export as command

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run(tmp_path):
    """The files of a run folder that an export reads."""
    write_run(tmp_path, num_beams=2, length_penalty=0.5)
    (tmp_path / "results.json").write_text('{"validation_bleu": 12.5}')
    rows = [f'{line}\treference\t"hypothesis\t-1.0\t50.0' for line in LINES]
    table = ["source\treference\thypothesis\tscore\tchrf", *rows]
    (tmp_path / "translations.tsv").write_text("\n".join(table) + "\n", encoding="utf-8")
    return tmp_path


def test_a_run_becomes_a_version(run, capsys):
    options = ["--max_length", "10", "--max_source_length", "24", "--no_check"]
    assert command.main([str(run), "--output", str(run / "models"), *options]) == 0
    path = Path(capsys.readouterr().out.splitlines()[-1])
    assert path == run / "models" / "1"
    metadata = json.loads((path / METADATA_FILE).read_text(encoding="utf-8"))
    decoding = {"num_beams": 2, "num_return_sequences": 2, "length_penalty": 0.5,
                "length_penalty_offset": 5.0, "max_length": 10, "min_length": 0,
                "max_length_ratio": 3.0, "max_length_extra": 8}  # fmt: skip
    assert metadata["decoding"] == decoding
    assert metadata["run"]["results"] == {"validation_bleu": 12.5}
    with SavedSession(path) as session:
        text = np.array([line.encode() for line in LINES], object)
        found = session.run("translate", {"text": text})["translation"]
    translator = tiny_translator(num_beams=2, max_length=10, length_penalty=0.5)
    assert [t.decode() for t in found] == translator.translate(LINES)


@pytest.mark.parametrize(
    ("broken", "said"), [("config.json", "config.json"), ("tokenizer.model", "source.model")]
)
def test_what_is_missing_is_named(run, capsys, broken, said):
    (run / broken).unlink()
    assert command.main([str(run)]) == 1
    assert said in capsys.readouterr().err
    assert not (run / "saved_model").exists()


def test_decoding_that_makes_no_sense_is_refused(run, capsys):
    for option in (["--num_beams", "0"], ["--nbest", "3"]):
        assert command.main([str(run), *option]) == 1
        assert "must" in capsys.readouterr().err
    assert not (run / "saved_model").exists()
