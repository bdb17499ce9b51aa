"""Text models in int8: their exports, shortlists, and what does not have an int8 form."""

import json
import subprocess
import sys

import numpy as np
import pytest
from translators import LINES

from keras_tfmr import export_text_model
from keras_tfmr.export import ExportError, int8, int8_agreement
from keras_tfmr.text.lexicon import Lexicon

LOADED = """
import json, sys
import tensorflow as tf, tensorflow_text
signatures = tf.saved_model.load(sys.argv[1]).signatures
found = signatures["translate_nbest"](text=tf.constant(json.loads(sys.argv[2])))
print(json.dumps([[one.decode() for one in row] for row in found["translations"].numpy()]))
"""


@pytest.fixture(autouse=True)
def small_products_too(monkeypatch):
    monkeypatch.setattr(int8, "LEAST_WEIGHTS", 0)


def test_export_answers_in_another_process_like_the_copy_in_this_one(translator, tmp_path):
    # The check of the export has compared all signatures, explain too.
    path = export_text_model(translator, tmp_path, precision="int8", calibration_texts=LINES)
    metadata = json.loads((path / "assets.extra" / "keras_tfmr.json").read_text())
    assert metadata["precision"] == "int8"
    assert metadata["run"]["int8"]["texts"] == len(LINES)
    assert b"_QuantizedMatMul" in (path / "saved_model.pb").read_bytes()
    command = [sys.executable, "-c", LOADED, str(path), json.dumps(LINES)]
    loaded = json.loads(subprocess.check_output(command, text=True).splitlines()[-1])
    here = translator.for_decoding("int8", LINES).translate_nbest(LINES)
    expected = [[hypothesis.text for hypothesis in hypotheses] for hypotheses in here]
    assert [row[: len(want)] for row, want in zip(loaded, expected, strict=True)] == expected


def test_straying_answers_are_refused_with_the_figures(translator, tmp_path, monkeypatch):
    monkeypatch.setattr(int8_agreement, "MOST", 1e-9)
    with pytest.raises(ExportError, match=r"the log-probability of a token differs by 0\."):
        export_text_model(translator, tmp_path / "models", precision="int8")
    assert not list(tmp_path.rglob("saved_model.pb"))


def test_shortlist_in_int8_has_the_scores_of_the_whole_vocabulary(translator):
    size = translator.source_tokenizer.vocab_size
    listed = type(translator)(
        translator.model, translator.source_tokenizer, config=translator.config,
        max_source_length=24, lexicon=Lexicon(np.zeros((size, 1)), np.arange(size), size),
    )  # fmt: skip
    expected = translator.for_decoding("int8", LINES).translate_nbest(LINES)
    for found, want in zip(
        listed.for_decoding("int8", LINES).translate_nbest(LINES), expected, strict=True
    ):
        assert found[0].text == want[0].text
        assert found[0].score == pytest.approx(want[0].score, abs=1e-3)
