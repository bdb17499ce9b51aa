"""RNNsearch and the Transformer learn the same pairs for the same time, and decode."""

import csv
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks import measure
from keras_tfmr.decoding import DecodingConfig
from training.corpus.pairs import read_pairs
from training.report.evaluation import Evaluator
from training.run.folder import RunFolder
from training.run.on_tensorflow import Workers

MODELS = ("transformer", "rnnsearch")
SCRIPT = Path(__file__).parents[2] / "training" / "train_pt_en.py"
BATCH = 64


def chosen(args):
    return [name for name in MODELS if not args.models or name in args.models]


def train(args):
    """Yields (model, result) of a run of the training script each; finished runs are kept."""
    for name in chosen(args):
        path = Path(args.runs) / name
        if not (path / "results.json").exists():
            subprocess.run(command(name, path, args), check=True)
        yield name, result_of(RunFolder(path))


def command(name, path, args):
    line = [
        sys.executable, SCRIPT, "--model", name, "--minutes", args.minutes, "--run", path,
        "--no_export",
    ]  # fmt: skip
    if args.data:
        line += ["--data", args.data, "--validation", args.validation]
    if args.quick:
        line += ["--preset", "tiny", "--evaluate_pairs", 50, "--evaluate_minutes", 0.2]
    return list(map(str, line))


def result_of(folder):
    """The result that a finished run folder holds."""
    with open(folder.history, encoding="utf-8") as file:
        rows = [{k: float(v) for k, v in row.items() if v} for row in csv.DictReader(file)]
    speeds = [row["tokens_per_second"] for row in rows if "tokens_per_second" in row]
    return {
        "parameters": load(folder)[0].count_params(),
        # The first row is slowed down by tracing, the last may be short.
        "tokens_per_second": statistics.median(speeds[1:-1] or speeds),
        "final": json.loads(folder.results.read_text()),
        "rows": [{k: row.get(k) for k in ("minutes", "loss", "bleu", "chrf")} for row in rows],
    }


def load(folder):
    """The best model of a run folder, and its tokenizers."""
    return folder.model(), folder.tokenizers()


def training_section(results):
    shared = min(r["final"]["minutes"] for r in results.values())
    header = ["model", "parameters", "minutes", "steps", "tokens/s", "BLEU", "chrF"]
    header.append(f"greedy BLEU after {shared:.0f} minutes")
    rows = [
        [
            name, f"{r['parameters']:,}", r["final"]["minutes"], r["final"]["steps"],
            r["tokens_per_second"], r["final"]["validation_bleu"], r["final"]["validation_chrf"],
            [w["bleu"] for w in r["rows"] if w["bleu"] and w["minutes"] < shared + 0.1][-1],
        ]
        for name, r in results.items()
    ]  # fmt: skip
    return (
        "## Translation\n\n"
        "`training/train_pt_en.py` with each model, from text to a finished run. Tokens/s are "
        "real target tokens in training, the median over rows of the history; BLEU and chrF are "
        "of the whole validation set with beam 4 and the best weights.\n\n"
    ) + measure.table(header, rows)


def decode(args):
    """Yields (model, result): how fast the trained translators decode, taking turns."""
    evaluators = {}
    pairs = list(read_pairs(args.validation).pairs())[: BATCH if args.quick else 8 * BATCH]
    for name in chosen(args):
        model, tokenizers = load(RunFolder(Path(args.runs) / name))
        for beams in (1, 4):
            decoding = DecodingConfig(beams=beams)
            evaluators[name, beams] = Evaluator(model, tokenizers, pairs, decoding, Workers())
    seconds, tokens = {key: [] for key in evaluators}, {}
    for _ in range(4):
        for key, evaluator in evaluators.items():
            start = time.perf_counter()
            ids = [evaluator.decode(batch).numpy() for batch in evaluator.batches]
            seconds[key].append(time.perf_counter() - start)
            tokens[key] = int(sum(np.count_nonzero(batch) for batch in ids))
    for name in chosen(args):
        yield (
            name,
            {
                f"beam {beams}": tokens[name, beams] / statistics.median(seconds[name, beams][1:])
                for beams in (1, 4)
            },
        )


def decoding_section(results):
    header = ["model", "greedy", "beam 4"]
    rows = [[name, r["beam 1"], r["beam 4"]] for name, r in results.items()]
    return (
        "## Decoding\n\n"
        f"Tokens written per second, {BATCH} sentences of the validation set at once, every model "
        "with its best weights and its own step: keys and values cached, or a recurrent state.\n\n"
    ) + measure.table(header, rows)
