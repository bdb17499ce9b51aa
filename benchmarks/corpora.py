"""Measures the time until training starts on millions of pairs, and the memory that it takes.

    python benchmarks/corpora.py --data train.tsv --validation validation.tsv --lines 5000000

The pairs of DATA are repeated with a number after each, so that no two lines are equal. The
training command reads them and makes updates for a minute. Then it is killed, started again, and
killed after its next checkpoint. Memory is resident memory, without and with the pages of files,
which the system takes back when it needs them; that of the processes that prepare the data is
counted separately. Writes results/corpora.md and .json.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import harness


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
        {"seconds": until the first checkpoint of this start, and maximum MiB: "preparing" and
        "training" before and after that, "mapped" with the pages of files, "helpers" of all
        processes that it started}.
    """
    words = ["--data", corpus, "--validation", validation, "--output", run, "--steps", 100_000,
             "--set", "checkpoint_minutes=0.001", "--no_export",
             "--validate_steps", "100000"]  # fmt: skip
    before = checkpoints(run)
    begun, updated = time.perf_counter(), None
    peaks = {"preparing": 0, "training": 0, "mapped": 0, "helpers": 0}
    process = subprocess.Popen(
        [sys.executable, *map(str, (harness.ROOT / "training" / "train_pt_en.py", *words))],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    while updated is None or time.perf_counter() < updated + train_seconds:
        time.sleep(0.1)
        if process.poll() is not None:
            raise SystemExit(f"The training command ended with status {process.returncode}")
        for name, mib in memory(process.pid, "training" if updated else "preparing").items():
            peaks[name] = max(peaks[name], mib)
        if updated is None and checkpoints(run) - before:
            updated = time.perf_counter()
    process.kill()
    process.wait()
    return {"seconds": updated - begun, **peaks}


def checkpoints(run):
    """Files in the folder of checkpoints, with the time of their last change."""
    paths = [path for path in (run / "checkpoints").rglob("*") if path.is_file()]
    return {(path.name, path.stat().st_mtime_ns) for path in paths if "tmp" not in path.name}


def memory(pid, phase):
    """MiB of a process now: its own, that with the pages of files, and that of its children."""
    import psutil

    def resident(process):
        try:
            found = process.memory_info()
        except psutil.NoSuchProcess:  # it has ended
            return 0, 0
        return (found.rss - found.shared) / 2**20, found.rss / 2**20

    process = psutil.Process(pid)
    own, mapped = resident(process)
    helpers = sum(resident(child)[0] for child in process.children(recursive=True))
    return {phase: own, "mapped": mapped, "helpers": helpers}


def page(numbers):
    rows = [
        [f"{corpus['lines']:,}", name, found["seconds"],
         *(f"{found[key]:,.0f}" for key in ("preparing", "helpers", "training", "mapped"))]
        for corpus in numbers["corpora"]
        for name, found in (("first", corpus["first"]), ("again", corpus["again"]))
    ]  # fmt: skip
    return harness.table(
        ["distinct lines", "start", "seconds to the first checkpoint", "MiB while preparing",
         "its helpers", "MiB while training", "with mapped files"],
        rows,
    )  # fmt: skip


def main():
    parser, add, full = harness.parser(__doc__)
    full("--data", type=Path, help="training pairs, SOURCE<TAB>TARGET")
    full("--validation", type=Path, help="validation pairs")
    full("--lines", type=int, nargs="+", default=[5_000_000], help="distinct lines")
    add("--folder", help="folder for the corpora; needs 250 bytes per line")
    args = parser.parse_args()
    if not (args.quick or (args.data and args.validation)):
        parser.error("--data and --validation are needed")
    numbers = {**harness.about("tensorflow", "keras", "sentencepiece"), "corpora": []}
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        if args.quick:
            args.data = harness.tiny_pairs(Path(folder, "train.tsv"))
            args.validation = harness.tiny_pairs(Path(folder, "valid.tsv"), range(300, 320))
            args.lines = [3000]
        pairs = harness.lines_of(args.data)
        for lines in args.lines:
            corpus, run = Path(folder, f"{lines}.tsv"), Path(folder, f"run-{lines}")
            write_corpus(corpus, pairs, lines)
            first = start(corpus, args.validation, run, 2 if args.quick else 60)
            found = {"lines": lines, "first": first, "again": start(corpus, args.validation, run)}
            numbers["corpora"].append(found)
    harness.report("corpora", "From text to the first update", page(numbers), numbers,
                   quick=args.quick)  # fmt: skip


if __name__ == "__main__":
    main()
