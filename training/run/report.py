"""After the training: the final evaluation, the pictures and the export of a run."""

if __name__ == "__main__":
    from keras_tfmr.compat import import_tensorflow
    from training.command.scripts import begin_quietly

    begin_quietly("Stopped. Run the same command to resume.")
    import_tensorflow()

import os
import shlex
import statistics
import sys
import time

import numpy as np
import sacrebleu

from keras_tfmr.errors import ExportError
from keras_tfmr.plots import plot_attention, plot_confusion, plot_curves
from keras_tfmr.text_models.load import load_text_model
from training import phrasebook
from training.command.disk import RunError, write_atomically, write_json
from training.command.scripts import command, peak_memory_mib
from training.data import prepare
from training.run.budget import RunState
from training.run.checkpoints import Checkpoints
from training.run.evaluate import BATCH, Evaluator, spread
from training.run.run_folder import RunFolder, run_lock
from training.scores import SCORES, class_scores, corpus_scores, scores_in_words
from training.settings.training_config import TrainingConfig

SAMPLES = 12  # rows of the validation set in the report
TEXTS = 256  # of the validation set, which calibrate and warm up an export
LONGEST = 64  # tokens of the text in the picture of the attention
LICENCE = (
    "They are those of the published model {name}, whose licence applies to this model too. The "
    "models of OPUS-MT are published by the Language Technology Research Group at the University "
    "of Helsinki under CC BY 4.0 (https://creativecommons.org/licenses/by/4.0/): name the group "
    "and the licence, and say that the model was changed."
)
ENDING = (
    "## Attention",
    "What each token (a row) attended to, by head of the last layer.",
    "![Attention by head](attention.png)",
    "[config.json](config.json) has the config of the model, all settings and the versions.",
)


def finish(settings, task, folder, data, state):
    """Evaluates the best weights, and writes the pictures, the report and the export.

    Raises:
        RunError: If the exported model does not pass its check.
    """
    begun = time.monotonic()
    text_model = load_text_model(folder.path)
    sets = sets_to_measure(settings, data)
    results = {"minutes": round(state.seconds / 60, 2), "steps": state.step}
    evaluators, answers, examples = {}, {}, []
    for name, rows in sets.items():
        evaluators[name] = Evaluator(task, text_model.model, rows)
        scores, answers[name] = measured(settings, evaluators[name], text_model)
        results |= {f"{name}_{score}": round(value, 4) for score, value in scores.items()}
        print(f"{name}: {scores_in_words(scores)} on {len(rows):,} texts")
        if name == "everyday":
            examples = best_to_worst(rows, answers[name])
            for example in examples:
                print(f"    {task.sample(*example)}")
    results["peak_memory_mib"] = max(state.peak_memory_mib, peak_memory_mib())
    validation = evaluators["validation"]
    columns, rows = answers_by_row(settings.task, validation.rows, answers["validation"])
    file = folder.translations if settings.task == "translation" else folder.predictions
    write_rows(file, columns, rows)
    write_atomically(folder.texts, "\n".join(map(in_a_line, validation.texts()[:TEXTS])))
    draw(folder, validation, text_model, state)
    if settings.export:
        export(folder, text_model, results)
    results["minutes_in_all"] = round(results["minutes"] + (time.monotonic() - begun) / 60, 2)
    parts = [
        *beginning(folder, data.summary),
        *scores_reached(settings, state, results, evaluators),
        *everyday_sentences(examples),
        *labels(evaluators),
        "## Validation texts",
        table(columns[:3], spread(rows, SAMPLES)),
        f"[{file.name}]({file.name}) has the whole validation set.",
        *ENDING,
    ]
    write_atomically(folder.report, "\n\n".join(parts) + "\n")
    write_json(folder.results, results)
    tell_what_next(settings, folder)


def sets_to_measure(settings, data):
    """The final sets, {name: rows}; the one that says most is the first."""
    sets = {}
    if settings.phrasebook and settings.task == "translation":
        sets["everyday"] = phrasebook.everyday()  # not made like what was learned
    return sets | data.encoded.held_out


def tell_what_next(settings, folder):
    """Prints where the report is, and which commands use the model."""
    path, models = (shlex.quote(str(p)) for p in (folder.path, folder.saved_model.resolve()))
    print(f"Report:    {folder.report}")
    if settings.task == "translation":
        print(f"Translate: python training/translate.py {path} < in.txt > out.txt")
    if settings.export:
        print(
            f"Serve:     python serving/server.py --model_base_path={models} --rest_api_port=8501"
        )


def finish_on_tensorflow(folder):
    """Goes on with TensorFlow, which makes the exports, as the program of this process.

    On the CPU: an installation for JAX rarely has the CUDA libraries that TensorFlow needs.
    """
    print("The training is complete: TensorFlow evaluates it. If it cannot, repeat the command.")
    words = [sys.executable, "-m", "training.run.report", str(folder.path)]
    changes = {"KERAS_BACKEND": "tensorflow", "CUDA_VISIBLE_DEVICES": ""}
    os.execve(sys.executable, words, os.environ | changes)


def finish_trained(folder):
    """Evaluates, reports and exports a run whose training is over, from its folder alone."""
    config = folder.read_config()
    settings = TrainingConfig.from_dict(config["arguments"])
    with run_lock(folder):
        data = prepare(settings, folder, config)
        state = RunState.of(Checkpoints(folder.checkpoints).newest(), data.steps)
        finish(settings, data.task, folder, data, state)


def measured(settings, evaluator, text_model):
    """Scores by name, and what was found for each row; translations by the served beam search."""
    if settings.task != "translation":
        return evaluator.measure()
    sources = [source for source, _ in evaluator.rows]
    references = [reference for _, reference in evaluator.rows]
    answers = [best[0] for best in text_model.translate_nbest(sources, batch_size=BATCH)]
    return corpus_scores([answer.text for answer in answers], references), answers


def best_to_worst(pairs, answers):
    """Ten rows of (source, reference, translation), from the best to among the worst by chrF."""
    rows = [(*pair, answer.text) for pair, answer in zip(pairs, answers, strict=True)]
    rows.sort(key=lambda row: -sacrebleu.sentence_chrf(row[2], [row[1]]).score)
    return spread(rows, 10)


def answers_by_row(task, pairs, answers):
    """The names of the columns, and the rows, of translations.tsv or predictions.tsv."""
    if task == "classify":
        rows = [(text, label, answer) for (text, label), answer in zip(pairs, answers, strict=True)]
        return ("text", "expected", "found"), rows
    if task == "language":
        rows = [(text, answer) for (_, text), answer in zip(pairs, answers, strict=True)]
        return ("text", "result"), rows
    rows = []
    for (source, reference), answer in zip(pairs, answers, strict=True):
        chrf = sacrebleu.sentence_chrf(answer.text, [reference]).score
        rows.append((source, reference, answer.text, f"{answer.score:.4f}", f"{chrf:.1f}"))
    return ("source", "reference", "hypothesis", "score", "chrf"), rows


def write_rows(path, columns, rows):
    """A file of columns with tabs between them."""
    lines = ["\t".join(in_a_line(cell) for cell in row) for row in [columns, *rows]]
    write_atomically(path, "\n".join(lines) + "\n")


def in_a_line(text):
    """A text without tabs and line ends."""
    return " ".join(text.split())


def draw(folder, evaluator, text_model, state):
    """Draws curves.png, attention.png and, if there are labels, confusion.png."""
    names = {f"val_{name}": SCORES[name][0] for name in evaluator.task.scores[:2]}
    rows = [
        {names.get(column, column): value for column, value in row.items()} for row in state.rows
    ]
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
    reads = "decoder" if task.settings.task == "language" else "encoder"
    if reads == "decoder":
        start = np.full((1, 1), tokenizer.bos_id, ids.dtype)
        ids = np.concatenate([start, ids[:, :-1]], axis=1)
    x = model.get_layer("embedding")(ids)
    scores = model.get_layer(reads)(x, return_attention_scores=True)[1][-1].numpy()[0]
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


def beginning(folder, summary):
    """The paragraphs of report.md about the command, the data, and the run that it began from."""
    config = folder.read_config()
    parts = [f"# {folder.path.name}", f"`{config['command']}`", "  \n".join(summary.splitlines())]
    if start := config.get("start"):
        text = f"The run began with the weights of `{start['path']}` "
        text += f"(sha256 {start['weights_sha256']})."
        while start and "name" not in start.get("published", ()):
            start = start.get("start")
        if start:
            text += " " + LICENCE.format(name=start["published"]["name"])
        parts.append(text)
    return parts


def scores_reached(settings, state, results, evaluators):
    """Those about the scores of each set."""
    task, rows = evaluators["validation"].task, []
    for score in task.scores:
        name, form = SCORES[score]
        rows.append((name, *(form.format(results[f"{part}_{score}"]) for part in evaluators)))
    how = f" with beam {settings.num_beams}, cased and detokenised, as sacrebleu does by default"
    speed = statistics.median([row["tokens_per_second"] for row in state.rows] or [0])
    return [
        "## Results",
        table(("", *evaluators), rows),
        f"The run made {results['steps']:,} updates in {results['minutes']:.1f} minutes, at "
        f"{speed:,.0f} {task.unit} a second, within {results['peak_memory_mib']:,} MiB of memory. "
        "The weights that scored best were evaluated"
        f"{how if settings.task == 'translation' else ''}.",
        "![Loss and validation scores by minutes](curves.png)",
    ]


def everyday_sentences(examples):
    """Those about the hand-written sentences, if they were measured."""
    if not examples:
        return []
    return [
        "## Everyday sentences",
        "Ten of the everyday set, which was written by hand and is never learned from: from the "
        "best translation to the worst.",
        table(("source", "reference", "translation"), examples),
    ]


def labels(evaluators):
    """Those about each label, if there are labels: of the last set."""
    name, evaluator = [*evaluators.items()][-1]
    if evaluator.table is None:
        return []
    rows = []
    names = evaluator.task.tokenizers[1].names
    for label, (*shares, count) in zip(names, class_scores(evaluator.table), strict=True):
        rows.append((label, *(f"{100 * share:.1f}" for share in shares), int(count)))
    return [
        "## Labels",
        f"Of the {name} set, in %:",
        table(("label", "precision", "recall", "F1", "count"), rows),
        "How the label of each row was classified in the validation set:",
        "![Confusion matrix](confusion.png)",
    ]


def table(head, rows):
    """A Markdown table."""
    lines = []
    for row in [head, ["---"] * len(head), *rows]:
        cells = [in_a_line(str(cell)).replace("|", "\\|") for cell in row]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(command("training", finish_trained, RunFolder(sys.argv[1])))
