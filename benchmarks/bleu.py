"""BLEU against minutes of training: this project, the TensorFlow tutorial's recipe, MarianMT.

    python benchmarks/bleu.py --data train.tsv --validation validation.tsv [--parts ours marian]

A long job, half an hour a side; the sides can be run one by one, and their results are merged.
Measure on a machine that does nothing else.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import measure
from training.run.memory import keep_freed

PARTS = {
    "ours": "keras_tfmr, its defaults",
    "tutorial": "the TensorFlow tutorial's recipe",
    "marian": "MarianMT, transformers and PyTorch, of our size",
}


def main():
    """Runs the parts asked for and writes results/bleu.{json,md,png}."""
    args = parse()
    if args.alone:
        return alone(args)
    file = measure.RESULTS / "bleu.json"
    numbers = json.loads(file.read_text()) if file.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        args.task = Path(folder) / "task.pickle"
        if args.parts != ["ours"]:
            list(child(args, "task"))
        for part in args.parts:
            rows, environment = [], fastest(args) if part == "marian" else {}
            for row in child(args, part, environment):
                print(part, row, flush=True)
                rows.append(row)
                numbers[part] = {"machine": measure.machine(), "minutes": args.minutes,
                                 "rows": rows, "environment": environment}  # fmt: skip
                if not args.quick:  # after every row: a side that fails loses half an hour else
                    measure.write("bleu", page(numbers), numbers)
                    draw(numbers)


def child(args, part, environment=None):
    """The rows of a part, which runs in a process of its own with nothing else of ours beside."""
    command = [sys.executable, __file__, *sys.argv[1:], "--alone", part, "--task", args.task]
    process = subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, text=True,
        env={**os.environ, **(environment or {})},
    )  # fmt: skip
    rows = []
    for line in process.stdout:
        if line.startswith("@"):
            rows.append(json.loads(line[1:]))
            yield rows[-1]
    if process.wait():
        raise RuntimeError(f"the process of {part} failed with status {process.returncode}")


def fastest(args):
    """The environment in which torch makes a few updates in the least time."""
    seconds = {}
    for threads, waiting in (("2", "ACTIVE"), ("2", "PASSIVE"), ("1", "PASSIVE")):
        environment = {"OMP_NUM_THREADS": threads, "KERAS_BACKEND": "torch"}
        if waiting == "PASSIVE":
            environment["OMP_WAIT_POLICY"] = waiting
        (row,) = child(args, "marian_trial", environment)
        seconds[row["seconds"]] = environment
        print("marian, an update:", row, environment, flush=True)
    return seconds[min(seconds)]


def alone(args):
    """What a child does: prepares, scores, or trains a part and prints its rows."""
    keep_freed()  # as our scripts do; it makes torch faster, too
    if args.alone == "task":
        from benchmarks.bleu_parts import corpus

        return corpus.prepare(args)
    name, _, trial = args.alone.partition("_")
    side = importlib.import_module(f"benchmarks.bleu_parts.{name}")
    for row in side.trial(args) if trial else side.run(args):
        measure.answer(row)


def parse():
    """The command line as a namespace."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True, help="training pairs, SOURCE<TAB>TARGET")
    parser.add_argument("--validation", required=True, help="validation pairs")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--every", type=float, default=2, help="minutes between measurements")
    parser.add_argument("--pairs", type=int, default=500, help="validation pairs translated")
    parser.add_argument("--run", default="runs/bleu", help="our run's folder")
    parser.add_argument("--keep", metavar="DIR", help="folder to save MarianMT's model in")
    parser.add_argument("--quick", action="store_true", help="few pairs, nothing written")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.quick:
        args.every, args.pairs = args.minutes / 2, 50
    return args


def page(numbers):
    """The table: BLEU of each side at the last measurement before each mark."""
    marks = (2, 4, 6, 8, 11, 15, 22, 30)
    rows = []
    for part, title in PARTS.items():
        measured = [row for row in numbers.get(part, {}).get("rows", []) if "bleu" in row]
        cells = []
        for mark in marks:
            trained = mark <= numbers.get(part, {}).get("minutes", 0)
            until = [row["bleu"] for row in measured if row["minutes"] <= mark * 1.02]
            cells.append(until[-1] if trained and until else "–")
        rows.append([title, *cells])
    text = "# BLEU against minutes of training\n\n"
    text += "Cased, detokenised BLEU (sacrebleu) of greedy translations of validation sentences,\n"
    text += "at the last measurement before each minute. Ours counts everything from the start of\n"
    text += "the process, evaluations too; of the peers, only the training steps are counted.\n\n"
    text += measure.table(["minutes", *marks], rows)
    for part in PARTS:
        for row in numbers.get(part, {}).get("rows", []):
            if "beam_bleu" in row:
                text += f"\n{PARTS[part]}: {row['beam_bleu']} with beam 4, the weights that scored "
                text += "best and all validation pairs.\n"
    machines = sorted({side["machine"] for side in numbers.values()})
    text += f"\n{'; '.join(machines)}. {measure.versions('tensorflow', 'keras')}\n"
    return text + "\n`python benchmarks/bleu.py --data train.tsv --validation validation.tsv`\n"


def draw(numbers):
    """results/bleu.png"""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for part, title in PARTS.items():
        rows = [row for row in numbers.get(part, {}).get("rows", []) if "bleu" in row]
        if rows:
            minutes, bleu = [r["minutes"] for r in rows], [r["bleu"] for r in rows]
            axes.plot(minutes, bleu, marker="o", markersize=3, label=title)
    axes.set_xlabel("minutes of training on two cores")
    axes.set_ylabel("BLEU")
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.2)
    axes.legend(frameon=False)
    figure.savefig(measure.RESULTS / "bleu.png", dpi=120)


if __name__ == "__main__":
    main()
