"""Measures what several workers send and compute, and how many of them pay off.

    python benchmarks/cluster.py --parts bytes links
    python benchmarks/cluster.py --parts overhead sums

`bytes` reads from the loopback's counters how many bytes a worker sends for an update. Run it where
nothing else uses the loopback (`unshare -rn sh -c "ip link set lo up; python benchmarks/cluster.py
…"`). `links` computes how many workers pay off from the bytes of an update and published link
speeds. `overhead` compares two workers of one thread each with one worker of two threads, on the
same global batches. `sums` measures how long two workers take to sum gradients of `base`, in each
type of `--reduce_dtype`. results/cluster.json keeps each part until it is measured again.
"""

import argparse
import csv
import json
import math
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import measure

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "cluster.json"
LINKS = {  # gigabits a second, as their standards and vendors publish them
    "Ethernet, 1 Gbit/s": 1,
    "Ethernet, 10 Gbit/s": 10,
    "Ethernet, 100 Gbit/s": 100,
    "InfiniBand NDR, 400 Gbit/s": 400,
}
SECONDS = (0.1, 1, 10, 60)  # of an update by one worker alone
EFFICIENCY = 0.8  # the share of its time that a worker has to compute
VOCAB = 32_000
SIZE = ("--preset", "small", "--vocab_size", "8000")


def main(arguments=None):
    """Measures the parts that the command line names, and writes results/cluster.{json,md}."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--updates", type=int, default=60, metavar="N", help="default: 60")
    parser.add_argument("--quick", action="store_true", help="5 updates; writes nothing")
    parser.add_argument("--summing", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.summing:
        return summing(options.updates)
    updates = 5 if options.quick else options.updates
    numbers = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for part in options.parts:
        numbers[part] = PARTS[part](updates)
    numbers["machine"] = measure.machine()
    if options.quick:
        print(page(numbers))
    else:
        measure.write("cluster", page(numbers), numbers)


def sent(updates):
    """What each of two workers sends for an update, and the bytes of the gradients it is about.

    The difference of a long and a short run, so that what is sent once does not count.
    """
    with tempfile.TemporaryDirectory() as directory:
        totals = []
        for count in (updates, 2 * updates):
            before = loopback()
            run(Path(directory), 2, count)
            totals.append(loopback() - before)
        config = json.loads((Path(directory) / f"2-{updates}" / "config.json").read_text())
    from training.run.models import make_model

    model = make_model(config["model"]["kind"], config["model"]["config"])
    each = (totals[1] - totals[0]) / updates / 2
    return {"workers": 2, "sent": round(each), "gradients": 4 * model.count_params()}


def loopback():
    """Bytes that the loopback has sent so far."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == "lo":
            return int(counters.split()[8])
    raise OSError("there is no loopback")


def links(_):
    """Returns {preset: {"bytes": bytes of its gradients, link: {seconds per update: workers}}}."""
    found = {}
    for preset in ("base", "big"):
        size = 4 * parameters(preset)
        counts = {
            name: {str(seconds): most_workers(size, gigabits, seconds) for seconds in SECONDS}
            for name, gigabits in LINKS.items()
        }
        found[preset] = {"bytes": size, "links": counts}
    return found


def most_workers(size, gigabits, seconds):
    """How many share an update until each computes for less than `EFFICIENCY` of its time.

    One alone computes for so many seconds; n of them for a part of n each, and then send
    2 (n - 1) / n of the bytes in a ring. That the two could overlap is not counted on.
    """
    sending = size * 8 / (gigabits * 1e9)
    return int(1 + seconds * (1 / EFFICIENCY - 1) / (2 * sending))


def parameters(preset):
    """The number of weights of a Transformer with a joint vocabulary of `VOCAB` subwords."""
    return sum(math.prod(shape) for shape in shapes(preset))


def shapes(preset):
    """The shapes of its weights."""
    from training.run.settings import TrainingConfig
    from training.run.task import Translation

    task = Translation(TrainingConfig(preset=preset, vocab_size=VOCAB).resolved())
    return [weight.shape for weight in task.model(task.config()).weights]


def overhead(updates):
    """Target tokens per second of both: the last row of history.csv, after the first epoch."""
    with tempfile.TemporaryDirectory() as directory:
        return {str(workers): speed(Path(directory), workers, updates) for workers in (1, 2)}


def speed(directory, workers, updates):
    """The target tokens per second of one run, without its evaluations."""
    with (run(directory, workers, updates) / "history.csv").open() as file:
        return [float(row["tokens_per_second"]) for row in csv.DictReader(file)][-1]


def run(directory, workers, updates):
    """Trains on the phrasebook with workers that share two threads; returns the run folder."""
    folder = directory / f"{workers}-{updates}"
    launch(
        workers,
        ROOT / "training" / "train_pt_en.py", "--run", folder, *SIZE, "--steps", updates,
        "--evaluate_steps", 10**6, "--evaluate_pairs", 8, "--no_export",
    )  # fmt: skip
    return folder


def launch(workers, *command):
    """Runs a command once for each worker, which share two threads; returns the first's output."""
    threads = str(2 // workers)
    ports = free_ports(workers)
    processes = []
    for index in range(workers):
        task = {"type": "worker", "index": index}
        config = {"cluster": {"worker": [f"127.0.0.1:{p}" for p in ports]}, "task": task}
        environment = {
            **os.environ, "TF_CONFIG": json.dumps(config), "TF_NUM_INTRAOP_THREADS": threads,
            "TF_NUM_INTEROP_THREADS": "1", "OMP_NUM_THREADS": threads,
        }  # fmt: skip
        processes.append(
            subprocess.Popen(
                [sys.executable, *map(str, command)], env=environment, cwd=ROOT,
                stdout=subprocess.PIPE, text=True,
            )
        )  # fmt: skip
    output = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise RuntimeError("a worker failed")
    return output[0]


def sums(updates):
    """Returns {type: {"seconds": for a sum over two workers, "cpu_seconds": of each of them}}."""
    words = ("--summing", "--updates", min(updates, 15))
    return json.loads(launch(2, __file__, *words).splitlines()[-1])


def summing(updates):
    """What a worker of `sums` does: prints the medians."""
    import numpy as np
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    # Tensors, which a graph reads; of arrays it would make constants, and cast them only once.
    values = [tf.constant(np.random.normal(size=n), tf.float32) for n in shapes("base")]

    def summed(dtype):
        def of_replica():
            sent = [tf.cast(value, dtype) for value in values]
            context = tf.distribute.get_replica_context()
            found = context.all_reduce(tf.distribute.ReduceOp.SUM, sent)
            return tf.add_n([tf.reduce_sum(tf.cast(one, "float32")) for one in found])

        return tf.function(lambda: strategy.run(of_replica), autograph=False)

    graphs = {dtype: summed(dtype) for dtype in ("float32", "bfloat16")}
    found = {dtype: {"seconds": [], "cpu_seconds": []} for dtype in graphs}
    for turn in range(updates + 1):
        for dtype, graph in graphs.items():
            before, cpu = time.perf_counter(), time.process_time()
            float(strategy.experimental_local_results(graph())[0])
            if turn:  # the first one traces
                found[dtype]["seconds"].append(time.perf_counter() - before)
                found[dtype]["cpu_seconds"].append(time.process_time() - cpu)
    print(
        json.dumps({k: {n: statistics.median(v) for n, v in d.items()} for k, d in found.items()})
    )


def free_ports(count):
    """Free ports of this machine."""
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


PARTS = {"bytes": sent, "links": links, "overhead": overhead, "sums": sums}


def page(numbers):
    """The results as Markdown."""
    parts = ["# Several workers", f"{numbers['machine']}."]
    if found := numbers.get("bytes"):
        parts.append(
            f"Each of two workers sends {found['sent'] / 1e6:.1f} MB for an update of `small`, "
            f"counted at the loopback. Its gradients are {found['gradients'] / 1e6:.1f} MB, of "
            "which a ring of n sends 2 (n − 1) / n: all of them for two."
        )
    if found := numbers.get("overhead"):
        one, two = found["1"], found["2"]
        parts.append(
            f"One worker of two threads learns from {one:,.0f} target tokens a second, two of one "
            f"thread each from {two:,.0f}: {two / one:.2f} times as many. All are on this machine, "
            "so that the workers also compute what is sent."
        )
    if found := numbers.get("sums"):
        rows = [[name, of["seconds"], of["cpu_seconds"]] for name, of in found.items()]
        names = ["--reduce_dtype", "seconds for a sum", "processor seconds of each worker"]
        parts.append(
            "## The type of what is sent\n\nTwo workers of one thread each, on this machine, sum "
            f"the gradients of `base`:\n\n{measure.table(names, rows)}"
        )
    for preset, about in numbers.get("links", {}).items():
        rows = [[name, *counts.values()] for name, counts in about["links"].items()]
        parts.append(
            f"## {preset}: {about['bytes'] / 1e6:.0f} MB an update\n\nAt most so many workers "
            f"compute for {EFFICIENCY:.0%} of their time or more, by the seconds that one alone "
            "computes for an update. Computed, not measured; what a ring sends, one after the "
            "other with the computation, without latency.\n\n"
            + measure.table(["link", *(f"{seconds} s" for seconds in SECONDS)], rows)
        )
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
