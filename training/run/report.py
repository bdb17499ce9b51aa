"""After the training: the final evaluation, the pictures, the report and the export of a run."""

import csv
import os
import shlex
import statistics
import subprocess
import sys
import time

import numpy as np
import sacrebleu

from keras_tfmr.errors import ExportError
from keras_tfmr.plots import plot_attention, plot_confusion, plot_curves
from keras_tfmr.text_models.load import load_text_model
from training import phrasebook
from training.command.disk import RunError, write_atomically, write_json
from training.command.process import command, peak_memory_mib
from training.run.callbacks import RunState
from training.run.checkpoints import Checkpoints
from training.run.evaluate import BATCH, Evaluator, spread
from training.run.run_folder import RunFolder
from training.scores import SCORES, class_scores, corpus_scores, scores_in_words
from training.settings.training_config import TextConfig, TrainingConfig

SAMPLES = 12
TEXTS = 256  # of the validation set, which calibrate and warm up an export
LONGEST = 64  # tokens of the text in the picture of the attention
REPORT = """# {name}

`{command}`

{summary}
{beginning}
## Results

{scores}

The run made {results[steps]:,} updates in {results[minutes]:.1f} minutes, at {speed:,.0f} {unit} \
a second, within {results[peak_memory_mib]:,} MiB of memory. The weights that scored best were \
evaluated{how}.

![Loss, validation scores, learning rate and speed by minutes](curves.png)
{everyday}{labels}
## Validation texts

{samples}

[{file}]({file}) has the whole validation set.

## Attention

What each token (a row) attended to, by head of the last layer.

![Attention by head](attention.png)

[config.json](config.json) has the config of the model, all settings and the versions.
"""
BEGINNING = """
The run began with the weights of `{path}` (sha256 {weights_sha256}).{licence}
"""
LICENCE = """ They are those of the published model {name}, whose licence applies to this model \
too. The models of OPUS-MT are published by the Language Technology Research Group at the \
University of Helsinki under CC BY 4.0 (https://creativecommons.org/licenses/by/4.0/): name the \
group and the licence, and say that the model was changed."""
EVERYDAY = """
## Everyday sentences

Ten of the everyday set, which was written by hand and is never learned from: from the best \
translation to the worst.

{table}
"""
LABELS = """
## Labels

Of the {name} set, in %:

{table}

How the label of each row was classified in the validation set:

![Confusion matrix](confusion.png)
"""


def finish(settings, task, folder, data, state):
    """Evaluates the best weights, and writes the pictures, the report and the export.

    Raises:
        RunError: If the exported model does not pass its check.
    """
    begun = time.monotonic()
    text_model = load_text_model(folder.path)
    results = {"minutes": round(state.seconds / 60, 2), "steps": state.step}
    sets = {"validation": data.validation} | ({"test": data.test} if data.test else {})
    if settings.phrasebook and settings.task == "translation":
        # First, because it says more than sentences made like those that were learned.
        sets = {"everyday": phrasebook.everyday()} | sets
    examples = []
    evaluators = {name: Evaluator(task, text_model.model, rows) for name, rows in sets.items()}
    for name, evaluator in evaluators.items():
        scores, answers = measured(settings, evaluator, text_model)
        results |= {f"{name}_{score}": round(value, 4) for score, value in scores.items()}
        print(f"{name}: {scores_in_words(scores)} on {len(evaluator.rows):,} texts")
        if name == "everyday":
            examples = best_to_worst(evaluator, answers)
            print(*(f"    {task.sample(*example)}" for example in examples), sep="\n")
        if name == "validation":
            write = write_translations if settings.task == "translation" else write_predictions
            write(folder, evaluator, answers)
            texts = [" ".join(text.split()) for text in evaluator.texts()[:TEXTS]]
            write_atomically(folder.texts, "\n".join(texts))
    results["peak_memory_mib"] = max(state.peak_memory_mib, peak_memory_mib())
    draw(folder, evaluators["validation"], text_model, state)
    if settings.export:
        export(folder, text_model, results)
    results["minutes_in_all"] = round(results["minutes"] + (time.monotonic() - begun) / 60, 2)
    text = report(settings, task, folder, data.summary, state, results, evaluators, examples)
    write_atomically(folder.report, text)
    write_json(folder.results, results)
    tell_what_next(settings, folder)


def tell_what_next(settings, folder):
    """Says where the report is, and which commands use the model."""
    path, models = (shlex.quote(str(p)) for p in (folder.path, folder.saved_model.resolve()))
    print(f"Report:    {folder.report}")
    if settings.task == "translation":
        print(f"Translate: python training/translate.py {path} < in.txt > out.txt")
    if settings.export:
        print(
            f"Serve:     python serving/server.py --model_base_path={models} --rest_api_port=8501"
        )


def finish_on_tensorflow(folder):
    """Finishes a run that was trained on JAX by TensorFlow, which makes the exports.

    On the CPU: JAX still holds the memory of the GPUs.
    """
    words = [sys.executable, "-m", "training.run.report", str(folder.path)]
    changes = {"KERAS_BACKEND": "tensorflow", "CUDA_VISIBLE_DEVICES": ""}
    if subprocess.run(words, env=os.environ | changes).returncode:
        raise RunError(
            "The training is complete, but TensorFlow failed to evaluate or export the model: to "
            "try again, repeat the command"
        )


def finish_trained(folder):
    """Evaluates, reports and exports a run whose training is over, from its folder alone."""
    from training.data import prepare  # which needs no report

    config = folder.read_config()
    arguments = {n: tuple(v) if isinstance(v, list) else v for n, v in config["arguments"].items()}
    settings = (TextConfig if "task" in arguments else TrainingConfig)(**arguments)
    data = prepare(settings, folder, config)
    state = RunState.of(Checkpoints(folder.checkpoints).newest(), data.steps)
    finish(settings, data.task, folder, data, state)


def measured(settings, evaluator, text_model):
    """Scores by name, and what was found for each row; translations by the served beam search."""
    if settings.task != "translation":
        return evaluator.measure()
    sources, references = zip(*evaluator.rows, strict=True)
    answers = [best[0] for best in text_model.translate_nbest(sources, batch_size=BATCH)]
    return corpus_scores([answer.text for answer in answers], references), answers


def best_to_worst(evaluator, answers):
    """Ten rows of (source, reference, translation), from the best to among the worst by chrF."""
    rows = [(*row, answer.text) for row, answer in zip(evaluator.rows, answers, strict=True)]
    rows.sort(key=lambda row: -sacrebleu.sentence_chrf(row[2], [row[1]]).score)
    return spread(rows, 10)


def write_translations(folder, evaluator, answers):
    """translations.tsv: source, reference, hypothesis, its score, and its chrF."""
    lines = ["source\treference\thypothesis\tscore\tchrf"]
    for (source, reference), answer in zip(evaluator.rows, answers, strict=True):
        chrf = sacrebleu.sentence_chrf(answer.text, [reference]).score
        numbers = f"{float(answer.score):.4f}", f"{chrf:.1f}"
        lines.append(in_a_row(source, reference, answer.text, *numbers))
    write_atomically(folder.translations, "\n".join(lines) + "\n")


def write_predictions(folder, evaluator, answers):
    """predictions.tsv: each text with the expected and the found label, or its log-probability."""
    pairs = zip(evaluator.rows, answers, strict=True)
    if evaluator.column:
        lines = ["text\tresult", *(in_a_row(row[1], answer) for row, answer in pairs)]
    else:
        lines = ["text\texpected\tfound", *(in_a_row(*row, answer) for row, answer in pairs)]
    write_atomically(folder.predictions, "\n".join(lines) + "\n")


def in_a_row(*cells):
    """A line of a file of columns."""
    return "\t".join(" ".join(cell.split()) for cell in cells)


def draw(folder, evaluator, text_model, state):
    """Draws curves.png, attention.png and, if there are labels, confusion.png."""
    names = {f"val_{name}": SCORES[name][0] for name in evaluator.task.scores[:2]}
    rows = [{names.get(name, name): value for name, value in r.items()} for r in state.rows]
    # The text whose length is closest to nine words, for a readable picture.
    text = min(evaluator.texts(), key=lambda text: (abs(len(text.split()) - 9), text))
    picture = plot_attention(*attention(evaluator, text_model, text), title=text)
    picture.savefig(folder.attention, dpi=110)
    picture = plot_curves(rows, scores=tuple(names.values()), title=folder.path.name)
    picture.savefig(folder.curves, dpi=110)
    if evaluator.table is not None:
        picture = plot_confusion(evaluator.table, evaluator.task.tokenizers[1].names)
        picture.savefig(folder.confusion, dpi=110)


def attention(evaluator, text_model, text):
    """The weights of the last layer's heads, and the tokens of its rows and columns."""
    task, model = evaluator.task, evaluator.model
    tokenizer = task.tokenizers[0]
    if hasattr(text_model, "explain"):
        explanation = text_model.explain([text])[0]
        return explanation.attention_heads[-1], explanation.source_tokens, explanation.target_tokens
    ids = tokenizer.encode_truncated([text], LONGEST)[0].numpy()
    if task.kind == "language":
        start = np.full((1, 1), tokenizer.bos_id, ids.dtype)
        ids = np.concatenate([start, ids[:, :-1]], axis=1)
    stack = model.get_layer("decoder" if task.kind == "language" else "encoder")
    x = model.get_layer("embedding")(ids)
    scores = stack(x, return_attention_scores=True)[1][-1].numpy()[0]
    tokens = [piece.decode() for piece in tokenizer.pieces(ids).numpy()[0]]
    return scores, tokens, tokens


def export(folder, text_model, results):
    """Writes saved_model/1 and checks it."""
    print("Exporting and checking the SavedModel.")
    folder.clear_exports()  # left by a process that was killed after its export
    begun = time.monotonic()
    text_model.record |= {"results": results}
    text_model.texts = folder.sources()
    try:
        path = text_model.export(folder.saved_model)
    except ExportError as error:
        raise RunError(str(error)) from error
    print(f"{path}, in {time.monotonic() - begun:.0f} s")


def report(settings, task, folder, summary, state, results, evaluators, examples):
    """The text of report.md."""
    config, sets, translates = folder.read_config(), [*evaluators], settings.task == "translation"
    file = folder.translations if translates else folder.predictions
    with file.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines, dialect="excel-tab", quoting=csv.QUOTE_NONE))
    scores = [
        (SCORES[n][0], *(SCORES[n][1].format(results[f"{name}_{n}"]) for name in sets))
        for n in task.scores
    ]
    how = ", cased and detokenised, as sacrebleu does by default"
    columns = [name for name in rows[0] if name not in ("score", "chrf")]
    chosen = rows[:: max(1, len(rows) // SAMPLES)][:SAMPLES]
    return REPORT.format(
        name=folder.path.name,
        command=config["command"],
        summary="  \n".join(summary.splitlines()),
        beginning=beginning(config.get("start")),
        scores=table(("", *sets), scores),
        results=results,
        speed=statistics.median([row["tokens_per_second"] for row in state.rows] or [0]),
        unit=task.unit,
        how=f" with beam {settings.num_beams}{how}" if translates else "",
        everyday=EVERYDAY.format(
            table=table(("source", "reference", "translation"), examples)
        ) if examples else "",
        labels=labels(evaluators[sets[-1]], sets[-1]),
        samples=table(columns, [[row[name] for name in columns] for row in chosen]),
        file=file.name,
    )  # fmt: skip


def beginning(start):
    """The run that a fine-tuned run began from, and the licence of a published model."""
    if start is None:
        return ""
    first = start
    while first and "name" not in first.get("published", ()):
        first = first.get("start")
    licence = LICENCE.format(name=first["published"]["name"]) if first else ""
    return BEGINNING.format(**start, licence=licence)


def labels(evaluator, name):
    """The section of a report about each label, if there are labels."""
    if evaluator.table is None:
        return ""
    rows = [
        (label, *(f"{100 * value:.1f}" for value in scores[:3]), int(scores[3]))
        for label, scores in zip(
            evaluator.task.tokenizers[1].names, class_scores(evaluator.table), strict=True
        )
    ]
    return LABELS.format(
        name=name, table=table(("label", "precision", "recall", "F1", "count"), rows)
    )


def table(head, rows):
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(in_a_cell(value) for value in line) + " |" for line in lines)


def in_a_cell(value):
    """A value as a table of Markdown can hold it."""
    return str(value).replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    sys.exit(command("training", finish_trained, RunFolder(sys.argv[1])))
