"""report.md: the results of a run, for people."""

SAMPLES = 12


def report(folder, rows, results, data):
    """The text of report.md.

    Args:
        folder: The `RunFolder`, with its other files written.
        rows: The rows of history.csv.
        results: What results.json will say.
        data: The `prepare.Data`.
    """
    config = folder.read_config()
    parts = [
        f"# {folder.path.name}",
        f"`{config['command']}`",
        data.summary,
        *beginning(config),
        "## Results",
        table(("", "BLEU", "chrF"), scores(results)),
        "Cased and detokenised, as sacrebleu measures by default, with beam "
        f"{config['arguments']['beams']}. The run trained for {results['minutes']} minutes and "
        f"{results['steps']:,} updates, at {speed(rows):,} real target tokens a second, with "
        f"{results['peak_memory_mib']:,} MiB of memory at most.",
        "![curves](curves.png)",
        "## Translations",
        table(("source", "reference", "translation"), samples(folder)),
        "[translations.tsv](translations.tsv) has the whole validation set.",
        "## Attention",
        "What each token of a translation attended to, by head of the last decoder layer.",
        "![attention](attention.png)",
        "## Model and settings",
        table(("", ""), sorted(config["model"]["config"].items())),
        table(("", ""), sorted(config["training"].items())),
        table(("", ""), sorted(config["versions"].items())),
    ]
    return "\n\n".join(parts) + "\n"


def beginning(config):
    """The run that a fine-tuned run began from, and the licence of a published model."""
    start = config.get("start")
    if start is None:
        return []
    lines = [
        f"The run began with the weights of `{start['path']}` (sha256 {start['weights_sha256']})."
    ]
    while start and "published" not in start:
        start = start.get("start")
    if start:
        lines.append(
            f"They are those of the published model {start['published']['name']}, whose licence "
            "applies to this model too. The models of OPUS-MT are published by the Language "
            "Technology Research Group at the University of Helsinki under CC BY 4.0 "
            "(https://creativecommons.org/licenses/by/4.0/): name the group and the licence, and "
            "say that the model was changed."
        )
    return [" ".join(lines)]


def scores(results):
    """The rows of the table of results."""
    names = [name for name in ("validation", "test") if f"{name}_bleu" in results]
    return [(name, results[f"{name}_bleu"], results[f"{name}_chrf"]) for name in names]


def speed(rows):
    """The median of the real target tokens a second, 0 without rows."""
    speeds = sorted(row["tokens_per_second"] for row in rows if "tokens_per_second" in row)
    return speeds[len(speeds) // 2] if speeds else 0


def samples(folder):
    """Source, reference and translation of a few evenly spaced sentences."""
    lines = folder.translations.read_text().splitlines()[1:]
    chosen = lines[:: max(1, len(lines) // SAMPLES)][:SAMPLES]
    return [line.split("\t")[:3] for line in chosen]


def table(head, rows):
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell(value) for value in line) + " |" for line in lines)


def cell(value):
    """A value as text, escaped for a table."""
    return str(value).replace("|", "\\|").replace("\n", " ")
