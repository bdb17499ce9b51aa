"""After the training: final evaluation, pictures, report and export of a text task."""

import resource

from keras_tfmr.plots import plot_attention, plot_curves
from training.report.report import speed, table
from training.run.files import explained, save_weights, write_atomically, write_json
from training.run.finish import export, picture_sentence
from training.text.evaluation import class_scores
from training.text.pictures import plot_confusion

SAMPLES = 12
LONGEST = 64  # tokens of the text in the picture
# The names of scores for people, and their number of decimal places.
SCORES = {
    "accuracy": ("accuracy, %", 2),
    "macro_f1": ("F1, mean over labels, %", 2),
    "byte_probability": ("probability of a byte, geometric mean, %", 2),
    "bits_per_byte": ("bits per byte", 4),
    "perplexity": ("perplexity of a token", 3),
}


def finish(task, run, data):
    """Finishes the folder of a trained run.

    Args:
        task: The `TextTask`.
        run: The `loop.Run`, trained.
        data: The `prepare.Data`.

    Raises:
        RunError: If a file cannot be written, or the exported model does not pass its check.
    """
    folder = run.folder
    results = {"minutes": round(run.clock.seconds() / 60, 2), "steps": run.state.step}
    results["skipped_updates"] = run.state.skipped
    save_weights(run.trainer.take_averages(), folder.last)
    model = run.trainer.averaged
    model.load_weights(folder.best)
    tables = {}
    for name, rows in (("validation", data.validation), ("test", data.test)):
        if not rows:
            continue
        evaluator = task.evaluator_class(task, model, data.tokenizers, rows)
        scores, found = evaluator.measure()
        tables[name] = evaluator.table
        results |= {f"{name}_{score}": round(value, 4) for score, value in scores.items()}
        told = ", ".join(f"{SCORES[n][0]}: {v:.{SCORES[n][1]}f}" for n, v in scores.items())
        print(f"{name}: {told}; {len(rows)} texts")
        if name == "validation":
            write_predictions(task, folder.predictions, rows, found)
    results["peak_memory_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    draw(task, run, data, tables["validation"])
    if run.settings.export and task.kind != "masked":
        from training.text.tasks import text_model_of  # which imports this module

        export(run.claim, text_model_of(folder), results, texts_of(data.validation))
    results["minutes_in_all"] = round(run.clock.seconds() / 60, 2)
    write_atomically(folder.report, report(task, folder, run.state.rows, results, data, tables))
    write_json(folder.results, results)
    print(f"Finished after {results['minutes_in_all']} minutes: {folder.report}")


def write_predictions(task, path, rows, found):
    """predictions.tsv: each validation text with the expected and the found labels."""
    learned = task.evaluator_class.learned
    lines = ["text\texpected\tfound"]
    for row, one in zip(rows, found, strict=True):
        lines.append("\t".join((row[learned], "" if learned else row[1], one)))
    write_atomically(path, "\n".join(lines) + "\n")


def draw(task, run, data, confusions):
    """Draws curves.png, attention.png and, if there are labels, confusion.png."""
    curves = plot_curves(run.state.rows, scores=task.scores[:2], title=run.folder.path.name)
    attention = attention_of(task, run.trainer.averaged, data)
    with explained(run.folder.path):
        curves.savefig(run.folder.curves, dpi=110)
        attention.savefig(run.folder.attention, dpi=110)
        if confusions is not None:
            picture = plot_confusion(confusions, data.tokenizers[1].names)
            picture.savefig(run.folder.confusion, dpi=110)


def attention_of(task, model, data):
    """A picture of the heads of the last layer on one validation text."""
    text = picture_sentence(texts_of(data.validation))
    tokenizer = data.tokenizers[0]
    ids = task.fed(tokenizer.encode_truncated([text], LONGEST)[0].numpy())
    _, scores = task.stack(model)(ids, return_attention_scores=True)  # of each layer
    pieces = [piece.decode() for piece in tokenizer.pieces(ids).numpy()[0]]
    return plot_attention(scores[-1].numpy()[0], pieces, pieces, title=text)


def texts_of(rows):
    """The texts of some rows, from the column that holds them."""
    return [text if text != "-" else other for text, other in rows]


def report(task, folder, rows, results, data, tables):
    """The text of report.md."""
    config = folder.read_config()
    sets = [name for name in ("validation", "test") if f"{name}_{task.scores[0]}" in results]
    measured = [
        (SCORES[score][0], *(f"{results[f'{name}_{score}']:.{SCORES[score][1]}f}" for name in sets))
        for score in task.scores
    ]
    last = "test" if "test" in sets else "validation"
    parts = [
        f"# {folder.path.name}",
        f"`{config['command']}`",
        data.summary,
        "## Results",
        table(("", *sets), measured),
        f"The run trained for {results['minutes']} minutes and {results['steps']:,} updates, at "
        f"{speed(rows):,} {UNITS[task.kind]} a second, with "
        f"{results['peak_memory_mib']:,} MiB of memory at most.",
        "![curves](curves.png)",
    ]
    if tables[last] is not None:
        parts += labels_of(tables[last], data.tokenizers[1].names, last)
    parts += [
        "## Validation texts",
        table(("text", "expected", "found"), samples(folder)),
        "[predictions.tsv](predictions.tsv) has the whole validation set.",
        "## Attention",
        "What each token (a row) attended to, by head of the last layer.",
        "![attention](attention.png)",
        "## Model and settings",
        table(("", ""), sorted(config["model"]["config"].items())),
        table(("", ""), sorted(config["training"].items())),
        table(("", ""), sorted(config["versions"].items())),
    ]
    return "\n\n".join(parts) + "\n"


UNITS = {
    "classify": "texts", "tag": "tagged tokens", "language": "tokens", "masked": "masked tokens",
}  # fmt: skip


def labels_of(confusions, names, name):
    """The section of a report about each label."""
    rows = [
        (label, *(f"{100 * value:.1f}" for value in scores[:3]), int(scores[3]))
        for label, scores in zip(names, class_scores(confusions), strict=True)
    ]
    return [
        "## Labels",
        f"Of the {name} set, in %:",
        table(("label", "precision", "recall", "F1", "count"), rows),
        "How the label of each row was classified in the validation set:",
        "![confusion matrix](confusion.png)",
    ]


def samples(folder):
    """A few evenly spaced rows of predictions.tsv."""
    lines = folder.predictions.read_text(encoding="utf-8").splitlines()[1:]
    chosen = lines[:: max(1, len(lines) // SAMPLES)][:SAMPLES]
    return [line.split("\t") for line in chosen]
