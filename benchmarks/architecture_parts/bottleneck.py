"""BLEU by the length of the source: the loss if a sentence has to pass through one vector."""

import json
import subprocess
from pathlib import Path

from benchmarks import measure
from benchmarks.architecture_parts import translators
from keras_tfmr.decoding import DecodingConfig
from training.corpus import phrasebook
from training.corpus.pairs import read_pairs
from training.report.evaluation import Evaluator, corpus_scores
from training.run.folder import RunFolder
from training.run.on_tensorflow import Workers

MODELS = ("seq2seq", "rnnsearch", "transformer")
# Words of a source; the last bucket holds the longest ones.
BUCKETS = {"3–4": (3, 4), "5–6": (5, 6), "7–8": (7, 8), "9–10": (9, 10), "11–12": (11, 12)}
BUCKETS["13 and more"] = (13, 1000)
SENTENCES = 300  # in a bucket


def run(args):
    """Yields (model, {"minutes", "steps", "bleu", "sentences"}) of runs trained side by side."""
    folder = Path(args.runs) / "bottleneck"
    names = [name for name in MODELS if not args.models or name in args.models]
    train_together({name: folder / name for name in names}, args)
    pairs = by_length(read_pairs(args.validation).pairs() if args.data else unseen())
    pairs = {bucket: found[: 4 if args.quick else SENTENCES] for bucket, found in pairs.items()}
    for name in names:
        yield name, measure_run(folder / name, pairs)


def train_together(paths, args):
    """All at once: whatever else the machine does slows them alike. Finished runs are kept."""
    started = []
    for name, path in paths.items():
        if not (path / "results.json").exists():
            started.append(subprocess.Popen(translators.command(name, path, args)))
    for process in started:
        if process.wait():
            raise subprocess.CalledProcessError(process.returncode, process.args)


def unseen():
    """Phrasebook pairs whose English the training script's own phrasebook does not hold."""
    known = {english for _, english in phrasebook.split(seed=1).train}
    return [pair for pair in phrasebook.generate(60_000, seed=2) if pair[1] not in known]


def by_length(pairs):
    found = {bucket: [] for bucket in BUCKETS}
    for pair in pairs:
        words = len(pair[0].split())
        for bucket, (shortest, longest) in BUCKETS.items():
            if shortest <= words <= longest:
                found[bucket].append(pair)
    return {bucket: some for bucket, some in found.items() if some}


def measure_run(path, pairs):
    folder = RunFolder(path)
    model, tokenizers = translators.load(folder)
    final = json.loads(folder.results.read_text())
    flat = [pair for bucket in pairs.values() for pair in bucket]
    decoding = DecodingConfig(beams=4)
    texts = iter(Evaluator(model, tokenizers, flat, decoding, Workers()).translate())
    bleu = {}
    for bucket, some in pairs.items():
        hypotheses = [next(texts) for _ in some]
        bleu[bucket] = corpus_scores(hypotheses, [pair[1] for pair in some])[0]
    return {
        "parameters": model.count_params(), "minutes": final["minutes"], "steps": final["steps"],
        "bleu": bleu, "sentences": {bucket: len(some) for bucket, some in pairs.items()},
    }  # fmt: skip


def section(results):
    first = next(iter(results.values()))
    header = ["model", "parameters", "minutes", "steps", *first["bleu"]]
    rows = [
        [name, f"{r['parameters']:,}", r["minutes"], r["steps"], *r["bleu"].values()]
        for name, r in results.items()
    ]
    counts = ["sentences", "", "", "", *first["sentences"].values()]
    return (
        "## The bottleneck\n\n"
        "BLEU with beam 4 by the words of the source, on pairs that were not trained on: of an "
        "encoder–decoder without attention (seq2seq), of RNNsearch, which differs from it by its "
        f"alignment, and of the Transformer. All three were trained {side_by_side(results)}.\n\n"
    ) + measure.table(header, [*rows, counts])


def side_by_side(results):
    minutes = max(r["minutes"] for r in results.values())
    return f"at the same time on the same two cores for {minutes:.0f} minutes"


def draw(axis, results):
    """One line a model."""
    for name, r in results.items():
        axis.plot(list(r["bleu"]), list(r["bleu"].values()), ".-", label=name)
    minutes = max(r["minutes"] for r in results.values())
    axis.set(xlabel="words of the source", ylabel="BLEU", ylim=(0, 102))
    axis.set_title(f"BLEU by length, {minutes:.0f} minutes side by side")
