"""Measures quality and speed of a teacher's students, with our exports and in CTranslate2.

    python benchmarks/students.py TEACHER_RUN --data train.tsv --steps 10000

training/distill.py trains each student into a folder of `--runs`, and continues an unfinished run;
a finished one is taken as it is. Then the teacher, with its beam and greedily, and each student,
greedily, translate the teacher's validation sentences from strings to strings in batches of 32. The
engines are our export with one caller per core, and CTranslate2, float32 and int8, with one
translator per core. Each engine runs alone in a process that loads nothing else; the engines take
turns. Writes results/students.md, .json and .png.
"""

import argparse
import collections
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import measure
from benchmarks.translating import CTRANSLATE2, OURS, Case, timed
from training.run.folder import RunFolder

ROOT = Path(__file__).resolve().parents[1]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

PRESETS = ("6-1", "12-1", "6-2")
# The goals of a student: most BLEU points below the teacher's beam search, and least speed relative
# to that beam search in CTranslate2's int8.
LOST, TIMES = 0.5, 4
QUICK = ("--steps", "4", "--d_model", "16", "--num_heads", "2", "--dff", "32", "--encoder_layers",
         "2", "--evaluate_pairs", "8", "--filters", "identical")  # fmt: skip


def main():
    """Trains the students, measures and writes the results."""
    args = parse()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        if args.quick:
            args.runs, args.data = folder / "runs", [quick_data(folder)]
        runs = {"teacher": args.teacher, **{p: student(p, args) for p in args.presets}}
        numbers = measured(runs, folder, args)
    print(page(numbers))
    if not args.quick:
        measure.write("students", page(numbers), numbers)
        draw(numbers, measure.RESULTS / "students.png")


def parse():
    """The command line as a namespace."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("teacher", type=Path, nargs="?", help="a finished run of training/train_pt_en.py")
    add("--data", nargs="+", metavar="FILE", help="training pairs; the teacher translates them")
    add("--presets", nargs="+", default=PRESETS, metavar="NAME", help="presets of the students")
    add("--steps", type=int, default=10_000, help="updates of each student; default: %(default)s")
    add("--runs", type=Path, default=Path("runs/students"), help="default: %(default)s")
    add("--turns", type=int, default=3, help="default: %(default)s")
    add("--seconds", type=float, default=10, help="least seconds of a turn; default: %(default)s")
    add("--quick", action="store_true", help="a tiny student, one turn; writes nothing")
    args = parser.parse_args()
    if args.quick:
        args.presets, args.turns, args.seconds = ["6-1"], 1, 0.0
    elif not (args.teacher and args.data):
        parser.error("TEACHER_RUN and --data are needed")
    return args


def quick_data(folder):
    from training.corpus import phrasebook

    path = folder / "train.tsv"
    path.write_text("".join(f"{a}\t{b}\n" for a, b in phrasebook.generate(100, seed=2)))
    return path


def student(preset, args):
    """The folder of a student, which is trained unless it is finished."""
    run = args.runs / preset
    if RunFolder(run).results.exists():
        return run
    budget = QUICK if args.quick else ("--steps", args.steps)
    command = [
        sys.executable, ROOT / "training" / "distill.py", args.teacher, "--data", *args.data,
        "--preset", preset, "--run", run, "--no_export", *budget,
    ]  # fmt: skip
    subprocess.run(list(map(str, command)), check=True)
    return run


def measured(runs, folder, args):
    """All figures."""
    import sacrebleu

    from training.distill import validation_pairs

    pairs = validation_pairs(RunFolder(args.teacher))
    pairs = pairs[:16] if args.quick else pairs
    sources, references = map(list, zip(*pairs, strict=True))
    texts = folder / "sources.json"
    texts.write_text(json.dumps(sources))
    beams = json.loads((args.teacher / "config.json").read_text())["arguments"]["beams"]
    models = [("teacher", beams), ("teacher", 1), *((name, 1) for name in args.presets)]
    cells = {}
    for name, width in models:
        for engine, case in engines(runs[name], width, folder / f"{name}-{width}").items():
            cells[name, width, engine] = case
    found = collections.defaultdict(list)
    for _ in range(args.turns):
        for cell, case in cells.items():
            found[cell].append(timed(case, texts, args.seconds))
    rows = [
        {
            "model": name, "beams": width, "engine": engine,
            "bleu": sacrebleu.corpus_bleu(turns[0]["texts"], [references]).score,
            "rate": statistics.median(turn["rate"] for turn in turns),
            "rates": [turn["rate"] for turn in turns],
            "updates": json.loads(RunFolder(runs[name]).results.read_text())["steps"],
            "weights_mb": (runs[name] / "weights" / "best.weights.h5").stat().st_size / 1e6,
        }
        for (name, width, engine), turns in found.items()
    ]  # fmt: skip
    return {
        "machine": measure.machine(),
        "versions": measure.versions("tensorflow", "keras", "ctranslate2"),
        "pairs": len(pairs), "rows": rows,
    }  # fmt: skip


def engines(run, beams, folder):
    """Exports a model for each engine; returns {engine: its case}."""
    export = [sys.executable, ROOT / "serving" / "export.py", run]

    def call(*words):
        subprocess.run(list(map(str, (*export, *words))), check=True, stdout=subprocess.DEVNULL)

    # XLA compiles smaller batches only.
    call("--beams", beams, "--to", folder / "saved_model", "--no_check", "--no_xla")
    found = {OURS: Case(OURS, folder / "saved_model" / "1", beams)}
    if importlib.util.find_spec("ctranslate2"):
        call("--format", "ctranslate2", "--to", folder / "ctranslate2")
        for dtype, name in CTRANSLATE2.items():
            found[name] = Case(dtype, folder / "ctranslate2", beams)
    else:
        print("CTranslate2 is not installed: left out", file=sys.stderr)
    return found


def page(numbers):
    """The results as Markdown."""
    rows = numbers["rows"]
    cells = {(row["model"], row["beams"], row["engine"]): row for row in rows}
    beam = rows[0]  # the teacher's, by our export
    rival = cells.get(("teacher", beam["beams"], CTRANSLATE2["int8"]))
    lines = []
    for row in rows:
        on_this = [
            cells[row["model"], row["beams"], name]["rate"]
            for name in CTRANSLATE2.values()
            if (row["model"], row["beams"], name) in cells
        ]
        lines.append([
            row["model"], f"{row['updates']:,}", row["beams"], row["engine"], f"{row['bleu']:.2f}",
            f"{row['bleu'] - beam['bleu']:+.2f}", row["rate"],
            row["rate"] / rival["rate"] if rival else "",
            row["rate"] / max(on_this) if on_this and row["engine"] == OURS else "",
            row["weights_mb"],
        ])  # fmt: skip
    header = [
        "model", "updates", "beams", "engine", "BLEU", "against the teacher's beam", "sentences/s",
        "× CTranslate2 int8, teacher's beam", "× CTranslate2 on the same model", "MB of weights",
    ]  # fmt: skip
    return (
        f"# Students\n\n{numbers['machine']}; {numbers['versions']}. {numbers['pairs']:,} "
        "validation pairs.\n\n"
        + measure.table(header, lines)
        + f"\nGoals of a student, greedily: at most {LOST} BLEU less than the teacher's beam, "
        f"{TIMES} times the speed of\nCTranslate2's int8 on that beam, and faster than CTranslate2 "
        "on the student itself.\n"
    )


def draw(numbers, path):
    """Draws BLEU against sentences per second: a marker per engine, a label per model."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot(xlabel="sentences a second", ylabel="BLEU", xscale="log")
    axes.margins(0.1)
    below = -12  # beside our points, as high as those of CTranslate2's float32
    for engine, marker in zip((OURS, *CTRANSLATE2.values()), "os^", strict=True):
        lower = engine == CTRANSLATE2["float32"]
        rows = [row for row in numbers["rows"] if row["engine"] == engine]
        axes.scatter(
            [row["rate"] for row in rows], [row["bleu"] for row in rows], marker=marker,
            label=engine,
        )  # fmt: skip
        for row in rows:
            axes.annotate(
                f"{row['model']}, {row['beams']}", (row["rate"], row["bleu"]),
                xytext=(4, below if lower else 4), textcoords="offset points", fontsize=8,
            )  # fmt: skip
    axes.legend()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
