"""Measures the time until training starts on millions of pairs, and the memory that it takes.

    python benchmarks/large_corpus.py --data train.tsv --validation validation.tsv

The pairs of DATA (lines of SOURCE<TAB>TARGET) are repeated with a number after each, so that no two
lines are equal. The training command learns its subwords from them, tokenises them and makes
updates for a minute. Then it is killed, started again, and killed after its next checkpoint. The
benchmark also measures how long it takes to learn 8,000 subwords from DATA itself.

    python benchmarks/large_corpus.py … --lines 50000000 --only --folder /var/tmp

Memory is resident memory, once without and once with the pages of files, which the system takes
back when it needs them. The memory of the processes that prepare the data is counted separately.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from benchmarks import measure

ROOT = Path(__file__).resolve().parents[1]

GOAL_MINUTES, GOAL_GIB = 20, 2  # to prepare 50 million lines, and to train on them


def main():
    """Measures and writes results/large_corpus.{md,json}."""
    args = parse()
    pairs = Path(args.data).read_text(encoding="utf-8").splitlines()
    numbers = {
        "machine": measure.machine(),
        "versions": measure.versions("tensorflow", "keras", "sentencepiece"),
        "pairs": len(pairs),
        "learning_seconds": learning_seconds(pairs),
        "corpora": [],
    }
    with tempfile.TemporaryDirectory(dir=args.folder) as directory:
        for lines in [args.lines] if args.only else [len(pairs), args.lines]:
            corpus = Path(directory, f"{lines}.tsv")
            write_corpus(corpus, pairs, lines)
            run = Path(directory, f"run-{lines}")
            first, again = (
                start(corpus, args.validation, run, 60),
                start(corpus, args.validation, run),
            )
            size = sum(path.stat().st_size for path in (run / "encoded").iterdir())
            numbers["corpora"].append(
                {"lines": lines, "bytes": size, "first": first, "again": again}
            )
            print(numbers["corpora"][-1], flush=True)
    print(page(numbers))
    if not args.quick:
        measure.write("large_corpus", page(numbers), numbers)


def parse():
    """The command line as a namespace."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True, help="training pairs, SOURCE<TAB>TARGET")
    parser.add_argument("--validation", required=True, help="validation pairs")
    parser.add_argument("--lines", type=int, default=5_000_000)
    parser.add_argument("--only", action="store_true", help="do not measure DATA itself")
    parser.add_argument("--folder", help="folder for the corpora; needs 250 bytes per line")
    parser.add_argument("--quick", action="store_true", help="20,000 lines; writes nothing")
    args = parser.parse_args()
    if args.quick:
        args.lines = 20_000
    return args


def learning_seconds(pairs):
    """Seconds to learn 8,000 subwords of both sides."""
    from keras_tfmr import SubwordTokenizer

    sides = [side for pair in pairs for side in pair.split("\t")]
    begun = time.perf_counter()
    SubwordTokenizer.learn(sides, vocab_size=8000)
    return time.perf_counter() - begun


def write_corpus(path, pairs, lines):
    """Writes the given number of distinct lines."""
    with path.open("w", encoding="utf-8") as file:
        for number in range(lines):
            turn, index = divmod(number, len(pairs))
            source, target = pairs[index].split("\t")
            file.write(f"{source} {turn}\t{target} {turn}\n")


def start(corpus, validation, run, train_seconds=0):
    """Starts the training command, and kills it after the given seconds of updates.

    Returns:
        {"seconds": until the first checkpoint of this start, "preparing" and "training": greatest
        resident memory of its own in MiB before and after that, "mapped": with the pages of files,
        "helpers": of all processes that it started, together}.
    """
    command = [
        sys.executable, ROOT / "training" / "train_pt_en.py", "--data", corpus,
        "--validation", validation, "--run", run, "--steps", 100_000,
        "--checkpoint_minutes", "0.001", "--no_export", "--evaluate_minutes", "1000",
    ]  # fmt: skip
    before = {path.name for path in run.glob("checkpoints/step-*.npz")}
    begun, updated = time.perf_counter(), None
    peaks = {"preparing": 0, "training": 0, "mapped": 0, "helpers": 0}
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL)
    while updated is None or time.perf_counter() < updated + train_seconds:
        time.sleep(0.1)
        if process.poll() is not None:
            raise SystemExit(f"The training command ended with status {process.returncode}")
        for name, mib in memory(process.pid, "training" if updated else "preparing").items():
            peaks[name] = max(peaks[name], mib)
        if updated is None:
            after = {path.name for path in run.glob("checkpoints/step-*.npz")}
            updated = time.perf_counter() if after - before else None
    process.send_signal(signal.SIGKILL)
    process.wait()
    return {"seconds": updated - begun, **peaks}


def memory(pid, phase):
    """MiB of a process now: its own, that with the pages of files, and that of its children."""
    import psutil

    own, mapped = resident(pid)
    children = [child.pid for child in psutil.Process(pid).children(recursive=True)]
    return {phase: own, "mapped": mapped, "helpers": sum(resident(child)[0] for child in children)}


def resident(pid):
    """Resident MiB without and with the pages of files; 0 once the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0, 0
    kib = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith("Rss")}
    own, file = (int(kib.get(name, 0)) / 1024 for name in ("RssAnon", "RssFile"))
    return own, own + file


def page(numbers):
    """The results as Markdown."""
    head = [
        "distinct lines", "files, MiB", "start", "seconds to the first checkpoint",
        "MiB while preparing", "its helpers", "MiB while training", "with mapped files",
    ]  # fmt: skip
    rows = []
    for corpus in numbers["corpora"]:
        for name in ("first", "again"):
            found = corpus[name]
            mib = (found[key] for key in ("preparing", "helpers", "training", "mapped"))
            rows.append(
                [f"{corpus['lines']:,}", f"{corpus['bytes'] / 2**20:,.0f}", name,
                 found["seconds"], *(f"{value:,.0f}" for value in mib)]
            )  # fmt: skip
    return (
        "# From text to the first update\n\n"
        f"{numbers['machine']}, {numbers['versions']}.\n\n"
        + measure.table(head, rows)
        + f"\nGoal: 50 million lines within {GOAL_MINUTES} minutes, trained on within "
        + f"{GOAL_GIB} GiB.\n\nLearning 8,000 subwords from {numbers['pairs']:,} pairs takes "
        + f"{numbers['learning_seconds']:.1f} seconds.\n"
    )


if __name__ == "__main__":
    main()
