"""Measures how long it takes to serve a trained run: its export, and the start of a server.

    python benchmarks/exports.py RUN

Each step is the command that users run, in a process of its own: `serving/export.py`, which checks
the export, and `serving/server.py` until it listens, which it does after its last warm-up answer. A
cold server finds no compiled programs. Each time is given in seconds and in processor seconds,
which other work on the machine hardly changes. Then each compiled size by itself: what it costs to
compile and to load, and what it saves per request of the run's own validation sentences. Then both
graphs under the numbers of threads that a server can be given, with these sentences in the order of
the file: one caller, and one for each core. Writes results/exports.md and .json.
"""

import argparse
import collections
import concurrent.futures
import functools
import itertools
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import measure

ROOT = Path(__file__).resolve().parents[1]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

KINDS = {"plain": ("--no_xla",), "compiled": ()}
GOALS = {
    "plain export": 25, "compiled export": 60, "server, plain": None, "server, warm": 15,
    "server, cold": 60,
}  # fmt: skip
GRAPHS = {"compiled": "serve", "plain": "plain,serve"}
THREADS = ((1, 1), (1, 2), (2, 2))  # within and between operations
BATCHES = (1, 4, 32)


def main():
    """Measures and writes the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="folder of a finished run")
    parser.add_argument("--turns", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="one turn; writes nothing")
    parser.add_argument("--sizes", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--threads", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.sizes:
        measure.answer(sizes(*args.sizes, args.run))
        return
    if args.threads:
        measure.answer(threads(*args.threads, args.run))
        return
    with tempfile.TemporaryDirectory() as folder:
        numbers = measured(args, Path(folder), 1 if args.quick else args.turns)
    print(page(numbers))
    if not args.quick:
        measure.write("exports", page(numbers), numbers)


def measured(args, folder, turns):
    """All figures."""
    run, seconds = args.run, collections.defaultdict(list)
    for turn in range(turns):
        for kind, options in KINDS.items():
            models = folder / kind / str(turn)
            seconds[f"{kind} export"].append(export(run, models, options))
    warm = folder / "compiled" / "0"
    cold = folder / "cold"
    shutil.copytree(warm, cold, ignore=shutil.ignore_patterns("xla_cache"))
    for _ in range(turns):
        for name, models in {"plain": folder / "plain" / "0", "warm": warm, "cold": cold}.items():
            seconds[f"server, {name}"].append(start(models, folder))
    metadata = json.loads((warm / "1" / "assets.extra" / "keras_tfmr.json").read_text())
    return {
        "machine": measure.machine(),
        "load": os.getloadavg()[1],
        "versions": measure.versions("tensorflow", "keras"),
        "parameters": metadata["parameters"],
        "bytes": {kind: size_of(folder / kind / "0") for kind in KINDS},
        "seconds": seconds,
        "sizes": of_sizes(warm / "1", run, folder),
        "threads": of_threads(warm / "1", run, folder, turns, 0.2 if args.quick else 3),
    }


def export(run, models, options):
    """Exports and checks; returns (seconds, processor seconds)."""
    command = [sys.executable, ROOT / "serving" / "export.py", run, "--to", models, *options]
    begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
    seconds, used = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime


def start(models, folder):
    """Starts a server; returns (seconds, processor seconds) until it listens."""
    from server_process import ServerProcess

    begun = time.perf_counter()
    flags = [f"--model_base_path={models}"]
    with ServerProcess(folder, *flags) as server:
        seconds = time.perf_counter() - begun
        fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
        return seconds, sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def size_of(folder):
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def of_sizes(version, run, folder):
    """What each compiled size costs and saves, with one process each for cold, warm and plain."""
    found, cache = {}, folder / "cache"
    for name, tags in {"cold": "serve", "warm": "serve", "plain": "plain,serve"}.items():
        found[name] = measure.alone(
            __file__, run, "--sizes", version, tags, environment=kept_programs(cache)
        )
    return found


def kept_programs(folder):
    return {"TF_XLA_FLAGS": f"--tf_xla_persistent_cache_directory={folder}"}


def of_threads(version, run, folder, turns, seconds):
    """Returns rows [graph, threads within, between, what `threads` returned in each turn]."""
    found = {case: [] for case in itertools.product(GRAPHS, THREADS)}
    for _ in range(turns):
        for (graph, numbers), answers in found.items():
            command = ("--threads", version, GRAPHS[graph], *numbers, seconds)
            environment = kept_programs(folder / "cache")
            answers.append(measure.alone(__file__, run, *command, environment=environment))
    return [[graph, *numbers, answers] for (graph, numbers), answers in found.items()]


def sizes(version, tags, run):
    """In this process: [rows, tokens, share of sentences, first answer s, then ms] of each."""
    from keras_tfmr.export.saved_session import SavedSession
    from keras_tfmr.text.graph import most_compiled

    metadata = json.loads((Path(version) / "assets.extra" / "keras_tfmr.json").read_text())
    buckets = metadata["source_length_buckets"]
    most = most_compiled(metadata["decoding"]["beams"])
    groups = by_length(run, buckets)
    total, rows = sum(map(len, groups.values())), []
    with SavedSession(version, tags.split(",")) as session:
        for tokens in buckets:
            # A size is compiled even if no sentence has it.
            texts = groups[tokens] or [" ".join(max(groups.values(), key=len)[: tokens // 10])]
            for batch in (rows for rows in metadata["batch_buckets"] if rows <= most):
                times = timed(session, texts, batch)
                share = len(groups[tokens]) / total
                rows.append([batch, tokens, share, times[0], statistics.median(times[1:]) * 1e3])
    return rows


def threads(version, tags, within, between, seconds, run):
    """In this process: [ms of one caller, sentences/s of a caller for each core] of each batch."""
    from tensorflow.core.protobuf import config_pb2

    from keras_tfmr.export.saved_session import SavedSession
    from training.run.folder import RunFolder

    config = config_pb2.ConfigProto(
        intra_op_parallelism_threads=int(within), inter_op_parallelism_threads=int(between)
    )
    texts, rows = RunFolder(run).sources(2000), []
    with SavedSession(version, tags.split(","), config) as session:
        ask = functools.partial(timed, session, texts)
        for batch in BATCHES:
            ask(batch)
            begun, times = time.perf_counter(), []
            while time.perf_counter() < begun + float(seconds):
                times += ask(batch)
            callers = len(os.sched_getaffinity(0))
            with concurrent.futures.ThreadPoolExecutor(callers) as pool:
                begun, calls = time.perf_counter(), 0
                while time.perf_counter() < begun + float(seconds):
                    calls += sum(map(len, pool.map(ask, [batch] * callers)))
                rate = batch * calls / (time.perf_counter() - begun)
            rows.append([statistics.median(times) * 1e3, rate])
    return rows


def by_length(run, buckets):
    """Returns {bucket: validation sources that fit it, but no smaller one}."""
    from training.run.folder import RunFolder

    folder = RunFolder(run)
    texts, groups = folder.sources(2000), {bucket: [] for bucket in buckets}
    for text, ids in zip(texts, folder.tokenizers()[0].encode(texts).to_list(), strict=True):
        fits = [bucket for bucket in buckets if len(ids) + 1 <= bucket]
        groups[fits[0] if fits else buckets[-1]].append(text)
    return groups


def timed(session, texts, batch, calls=8):
    """Seconds of the first request and of further ones, each of `batch` texts."""
    import numpy as np

    times = []
    for call in range(1 + calls):
        column = [texts[(call * batch + i) % len(texts)].encode() for i in range(batch)]
        begun = time.perf_counter()
        session.run("translate", {"text": np.array(column, object)})
        times.append(time.perf_counter() - begun)
    return times


def page(numbers):
    """The results as Markdown."""
    rows = [
        [name, *map(statistics.median, zip(*pairs, strict=True)), GOALS[name] or ""]
        for name, pairs in numbers["seconds"].items()
    ]
    sizes = numbers["sizes"]
    each = [
        [batch, tokens, f"{share:.1%}", cold, warm, compiled, plain[-1]]
        for (batch, tokens, share, cold, _), (*_, warm, compiled), plain in zip(
            sizes["cold"], sizes["warm"], sizes["plain"], strict=True
        )
    ]
    megabytes = {kind: size / 1e6 for kind, size in numbers["bytes"].items()}
    return (
        f"# Exports and starts\n\n{numbers['machine']}; {numbers['versions']}; "
        f"{numbers['parameters']:,} parameters. Seconds of whole commands, imports included, "
        f"under a load average of {numbers['load']:.1f}; the export is "
        f"{megabytes['plain']:.1f} MB, compiled {megabytes['compiled']:.1f} MB.\n\n"
        + measure.table(["medians", "s", "processor s", "goal, s"], rows)
        + "\nEach compiled size: the first answer when it is compiled, and when it is loaded; then "
        "milliseconds of a\nrequest, compiled and plain. `share` is that of the run's validation "
        "sentences of this length.\n\n"
        + measure.table(
            ["rows", "tokens", "share", "compiled, s", "loaded, s", "ms", "plain, ms"], each
        )
        + "\nThe sentences in the order of the file, in batches of 1, 4 and 32: milliseconds of a "
        "request of one caller, and\nsentences a second of a caller for each core; by the threads "
        "within and between operations, medians.\n\n"
        + measure.table(
            ["graph", "threads", *(f"{n}: ms" for n in BATCHES), *(f"{n}: /s" for n in BATCHES)],
            [
                [graph, f"{within} × {between}", *each_batch(turns, 0), *each_batch(turns, 1)]
                for graph, within, between, turns in numbers["threads"]
            ],
        )
    )


def each_batch(turns, place):
    return [statistics.median(turn[i][place] for turn in turns) for i in range(len(BATCHES))]


if __name__ == "__main__":
    main()
