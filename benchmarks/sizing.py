"""Measures what a served translator needs: export, start, memory, latency, throughput.

    python benchmarks/sizing.py RUN --data validation.tsv --untrained base 8000

Each step is the command that users run: `serving/export.py`, which checks the export, and
`serving/server.py`, bound to one core, then to two and so on. It starts when the export is in the
file cache, and has started when it has answered one sentence; its warm-up is over by then. The
callers run on the cores that the server leaves free; if it leaves none, on its own. A second model
of the size that `--untrained` names has random weights, and its translations have 12 tokens.
Writes results/sizing.md and .json.
"""

import contextlib
import functools
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import harness
from decoding import called, untrained

PRECISIONS = ("float32", "int8")
ROWS = 32  # sentences of a large request


def export(run, models, precision):
    """Exports and checks."""
    used = harness.command("serving/export.py", run, "--output", models, "--precision", precision)
    size = sum(file.stat().st_size for file in models.rglob("*") if file.is_file())
    return {"rate": 1 / used["seconds"], "mb": size / 1e6, **used}


@contextlib.contextmanager
def bound(cores):
    """This thread, and what it starts, on these cores; everywhere, where none can be chosen."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def served(models, cores, texts, seconds):
    """Starts the development server on so many cores, and asks it."""
    from keras_tfmr.client import ServingClient

    usable = sorted(getattr(os, "sched_getaffinity", lambda _: range(harness.CORES))(0))
    script = harness.ROOT / "serving" / "server.py"
    flags = ["--port=0", "--rest_api_port=0", f"--model_base_path={models}"]
    begun = time.perf_counter()
    with bound(usable[:cores]):
        server = subprocess.Popen(
            [sys.executable, script, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    with server, contextlib.ExitStack() as at_an_error, bound(usable[cores:]):
        at_an_error.callback(server.kill)
        address = re.search(rb"gRPC on (\S+),", server.stdout.readline())[1].decode()
        while b"Serving version" not in (line := server.stderr.readline()):
            if not line:
                raise RuntimeError("the server did not start")
        with ServingClient(address, timeout=60) as client:
            client.translate(texts[:1])
            start = time.perf_counter() - begun
            single = [[number] for number in range(len(texts))]
            many = [list(range(len(texts)))[n : n + ROWS] for n in range(0, len(texts), ROWS)]
            ask = functools.partial(called, client.translate, texts)
            _, alone = ask(single, seconds, 1)
            callers, _ = ask(single, seconds, ROWS)
            rate, _ = ask(many, seconds, cores)
        server.terminate()
        used = harness.used(server)
    return {"rate": rate, "start": start, "ms": alone, "callers": callers, **used}


def random_weights(run, preset, vocab, texts, to):
    """In its own process: the peak of what starts a server counts as the server's."""
    return str(untrained(run, preset, vocab, texts, Path(to)))


def measured(args, folder):
    """Rows of all exports."""
    run = args.run or harness.tiny_run(folder)
    texts = harness.SENTENCES * 4
    if args.data:
        texts = [source for source, _ in harness.pairs_of(args.data)[: args.sentences]]
    models = {args.name: run}
    if args.untrained:
        preset, vocab = args.untrained
        task = {"run": run, "preset": preset, "vocab": vocab, "texts": texts[:64]}
        models[preset] = harness.alone(__file__, {**task, "to": folder / "untrained"})
    for model, preset in models.items():
        for precision in PRECISIONS[: 1 if args.quick else None]:
            sides, made = {}, folder / f"{model}-{precision}"
            print(f"{model}, {precision}", file=sys.stderr)
            exported = harness.summary("export", [export(preset, made, precision)])
            for cores in range(1, 1 + (1 if args.quick else harness.CORES)):
                serve = functools.partial(served, made, cores, texts, args.seconds)
                sides[cores] = {"default": serve}
            for cores, cell in harness.compare(sides, args.turns, quick=args.quick).items():
                yield {"model": model, "precision": precision, "cores": cores,
                       "export": exported, "server": cell}  # fmt: skip


def page(numbers):
    rows = []
    for row in numbers["rows"]:
        made, server = row["export"], row["server"]
        rows.append([
            row["model"], row["precision"], row["cores"], made["mb"], made["seconds"],
            f"{server['mib']:,.0f}", server["start"], server["ms"], float(server["callers"]),
            float(server["rate"]),
        ])  # fmt: skip
    header = ["model", "precision", "cores", "export, MB", "s to export", "memory, MiB",
              "s to start", "ms a sentence", f"sentences/s, {ROWS} callers",
              f"sentences/s, requests of {ROWS}"]  # fmt: skip
    return (
        f"Exports of keras_tfmr, asked for {numbers['sentences']:,} sentences in their file's "
        "order. Memory is the most that the server had; a start ends with the first answer. One "
        f"caller has one sentence a request; so has each of {ROWS} callers; large requests come "
        "from a caller per core. The development server does not batch the sentences of different "
        "callers.\n\n" + harness.table(header, rows)
    )


def main():
    parser = harness.parser(__doc__)
    add = parser.add_argument
    add("run", type=Path, nargs="?", help="folder of a finished run")
    add("--data", type=Path, metavar="FILE", help="pairs; the sources are translated")
    add("--name", default="small", help="of the run's model in the page")
    add("--untrained", nargs=2, metavar=("PRESET", "SUBWORDS"), help="a size, with random weights")
    add("--sentences", type=int, default=320, help="at most")
    add("--seconds", type=float, default=5, help="of a turn")
    args = harness.parsed(parser)
    if args.quick:
        args.seconds = 0.0
    elif not (args.run and args.data):
        parser.error("RUN and --data are needed")
    numbers = harness.about("tensorflow", "keras")
    with tempfile.TemporaryDirectory() as folder:
        numbers["rows"] = list(measured(args, Path(folder)))
    texts = len(harness.lines_of(args.data)) if args.data else 12
    numbers["sentences"] = min(args.sentences, texts)
    harness.report("sizing", "Sizing", page(numbers), numbers, quick=args.quick)


if __name__ == "__main__":
    harness.serve(random_weights) or main()
