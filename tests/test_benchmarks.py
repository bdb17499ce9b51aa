"""The benchmark scripts run, with every option they have, and compare as they say they do."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PEERS = [name for name in ("ctranslate2", "torch", "keras_hub") if importlib.util.find_spec(name)]


def script(name, *options, seconds=240):
    """What the script prints."""
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / name, *map(str, options)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def decode():
    """benchmarks/decode.py and its parts, which the scripts find beside themselves."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import decode
    import decode_engines
    import decode_page
    import decode_turns

    yield decode, decode_engines, decode_page, decode_turns
    sys.path.remove(str(ROOT / "benchmarks"))


def test_the_ratio_is_against_the_best_cell_of_the_peer(decode):
    _, engines, page, turns = decode
    results = turns.Results()
    for mode, ours, theirs in (("latency", 10.0, (30.0, 5.0)), ("throughput", 10.0, (4.0, 20.0))):
        row = turns.Row("tiny", 1, mode, 1)
        for graph in ("XLA", "plain"):
            results.add(row, engines.Ours(graph, "float32", 1, 1), 0, ours)
        for threads, value in zip((1, 2), theirs, strict=True):
            results.add(row, engines.CTranslate2("float32", threads, 1), 0, value)
        cells = page.best_cells(results)[row]
        assert cells["CTranslate2 float32"] == (theirs[1], engines.CTranslate2("float32", 2, 1))
        assert page.ratio(row, cells, page.OURS, page.PEERS) == 0.5


def test_the_nearest_settings_of_the_first_pass_take_further_turns(decode):
    _, engines, _, turns = decode
    results = turns.Results()
    values = {engines.CTranslate2("int8", 1, n): 10.0 + n for n in (1, 2, 3, 9)}
    for batch in (1, 32):
        for setting, value in values.items():
            results.add(turns.Row("tiny", 1, "latency", batch), setting, 0, value * batch)
    for batch, count in ((1, 2), (4, 1), (32, 2)):  # 4 sentences were not in the first pass
        row = turns.Row("tiny", 1, "latency", batch)
        assert [results.contenders(row, setting) for setting in values] == [
            i < count for i in range(4)
        ]


def test_a_cell_of_several_turns_goes_before_one_of_the_first_pass(decode):
    _, engines, page, turns = decode
    results, row = turns.Results(), turns.Row("tiny", 1, "latency", 1)
    lucky, steady = engines.CTranslate2("int8", 1, 1), engines.CTranslate2("int8", 2, 1)
    results.add(row, lucky, 0, 1.0)
    for turn, value in enumerate((3.0, 2.0, 9.0)):
        results.add(row, steady, turn, value)
    assert page.best_cells(results)[row]["CTranslate2 int8"] == (3.0, steady)


def test_results_are_kept_from_slice_to_slice(decode, tmp_path):
    _, engines, _, turns = decode
    row, setting = turns.Row("tiny", 1, "latency", 1), engines.Marian(2, "passive")
    results = turns.Results(tmp_path / "decode.json")
    results.add(row, setting, 0, 7.0, first_s=1.0)
    results.write()
    again = turns.Results(tmp_path / "decode.json", lambda row, engine: True)
    assert again.has(row, setting, 0) and not again.has(row, setting, 1)
    assert not turns.Results(tmp_path / "decode.json", lambda row, engine: False).cells


def test_decode_compares_checkouts(tmp_path):
    options = ["--checkout", f"here={ROOT}", "--sizes", "tiny"]
    options += ["--beams", "2", "--batches", "1", "--turns", "1", "--folder", tmp_path]
    text = script("decode.py", *options)
    for graph in ("XLA", "plain"):
        line = next(line for line in text.splitlines() if f"tiny,2,32, {graph}" in line)
        assert int(line.split("|")[2]) > 50


def test_one_engine_of_decode_alone(tmp_path):
    options = ["--quick", "--engines", "ours", "--sizes", "tiny", "--beams", "2"]
    options += ["--batches", "1", "--modes", "latency", "--folder", tmp_path]
    assert "| tiny, 2 beams, 1 sentence |" in script("decode.py", *options)
    prepared = json.loads((tmp_path / "prepared.json").read_text())
    assert prepared["tiny,2,32"]["plain"] > 50
