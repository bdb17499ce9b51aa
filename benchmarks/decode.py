"""Compares decoding with CTranslate2, MarianMT and KerasHub: 32 tokens, the same sizes, two cores.

    python benchmarks/decode.py --quick                  # tutorial size, a minute
    python benchmarks/decode.py                          # everything
    python benchmarks/decode.py --minutes 4 --resume --folder DIR    # the next part of everything
    python benchmarks/decode.py --length                 # 64 against 256 tokens
    python benchmarks/decode.py --checkout old=../main --checkout new=.    # ours, before and after

Every engine runs alone, in a process that loads nothing else and ends before the next one starts. A
first pass measures every setting of each engine. Then the best two settings take turns, each turn
in new processes, and a figure is the median of its turns. Latency is one request at a time.
Throughput is two callers (or two processes), each of which sends its next request on an answer.

CTranslate2 has our weights; MarianMT and KerasHub have random weights of their own. Measure on a
machine that does nothing else.
"""

import argparse
import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import decode_engines as engines
import decode_page
import measure
from decode_turns import Process, Results, rows_of, turn
from exclusive import Exclusive

HERE = Path(__file__).parent
UNFINISHED = 3  # exit status
SEARCHED = (1, 32)  # sentences of a request, in the first pass
CHECKED = (engines.Ours("XLA", "float32", 2, 2), engines.Ours("plain", "float32", 1, 1))


def compare(results, options, folder):
    """Runs the first pass, then the turns; returns whether everything is measured."""
    until = time.monotonic() + options.minutes * 60
    for size in options.sizes:
        settings = settings_of(options)
        for number in range(1 + options.turns):
            batches = [b for b in options.batches if number or b in SEARCHED] or options.batches
            for setting in settings:
                rows = rows_of(setting, size, options.beams, batches, options.modes)
                if number:
                    rows = [row for row in rows if results.contenders(row, setting)]
                if all(results.has(row, setting, number) for row in rows):
                    continue
                if time.monotonic() > until:
                    return False
                turn(results, setting, rows, number, folder, options.exclusive)
                results.write()
    return True


def settings_of(options):
    """All settings of the chosen engines; for a quick run, the first of each."""
    count = 1 if options.quick else None
    return [s for engine in options.engines for s in engines.ENGINES[engine][:count]]


def prepare(folder, sizes, beams, *, tokens=(engines.TOKENS,), dtypes=("float32", "bfloat16"),
            peers=True, checkout=HERE.parent):  # fmt: skip
    """Writes what the engines load unless it exists; returns {"size,beams": operations}."""
    done = folder / "prepared.json"
    found = json.loads(done.read_text()) if done.exists() else {}
    for size in sizes:
        for beam in beams:
            if all(f"{size},{beam},{n}" in found for n in tokens):
                continue
            command = [sys.executable, HERE / "decode_prepare.py", folder, "--sizes", size]
            command += ["--beams", beam, "--tokens", *tokens, "--dtypes", *dtypes]
            command += ["--peers"] * peers
            path = os.pathsep.join([str(checkout), os.environ.get("PYTHONPATH", "")])
            made = subprocess.run(
                list(map(str, command)), env={**os.environ, "PYTHONPATH": path},
                capture_output=True, text=True,
            )  # fmt: skip
            if made.returncode:
                raise RuntimeError(f"decode_prepare.py failed: {made.stderr[-2000:]}")
            for line in made.stdout.splitlines():
                if line.startswith("@"):
                    entry = json.loads(line[1:])
                    key = "{size},{beams},{tokens}".format(**entry)
                    found[key] = entry["operations"]
            done.write_text(json.dumps(found))
    return found


def checkouts(options, folder):
    """Measures our exports of several checkouts in turn; prints medians and ratios to the first."""
    places = dict(text.split("=", 1) for text in options.checkout)
    results = {name: Results() for name in places}
    counts = {}
    for name, path in places.items():
        counts[name] = prepare(
            folder / name, options.sizes, options.beams, dtypes=["float32"], peers=False,
            checkout=Path(path).resolve(),
        )  # fmt: skip
    for number in range(1, 1 + max(options.turns, 1)):
        for size, setting in itertools.product(options.sizes, CHECKED):
            rows = rows_of(setting, size, options.beams, options.batches, ["latency"])
            for name in list(places)[:: (-1) ** number]:  # nobody is always first
                turn(results[name], setting, rows, number, folder / name, options.exclusive)
    return decode_page.checkouts(results, counts)


def growth(sizes, folder):
    """The time of 256 tokens divided by that of 64, at batches of 1 and 32, with greedy search."""
    rows, numbers = [], []
    for size in sizes:
        for graph, batch in [(g, b) for b in (1, 32) for g in ("XLA", "plain")]:
            times = []
            for tokens in (64, 256):
                setting = engines.Ours(graph, "float32", 1, 2, tokens)
                with Process(setting, size, folder) as ask:
                    ask(do="warm", batch=batch, beams=1)
                    answer = ask(do="latency", batch=batch, beams=1, seconds=3, best=None)
                times.append(answer[0]["value"])
            rows.append([f"{size}, batch {batch}, {graph}", *times, times[1] / times[0]])
            numbers.append({"case": rows[-1][0], "ms": times, "ratio": times[1] / times[0]})
            print(rows[-1], flush=True)
    return rows, numbers


def kv_heads(sizes):
    """Each size with all of its heads of keys and values, with a quarter of them, and with one."""
    from keras_tfmr import TransformerConfig

    heads = {size: TransformerConfig.preset(size).num_heads for size in sizes}
    return [(size, n) for size in sizes for n in sorted({heads[size], heads[size] // 4 or 1, 1})]


def grouped(sizes, folder, exclusive=None):
    """Time and memory of 256 tokens, 4 beams, with fewer heads of keys and values."""
    from keras_tfmr import TransformerConfig

    batch, beams, tokens, rows, numbers = 32, 4, 256, [], []
    for (size, kv_heads), graph in itertools.product(sizes, ("XLA", "plain")):
        setting = engines.Ours(graph, "float32", 2, 2, tokens)
        with Process(setting, f"{size}:{kv_heads}", folder, exclusive) as ask:
            before = ask(do="warm", batch=1, beams=1)[0]["peak_mib"]
            after = ask(do="warm", batch=batch, beams=beams)[0]["peak_mib"]
            value = ask(do="latency", batch=batch, beams=beams, seconds=3, best=None)[0]["value"]
        config = TransformerConfig.preset(size)
        width = 2 * config.decoder_layers * kv_heads * config.head_width  # keys and values
        caches = batch * beams * tokens * width * 4 / 2**20
        rows.append([size, kv_heads, graph, caches, after - before, value])
        fields = ("size", "kv_heads", "graph", "caches_mib", "growth_mib", "ms")
        numbers.append(dict(zip(fields, rows[-1], strict=True)))
        print(rows[-1], flush=True)
    return rows, numbers


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="one setting of each engine, once; writes nothing"
    )
    parser.add_argument("--sizes", nargs="+", help="default: tutorial base; with --quick: tutorial")
    parser.add_argument("--beams", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 4, 32])
    parser.add_argument(
        "--modes", nargs="+", default=["latency", "throughput"], choices=["latency", "throughput"]
    )
    parser.add_argument(
        "--engines", nargs="+", default=list(engines.ENGINES), choices=list(engines.ENGINES)
    )
    parser.add_argument("--turns", type=int, default=2, help="turns of the best settings")
    parser.add_argument("--resume", action="store_true", help="keep earlier measurements")
    parser.add_argument("--minutes", type=float, default=1e9, help="start nothing after this time")
    parser.add_argument("--folder", type=Path, help="keeps the exports for later calls")
    parser.add_argument("--prepare", action="store_true", help="only write the exports")
    parser.add_argument(
        "--exclusive", action="store_true", help="keep other work off the cores: see exclusive.py"
    )
    parser.add_argument("--length", action="store_true", help="measure time by output length")
    parser.add_argument("--grouped", action="store_true", help="measure heads of keys and values")
    parser.add_argument(
        "--checkout", action="append", metavar="NAME=PATH",
        help="compare only our exports, between checkouts; print the table, write nothing",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    options.sizes = options.sizes or (["tutorial"] if options.quick else ["tutorial", "base"])
    if options.quick:
        options.turns = 0
    return options


def main():
    options = parse()
    with contextlib.ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        if options.exclusive:
            options.exclusive = stack.enter_context(contextlib.closing(Exclusive()))
        if options.checkout:
            print(checkouts(options, folder))
        elif options.grouped:
            sizes = kv_heads(options.sizes)
            names = [f"{size}:{heads}" for size, heads in sizes]
            prepare(folder, names, [1, 4], tokens=(256,), dtypes=["float32"], peers=False)
            page, numbers = decode_page.grouped(*grouped(sizes, folder, options.exclusive))
            print(page)
            if not options.quick:
                measure.write("decode_grouped", page, numbers)
        elif options.length:
            prepare(folder, options.sizes, [1], tokens=(64, 256), dtypes=["float32"], peers=False)
            page, numbers = decode_page.length(*growth(options.sizes, folder))
            print(page)
            if not options.quick:
                measure.write("decode_length", page, numbers)
        else:
            return whole(options, folder)
    return 0


def whole(options, folder):
    """Runs the comparison; returns `UNFINISHED` if --minutes was not enough for all of it."""

    def keep(row, engine):
        chosen = row.size in options.sizes and row.beams in options.beams
        return options.resume or not (chosen and engine in options.engines)

    results = Results(None if options.quick else measure.RESULTS / "decode.json", keep)
    dtypes = {s.dtype for s in settings_of(options) if s.engine == "ours"} | {"float32"}
    peers = "ctranslate2" in options.engines
    counts = prepare(folder, options.sizes, options.beams, dtypes=dtypes, peers=peers)
    results.operations.update(counts)
    results.exclusive |= bool(options.exclusive)
    if options.prepare:
        return 0
    done = compare(results, options, folder)
    page = decode_page.comparison(results)
    print(page)
    if not options.quick:
        (measure.RESULTS / "decode.md").write_text(page)
    if not done:
        print("not finished: the same command with --resume goes on")
    return 0 if done else UNFINISHED


if __name__ == "__main__":
    sys.exit(main())
