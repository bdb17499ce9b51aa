"""BLEU against minutes of training, of this project and of Marian.

    python benchmarks/bleu.py --data train.tsv --validation validation.tsv --marian PYTHON

`--test` also scores a test set with 4 beams, as papers print it too, and needs sacremoses. Marian
is the pymarian of an environment of its own, whose interpreter `--marian` names; without it, only
ours trains. Both learn from the same pairs. Ours counts everything from the start of the process,
evaluations too; of Marian, only the training counts. Marian trains once with each of `--rates`
after each of `--warmups`, and the best run is shown. `--steps` asks for the updates of an earlier
run instead of minutes: its scores do not depend on the time, so several seeds can train side by
side. Writes results/NAME.md, .json and .svg, beside the sides of earlier runs.
"""

import argparse
import csv
import functools
import itertools
import tempfile
from pathlib import Path

import harness

from docs import svg
from training.run.run_folder import RunFolder

SIDES = {"keras_tfmr": "keras_tfmr, its defaults", "marian": "Marian itself, of our size"}
HOW = """Cased, detokenised BLEU (sacrebleu) of greedy translations of validation sentences, at the
last measurement before each minute. Ours counts everything from the start of the process,
evaluations too; of Marian, only the training counts.
"""
TEST = """We translate the test set with 4 beams, ours with the weights that scored best on
validation sentences, Marian's with the final, exponentially smoothed weights. "As papers print
it": lower-cased, normalised and tokenised by
Moses's rules (sacremoses), by which the published reference is made exactly. Papers report about 41
for Transformers of this size that read the text alone (arXiv 2105.14462). The first table has
the timed seed; the others made as many updates, on one core each. Compare the mean with Marian's
one seed.
"""
MARIAN = """Marian has the recipe of its `--task transformer-base`: post-norm, tied embeddings,
Adam(0.9, 0.98), label smoothing 0.1, an inverse root after the warm-up, exponential smoothing,
here of 0.001; batches of 64 sentences; 2 replicas of 1 thread or 1 of 2, whichever is faster. Of
these rates and warm-ups, the best is shown above.
"""
MARKS = (2, 4, 6, 8, 10, 12, 15, 22, 30)
SETTINGS = {  # environments of Marian's process, of which the fastest is taken
    f"{replicas} replicas of {threads} threads": {
        "MARIAN_REPLICAS": replicas, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads
    }
    for replicas, threads in (("2", "1"), ("1", "2"))
}  # fmt: skip


def ours(args, seed):
    """Trains by the command that users run; rows of its history, and scores on the test set."""
    run = Path(f"{args.run}-{seed}")
    RunFolder(run).clear()  # --overwrite would leave a run of exactly this command alone
    words = ["--data", args.data, "--validation", args.validation]
    budget = ["--steps", args.steps] if args.steps else ["--minutes", args.minutes]
    harness.command(
        "training/train_pt_en.py", *words, *budget, "--seed", seed, "--output", run, "--no_export"
    )
    with open(run / "history.csv", encoding="utf-8") as file:
        rows = [
            {"minutes": round(float(row["minutes"]), 2), "updates": int(row["step"]),
             "bleu": round(float(row["val_bleu"]), 2)}
            for row in csv.DictReader(file)
            if row["val_bleu"]
        ]  # fmt: skip
    if not args.test:
        return {"rows": rows}
    with tempfile.TemporaryDirectory() as folder:
        sources, texts = Path(folder, "sources.txt"), Path(folder, "texts.txt")
        sources.write_text("".join(f"{a}\n" for a, _ in harness.pairs_of(args.test)), "utf-8")
        harness.command("training/translate.py", run, "--input", sources, "--output", texts)
        return {"rows": rows, "test": scores_on_test(args, harness.lines_of(texts))}


def scores_on_test(args, texts):
    """BLEU of translations of the test set, as papers print it and by sacrebleu's defaults."""
    import sacrebleu
    import sacremoses

    references = [target for _, target in harness.pairs_of(args.test)]
    normalize = sacremoses.MosesPunctNormalizer(lang=args.language).normalize
    tokenize = sacremoses.MosesTokenizer(lang=args.language).tokenize

    def tokenised(lines):
        return [tokenize(normalize(line.lower()), return_str=True) for line in lines]

    papers = sacrebleu.corpus_bleu(
        tokenised(texts), [tokenised(references)], tokenize="none", force=True
    )
    plain = sacrebleu.corpus_bleu(texts, [references])
    return {"as papers print it": round(papers.score, 2), "sacrebleu": round(plain.score, 2)}


def one(args, minutes):
    """In its own process: trains Marian for some minutes."""
    from peers.marian_model import train

    rows, texts = train(argparse.Namespace(**{**args, "minutes": minutes}))
    return {"rate": rows[-1]["updates"] / rows[-1]["minutes"], "rows": rows, "texts": texts}


def marians(args):
    """Marian's run with the threads that are fastest in a short training and its best rate and
    warm-up; its last BLEU with each."""

    def train(setting, minutes, rate, warmup):
        task = {"args": {**vars(args), "rate": rate, "warmup": warmup}, "minutes": minutes}
        return harness.alone(__file__, task, SETTINGS[setting])

    recipes = list(itertools.product(args.rates, args.warmups))
    short = {name: functools.partial(train, name, 0.5, *recipes[0]) for name in SETTINGS}
    setting = harness.compare({"marian": short}, 1, quick=args.quick)["marian"]["setting"]
    runs = [train(setting, args.minutes, *recipe) for recipe in recipes]
    last = [run["rows"][-1]["bleu"] for run in runs]
    tried = [[*recipe, bleu] for recipe, bleu in zip(recipes, last, strict=True)]
    best = runs[last.index(max(last))]
    test = {"test": scores_on_test(args, best["texts"])} if args.test else {}
    return {"setting": setting, "tried": tried, "rows": best["rows"], **test}


def title_of(side):
    """A side for people; ours with its seed."""
    name, _, seed = side.partition(" ")
    return f"{SIDES[name]}{seed and f', seed {seed}'}"


def page(numbers, name):
    """The table: BLEU of each side at the last measurement before each mark."""
    sides = numbers["sides"]
    timed = {side: run for side, run in sides.items() if run["minutes"]}
    marks = [
        mark for mark in MARKS if mark <= max((run["minutes"] for run in timed.values()), default=0)
    ]
    rows = []
    for side, run in timed.items():
        cells = []
        for mark in marks:
            until = [row["bleu"] for row in run["rows"] if row["minutes"] <= mark * 1.02]
            cells.append(until[-1] if until and mark <= run["minutes"] else "–")
        rows.append([title_of(side), *cells])
    text = f"{HOW}\n{harness.table(['minutes', *marks], rows)}\n![BLEU by minutes]({name}.svg)\n"
    if tested := {side: run for side, run in sides.items() if "test" in run}:
        names = list(next(iter(tested.values()))["test"])
        rows = [
            [title_of(side), run["commit"], run["rows"][-1]["updates"], *run["test"].values()]
            for side, run in tested.items()
        ]
        if len(seeds := [run["test"] for side, run in tested.items() if side != "marian"]) > 1:
            means = [sum(test[name] for test in seeds) / len(seeds) for name in names]
            rows.insert(len(seeds), [f"keras_tfmr, mean of {len(seeds)} seeds", "", "", *means])
        text += f"\n{TEST}\n{harness.table(['test set', 'commit', 'updates', *names], rows)}"
    if tried := sides.get("marian", {}).get("tried"):
        header = ["Marian's rate", "warm-up, updates", "BLEU at the end"]
        text += f"\n{MARIAN}\n{harness.table(header, tried)}"
    return text


def draw(numbers, name):
    """results/NAME.svg"""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot(xlabel="minutes of training on two cores", ylabel="BLEU")
    for side, run in numbers["sides"].items():
        if not run["minutes"]:
            continue
        minutes, bleu = zip(*((row["minutes"], row["bleu"]) for row in run["rows"]), strict=True)
        axes.plot(minutes, bleu, marker="o", markersize=3, label=title_of(side))
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.2)
    axes.legend(frameon=False)
    svg.save(figure, harness.RESULTS / f"{name}.svg", "BLEU by minutes of training")


def main():
    parser = harness.parser(__doc__, turns=None)
    add = parser.add_argument
    add("--data", metavar="FILE", help="training pairs, SOURCE<TAB>TARGET")
    add("--validation", metavar="FILE", help="validation pairs")
    add("--test", metavar="FILE", default="", help="pairs to score the best weights on")
    add("--language", default="en", help="of the targets, for sacremoses")
    add("--name", default="bleu", help="of the files of results")
    add("--minutes", type=float, default=30, help="of training")
    add("--steps", type=int, help="updates of our runs, instead of minutes")
    add("--seeds", type=int, nargs="+", default=[1], help="of our runs")
    add("--every", type=float, default=2, help="minutes between measurements of Marian")
    add("--rates", nargs="+", default=["0.001"], help="of Marian")
    add("--warmups", type=int, nargs="+", default=[1000], help="of Marian, in updates")
    add("--pairs", type=int, default=500, help="validation pairs translated")
    add("--run", default="runs/bleu", help="begin of the names of our runs' folders")
    add("--marian", metavar="PYTHON", help="interpreter of an environment with pymarian")
    args = harness.parsed(parser, "data", "validation")
    if args.test and not harness.installed("sacremoses"):  # before the training, not after it
        parser.error("--test needs sacremoses, which tokenises as papers do")
    with tempfile.TemporaryDirectory() as folder:
        if args.quick:
            quicken(args, Path(folder))
        measure(args, args.name)


def quicken(args, folder):
    """Sets a tiny case."""
    args.data = str(harness.tiny_pairs(folder / "train.tsv"))
    args.validation = str(harness.tiny_pairs(folder / "valid.tsv", range(300, 320)))
    args.minutes, args.every, args.pairs, args.run = 0.05, 0.05, 8, f"{folder}/run"


def measure(args, name):
    """Runs the sides, and writes the results after each."""
    numbers = {**harness.about("tensorflow", "keras"), "sides": {}}
    runs = {f"keras_tfmr {seed}": functools.partial(ours, args, seed) for seed in args.seeds}
    if args.marian:
        runs["marian"] = functools.partial(marians, args)
    for side, run in runs.items():
        minutes = None if args.steps else args.minutes
        about = {"minutes": minutes, "date": numbers["date"], "commit": numbers["commit"]}
        measured = {**run(), **about}
        if not args.quick:  # read now: another process may have added a seed
            numbers["sides"] |= harness.kept(name).get("sides", {})
        numbers["sides"] = dict(sorted({**numbers["sides"], side: measured}.items()))
        if not args.quick:
            draw(numbers, name)
        title = "BLEU against minutes of training"
        harness.report(name, title, page(numbers, name), numbers, quick=args.quick)


if __name__ == "__main__":
    harness.serve(one) or main()
