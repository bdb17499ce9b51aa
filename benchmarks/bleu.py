"""BLEU against minutes of training, of this project and of Marian.

    python benchmarks/bleu.py --data train.tsv --validation validation.tsv --marian PYTHON

Marian is the pymarian of an environment of its own, whose interpreter `--marian` names. Each side
can be run by itself, and the results are merged. Both learn from the same pairs; BLEU is cased and
detokenised, of greedy translations. Ours counts everything from the start of the process,
evaluations too; of Marian, only the training counts. Marian trains once with each of `--rates`
after each of `--warmups`, and the best run is shown. Writes results/bleu.md, .json and .png.
"""

import argparse
import csv
import functools
import itertools
import tempfile
from pathlib import Path

import harness

from training.run.run_folder import RunFolder

SIDES = {"keras_tfmr": "keras_tfmr, its defaults", "marian": "Marian itself, of our size"}
HOW = """Cased, detokenised BLEU (sacrebleu) of greedy translations of validation sentences, at the
last measurement before each minute. Ours counts everything from the start of the process,
evaluations too; of Marian, only the training counts. [An earlier table](bleu_epyc.md) has other
peers.
"""
MARIAN = """Marian has the recipe of its `--task transformer-base`: post-norm, tied embeddings,
Adam(0.9, 0.98), label smoothing 0.1, an inverse root after the warm-up, exponential smoothing,
here of 0.001; batches of 64 sentences; 2 replicas of 1 thread or 1 of 2, whichever is faster. These
rates and warm-ups were tried; the best is shown above.
"""
MARKS = (2, 4, 6, 8, 10, 12, 15, 22, 30)
SETTINGS = {  # environments of Marian's process, of which the fastest is taken
    f"{replicas} replicas of {threads} threads": {
        "MARIAN_REPLICAS": replicas, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads
    }
    for replicas, threads in (("2", "1"), ("1", "2"))
}  # fmt: skip


def ours(args):
    """Trains by the command that users run; rows of its history."""
    run = Path(args.run)
    RunFolder(run).clear()  # --overwrite would leave a run of exactly this command alone
    harness.command(
        "training/train_pt_en.py", "--data", args.data, "--validation", args.validation,
        "--minutes", args.minutes, "--output", run, "--no_export",
    )  # fmt: skip
    with open(run / "history.csv", encoding="utf-8") as file:
        return [
            {"minutes": round(float(row["minutes"]), 2), "updates": int(row["step"]),
             "bleu": round(float(row["val_bleu"]), 2)}
            for row in csv.DictReader(file)
            if row["val_bleu"]
        ]  # fmt: skip


def one(args, minutes):
    """In its own process: trains Marian for some minutes."""
    from peers.marian_model import train

    rows = train(argparse.Namespace(**{**args, "minutes": minutes}))
    return {"rate": rows[-1]["updates"] / rows[-1]["minutes"], "rows": rows}


def marians(args):
    """Marian's run with the threads that are fastest in a short training and its best rate and
    warm-up; its last BLEU with each."""

    def train(setting, minutes, rate, warmup):
        task = {"args": {**vars(args), "rate": rate, "warmup": warmup}, "minutes": minutes}
        return harness.alone(__file__, task, SETTINGS[setting])

    recipes = list(itertools.product(args.rates, args.warmups))
    short = {name: functools.partial(train, name, 0.5, *recipes[0]) for name in SETTINGS}
    setting = harness.compare({"marian": short}, 1, quick=args.quick)["marian"]["setting"]
    runs = [train(setting, args.minutes, *recipe) for recipe in recipes]
    last = [run["rows"][-1]["bleu"] for run in runs]
    tried = [[*recipe, bleu] for recipe, bleu in zip(recipes, last, strict=True)]
    return {"setting": setting, "tried": tried, **runs[last.index(max(last))]}


def page(numbers):
    """The table: BLEU of each side at the last measurement before each mark."""
    sides = {side: numbers["sides"][side] for side in SIDES if side in numbers["sides"]}
    marks = [mark for mark in MARKS if mark <= max(found["minutes"] for found in sides.values())]
    rows = []
    for side, found in sides.items():
        cells = []
        for mark in marks:
            until = [row["bleu"] for row in found["rows"] if row["minutes"] <= mark * 1.02]
            cells.append(until[-1] if until and mark <= found["minutes"] else "–")
        rows.append([SIDES[side], *cells])
    tried = sides.get("marian", {}).get("tried", [])
    text = f"{HOW}\n{harness.table(['minutes', *marks], rows)}\n![BLEU by minutes](bleu.png)\n"
    if tried:
        header = ["Marian's rate", "warm-up, updates", "BLEU at the end"]
        text += f"\n{MARIAN}\n{harness.table(header, tried)}"
    return text


def draw(numbers):
    """results/bleu.png"""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot(xlabel="minutes of training on two cores", ylabel="BLEU")
    for side, title in SIDES.items():
        if rows := numbers["sides"].get(side, {}).get("rows"):
            minutes, bleu = [row["minutes"] for row in rows], [row["bleu"] for row in rows]
            axes.plot(minutes, bleu, marker="o", markersize=3, label=title)
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.2)
    axes.legend(frameon=False)
    figure.savefig(harness.RESULTS / "bleu.png", dpi=120)


def main():
    parser, add, full = harness.parser(__doc__, turns=1)
    full("--data", help="training pairs, SOURCE<TAB>TARGET")
    full("--validation", help="validation pairs")
    add("--sides", nargs="+", choices=SIDES, default=list(SIDES), help="sides")
    full("--minutes", type=float, default=30, help="of training")
    full("--every", type=float, default=2, help="minutes between measurements of Marian")
    full("--rates", nargs="+", default=["0.001"], help="of Marian")
    full("--warmups", type=int, nargs="+", default=[1000], help="of Marian, in updates")
    full("--pairs", type=int, default=500, help="validation pairs translated")
    full("--run", default="runs/bleu", help="our run's folder")
    add("--marian", metavar="PYTHON", help="interpreter of an environment with pymarian")
    args = parser.parse_args()
    if not (args.quick or (args.data and args.validation)):
        parser.error("--data and --validation are needed")
    kept = {} if args.quick else harness.kept("bleu")
    numbers = {**harness.about("tensorflow", "keras"), "sides": kept.get("sides", {})}
    with tempfile.TemporaryDirectory() as folder:
        if args.quick:
            args.data = str(harness.tiny_pairs(Path(folder, "train.tsv")))
            args.validation = str(harness.tiny_pairs(Path(folder, "valid.tsv"), range(300, 320)))
            args.minutes, args.every, args.pairs, args.run = 0.05, 0.05, 8, f"{folder}/run"
        for side in args.sides:
            if side == "marian" and not args.marian:
                continue
            found = marians(args) if side == "marian" else {"rows": ours(args)}
            numbers["sides"][side] = {**found, "minutes": args.minutes, "date": numbers["date"]}
            if not args.quick:
                draw(numbers)
            harness.report("bleu", "BLEU against minutes of training", page(numbers), numbers,
                           quick=args.quick)  # fmt: skip


if __name__ == "__main__":
    harness.serve(one) or main()
