"""Measures what back-translation gains where there are few pairs.

    python benchmarks/back_translation.py --data train.tsv --validation validation.tsv

The first `--pairs` pairs are the real ones; of the others only the target side is used, as
monolingual text. A model of the reverse direction, trained on the real pairs, translates that text
with its beam, since samples of so weak a model are mostly wrong. Two models of the forward
direction train for as many updates: one on the real pairs alone, and one on a mixture of real and
back-translated pairs, which have a tag. The weights of each that were best are compared on all
validation pairs, with beam 4.
The training command trains all three into folders of `--runs`, and continues unfinished runs.
(Sennrich et al. 2016, arXiv 1511.06709; Edunov et al. 2018, arXiv 1808.09381; Caswell et al. 2019,
arXiv 1906.06442.)
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from benchmarks import fine_tune, measure

ROOT = Path(__file__).resolve().parents[1]
TAG = "<bt>"
GOAL = 2.0  # BLEU


def main():
    """Measures and writes results/back_translation.{md,json}."""
    args = parse()
    folder = Path(args.runs)
    folder.mkdir(parents=True, exist_ok=True)
    counts = split(args, folder)
    real, reverse, back = (folder / f"{name}.tsv" for name in ("real", "reverse", "back"))
    pairs = validation(args)
    runs = {"reverse": train(folder / "en-pt", [reverse], [(b, a) for a, b in pairs], args)}
    translate(folder)
    runs["real pairs alone"] = train(folder / "alone", [real], pairs, args)
    mixture = [f"{real}:1", f"{back}:1", "--tag", f"{back}={TAG}"]
    runs["real and back-translated"] = train(folder / "mixed", mixture, pairs, args)
    numbers = {
        "machine": measure.machine(), "backend": os.environ.get("KERAS_BACKEND", "tensorflow"),
        "steps": args.steps, **counts, "runs": runs,
    }  # fmt: skip
    print(page(numbers))
    if not args.quick:
        measure.write("back_translation", page(numbers), numbers)


def parse():
    """The command line as a namespace."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True, help="pairs, SOURCE<TAB>TARGET")
    parser.add_argument("--validation", required=True, help="validation pairs")
    parser.add_argument("--pairs", type=int, default=10_000, help="real pairs; default: 10000")
    parser.add_argument("--steps", type=int, default=4000, help="updates of each; default: 4000")
    parser.add_argument("--dropout_rate", type=float, default=0.2, help="default: 0.2")
    parser.add_argument("--runs", default="runs/back_translation", help="default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="20 updates each; writes nothing")
    args = parser.parse_args()
    if args.quick:
        args.pairs, args.steps, args.runs = 300, 20, tempfile.mkdtemp()
    return args


def split(args, folder):
    """Writes real.tsv, reverse.tsv and mono.en; returns the number of lines of each kind."""
    lines = Path(args.data).read_text("utf-8").splitlines()
    pairs = [line.split("\t")[:2] for line in lines]
    real, others = pairs[: args.pairs], pairs[args.pairs :]
    known = {target for _, target in real}
    mono = [text for text in dict.fromkeys(target for _, target in others) if text not in known]
    if args.quick:
        mono = mono[:300]
    (folder / "real.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in real), "utf-8")
    (folder / "reverse.tsv").write_text("".join(f"{b}\t{a}\n" for a, b in real), "utf-8")
    (folder / "mono.en").write_text("".join(f"{text}\n" for text in mono), "utf-8")
    return {"real": len(real), "monolingual": len(mono)}


def validation(args):
    """The validation pairs."""
    lines = Path(args.validation).read_text("utf-8").splitlines()
    return [tuple(line.split("\t")[:2]) for line in lines]


def train(run, data, pairs, args):
    """Trains a run unless it is finished; returns BLEU on the validation pairs."""
    held = Path(f"{run}-validation.tsv")
    held.write_text("".join(f"{a}\t{b}\n" for a, b in pairs), "utf-8")
    command = [
        sys.executable, ROOT / "training" / "train_pt_en.py", "--run", run, "--no_export",
        "--steps", args.steps, "--evaluate_steps", 500, "--dropout_rate", args.dropout_rate,
        "--validation", held, "--data", *data,
    ]  # fmt: skip
    if not (run / "results.json").exists():
        subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
    found = round(fine_tune.bleu(run, pairs[:20] if args.quick else pairs), 2)
    print(run.name, found, flush=True)
    return found


def translate(folder):
    """Writes back.tsv: translated sources beside the monolingual text."""
    sources, mono = folder / "mono.pt", folder / "mono.en"
    command = [
        sys.executable, ROOT / "training" / "translate.py", folder / "en-pt",
        "--input", mono, "--output", sources,
    ]  # fmt: skip
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow"}
    subprocess.run(list(map(str, command)), check=True, env=environment)
    texts = (path.read_text("utf-8").splitlines() for path in (sources, mono))
    lines = (f"{source}\t{target}\n" for source, target in zip(*texts, strict=True) if source)
    (folder / "back.tsv").write_text("".join(lines), "utf-8")


def page(numbers):
    """The results as Markdown."""
    bleu = numbers["runs"]
    _, alone, mixed = bleu.values()
    text = (
        f"# Back-translation\n\n{numbers['machine']}, backend {numbers['backend']}.\n\n"
        f"{numbers['real']:,} real pairs, {numbers['monolingual']:,} lines of monolingual text, "
        f"{numbers['steps']:,} updates of each model.\n\n"
    )
    table = measure.table(["model", "BLEU, beam 4, all validation pairs"], list(bleu.items()))
    return f"{text}{table}\nGain: {mixed - alone:+.1f} BLEU; goal: {GOAL:+g}.\n"


if __name__ == "__main__":
    main()
