"""Decoding against CTranslate2, MarianMT and KerasHub: 32 tokens, the same sizes, 2 threads.

    python benchmarks/decode.py --quick               # tutorial size, greedy, a minute
    python benchmarks/decode.py --sizes tutorial      # every column
    python benchmarks/decode.py --length              # 64 against 256 tokens
    python benchmarks/decode.py --mixed               # what XLA compiles for 1,000 sentences

Every engine runs in its own process and the processes take turns, call by call, so that whatever
slows the machine slows them all. Medians. CTranslate2 has our weights, and how many of its tokens
equal ours is said; MarianMT and KerasHub have random weights of their own.
"""

import argparse
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
    """Rows of the table and the numbers behind them."""
    rows, numbers, header = [], [], []
    for size in sizes:
        for beams in all_beams:
            setting = Setting(size, beams)
            found = measured(workers, setting, batches, rounds)
            header = sorted({column for column, _ in found}, key=order)
            for batch in batches:
                name = f"{size}, {'greedy' if beams == 1 else f'beam {beams}'}, batch {batch}"
                rows.append([name, *(found[column, batch][0] for column in header)])
                same = agreement(found, batch)
                for column in header:
                    median, first, _ = found[column, batch]
                    numbers.append(
                        {"size": size, "beams": beams, "batch": batch, "column": column,
                         "ms": median, "first_call_s": first, "same_tokens": same.get(column)}
                    )  # fmt: skip
                print(measure.table(["ms", *header], rows[-1:]), same, flush=True)
    return header, rows, numbers


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
    from keras_tfmr.text_graph import BATCH_BUCKETS, LENGTH_BUCKETS

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
    parser.add_argument("--quick", action="store_true", help="tutorial size, greedy, few rounds")
    parser.add_argument("--sizes", nargs="+", default=["tutorial", "base"])
    parser.add_argument("--beams", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--engines", nargs="+", default=list(engines.ENGINES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--length", action="store_true", help="time against output length")
    parser.add_argument("--mixed", action="store_true", help="count XLA's compilations")
    parser.add_argument("--name", help="write results/NAME.md and .json")
    options = parser.parse_args()
    if options.quick:
        options.sizes, options.beams, options.rounds = ["tutorial"], [1], 3
    if options.mixed:
        header = ["size", "requests", "compilations", "their seconds", "median of one, s"]
        return report(options.name, header, *mixed(options.sizes))
    with tempfile.TemporaryDirectory() as folder:
        workers = Workers(["in process"] if options.length else options.engines, folder)
        if options.length:
            rows, numbers = growth(workers, options.sizes)
            header = ["case", "64 tokens, ms", "256 tokens, ms", "ratio"]
        else:
            rounds = {1: options.rounds, 32: options.rounds}
            columns, rows, numbers = compare(workers, options.sizes, options.beams, [1, 32], rounds)
            header = ["ms for 32 tokens, median", *columns]
        workers.close()
    report(options.name, header, rows, numbers)


def report(name, header, rows, numbers):
    page = measure.table(header, rows)
    print(page)
    if name:
        measure.write(name, page, numbers)


if __name__ == "__main__":
    main()
