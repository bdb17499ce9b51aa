"""How long until training starts on millions of pairs, and how much memory does it take?

    python benchmarks/large_corpus.py --data train.tsv --validation validation.tsv

The pairs of DATA (lines of SOURCE<TAB>TARGET) are repeated with a number behind each, so that no
two lines are equal. The training command learns its subwords from them, tokenises them and makes
its first update; then it is killed. Also: how long learning 8,000 subwords takes on DATA itself.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(ROOT))

from benchmarks import measure  # noqa: E402

GOAL = 180  # seconds


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
    with tempfile.TemporaryDirectory() as directory:
        for lines in (len(pairs), args.lines):
            corpus = Path(directory, f"{lines}.tsv")
            write_corpus(corpus, pairs, lines)
            run = Path(directory, f"run-{lines}")
            numbers["corpora"].append({"lines": lines, **start(corpus, args.validation, run)})
    print(page(numbers))
    if not args.quick:
        measure.write("large_corpus", page(numbers), numbers)


def parse():
    """The command line as a namespace."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True, help="training pairs, SOURCE<TAB>TARGET")
    parser.add_argument("--validation", required=True, help="validation pairs")
    parser.add_argument("--lines", type=int, default=5_000_000)
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
    """So many distinct lines."""
    with path.open("w", encoding="utf-8") as file:
        for number in range(lines):
            turn, index = divmod(number, len(pairs))
            source, target = pairs[index].split("\t")
            file.write(f"{source} {turn}\t{target} {turn}\n")


def start(corpus, validation, run):
    """Seconds from the start of the process to its first update, and its peak memory in MiB."""
    command = [
        sys.executable, ROOT / "training" / "train_pt_en.py", "--data", corpus,
        "--validation", validation, "--run", run, "--steps", 100_000,
        "--checkpoint_minutes", "0.001", "--no-export",
    ]  # fmt: skip
    begun = time.perf_counter()
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL)
    while not list(run.glob("checkpoints/step-*.npz")):
        time.sleep(0.2)
        if process.poll() is not None:
            raise SystemExit(f"The training command ended with status {process.returncode}")
    seconds = time.perf_counter() - begun
    process.send_signal(signal.SIGKILL)
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = -signal.SIGKILL  # it has been waited for
    return {"seconds": seconds, "peak_mib": usage.ru_maxrss / 1024}


def page(numbers):
    """The results for people."""
    small, large = numbers["corpora"]
    rows = [[f"{c['lines']:,}", c["seconds"], f"{c['peak_mib']:,.0f}"] for c in (small, large)]
    more = (large["peak_mib"] - small["peak_mib"]) * 2**20
    beyond = more / max(large["lines"] - small["lines"], 1)
    return (
        "# From text to the first update\n\n"
        f"{numbers['machine']}, {numbers['versions']}.\n\n"
        + measure.table(["distinct lines", "seconds to the first update", "peak MiB"], rows)
        + f"\nGoal: {GOAL} seconds. Each line more takes {beyond:.0f} bytes at the peak.\n\n"
        + f"Learning 8,000 subwords from {numbers['pairs']:,} pairs takes "
        + f"{numbers['learning_seconds']:.1f} seconds.\n"
    )


if __name__ == "__main__":
    main()
