"""Draws the plots of the guides: a run, the learning rate, masks, the figures of sizing.

    python -m docs.plots curves runs/phrasebook     # docs/pictures/curves.svg
    python -m docs.plots schedule                   # docs/pictures/schedule.svg
    python -m docs.plots masks                      # docs/pictures/masks.svg
    python -m docs.plots sizing small               # docs/pictures/sizing.svg

`curves` reads the run's history.csv, `sizing` benchmarks/results/sizing.json, which
benchmarks/sizing.py writes, the rows of one of its models.
"""

import argparse
import csv
import json
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from docs import svg
from keras_tfmr.plots import plot_curves
from serving import load
from training.run.optimizer import WarmupCosine
from training.settings.recipes import SMALL

ROOT = Path(__file__).resolve().parents[1]


def save(figure, name, title):
    svg.save(figure, ROOT / "docs" / "pictures" / f"{name}.svg", title)


def curves(run):
    """Loss and BLEU of a run of a translator."""
    with (run / "history.csv").open(encoding="utf-8") as lines:
        rows = [{key: float(cell) for key, cell in row.items() if cell}
                for row in csv.DictReader(lines)]  # fmt: skip
    for row in rows:
        row["BLEU"] = row.get("val_bleu")
    save(plot_curves(rows, scores=("BLEU",)), "curves", "Loss and BLEU by minutes")


def schedule():
    """The rate of `small` in a short and in a long run."""
    figure = Figure(figsize=(7.2, 3), layout="constrained")
    axes = figure.add_subplot(xlabel="update", ylabel="learning rate")
    for updates, name in ((1200, "the first run: 1,200 updates"), (8000, "8,000 updates")):
        rate = WarmupCosine(SMALL["learning_rate"], SMALL["warmup_steps"], updates)
        steps = np.arange(updates + 1)
        axes.plot(steps, np.asarray(rate(steps)), label=name)
    axes.yaxis.set_major_locator(matplotlib.ticker.MultipleLocator(1e-3))
    axes.yaxis.set_major_formatter(lambda rate, _: f"{1e3 * rate:g}e-3" if rate else "0")
    axes.xaxis.set_major_formatter(lambda update, _: f"{update:,.0f}")
    axes.set(xlim=(0, 8000), ylim=(0, 3.2e-3))
    axes.grid(alpha=0.3)
    axes.legend()
    save(figure, "schedule", "The learning rate of small in a short and in a long run")


def masks():
    """What the three kinds of attention may attend to, on one pair."""
    source = ["o", "gato", "dorme", ".", "PAD", "PAD"]
    target = ["START", "the", "cat", "sleeps", "."]
    valid = np.array([word != "PAD" for word in source])
    panels = (
        ("encoder: real words", np.tile(valid, (len(source), 1)), source, source),
        ("decoder: nothing later", np.tri(len(target), dtype=bool), target, target),
        ("cross: real source words", np.tile(valid, (len(target), 1)), target, source),
    )
    figure = Figure(figsize=(7.6, 2.9), layout="constrained")
    for axes, (title, mask, rows, columns) in zip(figure.subplots(1, 3), panels, strict=True):
        axes.pcolormesh(mask, cmap="Blues", vmin=0, vmax=1.4, edgecolors="#8893a5", linewidth=0.5)
        axes.set_xticks(np.arange(len(columns)) + 0.5, columns, rotation=60)
        axes.set_yticks(np.arange(len(rows)) + 0.5, rows)
        axes.tick_params(length=0)
        axes.set(xlabel="key", ylabel="query")
        axes.set_title(title, fontsize=10)
        axes.invert_yaxis()
    save(figure, "masks", "What may be attended to: real words, and in the decoder nothing later")


def sizing(model):
    """Latency and throughput of a model's exports in the development server."""
    numbers = json.loads((ROOT / "benchmarks" / "results" / "sizing.json").read_text())
    runs = {
        row["engine"].removeprefix("keras_tfmr "): row["rows"]
        for row in numbers["rows"]
        if row["model"] == model and row["engine"].startswith("keras_tfmr ")
    }
    if not runs:
        raise SystemExit(f"sizing.json has no model {model!r}")
    title = f"{model}, {numbers['machine'].partition(', ')[0]}"
    save(load.plot(runs, title), "sizing", f"Latency and throughput: {title}")


def main():
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    plots = parser.add_subparsers(dest="plot", required=True)
    plots.add_parser("curves").add_argument("run", type=Path, help="folder of a finished run")
    plots.add_parser("schedule")
    plots.add_parser("masks")
    plots.add_parser("sizing").add_argument("model", help="its name in sizing.json")
    args = parser.parse_args()
    if args.plot == "curves":
        curves(args.run)
    elif args.plot == "sizing":
        sizing(args.model)
    elif args.plot == "schedule":
        schedule()
    else:
        masks()


if __name__ == "__main__":
    main()
