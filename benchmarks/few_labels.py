"""Measures what pre-training gains if there are few labels.

    python benchmarks/few_labels.py                   # the phrasebook: 500 labelled sentences
    python benchmarks/few_labels.py --quick           # seconds, nothing written

An encoder learns for some minutes to predict masked subwords, from sentences without labels. Then a
classifier of sentence types learns from a few labelled sentences, once from that encoder and once
from random weights, with the same subwords, sizes and updates, and several seeds each. The accuracy
is on sentences that no run has seen. Writes results/few_labels.md and .json.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import measure
from training.corpus.phrasebook import text_tasks

ROOT = Path(__file__).parents[1]

BEGINNINGS = ("random weights", "pre-trained")
RATE = 1e-3  # of all classifiers


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--labels", nargs="+", type=int, default=[500], help="labelled sentences")
    add("--minutes", type=float, default=1.5, help="pre-training time")
    add("--steps", type=int, default=300, help="updates of a classifier")
    add("--seeds", type=int, default=2)
    add("--quick", action="store_true", help="a few updates of tiny models; writes nothing")
    args = parser.parse_args()
    size = ["--preset", "small"]
    budget = ["--minutes", args.minutes]
    if args.quick:
        args.labels, args.seeds, args.steps = [50], 1, 4
        size, budget = ["--preset", "tiny"], ["--steps", 4]
    with tempfile.TemporaryDirectory() as folder:
        results = measured(Path(folder), args, size, budget)
    print(page(results, args))
    if not args.quick:
        measure.write("few_labels", page(results, args), results)


def measured(folder, args, size, budget):
    """Returns {labels: {beginning: accuracies, one per seed}}."""
    split = text_tasks.split("classify", seed=1)
    write(folder / "texts.txt", (text for text, _ in split.train))
    write(folder / "validation.tsv", ("\t".join(row) for row in split.validation))
    train(folder / "encoder", "--task", "masked", "--data", folder / "texts.txt", *size, *budget)
    results = {}
    for labels in args.labels:
        for seed in range(args.seeds):
            few = folder / f"few_{labels}_{seed}.tsv"
            rows = split.train[seed * labels : (seed + 1) * labels]
            write(few, ("\t".join(row) for row in rows))
            # Both use the subwords of the encoder; only one starts with its weights.
            common = [
                "--task", "classify", "--data", few, "--validation", folder / "validation.tsv",
                "--steps", args.steps, "--seed", seed + 1, "--start_from", folder / "encoder",
                "--evaluate_steps", 50, "--warmup_steps", 50, "--learning_rate", RATE,
            ]  # fmt: skip
            for beginning in BEGINNINGS:
                run = folder / f"{labels}_{seed}_{beginning.split()[0]}"
                fresh = ["--fresh_weights"] if beginning == BEGINNINGS[0] else []
                train(run, *common, *fresh)
                row = results.setdefault(str(labels), {}).setdefault(beginning, [])
                row.append(accuracy(run, split.test))
    return results


def accuracy(run, rows):
    """The accuracy in % of a run's classifier on rows of (text, label)."""
    from training.run.folder import RunFolder
    from training.text.tasks import text_model_of

    found = text_model_of(RunFolder(run)).classify([text for text, _ in rows])
    right = [one.label == label for one, (_, label) in zip(found, rows, strict=True)]
    return 100 * statistics.mean(right)


def write(path, lines):
    """Writes a text file of these lines."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def train(run, *options):
    """Trains in a process of its own."""
    script = ROOT / "training" / "train_text.py"
    command = [sys.executable, script, "--run", run, "--no_export", *options]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{command} failed: {done.stderr[-2000:]}")


def page(results, args):
    """The results as Markdown."""
    lines = [
        "# What pre-training gains",
        "",
        "Accuracy in %, on 500 sentences that no run has seen, of a classifier of 12 types of "
        f"sentences after {args.steps} updates; the mean over {args.seeds} seeds, each with "
        "labelled sentences of its own, and all of them in brackets. The pre-trained encoder has "
        f"filled gaps in 20,000 sentences without labels for {args.minutes:g} minutes.",
        "",
        f"| labelled sentences | {' | '.join(BEGINNINGS)} |",
        "|---|---|---|",
    ]
    for labels, found in results.items():
        cells = [
            f"{statistics.mean(found[b]):.1f} ({', '.join(f'{x:.1f}' for x in found[b])})"
            for b in BEGINNINGS
        ]
        lines.append(f"| {labels} | {' | '.join(cells)} |")
    chosen = "The weights of each run are those of its best evaluation on 500 other sentences."
    lines += ["", chosen, "", f"{measure.machine()}."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
