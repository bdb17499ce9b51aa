"""Draws the loss curve of each preset, trained with its own recipe.

    python benchmarks/recipes.py --data train.tsv --validation validation.tsv [--updates 1000]

The training command trains every preset into a folder of `--runs`, and continues an unfinished run.
The curves go to results/recipes.png and results/recipes.json.
"""

import argparse
import csv
import subprocess
import sys
from pathlib import Path

from benchmarks import measure

ROOT = Path(__file__).resolve().parents[1]
PRESETS = ("small", "tutorial", "base", "big")


def main():
    """Trains, draws and writes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True, help="training pairs")
    parser.add_argument("--validation", required=True, help="validation pairs")
    parser.add_argument("--updates", type=int, default=1000, help="default: 1000")
    parser.add_argument("--presets", nargs="+", default=PRESETS, choices=PRESETS)
    parser.add_argument("--runs", default="runs/recipes", help="default: runs/recipes")
    parser.add_argument("--dry", action="store_true", help="do not write the results")
    args = parser.parse_args()
    curves = {preset: curve(args, preset) for preset in args.presets}
    if args.dry:
        return
    record(curves, measure.machine())


def curve(args, preset):
    """Returns [(updates, loss)] of a run, which is trained unless it exists."""
    run = Path(args.runs) / preset
    if not (run / "results.json").exists():
        command = [
            sys.executable, ROOT / "training" / "train_pt_en.py", "--preset", preset, "--run", run,
            "--data", args.data, "--validation", args.validation, "--steps", args.updates,
            "--no_export",
        ]  # fmt: skip
        subprocess.run([str(word) for word in command], check=True)
    with (run / "history.csv").open() as file:
        return [(int(r["step"]), float(r["loss"])) for r in csv.DictReader(file) if r["loss"]]


def record(curves, machine):
    """Writes results/recipes.{md,json,png}."""
    draw(curves, measure.RESULTS / "recipes.png")
    measure.write("recipes", page(curves, machine), {"machine": machine, "curves": curves})


def draw(curves, path):
    """Draws loss by updates, one line per preset."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot(xlabel="updates", ylabel="loss, nats a token")
    for preset, points in curves.items():
        axes.plot(*zip(*points, strict=True), label=preset)
    axes.legend()
    figure.savefig(path, dpi=110)


def page(curves, machine):
    """The first and the last loss of each."""
    rows = [
        [preset, points[-1][0], points[0][1], points[-1][1]] for preset, points in curves.items()
    ]
    names = ["preset", "updates", "loss after 100 updates", "loss at the end"]
    return (
        f"# Loss curves of the presets\n\n{machine}.\n\n{measure.table(names, rows)}"
        "\n![Loss of the presets by updates](recipes.png)\n"
    )


if __name__ == "__main__":
    main()
