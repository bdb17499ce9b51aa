"""Measures how fast a translator learns another domain, and what it forgets.

    python benchmarks/fine_tune.py --run runs/tatoeba --data docs/train.tsv \
        --validation docs/validation.tsv --old_data tatoeba/train.tsv \
        --old_validation tatoeba/validation.tsv

Six runs train for the same minutes: fine-tuned on DATA mixed with OLD_DATA (`--start_from`), the
same with more subwords (`--extend_vocab`, at twice the rate), that with three times as many old
pairs (at half of that rate), fine-tuned on DATA alone, and from random weights on DATA and on the
mixture with three times as many old pairs. The weights of each that were best on the new domain are
then measured on both validation sets with the beam of the run. The picture shows greedy BLEU on the
new domain against minutes, from the history of each run, and BLEU of the first run.

`--only` trains some of the ways; results/fine_tune.json keeps the others. `--machine` names the
machine in the table and the picture, so that runs of another one are kept.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from benchmarks import measure

ROOT = Path(__file__).resolve().parents[1]

WAYS = (
    "fine-tuned, mixed 3:1",
    "fine-tuned with more subwords, mixed 3:1",
    "fine-tuned with more subwords, mixed 1:3",
    "fine-tuned",
    "from nothing",
    "from nothing, mixed 1:3",
)
GOALS = {5: 15.0, 20: 25.0}  # minutes: BLEU with the beam, on the new domain
MOST_LOST = 1.0  # BLEU on the old one, of the mixture


def main():
    """Measures and writes results/fine_tune.{md,json,png}."""
    args = parse()
    path = measure.RESULTS / "fine_tune.json"
    kept = json.loads(path.read_text())["runs"] if path.exists() and not args.quick else {}
    numbers = {"runs": kept}
    before = scores(args.run, args)
    with tempfile.TemporaryDirectory() as directory:
        for name in args.only:
            for minutes in args.minutes:
                run = Path(directory, f"{name}-{minutes:g}")
                found = train(run, commands(args)[name], minutes, args)
                found |= {"machine": measure.machine(), "before": before, **scores(run, args)}
                label = f"{name}, {args.machine}" if args.machine else name
                numbers["runs"].setdefault(label, {})[f"{minutes:g}"] = found
                print(name, minutes, found["new"], found["old"], flush=True)
    print(page(numbers))
    if not args.quick:
        measure.write("fine_tune", page(numbers), numbers)
        draw(numbers).savefig(ROOT / "benchmarks" / "results" / "fine_tune.png", dpi=110)


def parse():
    """The command line as a namespace."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--run", required=True, help="folder of the finished run to start from")
    for name, about in (("data", "pairs"), ("validation", "validation pairs")):
        parser.add_argument(f"--{name}", required=True, help=f"{about} of the new domain")
        parser.add_argument(f"--old_{name}", required=True, help=f"{about} of the old one")
    parser.add_argument("--minutes", type=float, nargs="+", default=[5, 20])
    parser.add_argument("--only", nargs="+", choices=WAYS, default=WAYS, metavar="WAY")
    parser.add_argument("--learning_rate", type=float, default=1e-3)
    parser.add_argument("--machine", help="added to the names of the runs", metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="20 updates each; writes nothing")
    args = parser.parse_args()
    args.minutes = args.minutes[:1] if args.quick else args.minutes
    return args


def commands(args):
    """The arguments of the training command, for each way."""
    tuned = ["--start_from", args.run, "--warmup_steps", 100, "--learning_rate"]
    mixed, new = ["--data", f"{args.data}:3", f"{args.old_data}:1"], ["--data", args.data]
    kept = ["--data", f"{args.data}:1", f"{args.old_data}:3"]
    rate = args.learning_rate
    ways = (
        [*mixed, *tuned, rate],
        [*mixed, *tuned, 2 * rate, "--extend_vocab"],
        [*kept, *tuned, rate, "--extend_vocab"],
        [*new, *tuned, rate],
        new,
        kept,
    )  # fmt: skip
    return dict(zip(WAYS, ways, strict=True))


def train(run, words, minutes, args):
    """Trains; returns {"curve": [(minutes, greedy BLEU)], "updates"}."""
    budget = ["--steps", 20] if args.quick else ["--minutes", minutes]
    command = [
        sys.executable, ROOT / "training" / "train_pt_en.py", "--run", run, "--no_export",
        "--validation", args.validation, "--evaluate_steps", 200, *budget, *words,
    ]  # fmt: skip
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
    with (run / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    curve = [(float(row["minutes"]), float(row["bleu"])) for row in rows if row["bleu"]]
    return {"curve": curve, "updates": int(rows[-1]["step"])}


def scores(run, args):
    """Returns {"new", "old"}: BLEU on both validation sets with the run's beam."""
    found = {}
    for name, path in (("new", args.validation), ("old", args.old_validation)):
        pairs = [line.split("\t") for line in Path(path).read_text().splitlines()]
        pairs = pairs[:20] if args.quick else pairs
        found[name] = round(bleu(Path(run), pairs), 2)
    return found


def bleu(run, pairs):
    """BLEU of the best weights of a run, from the command that translates files."""
    import sacrebleu

    command = [sys.executable, ROOT / "training" / "translate.py", run]
    done = subprocess.run(
        list(map(str, command)), input="".join(f"{source}\n" for source, _ in pairs),
        env={**os.environ, "KERAS_BACKEND": "tensorflow"},  # a run of any backend
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return sacrebleu.corpus_bleu(done.stdout.split("\n")[:-1], [[t for _, t in pairs]]).score


def page(numbers):
    """The results as Markdown."""
    rows = []
    for name, runs in numbers["runs"].items():
        for minutes, run in runs.items():
            before = ("", "") if name.startswith("from nothing") else run["before"].values()
            updates = run.get("updates", "")  # not counted at first
            rows.append([name, minutes, updates, run["new"], run["old"], *before, run["machine"]])
    header = ["run", "minutes", "updates", "BLEU, new domain", "old domain", "before: new", "old"]
    header += ["machine"]
    goals = ", ".join(f"{goal:g} after {minutes} minutes" for minutes, goal in GOALS.items())
    return (
        "# Fine-tuning\n\n"
        + measure.table(header, rows)
        + f"\nGoals on the new domain: {goals}; a mixture loses at most {MOST_LOST:g} on the old "
        "one.\n\n![BLEU against minutes](fine_tune.png)\n"
    )


def draw(numbers):
    """BLEU on the new domain against minutes, a curve for each run of the longest budget."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6.5), layout="constrained")
    axes = figure.subplots()
    longest = {name: list(runs.values())[-1] for name, runs in numbers["runs"].items()}
    for name, run in longest.items():
        axes.plot(*zip(*run["curve"], strict=True), label=name)
    before = max(run["before"]["new"] for run in longest.values())
    axes.axhline(before, linestyle=":", color="grey", label="before")
    axes.set(xlabel="minutes", ylabel="BLEU on the new domain")
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return figure


if __name__ == "__main__":
    main()
