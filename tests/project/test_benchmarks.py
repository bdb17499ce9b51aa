"""The benchmark scripts run, with every option they have, and compare as they say they do."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
with_torch = pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="needs torch")
with_all_peers = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("torch", "ctranslate2", "keras_hub", "transformers"))),
    reason="needs torch, transformers, ctranslate2 and keras-hub",
)


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


def test_a_cell_is_the_median_of_its_turns(decode):
    _, engines, page, turns = decode
    results, row = turns.Results(), turns.Row("tiny", 1, "latency", 1)
    lucky, steady = engines.CTranslate2("int8", 1, 1), engines.CTranslate2("int8", 2, 1)
    for turn, values in enumerate(((1.0, 2.0), (4.0, 9.0), (5.0, 3.0))):
        for setting, value in zip((lucky, steady), values, strict=True):
            results.add(row, setting, turn, value)
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


@pytest.mark.slow
def test_decode_compares_checkouts(tmp_path):
    options = ["--checkout", f"here={ROOT}", "--sizes", "tiny"]
    options += ["--beams", "2", "--batches", "1", "--turns", "1", "--folder", tmp_path]
    text = script("decode.py", *options)
    for graph in ("XLA", "plain"):
        line = next(line for line in text.splitlines() if f"tiny,2,32, {graph}" in line)
        assert int(line.split("|")[2]) > 50


@pytest.mark.slow
def test_one_engine_of_decode_alone(tmp_path):
    options = ["--quick", "--engines", "ours", "--sizes", "tiny", "--beams", "2"]
    options += ["--batches", "1", "--modes", "latency", "--folder", tmp_path]
    assert "| tiny, 2 beams, 1 sentence |" in script("decode.py", *options)
    prepared = json.loads((tmp_path / "prepared.json").read_text())
    assert prepared["tiny,2,32"]["plain"] > 50


@pytest.mark.slow
def test_training_step_of_our_model_alone():
    options = ["--only", "keras_tfmr float32", "--turns", "1", "--seconds", "0.1", "--dry"]
    text = script("train_step.py", "--sizes", "tiny", *options)
    tokens, ratio = text[text.index("## tiny") :].split("| keras_tfmr float32 |")[1].split("|")[:2]
    assert float(tokens) > 100 and not ratio.strip()


@pytest.mark.slow
@with_torch
def test_training_step_beside_torch():
    options = ["--turns", "1", "--seconds", "0.1", "--dry"]
    text = script("train_step.py", "--sizes", "tiny", *options, seconds=600)
    rows = text[text.index("## tiny") :]
    assert rows.count(" threads") == 2 and rows.count("| tutorial's model") == 2


@pytest.mark.slow
@with_all_peers
def test_layers():
    options = ["--sizes", "tutorial", "--lengths", "16", "--turns", "1", "--seconds", "0.05"]
    text = script("layers.py", *options, "--dry", seconds=600)
    assert "| encoder layer | 16 | forward + backward |" in text


@pytest.mark.slow
@with_all_peers
def test_every_engine_of_decode(tmp_path):
    options = ["--quick", "--sizes", "tiny", "--beams", "2", "--batches", "1"]
    text = script("decode.py", *options, "--folder", tmp_path, seconds=600)
    row = next(line for line in text.splitlines() if line.startswith("| tiny, 2 beams, 1 sent"))
    assert all(cell.strip() for cell in row.split("|")[1:-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ["--length", "--sizes", "tiny", "--quick"],
        ["--grouped", "--sizes", "tiny", "--quick"],
        ["--prepare", "--sizes", "tiny", "--beams", "1", "--engines", "ours"],
    ],
)
def test_the_other_modes_of_decode(options, tmp_path):
    text = script("decode.py", *options, "--folder", tmp_path / "exports", seconds=600)
    if "--prepare" in options:
        assert (tmp_path / "exports" / "prepared.json").exists()
    else:
        assert "\n| tiny" in text


@pytest.fixture
def corpus(tmp_path):
    """The options that name a training and a validation file."""
    from training.corpus import phrasebook

    options = []
    for seed, (option, count) in enumerate((("--data", 600), ("--validation", 50))):
        path = tmp_path / f"{option[2:]}.tsv"
        path.write_text("".join(f"{a}\t{b}\n" for a, b in phrasebook.generate(count, seed=seed)))
        options += [option, path]
    return options


@pytest.mark.slow
@with_torch
@pytest.mark.parametrize("part", ["ours", "tutorial", "marian"])
def test_bleu(part, corpus, tmp_path):
    options = ["--parts", part, "--quick", "--minutes", "0.2", "--run", tmp_path / "run"]
    text = script("bleu.py", *corpus, *options, seconds=900)
    assert f"{part} {{'minutes': " in text


@pytest.mark.slow
def test_recipes(corpus, tmp_path):
    options = ["--updates", "3", "--presets", "small", "--runs", tmp_path, "--dry"]
    script("recipes.py", *corpus, *options, seconds=900)
    assert (tmp_path / "small" / "results.json").exists()


@pytest.mark.slow
def test_noise(corpus):
    text = script("noise.py", *corpus, "--other", corpus[1], "--quick", seconds=900)
    assert "| filtered |" in text and "came back" in text


@pytest.mark.slow
@with_all_peers
def test_an_imported_model_beside_the_original():
    lines = script("imported.py", "--quick", seconds=1200).splitlines()
    for form in ("transformers folder", "Marian release"):
        imported, *checked = (line for line in lines if line.startswith(f"| {form} |"))
        assert float(imported.split("|")[2]) > 0
        assert len(checked) == 2
        for row in checked:  # scaled weights, and those that transformers draws
            assert float(row.split("|")[2]) < 1e-4
            assert row.count("| 60 of 60 ") == 3
    for column in ("keras_tfmr, plain", "keras_tfmr, compiled"):
        row = next(line for line in lines if line.startswith(f"| {column} |"))
        assert row.endswith("| 64 of 64 |")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["fit", "stories", "architectures", "large_corpus", "few_labels", "fine_tune",
     "back_translation", "cluster", "gradients", "pronouns", "serving", "serving_fuzz", "mutation",
     "shortlists"],
)  # fmt: skip
def test_the_quick_run_of(name):
    assert script("run.py", name, "--quick", seconds=1200).strip()


def test_the_page_is_what_the_results_make_it(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import run

    assert run.page() == (ROOT / "benchmarks" / "README.md").read_text()
