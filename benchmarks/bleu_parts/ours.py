"""This project's training script, as anyone would run it."""

import csv
import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "training" / "train_pt_en.py"


def run(args):
    """Yields the rows of the run's history; its minutes count everything from process start."""
    folder = Path(args.run)
    command = [
        sys.executable, SCRIPT, "--data", args.data, "--validation", args.validation,
        "--minutes", args.minutes, "--run", folder, "--overwrite", "--no_export",
    ]  # fmt: skip
    subprocess.run(list(map(str, command)), check=True)
    with open(folder / "history.csv", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["bleu"]:
                yield {
                    "minutes": round(float(row["minutes"]), 2),
                    "updates": int(row["step"]),
                    "bleu": round(float(row["bleu"]), 2),
                }
    results = json.loads((folder / "results.json").read_text())
    yield {"minutes": results["minutes"], "beam_bleu": results["validation_bleu"]}
