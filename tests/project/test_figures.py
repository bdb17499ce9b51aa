"""The figures of README's table are those of benchmarks/results, which scripts wrote."""

import json
import re
from statistics import mean, median

import pytest
from tiny_runs import ROOT

# {name of the results: the row's cells after its first}
ROWS = {
    found[1]: [cell.strip() for cell in line.split("|")[2:-1]]
    for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    if (found := re.match(r"\|.*?benchmarks/results/(\w+)\.md", line))
}


def bleu_multi30k(numbers):
    scores = {side: run["test"]["sacrebleu"] for side, run in numbers["sides"].items()}
    marian = scores.pop("marian")
    ours = scores.values()
    return [f"{score:.1f}" for score in (mean(ours), min(ours), max(ours), marian)]


def layers(numbers):
    """The median of each backend; the least and the greatest of all."""
    found = []
    for backend in numbers["backends"].values():
        cases = [case for size in backend["sizes"].values() for case in size]
        found.append([
            min(case[peer] for peer in ("Keras", "KerasHub") if case.get(peer)) / case["keras_tfmr"]
            for case in cases
        ])  # fmt: skip
    every = [speedup for one in found for speedup in one]
    return [f"{speedup:.2f}" for speedup in (*map(median, found), min(every), max(every))]


def generate(numbers):
    """Our speed over KerasHub's, for 1 and 32 prompts on each backend, greedily."""
    return [
        f"{case['sides']['keras_tfmr']['rate'] / case['sides']['KerasHub']['rate']:.1f}"
        for case in numbers["cases"]
        if case["way"] == "greedy"
    ]


def train_step(numbers):
    """The least and the greatest ratio to PyTorch in the same precision."""
    found = [
        case[f"keras_tfmr {ours}"]["rate"] / case[f"torch {torch}"]["rate"]
        for case in numbers["cases"].values()
        for ours, torch in (("float32", "float32"), ("mixed_bfloat16", "bfloat16 (autocast)"))
    ]
    return [f"{min(found):.2f}", f"{max(found):.2f}"]


def train_step_gpu(numbers):
    found = [
        case["keras_tfmr mixed_bfloat16"]["tokens/s"]
        / case["torch bfloat16 (autocast)"]["tokens/s"]
        for case in numbers["sizes"]["base"].values()
    ]
    return [f"{min(found):.2f}", f"{max(found):.2f}"]


def decoding(numbers):
    """Greedily, requests of 32 sentences and of one: README's first run; with a shortlist."""
    rate = {
        (row["model"].split(",")[0], row["sentences"], row["engine"]): row["rate"]
        for row in numbers["rows"]
        if row["beams"] == 1
    }
    sides = (
        ("README's first run", "keras_tfmr int8", "CTranslate2 int8"),
        ("OPUS-MT's size", "keras_tfmr int8 with a shortlist", "CTranslate2 int8 with vmap"),
    )
    return [
        f"{rate[model, n, ours] / rate[model, n, peer]:.2f}"
        for model, ours, peer in sides
        for n in (32, 1)
    ]


def spans(numbers):
    runs = [run for name, run in numbers["runs"].items() if name.startswith("with-")]
    assert len({(run["arrived"], run["spans"]) for run in runs}) == 1
    return [str(runs[0]["arrived"]), str(runs[0]["spans"])]


CHECKS = (bleu_multi30k, layers, generate, train_step, train_step_gpu, decoding, spans)
FIGURES = {check.__name__: check for check in CHECKS}


def test_each_row_is_checked():
    assert ROWS.keys() == FIGURES.keys()


@pytest.mark.parametrize("name", FIGURES)
def test_the_figures_of(name):
    file = ROOT / "benchmarks" / "results" / f"{name}.json"
    numbers = json.loads(file.read_text(encoding="utf-8"))
    ours, peer, _machine = ROWS[name]
    shown = re.findall(r"(?<!\w)\d+(?:\.\d+)?", re.sub(r"\(\S*results\S*\)", "", f"{ours} {peer}"))
    assert shown == FIGURES[name](numbers)
