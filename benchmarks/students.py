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
import threading
import time
from pathlib import Path

from benchmarks import measure
from training.run.folder import RunFolder

ROOT = Path(__file__).resolve().parents[1]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

PRESETS = ("6-1", "12-1", "6-2")
OURS = "keras_tfmr"
CT2 = {"float32": "CTranslate2 float32", "int8": "CTranslate2 int8"}
BATCH = 32
# The goals of a student: most BLEU points below the teacher's beam search, and least speed relative
# to that beam search in CTranslate2's int8.
LOST, TIMES = 0.5, 4
QUICK = ("--steps", "4", "--d_model", "16", "--num_heads", "2", "--dff", "32", "--encoder_layers",
         "2", "--evaluate_pairs", "8", "--filters", "identical")  # fmt: skip


def main():
    """Trains the students, measures and writes the results."""
    args = parse()
    if args.engine:
        measure.answer(speed(*args.engine))
        return
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
    add("--engine", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.quick:
        args.presets, args.turns, args.seconds = ["6-1"], 1, 0.0
    elif not args.engine and not (args.teacher and args.data):
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
        for engine, command in engines(runs[name], width, folder / f"{name}-{width}").items():
            cells[name, width, engine] = command
    found = collections.defaultdict(list)
    for _ in range(args.turns):
        for cell, command in cells.items():
            found[cell].append(measure.alone(__file__, "--engine", *command, texts, args.seconds))
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
    """Exports a model for each engine; returns {engine: arguments of its process}."""
    export = [sys.executable, ROOT / "serving" / "export.py", run]

    def call(*words):
        subprocess.run(list(map(str, (*export, *words))), check=True, stdout=subprocess.DEVNULL)

    # XLA compiles smaller batches only.
    call("--beams", beams, "--to", folder / "saved_model", "--no_check", "--no_xla")
    found = {OURS: (OURS, folder / "saved_model" / "1", beams)}
    if importlib.util.find_spec("ctranslate2"):
        call("--format", "ctranslate2", "--to", folder / "ctranslate2")
        for dtype, name in CT2.items():
            found[name] = (dtype, folder / "ctranslate2", beams)
    else:
        print("CTranslate2 is not installed: left out", file=sys.stderr)
    return found


def speed(engine, path, beams, texts, seconds, use_vmap=False):
    """Times an engine in its own process; returns sentences per second and the translations."""
    sources = json.loads(Path(texts).read_text())
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    batches = [order[i : i + BATCH] for i in range(0, len(order), BATCH)]
    if engine == OURS:
        translate = ours(path, ("serve",), 1)
    else:
        translate = ctranslate2(engine, path, int(beams), use_vmap)
    found = [None] * len(sources)
    for rows in batches:  # warms up
        for row, text in zip(rows, translate([sources[i] for i in rows]), strict=True):
            found[row] = text
    cores, done, begun = len(os.sched_getaffinity(0)), [], time.perf_counter()

    def caller(number):
        first = True
        while first or time.perf_counter() - begun < float(seconds):
            for rows in batches[number::cores]:
                translate([sources[i] for i in rows])
                done.append(len(rows))
            first = False

    threads = [threading.Thread(target=caller, args=(number,)) for number in range(cores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"rate": sum(done) / (time.perf_counter() - begun), "texts": found}


def ours(path, tags, threads):
    """A function from texts to texts: the export in a session, as a server runs it."""
    import numpy as np
    import tensorflow as tf

    from keras_tfmr.export.saved_session import SavedSession

    session = SavedSession(path, tags, tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threads, inter_op_parallelism_threads=2
    ))  # fmt: skip

    def translate(texts):
        column = np.array([text.encode() for text in texts], object)
        return [text.decode() for text in session.run("translate", {"text": column})["translation"]]

    return translate


def ctranslate2(dtype, path, beams, use_vmap):
    """The same function, with CTranslate2 and SentencePiece."""
    import ctranslate2
    import sentencepiece

    source, target = (
        sentencepiece.SentencePieceProcessor(model_file=f"{path}/{side}.spm")
        for side in ("source", "target")
    )
    translator = ctranslate2.Translator(
        path, compute_type=dtype, intra_threads=1, inter_threads=len(os.sched_getaffinity(0))
    )

    def translate(texts):
        results = translator.translate_batch(
            source.encode(texts, out_type=str), beam_size=beams, length_penalty=0.6,
            disable_unk=True, suppress_sequences=[["<pad>"], ["<s>"]], min_decoding_length=0,
            max_decoding_length=128, use_vmap=use_vmap,
        )  # fmt: skip
        return [target.decode(result.hypotheses[0]) for result in results]

    return translate


def page(numbers):
    """The results as Markdown."""
    rows = numbers["rows"]
    cells = {(row["model"], row["beams"], row["engine"]): row for row in rows}
    beam = rows[0]  # the teacher's, by our export
    rival = cells.get(("teacher", beam["beams"], CT2["int8"]))
    lines = []
    for row in rows:
        on_this = [
            cells[row["model"], row["beams"], name]["rate"]
            for name in CT2.values()
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
    for engine, marker in zip((OURS, *CT2.values()), "os^", strict=True):
        rows = [row for row in numbers["rows"] if row["engine"] == engine]
        axes.scatter(
            [row["rate"] for row in rows], [row["bleu"] for row in rows], marker=marker,
            label=engine,
        )  # fmt: skip
        for row in rows:
            axes.annotate(
                f"{row['model']}, {row['beams']}", (row["rate"], row["bleu"]),
                xytext=(4, below if engine == CT2["float32"] else 4), textcoords="offset points",
                fontsize=8,
            )  # fmt: skip
    axes.legend()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
