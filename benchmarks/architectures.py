"""Compares the Transformer with the recurrent models that it replaced.

    python benchmarks/architectures.py --data train.tsv --validation validation.tsv --minutes 30

DATA has lines of SOURCE<TAB>TARGET. The compared models have about the same number of parameters
and the same vocabulary, batches, optimizer and minutes. Each part can run alone, and replaces its
own results in results/architectures.md, .json and .png:

    translation   trains both translators: BLEU against minutes, tokens per second
    decoding      how fast those translators decode
    steps         seconds per training step against the length of the sentences (needs no data)
    language      trains three language models on the target side: perplexity against minutes
    bottleneck    trains seq2seq, RNNsearch and the Transformer: BLEU by the length of the source;
                  without --data on the phrasebook of the training script
"""

import argparse
import json
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("MPLBACKEND", "Agg")

import matplotlib.pyplot as plt

from benchmarks import measure
from benchmarks.architecture_parts import bottleneck, languages, lengths, translators

PARTS = {
    "translation": translators.train,
    "decoding": translators.decode,
    "steps": lengths.run,
    "language": languages.run,
    "bottleneck": bottleneck.run,
}


def main():
    args = arguments()
    path = measure.RESULTS / "architectures.json"
    results = json.loads(path.read_text()) if path.exists() and not args.quick else {}
    for name in args.parts:
        done = results.setdefault(name, {})
        for key, value in PARTS[name](args):
            done[key] = value
            publish(results, args)
            print(f"{name}, {key}: done", flush=True)
    print(page(results))


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--data", help="file of training pairs, one per line")
    parser.add_argument("--validation", help="file of validation pairs, one per line")
    parser.add_argument("--minutes", type=float, default=30, help="training time of each model")
    parser.add_argument("--models", nargs="+", help="only these models, such as transformer")
    parser.add_argument("--runs", default="runs/architectures", help="folder for the run folders")
    parser.add_argument("--quick", action="store_true", help="a trial with tiny models, in minutes")
    args = parser.parse_args()
    if not (args.data and args.validation) and set(args.parts) - {"steps", "bottleneck"}:
        parser.error("all parts but steps and bottleneck need --data and --validation")
    return args


def publish(results, args):
    """Writes all three files again; for a trial, only the picture, next to the run folders."""
    if args.quick:
        draw(results, Path(args.runs) / "quick.png")
        draw_bottleneck(results, Path(args.runs) / "quick_bottleneck.png")
        return
    measure.write("architectures", page(results), results)
    draw(results, measure.RESULTS / "architectures.png")
    draw_bottleneck(results, measure.RESULTS / "architectures_bottleneck.png")


def page(results):
    sections = [
        "# The Transformer and what it replaced\n\n"
        "Compared models have about the same number of parameters, and share vocabulary, batches, "
        "and optimizer, each with its rate falling to nothing by the end of its minutes; "
        "`python benchmarks/architectures.py` says how to repeat it.\n\n"
        f"{measure.machine()}; {measure.versions('tensorflow', 'keras')}.\n"
    ]
    for name, section in (
        ("translation", translators.training_section),
        ("decoding", translators.decoding_section),
        ("steps", lengths.section),
        ("language", languages.section),
        ("bottleneck", bottleneck.section),
    ):
        if results.get(name):
            sections.append(section(results[name]))
    return "\n".join(sections)


def draw(results, path):
    """Draws what minutes gain and what length costs, with a panel for each measured part."""
    panels = {
        "translation": draw_translation,
        "steps": draw_steps,
        "language": draw_language,
    }
    panels = {name: panel for name, panel in panels.items() if results.get(name)}
    if not panels:
        return
    figure, axes = plt.subplots(
        1, len(panels), figsize=(4.5 * len(panels), 4), layout="constrained", squeeze=False
    )
    for axis, (name, panel) in zip(axes[0], panels.items(), strict=True):
        for model, result in results[name].items():
            panel(axis, model, result)
        axis.grid(alpha=0.3)
        axis.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_bottleneck(results, path):
    if not results.get("bottleneck"):
        return
    figure, axis = plt.subplots(figsize=(6.5, 4), layout="constrained")
    bottleneck.draw(axis, results["bottleneck"])
    axis.grid(alpha=0.3)
    axis.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_translation(axis, model, result):
    rows = [row for row in result["rows"] if row["bleu"] is not None]
    axis.plot([row["minutes"] for row in rows], [row["bleu"] for row in rows], ".-", label=model)
    axis.set(xlabel="minutes", ylabel="validation BLEU (greedy)", title="translation")


def draw_steps(axis, model, result):
    lengths = sorted(map(int, result["seconds"]))
    seconds = [result["seconds"][str(length)] for length in lengths]
    axis.plot(lengths, seconds, ".-", label=model)
    axis.set(xlabel="tokens of a sentence", ylabel="seconds a step")
    axis.set_ylim(0, max(1.05 * y for line in axis.lines for y in line.get_ydata()))
    axis.set_title(f"training step of {result['tokens']} tokens")
    axis.set_xscale("log", base=2)
    axis.set_xticks(lengths, lengths)


def draw_language(axis, model, result):
    minutes = [row["minutes"] for row in result["rows"]]
    axis.plot(minutes, [row["perplexity"] for row in result["rows"]], ".-", label=model)
    axis.set(xlabel="minutes", ylabel="validation perplexity", title="language model")
    axis.set_yscale("log")


if __name__ == "__main__":
    main()
