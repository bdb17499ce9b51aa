"""The tables of benchmarks/decode.py, from its cells."""

import statistics

import decode_engines as engines
import measure
from decode_turns import QUIET

SIZES = ("tiny", "tutorial", "base", "big")
OURS = [f"ours, {graph} {dtype}" for graph in ("XLA", "plain") for dtype in ("float32", "bfloat16")]
PEERS = ["CTranslate2 float32", "CTranslate2 int8", "MarianMT", "KerasHub BART"]
PACKAGES = ("tensorflow", "keras", "ctranslate2", "torch", "transformers", "keras-hub")


def order(row):
    return SIZES.index(row.size), row.beams, row.batch


def best_cells(results):
    """Returns {row: {column: (value, setting)}} with the best median of each column."""
    found = {}
    for (row, setting), cell in results.cells.items():
        median = statistics.median(cell["turns"].values())
        rank = median if row.mode == "latency" else -median
        column = found.setdefault(row, {})
        if cell["column"] not in column or rank < column[cell["column"]][0]:
            column[cell["column"]] = rank, median, setting
    return {
        row: {column: cell[1:] for column, cell in found[row].items()}
        for row in sorted(found, key=order)
    }


def ratio(row, cells, ours, theirs):
    """Our best column's speed divided by the best of the others'; "" if either is missing."""
    sides = [[cells[c][0] for c in columns if c in cells] for columns in (ours, theirs)]
    if not all(sides):
        return ""
    if row.mode == "latency":
        return min(sides[1]) / min(sides[0])
    return max(sides[0]) / max(sides[1])


def comparison(results):
    """The whole page."""
    parts = [introduction(results)]
    cells = best_cells(results)
    for mode, title in (
        ("latency", "Latency: milliseconds of one request at a time"),
        ("throughput", "Throughput: sentences a second with both cores busy"),
    ):
        rows = {row: found for row, found in cells.items() if row.mode == mode}
        if rows:
            parts += [f"## {title}\n", *tables(rows)]
    parts.append(counted(results))
    return "\n".join(part for part in parts if part)


def tables(rows):
    columns = [c for c in OURS + PEERS if any(c in found for found in rows.values())]
    short = {row: str(row).rsplit(", ", 1)[0] for row in rows}
    values = [
        [short[row], *(found[c][0] if c in found else "" for c in columns)]
        for row, found in rows.items()
    ]
    settings = [
        [short[row], *(str(found[c][1]) if c in found else "" for c in columns)]
        for row, found in rows.items()
    ]
    yield measure.table(["", *columns], values)
    if any(c in columns for c in OURS) and any(c in columns for c in PEERS):
        yield "How many times as fast as the peer at its best ours is:\n"
        header = ["", "float32: CTranslate2 float32", "any: CTranslate2 of any kind",
                  "float32: MarianMT", "float32: KerasHub BART"]  # fmt: skip
        yield measure.table(header, list(ratios(rows, short)))
    yield "The settings of these cells:\n"
    yield measure.table(["", *columns], settings)


def ratios(rows, short):
    for row, found in rows.items():
        for graph in ("XLA", "plain"):
            single, any_kind = [f"ours, {graph} float32"], [c for c in OURS if graph in c]
            yield [
                f"{short[row]}, {graph}",
                ratio(row, found, single, ["CTranslate2 float32"]),
                ratio(row, found, any_kind, [c for c in PEERS if c.startswith("CTranslate2")]),
                ratio(row, found, single, ["MarianMT"]),
                ratio(row, found, single, ["KerasHub BART"]),
            ]


def introduction(results):
    how = "Some cells with `--exclusive`, beside other work. " if results.exclusive else ""
    return (
        f"# Decoding {engines.TOKENS} tokens\n\n`python benchmarks/decode.py`: {engines.SOURCE} "
        f"source tokens, {engines.TOKENS} output tokens, vocabulary {engines.VOCAB}; "
        f"{measure.machine()}; {measure.versions(*PACKAGES)}. {how}Each engine alone in a process "
        "of its own, at the best of its settings for each cell, medians of processes that end: "
        f"{turns(results)}. Ours is an exported SavedModel in a session, `XLA` compiled, `plain` "
        "not. CTranslate2 has our weights, MarianMT and KerasHub's BART random ones of their own."
        "\n\nSettings: ours, threads within an operation × between operations; CTranslate2, "
        "translators × threads of each, and `KMP_BLOCKTIME` where it is set; the others, threads, "
        "and processes where there are two.\n"
    )


def turns(results):
    """States how many processes measured the best cells, and how many of them were disturbed."""
    best = [
        results.cells[row, setting]
        for row, found in best_cells(results).items()
        for _, setting in found.values()
    ]
    counts = sorted({len(cell["turns"]) for cell in best})
    text = " or ".join(map(str, counts)) + " a cell"
    disturbed = sum(cell.get("others", 0) > QUIET for cell in best)
    return text + f", {disturbed} of {len(best)} of them disturbed" * bool(disturbed)


def counted(results):
    """States the share of equal tokens and the operations of a step."""
    shares = {}
    for cell in results.cells.values():
        if "same" in cell:
            shares.setdefault(cell["column"], []).append(cell["same"])
    text = ", ".join(
        f"{column} {min(found):.0%}"
        + (f" to {max(found):.0%}" if f"{min(found):.0%}" != f"{max(found):.0%}" else "")
        for column, found in sorted(shares.items())
    )
    text = f"Of the tokens written, equal to those of our plain float32 graph: {text}.\n" * bool(
        text
    )
    steps = ", ".join(
        f"{key.rsplit(',', 1)[0].replace(',', ' with beams ')}: {count['plain']}"
        for key, count in results.operations.items()
        if "plain" in count
    )
    return text + f"\nOperations in one step of the plain graph: {steps}.\n" * bool(steps)


def checkouts(results, counts):
    """Medians of each checkout and its ratio to the first."""
    names = list(results)
    lines = []
    for key in results[names[0]].cells:
        row, setting = key
        medians = [statistics.median(results[n].cells[key]["turns"].values()) for n in names]
        best = [min(results[n].cells[key]["turns"].values()) for n in names]
        lines.append(
            [f"{row}, {setting.graph}", *medians, *(m / medians[0] for m in medians[1:]),
             *(b / best[0] for b in best[1:])]
        )  # fmt: skip
    header = ["ms", *names, *(f"{n} / {names[0]}" for n in names[1:])]
    header += [f"the same of the least of the turns, {n}" for n in names[1:]]
    steps = [
        [f"{key}, {graph}", *(counts[n][key][graph] for n in names)]
        for key in counts[names[0]]
        for graph in counts[names[0]][key]
    ]
    text = measure.table(header, lines) + "\nOperations in one step (size, beams, tokens):\n\n"
    return text + measure.table(["", *names], steps)


def length(rows, numbers):
    text = "# Time against output length\n\n`python benchmarks/decode.py --length`: greedy, "
    text += "float32, one thread within an operation; caches grow with what is decoded.\n\n"
    header = ["case", "64 tokens, ms", "256 tokens, ms", "ratio"]
    return text + measure.table(header, rows), numbers


def grouped(rows, numbers):
    text = "# Heads of keys and values\n\n`python benchmarks/decode.py --grouped`: 256 tokens, 4 "
    text += "beams, 32 sentences, float32; the heads of queries share those of keys and values.\n\n"
    header = ["size", "heads", "graph", "self-attention's caches, MiB", "peak grows by, MiB", "ms"]
    return text + measure.table(header, rows), numbers
