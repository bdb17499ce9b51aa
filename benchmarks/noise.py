"""Measures how much of the loss from a noisy corpus the filters recover.

    python benchmarks/noise.py --data tatoeba/train.tsv --validation tatoeba/validation.tsv \
        --other docs/train.tsv

A fifth of the training pairs is noise of the kinds that crawled corpora have: sources with the
wrong translation, swapped languages, copies, other scripts, numbers and signs, half sentences, and
near duplicates. Three runs of the same minutes learn the clean pairs, the noisy ones, and the noisy
ones through all filters. The recovered share is (filtered - noisy) / (clean - noisy) in BLEU.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from benchmarks import measure

ROOT = Path(__file__).resolve().parents[1]

SHARE = 0.2  # of the noisy corpus
FILTERS = ("identical", "length_ratio", "letters", "script", "near_duplicate", "language")
GREEK = str.maketrans("abcdefghijklmnopqrstuvwxyz", "αβψδεφγηιξκλμνοπqρστθωςχυζ")


def main():
    """Measures and writes results/noise.{md,json}."""
    args = parse()
    clean = read(args.data)[: 2000 if args.quick else None]
    numbers = {"machine": measure.machine(), "minutes": args.minutes, "runs": {}}
    with tempfile.TemporaryDirectory() as directory:
        directory = Path(directory)
        noise = make_noise(clean, read(args.other), random.Random(1))
        numbers["kinds"] = {kind: len(pairs) for kind, pairs in noise.items()}
        pairs = [pair for kind in noise.values() for pair in kind] + clean
        random.Random(2).shuffle(pairs)
        corpora = {"clean": clean, "noisy": pairs, "filtered": pairs}
        for name, rows in corpora.items():
            corpus = directory / f"{name}.tsv"
            corpus.write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
            more = ["--filters", *FILTERS, "--languages", "pt", "en"] if name == "filtered" else []
            numbers["runs"][name] = train(corpus, directory / name, args, more)
            print(name, numbers["runs"][name], flush=True)
    print(page(numbers))
    if not args.quick:
        measure.write("noise", page(numbers), numbers)


def parse():
    """The command line as a namespace."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True, help="clean Portuguese-English pairs")
    parser.add_argument("--validation", required=True)
    parser.add_argument("--other", required=True, help="pairs of another domain, to misalign")
    parser.add_argument(
        "--minutes", type=float, default=15, help="of each run; default: %(default)s"
    )
    parser.add_argument("--quick", action="store_true", help="2,000 pairs; writes nothing")
    return parser.parse_args()


def read(path):
    """The pairs of a file."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return [tuple(line.split("\t")) for line in lines]


def make_noise(clean, other, draw):
    """Returns {kind: pairs}, all together `SHARE` of the noisy corpus."""
    count = round(len(clean) * SHARE / (1 - SHARE))

    def some(n):
        return [draw.choice(clean) for _ in range(n)]

    kinds = {
        "another sentence's translation, too long": lambda n: [
            (source, draw.choice(other)[1] + " " + draw.choice(other)[1]) for source, _ in some(n)
        ],
        "Portuguese on both sides": lambda n: [
            (source, draw.choice(clean)[0]) for source, _ in some(n)
        ],
        "copies": lambda n: [(source, source) for source, _ in some(n)],
        "sides swapped": lambda n: [pair[::-1] for pair in some(n)],
        "another script": lambda n: [(s, t.casefold().translate(GREEK)) for s, t in some(n)],
        "numbers and signs": lambda n: [
            (source, " ".join(str(draw.randint(0, 999)) for _ in range(6)) + " ///")
            for source, _ in some(n)
        ],
        "half sentences": lambda n: [
            (" ".join(s for s, _ in some(3)), target.split()[0]) for _, target in some(n)
        ],
        "near duplicates": lambda n: [(s.upper() + " !", t.upper() + " !") for s, t in some(n)],
    }
    share = -(-count // len(kinds))
    return {kind: make(share) for kind, make in kinds.items()}


def train(corpus, run, args, more):
    """Trains a run; returns its BLEU and what the filters dropped."""
    budget = ["--steps", 20] if args.quick else ["--minutes", args.minutes]
    command = [
        sys.executable, ROOT / "training" / "train_pt_en.py", "--data", corpus,
        "--validation", args.validation, "--run", run, "--no_export", *budget, *more,
    ]  # fmt: skip
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
    results = json.loads((run / "results.json").read_text())
    record = json.loads((run / "config.json").read_text())["corpus"]["train"]
    return {"bleu": results["validation_bleu"], "pairs": record["pairs"], **record["dropped"]}


def page(numbers):
    """The results as Markdown."""
    runs = numbers["runs"]
    bleu = {name: run["bleu"] for name, run in runs.items()}
    lost = bleu["clean"] - bleu["noisy"]
    back = (bleu["filtered"] - bleu["noisy"]) / lost if lost > 0 else float("nan")
    names = ("pairs", "bleu")
    rows = [[name, *(run[key] for key in names)] for name, run in runs.items()]
    dropped = {k: n for k, n in runs["filtered"].items() if k not in names}
    return (
        f"# Noise and filters\n\n{numbers['machine']}; {numbers['minutes']} minutes each.\n\n"
        + measure.table(["corpus", "pairs learned", "BLEU, beam 4"], rows)
        + f"\nOf {lost:.1f} BLEU lost, {back:.0%} came back. Injected: "
        + ", ".join(f"{n:,} {kind}" for kind, n in numbers["kinds"].items())
        + ". Dropped: "
        + ", ".join(f"{n:,} {name}" for name, n in dropped.items())
        + ".\n"
    )


if __name__ == "__main__":
    main()
