"""Runs one benchmark, and collects all results on one page.

    python benchmarks/run.py NAME [its own options]    # one of the names below
    python benchmarks/run.py NAME --quick              # about a minute, to check that it runs
    python benchmarks/run.py page                      # benchmarks/README.md from results/

Names: layers, train_step, fit, cluster, large_corpus, decode, serving, serving_fuzz, mutation,
exports, students, shortlists, whole_files, bleu, recipes, fine_tune, back_translation,
architectures, stories, gradients, pronouns, few_labels, language_speed, imported.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
INTRODUCTION = ROOT / "benchmarks" / "introduction.md"


class Benchmark(NamedTuple):
    """A script, the question that it answers, and the options of its quick run."""

    question: str
    script: str
    quick: tuple
    results: tuple
    needs: str = ""  # "pairs", "run", "export" or "tuning": what a quick run is given


BENCHMARKS = {
    "layers": Benchmark(
        "Are the layers as fast as Keras's own and KerasHub's?",
        "layers.py", ("--lengths", "16", "--turns", "1", "--dry"), ("layers",),
    ),
    "train_step": Benchmark(
        "How many target tokens per second does a whole training step learn from?",
        "train_step.py", ("--sizes", "tutorial", "--turns", "0", "--seconds", "4", "--dry"),
        ("train_step", "train_step_gpu"),
    ),
    "fit": Benchmark(
        "What does the training loop cost beyond the bare update?",
        "fit.py", ("--quick",), ("fit",),
    ),
    "cluster": Benchmark(
        "How many workers pay off in training?", "cluster.py", ("--quick",), ("cluster",),
    ),
    "large_corpus": Benchmark(
        "How long until training starts on millions of pairs, and in how much memory?",
        "large_corpus.py", ("--quick",), ("large_corpus",), "pairs",
    ),
    "decode": Benchmark(
        "How fast is decoding, compared with CTranslate2, MarianMT and KerasHub?",
        "decode.py", ("--quick", "--beams", "1", "--batches", "1", "32"),
        ("decode", "decode_length", "decode_grouped", "decode_designs"),
    ),
    "serving": Benchmark(
        "What are the overhead, throughput and endurance of the development server?",
        "serving_load.py", ("--seconds", "5", "--parts", "overhead", "--dry"), ("serving",),
        "export",
    ),
    "serving_fuzz": Benchmark(
        "Does the development server withstand malformed requests?",
        "serving_fuzz.py", ("--seconds", "20", "--dry"), ("serving_fuzz",),
    ),
    "mutation": Benchmark(
        "How many small faults do the tests find?",
        "mutation.py", ("--parts", "losses", "--mutants", "60", "--dry"), ("mutation",),
    ),
    "exports": Benchmark(
        "How long until a trained run is served?", "exports.py", ("--quick",), ("exports",), "run",
    ),
    "students": Benchmark(
        "How good and how fast are the students of a teacher?",
        "students.py", ("--quick",), ("students",), "run",
    ),
    "shortlists": Benchmark(
        "What do shortlists of likely subwords gain?",
        "shortlists.py", ("--quick",), ("shortlists",), "run",
    ),
    "whole_files": Benchmark(
        "How fast are whole files translated?",
        "whole_files.py", ("--quick",), ("whole_files",), "run",
    ),
    "bleu": Benchmark(
        "Which recipe translates best after so many minutes of training?",
        "bleu.py", ("--quick", "--minutes", "1"), ("bleu",), "pairs",
    ),
    "recipes": Benchmark(
        "Does every preset learn with its recipe?",
        "recipes.py", ("--updates", "3", "--presets", "small", "--dry"), ("recipes",), "pairs",
    ),
    "fine_tune": Benchmark(
        "How fast does a model learn another domain, and how much of the old one does it forget?",
        "fine_tune.py", ("--quick", "--minutes", "1"), ("fine_tune",), "tuning",
    ),
    "back_translation": Benchmark(
        "What does back-translated text gain where there are few pairs?",
        "back_translation.py", ("--quick",), ("back_translation",), "pairs",
    ),
    "architectures": Benchmark(
        "What does the Transformer gain over recurrent models?",
        "architectures.py", ("--quick", "--parts", "steps"), ("architectures",),
    ),
    "stories": Benchmark(
        "Does the memory network find its supporting facts?",
        "stories.py", ("--quick",), ("stories",),
    ),
    "gradients": Benchmark(
        "How much does position t depend on the first one?",
        "gradients.py", ("--quick",), ("gradients",),
    ),
    "pronouns": Benchmark(
        "Does a head connect a pronoun with its noun?",
        "pronouns.py", ("--quick",), ("pronouns",), "run",
    ),
    "few_labels": Benchmark(
        "What does pre-training gain if there are few labels?",
        "few_labels.py", ("--quick",), ("few_labels",),
    ),
    "language_speed": Benchmark(
        "How fast is a language model, compared with GPT-2 in transformers and KerasHub?",
        "language_speed.py", ("--quick",), ("language_speed",),
    ),
    "imported": Benchmark(
        "Is an imported model the published one, and how fast is it served?",
        "imported.py", ("--quick",), ("imported",),
    ),
}  # fmt: skip


def main(arguments):
    """Runs the benchmark named first; returns its exit status."""
    if arguments == ["page"]:
        (ROOT / "benchmarks" / "README.md").write_text(page())
        return 0
    if not arguments or arguments[0] not in BENCHMARKS:
        print(__doc__, file=sys.stderr)
        return 2
    benchmark, options = BENCHMARKS[arguments[0]], arguments[1:]
    with tempfile.TemporaryDirectory() as folder:
        if "--quick" in options:
            options.remove("--quick")
            options = [*given(benchmark.needs, Path(folder)), *benchmark.quick, *options]
        command = [sys.executable, ROOT / "benchmarks" / benchmark.script, *options]
        return subprocess.run(list(map(str, command)), cwd=ROOT).returncode


def given(needs, folder):
    """Makes the small inputs that a quick run needs."""
    if needs == "pairs":
        from training.corpus import phrasebook

        paths = [folder / "train.tsv", folder / "validation.tsv"]
        pairs = phrasebook.generate(3000, seed=1)
        for path, part in zip(paths, (pairs[:-100], pairs[-100:]), strict=True):
            path.write_text("".join(f"{source}\t{target}\n" for source, target in part))
        return ["--data", paths[0], "--validation", paths[1]]
    if needs == "tuning":
        (folder / "old").mkdir()
        old = [str(word).replace("--", "--old_") for word in given("pairs", folder / "old")]
        return ["--run", *given("run", folder / "run"), *given("pairs", folder), *old]
    if needs in ("run", "export"):
        train = ROOT / "training" / "train_pt_en.py"
        options = ["--steps", "5", "--preset", "tiny", "--evaluate_pairs", "8", "--run", folder]
        command = [sys.executable, train, *options]
        subprocess.run(list(map(str, command)), check=True)
        return [folder / "saved_model"] if needs == "export" else [folder]
    return []


def page():
    """All tables and pictures, with the commands that made them."""
    text = INTRODUCTION.read_text()
    for name, benchmark in BENCHMARKS.items():
        text += f"\n## {name}: {benchmark.question}\n\n`python benchmarks/run.py {name}`\n"
        found = [RESULTS / f"{result}.md" for result in benchmark.results]
        found = [file for file in found if file.exists()]
        for file in found:
            body = file.read_text().replace("\n# ", "\n### ").replace("\n## ", "\n#### ")
            text += "\n" + (("##" + body) if body.startswith("# ") else body)
        for picture in sorted(p for r in benchmark.results for p in RESULTS.glob(f"{r}*.png")):
            text += f"\n![{picture.stem}](results/{picture.name})\n"
        if not found:
            text += "\nNot measured yet.\n"
    return text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
