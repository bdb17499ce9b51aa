"""Measures what a served translator needs: export, start, memory, and latency under load.

    python benchmarks/sizing.py RUN --data validation.tsv --untrained base 8000

Each step is the command that users run: `serving/export.py`, which checks the export,
`serving/server.py`, and the callers of `serving/load.py`, here on the server's own cores. The
server starts when the export is in the file cache, and is ready when it has answered one sentence;
its warm-up is over by then. Beside it, CTranslate2 has the same weights and search, and a thread
for each core; its callers are threads of its own process, without a network. A second model of the
size that `--untrained` names has random weights, and its translations have 12 tokens. Writes
results/sizing.md and .json, of which docs/plots.py draws the picture of the guide.
"""

import itertools
import sys
import tempfile
import time
from pathlib import Path

import harness
from decoding import ctranslate2, untrained

from serving import load
from serving.demo import own_server

PRECISIONS = ("float32", "int8")
CALLERS = (1, 2, 4, 8, 16, 32, 64)
TEXTS = (1, 32)  # in a request
BETWEEN = (2, 4, 8, 16)  # texts in a request, of the fewest and of the most callers
TOKENS = (12, 12)  # of each translation of an untrained model, at least and at most


def grid(ask, texts, cells, seconds):
    """A row of `load.measured` for each (texts in a request, callers)."""
    return [load.measured(ask, texts, size, callers, seconds) for size, callers in cells]


def served(models, texts, cells, seconds):
    """Starts the development server and asks it."""
    from keras_tfmr.client import ServingClient

    begun = time.perf_counter()
    with own_server(models, "default") as (server, address):
        with ServingClient(address, timeout=300, retry=False, batch_size=max(TEXTS)) as client:
            client.translate(texts[:1])
            ready = time.perf_counter() - begun
            rows = grid(client.translate, texts, cells, seconds)
        server.terminate()
        return {"ready": ready, "rows": rows, **harness.used(server)}


def peer(path, dtype, beams, tokens, texts, cells, seconds):
    """In its own process, which has its own peak of memory: CTranslate2, a thread for each core."""
    import resource

    begun = time.perf_counter()
    translate = ctranslate2(path, dtype, beams, 1, harness.CORES, *tokens)
    translate(texts[:1])
    ready = time.perf_counter() - begun
    rows = grid(translate, texts, cells, seconds)
    return {"ready": ready, "rows": rows,
            "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}  # fmt: skip


def exported(run, folder, precision):
    """Exports and checks: seconds and megabytes."""
    used = harness.command("serving/export.py", run, "--output", folder, "--precision", precision)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return {"seconds": used["seconds"], "mb": size / 1e6}


def sides(run, folder, texts, cells, seconds, tokens):
    """(engine, its export, what it needed and did) of one model."""
    for precision in PRECISIONS:
        made = exported(run, to := folder / precision, precision)
        yield f"keras_tfmr {precision}", made, served(to, texts, cells, seconds)
    if not harness.installed("ctranslate2"):
        return
    to, begun = folder / "ctranslate2", time.perf_counter()
    harness.command("serving/export.py", run, "--format", "ctranslate2", "--output", to)
    made = {"seconds": time.perf_counter() - begun, "mb": ""}
    task = {"path": to, "beams": 4, "tokens": tokens, "texts": texts}
    for precision in PRECISIONS:
        more = {"dtype": precision, "cells": cells, "seconds": seconds}
        yield f"CTranslate2 {precision}", made, harness.alone(__file__, task | more)


def measured(args, texts, folder):
    """Rows of all models and engines."""
    run = args.run or harness.tiny_run(folder)
    models = {args.name: (run, (0, 128))}
    if args.untrained:
        other = untrained(run, *args.untrained, texts[:64], folder / "untrained")
        models[args.untrained[0]] = other, TOKENS
    cells = list(itertools.product(TEXTS, args.callers))
    if not args.quick:
        ends = {min(args.callers), max(args.callers)}
        cells = sorted([*cells, *itertools.product(BETWEEN, ends)])
    for model, (run, tokens) in models.items():
        for engine, made, found in sides(
            run, folder / f"{model} exports", texts, cells, args.seconds, tokens
        ):
            print(model, engine, *map(load.line_of, found["rows"]), sep="\n", file=sys.stderr)
            yield {"model": model, "engine": engine, "export": made, **found}


def page(numbers):
    header = ["model", "engine", "export, MB", "s to export", "memory, MiB", "s to ready"]
    rows = [
        [row["model"], row["engine"], row["export"]["mb"], row["export"]["seconds"],
         f"{row['mib']:,.0f}", row["ready"]]
        for row in numbers["rows"]
    ]  # fmt: skip
    text = (
        f"{numbers['sentences']:,} sentences in their file's order, {numbers['words']:.1f} words "
        "on average, with 4 beams. Memory is the most that the process had. Each caller waits for "
        "its answer and asks again; callers and server share the cores. The development server "
        "does not batch the sentences of different callers.\n\n" + harness.table(header, rows)
    )
    for row in numbers["rows"]:
        lines = [load.HEADER, *map(load.line_of, row["rows"])]
        text += f"\n## {row['model']}, {row['engine']}\n\n" + "\n".join(lines) + "\n"
    return text


def main():
    parser = harness.parser(__doc__, turns=None)
    add = parser.add_argument
    add("run", type=Path, nargs="?", help="folder of a finished run, with 4 beams")
    add("--data", type=Path, metavar="FILE", help="pairs; the sources are translated")
    add("--name", default="small", help="of the run's model in the page")
    add("--untrained", nargs=2, metavar=("PRESET", "SUBWORDS"), help="a size, with random weights")
    add("--sentences", type=int, default=320, help="at most")
    add("--callers", type=int, nargs="+", default=CALLERS, help="callers at once")
    add("--seconds", type=float, default=10, help="of a line")
    args = harness.parsed(parser, "run", "data")
    if args.quick:
        args.seconds, args.callers = 0.0, (1, 2)
    texts = harness.SENTENCES * 4
    if args.data:
        texts = [source for source, _ in harness.pairs_of(args.data)[: args.sentences]]
    numbers = harness.about("tensorflow", "keras", "ctranslate2")
    numbers["sentences"] = len(texts)
    numbers["words"] = sum(len(text.split()) for text in texts) / len(texts)
    with tempfile.TemporaryDirectory() as folder:
        numbers["rows"] = list(measured(args, texts, Path(folder)))
    harness.report("sizing", "Sizing", page(numbers), numbers, quick=args.quick)


if __name__ == "__main__":
    harness.serve(peer) or main()
