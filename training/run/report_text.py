"""The text of report.md, by a template with its tables."""

import statistics

from training.scores import SCORES, class_scores

REPORT = """# {name}

`{command}`

{summary}
{beginning}
## Results

{scores}

The run made {results[steps]:,} updates in {results[minutes]:.1f} minutes, at {speed:,.0f} {unit} \
a second, within {results[peak_memory_mib]:,} MiB of memory. The weights that scored best were \
evaluated{how}.

![Loss and validation scores by minutes](curves.png)
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


def report(settings, folder, summary, state, results, evaluators, everyday, answers, file):
    """The text of report.md.

    Args:
        settings, folder, state: The run's settings, folder and state.
        summary: Lines about its data.
        results: The contents of results.json.
        evaluators: {set: its `Evaluator`}, the last one for the labels.
        everyday: Rows of (source, reference, translation), or [].
        answers: A table of some validation texts.
        file: The name of the file that has all of them.
    """
    config, task = folder.read_config(), evaluators["validation"].task
    scores = []
    for score in task.scores:
        name, form = SCORES[score]
        scores.append((name, *(form.format(results[f"{part}_{score}"]) for part in evaluators)))
    how = ""
    if settings.task == "translation":
        how = (
            f" with beam {settings.num_beams}, cased and detokenised, as sacrebleu does by default"
        )
    head = ("source", "reference", "translation")
    last = [*evaluators][-1]
    return REPORT.format(
        name=folder.path.name,
        command=config["command"],
        summary="  \n".join(summary.splitlines()),
        beginning=beginning(config["start"]) if "start" in config else "",
        scores=table(("", *evaluators), scores),
        results=results,
        speed=statistics.median([row["tokens_per_second"] for row in state.rows] or [0]),
        unit=task.unit,
        how=how,
        everyday=EVERYDAY.format(table=table(head, everyday)) if everyday else "",
        labels=labels(evaluators[last], last) if settings.task == "classify" else "",
        samples=answers,
        file=file,
    )


def beginning(start):
    """The run that a fine-tuned run began from, and the licence of a published model."""
    first, licence = start, ""
    while first and "name" not in first.get("published", ()):
        first = first.get("start")
    if first:
        licence = LICENCE.format(name=first["published"]["name"])
    return BEGINNING.format(**start, licence=licence)


def labels(evaluator, name):
    """The section about each label."""
    rows = []
    names = evaluator.task.tokenizers[1].names
    for label, scores in zip(names, class_scores(evaluator.table), strict=True):
        precision, recall, f1, count = scores
        percents = [f"{100 * value:.1f}" for value in (precision, recall, f1)]
        rows.append((label, *percents, int(count)))
    head = ("label", "precision", "recall", "F1", "count")
    return LABELS.format(name=name, table=table(head, rows))


def table(head, rows):
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(in_a_cell(value) for value in line) + " |" for line in lines)


def in_a_cell(value):
    """A value as a table of Markdown can hold it."""
    return str(value).replace("|", "\\|").replace("\n", " ")
