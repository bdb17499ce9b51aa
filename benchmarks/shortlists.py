"""Measures what a lexicon's shortlists do to BLEU and speed, with our exports and in CTranslate2.

    python benchmarks/shortlists.py RUN --data train.tsv

training/learn_lexicon.py learns a lexicon from the pairs, in a copy of the run. The run, with and
without it, translates its validation sentences from strings to strings: 32 in a request by the
plain export in float32 and bfloat16, one by the compiled one, one caller per core. CTranslate2, in
float32 and int8 with one translator per core, gets the same lexicon as its vocabulary map. Every
case runs alone in a process that loads nothing else; the cases take turns. Writes
results/shortlists.md and .json.
"""

import argparse
import collections
import importlib.util
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import measure
from benchmarks.students import quick_data
from benchmarks.translating import CTRANSLATE2, OURS, Case, timed
from training.run.folder import RunFolder

ROOT = Path(__file__).resolve().parents[1]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def main():
    """Measures and writes the results."""
    args = parse()
    with tempfile.TemporaryDirectory() as folder:
        numbers = measured(Path(folder), args)
    print(page(numbers))
    if not args.quick:
        measure.write("shortlists", page(numbers), numbers)


def parse():
    """The command line as a namespace."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("run", type=Path, nargs="?", help="a finished run of training/train_pt_en.py")
    add("--data", metavar="FILE", help="pairs to learn the lexicon from")
    add("--turns", type=int, default=3, help="default: %(default)s")
    add("--seconds", type=float, default=5, help="least seconds of a turn; default: %(default)s")
    add("--quick", action="store_true", help="one short turn; writes nothing")
    args = parser.parse_args()
    if args.quick:
        args.turns, args.seconds = 1, 0.0
    elif not (args.run and args.data):
        parser.error("RUN and --data are needed")
    return args


def measured(folder, args):
    """All figures."""
    import sacrebleu

    from training.distill import validation_pairs

    pairs = validation_pairs(RunFolder(args.run))
    pairs = pairs[:16] if args.quick else pairs
    sources, references = map(list, zip(*pairs, strict=True))
    texts = folder / "sources.json"
    texts.write_text(json.dumps(sources))
    cells = cases(folder, args.run, args.data or quick_data(folder))
    found = collections.defaultdict(list)
    for _ in range(args.turns):
        for cell, case in cells.items():
            found[cell].append(timed(case, texts, args.seconds))
    translations = {cell: turns[0]["texts"] for cell, turns in found.items()}
    rows = [
        {
            "beams": beams, "sentences": rows, "engine": engine, "shortlist": shortlist,
            "bleu": sacrebleu.corpus_bleu(turns[0]["texts"], [references]).score,
            "same": sum(map(
                str.__eq__, turns[0]["texts"], translations[beams, rows, engine, False]
            )),
            "rate": statistics.median(turn["rate"] for turn in turns),
            "rates": [turn["rate"] for turn in turns],
        }
        for (beams, rows, engine, shortlist), turns in found.items()
    ]  # fmt: skip
    return {
        "machine": measure.machine(),
        "versions": measure.versions("tensorflow", "keras", "ctranslate2"),
        "pairs": len(pairs), "rows": rows,
    }  # fmt: skip


def cases(folder, run, data):
    """{(beams, sentences, engine, shortlist): `Case`}."""
    listed = shutil.copytree(run, folder / "listed", ignore=shutil.ignore_patterns("lexicon.npz"))
    call("training/learn_lexicon.py", listed, "--data", data)
    whole = shutil.copytree(listed, folder / "whole", ignore=shutil.ignore_patterns("lexicon.npz"))
    found = {}
    for beams, rows, shortlist in itertools.product((1, 4), (32, 1), (False, True)):
        source = listed if shortlist else whole
        # XLA compiles small requests only, and is slower in bfloat16.
        for precision in ("float32", "bfloat16")[: 2 if rows > 1 else 1]:
            to = source / f"exports-{beams}-{rows}-{precision}"
            words = ["--beams", beams, "--to", to, "--no_check", "--precision", precision]
            call("serving/export.py", source, *words, *["--no_xla"] * (rows > 1))
            name = f"{OURS} {precision}"
            found[beams, rows, name, shortlist] = Case(OURS, to / "1", beams, rows)
    if importlib.util.find_spec("ctranslate2"):
        to = folder / "ctranslate2"
        call("serving/export.py", listed, "--format", "ctranslate2", "--to", to)
        for beams, (dtype, name), rows, shortlist in itertools.product(
            (1, 4), CTRANSLATE2.items(), (32, 1), (False, True)
        ):
            found[beams, rows, name, shortlist] = Case(dtype, to, beams, rows, shortlist)
    return found


def call(script, *words):
    """Runs a script of the project."""
    command = [sys.executable, ROOT / script, *words]
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)


def page(numbers):
    """The results as Markdown."""
    cells = {(r["beams"], r["sentences"], r["engine"], r["shortlist"]): r for r in numbers["rows"]}
    lines = []
    for (beams, rows, engine, shortlist), row in cells.items():
        if not shortlist:
            continue
        whole = cells[beams, rows, engine, False]
        lines.append([
            beams, rows, engine, f"{whole['bleu']:.2f}", f"{row['bleu']:.2f}", row["same"],
            whole["rate"], row["rate"], row["rate"] / whole["rate"],
        ])  # fmt: skip
    header = [
        "beams", "sentences in a request", "engine", "BLEU, whole vocabulary", "BLEU, shortlist",
        "same translations", "sentences/s, whole vocabulary", "sentences/s, shortlist", "ratio",
    ]  # fmt: skip
    return (
        f"# Shortlists\n\n{numbers['machine']}; {numbers['versions']}. {numbers['pairs']:,} "
        "validation pairs; medians of turns.\n\n" + measure.table(header, lines)
    )


if __name__ == "__main__":
    main()
