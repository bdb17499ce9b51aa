"""Decoding against CTranslate2, MarianMT and KerasHub: 32 tokens, the same sizes, 2 threads.

    python benchmarks/decode.py --quick               # tutorial size, greedy, a minute
    python benchmarks/decode.py --sizes tutorial      # every column; other sizes' results stay
    python benchmarks/decode.py --length              # 64 against 256 tokens
    python benchmarks/decode.py --mixed               # what XLA compiles for 1,000 sentences

Every engine runs in its own process and the processes take turns, call by call, so that whatever
slows the machine slows them all. Medians. CTranslate2 has our weights, and how many of its tokens
equal ours is said; MarianMT and KerasHub have random weights of their own.
"""

import argparse
import json
import multiprocessing
import os
import random
import statistics
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ["OMP_NUM_THREADS"] = "2"

import decode_engines as engines
import measure
from decode_engines import Setting
from measure import table


def worker(engine, pipe, folder):
    """Answers (setting, batch) with the seconds of one call, or its ids; one setting at a time."""
    made, calls = None, {}
    while (request := pipe.recv()) is not None:
        setting, batch, column = request
        if setting != made:
            made, calls = setting, engines.ENGINES[engine](setting, folder)
        if column is None:
            pipe.send(list(calls))
            continue
        source = engines.source(batch)
        pipe.send(turn(lambda call=calls[column], source=source: call(source)))


def turn(call):
    """Seconds of each of three calls in a row, after one that wakes threads and caches, and the
    ids. The pause before lets the threads of the engine that had its turn stop spinning."""
    time.sleep(0.3)
    seconds = []
    for _ in range(4):
        before = time.perf_counter()
        ids = call()
        seconds.append(time.perf_counter() - before)
    return seconds, ids


class Workers:
    """One process per engine; a call names the engine, the rest is what the worker answers."""

    def __init__(self, names, folder):
        context, self.pipes, self.processes = multiprocessing.get_context("spawn"), {}, []
        for name in names:
            here, there = context.Pipe()
            process = context.Process(target=worker, args=(name, there, folder), daemon=True)
            process.start()
            self.pipes[name] = here
            self.processes.append(process)

    def __call__(self, engine, *request):
        self.pipes[engine].send(request)
        return self.pipes[engine].recv()

    def close(self):
        for pipe in self.pipes.values():
            pipe.send(None)
        for process in self.processes:
            process.join(20)


def measured(workers, setting, batches, rounds, skip=()):
    """{(column, batch): (median ms, first call s, ids)} of every engine's columns."""
    columns = [(e, c) for e in workers.pipes for c in workers(e, setting, 0, None) if c not in skip]
    found = {}
    for batch in batches:
        first = {key: workers(key[0], setting, batch, key[1]) for key in columns}
        times = {key: [] for key in columns}
        for _ in range(rounds[batch]):
            for key in columns:
                times[key] += workers(key[0], setting, batch, key[1])[0][1:]
        for key, (seconds, ids) in first.items():
            found[key[1], batch] = (statistics.median(times[key]) * 1e3, seconds[0], ids)
    return found


def agreement(found, batch):
    """Share of CTranslate2's and the other precisions' tokens that equal the float32 graph's."""
    reference = found["graph", batch][2]
    return {
        column: float((ids[:, : reference.shape[1]] == reference).mean())
        for (column, size), (_, _, ids) in found.items()
        if size == batch and not column.startswith(("MarianMT", "KerasHub"))
        and ids.shape == reference.shape
    }  # fmt: skip


def compare(workers, sizes, all_beams, batches, rounds):
    """A record for every size, beam width, batch size and column."""
    numbers = []
    for size in sizes:
        for beams in all_beams:
            setting = Setting(size, beams)
            found = measured(workers, setting, batches, rounds)
            for batch in batches:
                same = agreement(found, batch)
                for column in sorted({column for column, _ in found}, key=order):
                    median, first, _ = found[column, batch]
                    numbers.append(
                        {"size": size, "beams": beams, "batch": batch, "column": column,
                         "ms": median, "first_call_s": first, "same_tokens": same.get(column)}
                    )  # fmt: skip
            print(comparison(numbers[-len(found) :]), flush=True)
    return numbers


def comparison(numbers):
    """The records as tables: milliseconds, how many times as fast as peers, equal tokens."""
    cells = {}
    for record in numbers:
        case = record["size"], record["beams"], record["batch"]
        cells.setdefault(case, {})[record["column"]] = record
    columns = sorted({record["column"] for record in numbers}, key=order)
    peers = {
        "the better CTranslate2": [c for c in columns if c.startswith("CTranslate2")],
        "MarianMT": [c for c in columns if c == "MarianMT"],
        "KerasHub BART": [c for c in columns if c == "KerasHub BART"],
    }
    times, ratios = [], []
    for (size, beams, batch), row in cells.items():
        name = f"{size}, {'greedy' if beams == 1 else f'beam {beams}'}, batch {batch}"
        ms = {column: record["ms"] for column, record in row.items()}
        times.append([name, *(ms.get(column, "") for column in columns)])
        for ours in ("XLA", "graph"):
            best = min((t for c, t in ms.items() if ours in c.split(", ")), default=float("nan"))
            others = [min((ms[c] for c in of if c in ms), default=None) for of in peers.values()]
            ratios.append([f"{name}, {ours}", *(t / best if t else "" for t in others)])
    text = table(["ms", *columns], times)
    text += "\nHow many times as fast as the peers the faster of ours in float32 is (in process, "
    text += "SavedModel):\n\n" + table(["", *peers], ratios) + "\nOf the tokens written, equal "
    return text + f"to those of our float32 graph: {equal_tokens(numbers, columns)}.\n"


def equal_tokens(numbers, columns):
    """The range over all cases of each column that has our weights, in words."""
    shares = []
    for column in columns:
        same = [r["same_tokens"] for r in numbers if r["column"] == column]
        if None not in same and column != "graph":
            low, high = f"{min(same):.0%}", f"{max(same):.0%}"
            shares.append(f"{column} {low if low == high else f'{low} to {high}'}")
    return ", ".join(shares)


def order(column):
    names = ("XLA", "graph", "SavedModel", "CTranslate2", "MarianMT", "KerasHub")
    return next(i for i, name in enumerate(names) if column.startswith(name)), column


def growth(workers, sizes):
    """Time of 256 tokens over that of 64, at batch 1 and 32."""
    rows, numbers = [], []
    for size in sizes:
        for batch in (1, 32):
            for column in ("XLA", "graph"):
                times = []
                for tokens in (64, 256):
                    setting = Setting(size, 1, max_length=256, tokens=tokens)
                    skip = {c for c, *_ in engines.COLUMNS} - {column}
                    found = measured(workers, setting, [batch], {batch: 3}, skip)
                    times.append(found[column, batch][0])
                rows.append([f"{size}, batch {batch}, {column}", *times, times[1] / times[0]])
                numbers.append({"case": rows[-1][0], "ms": times, "ratio": times[1] / times[0]})
                print(rows[-1], flush=True)
    return rows, numbers


def mixed(sizes):
    """Compilations that 1,000 sentences in requests of 1 to 40 cause, padded to our buckets."""
    from keras_tfmr.text.graph import BATCH_BUCKETS, LENGTH_BUCKETS

    rng, rows, numbers = random.Random(0), [], []
    lengths = [min(128, max(2, round(rng.lognormvariate(2.9, 0.6)))) for _ in range(1000)]
    for size in sizes:
        call = engines.in_process(Setting(size, 1, max_length=64), None)["XLA"]
        waiting, shapes, first, again = list(lengths), {}, [], []
        while waiting:
            request = [waiting.pop() for _ in range(min(len(waiting), rng.randint(1, 40)))]
            batch = next(rung for rung in BATCH_BUCKETS if rung >= len(request))
            length = next(rung for rung in LENGTH_BUCKETS if rung >= max(request))
            before = time.perf_counter()
            call(engines.source(batch, length))
            seconds = time.perf_counter() - before
            (again if (batch, length) in shapes else first).append(seconds)
            shapes[batch, length] = shapes.get((batch, length), 0) + 1
        rows.append(
            [size, len(first) + len(again), len(first), sum(first), statistics.median(first)]
        )
        numbers.append({"size": size, "shapes": {str(key): n for key, n in shapes.items()},
                        "first_s": first, "again_s": again})  # fmt: skip
    return rows, numbers


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="tutorial size, greedy, no files")
    parser.add_argument("--sizes", nargs="+", default=["tutorial", "base"])
    parser.add_argument("--beams", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--engines", nargs="+", default=list(engines.ENGINES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--length", action="store_true", help="time against output length")
    parser.add_argument("--mixed", action="store_true", help="count XLA's compilations")
    options = parser.parse_args()
    if options.quick:
        options.sizes, options.beams, options.rounds = ["tutorial"], [1], 3
    if options.mixed:
        name, text, numbers = "decode_mixed", *mixed_page(*mixed(options.sizes))
    else:
        with tempfile.TemporaryDirectory() as folder:
            workers = Workers(["in process"] if options.length else options.engines, folder)
            if options.length:
                name, text, numbers = "decode_length", *length_page(*growth(workers, options.sizes))
            else:
                rounds = {1: options.rounds, 32: options.rounds}
                numbers = compare(workers, options.sizes, options.beams, [1, 32], rounds)
                name, numbers = "decode", merged(numbers)
                text = decode_page(numbers)
            workers.close()
    print(text)
    if not options.quick:
        measure.write(name, text, numbers)


def merged(numbers):
    """The records of this run, and those of earlier runs for other cases."""
    file = measure.RESULTS / "decode.json"
    before = json.loads(file.read_text()) if file.exists() else []
    new = {(r["size"], r["beams"]) for r in numbers}
    kept = [r for r in before if (r["size"], r["beams"]) not in new]
    sizes = ["tiny", "tutorial", "base", "big"]
    return sorted(kept + numbers, key=lambda r: (sizes.index(r["size"]), r["beams"], r["batch"]))


def decode_page(numbers):
    packages = ("tensorflow", "keras", "ctranslate2", "torch", "transformers", "keras-hub")
    return (
        f"# Decoding {engines.TOKENS} tokens\n\n`python benchmarks/decode.py`: {engines.SOURCE} "
        f"source tokens, {engines.TOKENS} output tokens, vocabulary {engines.VOCAB}, "
        f"{engines.THREADS} threads; {measure.machine()}; {measure.versions(*packages)}. Medians, "
        "a process for each engine, the processes taking turns. XLA and graph are ours; CTranslate2"
        " has our weights, MarianMT and KerasHub's BART random ones of their own. CTranslate2's "
        "threads lose several times their speed beside anything else that runs, be it the "
        "kernel's: 6.1 ms were seen on a wholly idle machine for `tutorial`, greedy, batch 1.\n\n"
        + comparison(numbers)
    )


def length_page(rows, numbers):
    text = "# Time against output length\n\n`python benchmarks/decode.py --length`: greedy, "
    text += "float32; caches grow with what is decoded.\n\n"
    return text + table(["case", "64 tokens, ms", "256 tokens, ms", "ratio"], rows), numbers


def mixed_page(rows, numbers):
    text = "# What XLA compiles\n\n`python benchmarks/decode.py --mixed`: 1,000 sentences of 2 to"
    text += " 128 tokens in requests of 1 to 40, padded to our buckets.\n\n"
    header = ["size", "requests", "compilations", "their seconds", "median of one, s"]
    return text + table(header, rows), numbers


if __name__ == "__main__":
    main()
