"""Whole files translated: as the translator does, line for line, whatever ends the process."""

import io
import os
import re
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest
from helpers import full_disk
from text_models import LINES, tiny_translator, write_run

from keras_tfmr.compat import usable_cores
from keras_tfmr.text.spans import SLOTS
from training import translate

ROOT = Path(__file__).resolve().parents[2]
TEXTS = [" ".join(LINES[i % 6].split()[: 1 + i % 5]) for i in range(60)] + ["", "a\tb"]
LIMITS = ["--max_length", "12", "--max_source_length", "24", "--batch_size", "4"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run folder with a tiny model of random weights that has slots, and protects code."""
    folder = tmp_path_factory.mktemp("run")
    return write_run(folder, SLOTS, num_beams=1, length_penalty=0.6, protect=["code"])


@pytest.fixture(scope="module")
def translator():
    return tiny_translator(symbols=SLOTS, num_beams=1, num_return_sequences=1, length_penalty=0.6)


@pytest.fixture(scope="module", autouse=True)
def loaded_once():
    """The model is loaded and traced once for all commands that ask the same of it."""
    load, loaded = translate.load, {}

    def cached(options):
        key = str((options.preset, options.documents, options.protect, options.terms))
        loaded[key] = loaded.get(key) or load(options)
        return loaded[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(translate, "load", cached)
        yield


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Input, output; fewer lines are read together than there are."""
    monkeypatch.setattr(translate, "BATCHES", 3)
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    return tmp_path / "in.txt", tmp_path / "out.txt"


def command(run, files, *words):
    return [str(run), *LIMITS, "--input", str(files[0]), "--output", str(files[1]), *words]


def in_lines(texts):
    return "".join(re.sub("[\r\n]+", " ", text) + "\n" for text in texts)


def test_lines_and_scores_are_those_of_the_translator(run, files, translator):
    expected = translator.translate(TEXTS)
    assert translate.main(command(run, files, "--scores")) == 0
    found = [line.rpartition("\t") for line in files[1].read_text().split("\n")[:-1]]
    assert in_lines(text for text, *_ in found) == in_lines(expected)
    for (*_, score), translation in zip(found, expected, strict=True):
        assert float(score) == pytest.approx(translation.score, abs=1e-3)


def test_lines_of_standard_input_without_mark_and_last_end(run, monkeypatch, translator):
    text, out = "\ufeff" + "\r\n".join(TEXTS[:5]), io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(text.encode())))
    monkeypatch.setattr(sys, "stdout", out)
    assert translate.main([str(run), *LIMITS]) == 0
    assert out.buffer.getvalue().decode() == in_lines(translator.translate(TEXTS[:5]))


def test_an_interrupted_file_is_resumed_with_nothing_lost_or_twice(run, files, capsys):
    assert translate.main(command(run, files)) == 0
    whole = files[1].read_bytes()
    half = len(whole) // 2
    after_a_line = whole.index(b"\n", half) + 1
    for size in (0, 1, half, after_a_line, len(whole)):  # as a kill may leave it
        files[1].write_bytes(whole[:size])
        assert translate.main(command(run, files, "--resume")) == 0
        assert files[1].read_bytes() == whole, size
    files[1].write_bytes(whole + b"one more\n")
    assert translate.main(command(run, files, "--resume")) == 1
    assert "has 63 lines, more than the input" in capsys.readouterr().err


@pytest.mark.ci
def test_sentences_spans_and_terms(run, files, translator):
    one, (source, output) = translator.translate([LINES[2]])[0], files
    terms = source.with_name("terms.tsv")
    terms.write_text("gato\tCAT & <dog>\n\nusa\tUSES\n")
    layout = f"  {LINES[2]}  {LINES[2]}\n\n- {LINES[2]}\n\t{LINES[2]}\n"
    for text, words, present, absent in (
        (layout, "--documents", [in_lines(layout.replace(LINES[2], one).split("\n")[:-1])], []),
        ("O gato usa `a  b` e #12.\n", "", ["`a  b`"], ["#12"]),
        ("O gato usa `a  b` e #12.\n", "--protect code #[0-9]+", ["`a  b`", "#12"], []),
        ("O gato usa `a  b`.\n", f"--terms {terms}", ["CAT & <dog>", "USES", "`a  b`"], []),
    ):
        source.write_text(text)
        assert translate.main(command(run, files, "--overwrite", *words.split())) == 0
        found = output.read_text()
        assert all(found.count(span) == 1 for span in present), (words, found)
        assert not any(span in found for span in absent), (words, found)


def test_a_full_disk_is_an_error_in_a_line(run, files, capsys):
    with full_disk(10):
        assert translate.main(command(run, files)) == 1
    assert f"error: Cannot write {files[1]}" in capsys.readouterr().err


# The script, with a translator that sleeps for a minute over each batch after the first 64.
SLOW = """
import itertools, runpy, sys, time, types
from unittest.mock import MagicMock
MOCKED = "tensorflow tensorflow_text keras_tfmr.export.calibration keras_tfmr.text_models.shortlist"
for name in MOCKED.split():
    sys.modules[name] = MagicMock()
import keras_tfmr
seconds = itertools.chain([0] * 64, itertools.repeat(60))
def translate(texts, batch_size):
    time.sleep(next(seconds))
    return [types.SimpleNamespace(text=text.decode()) for text in texts]
slow = MagicMock(translate=translate, token_counts=lambda texts: [1] * len(texts))
slow.for_decoding = lambda *arguments: slow
keras_tfmr.Translator = types.SimpleNamespace(from_preset=lambda *arguments, **options: slow)
runpy.run_path("training/translate.py", run_name="__main__")
"""


@pytest.mark.parametrize("stop, status", [("Ctrl-C", 130), ("closed pipe", 0)])
def test_it_ends_at_once_and_quietly(tmp_path, stop, status):
    (tmp_path / "in.txt").write_text("a line of the text\n" * 200_000)
    words = [sys.executable, "-c", SLOW, "run", "--input", str(tmp_path / "in.txt")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, cwd=ROOT, **pipes) as process:
        assert process.stdout.readline() == b"a line of the text\n"
        begun = time.monotonic()
        if stop == "Ctrl-C":
            process.send_signal(signal.SIGINT)
        else:
            process.stdout.close()
        assert process.wait(60) == status and time.monotonic() - begun < 30
        assert process.stderr.read() == (b"Stopped.\n" if stop == "Ctrl-C" else b"")


def test_cores_are_counted_on_any_system(monkeypatch):
    for name in ("sched_getaffinity", "process_cpu_count"):
        monkeypatch.delattr(os, name, raising=False)  # as on macOS
    assert usable_cores() == os.cpu_count()
