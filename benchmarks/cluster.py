"""How many workers pay off?

    python benchmarks/cluster.py links [--seconds_per_update 20]
    python benchmarks/cluster.py overhead [--updates 60]

`links` computes from the bytes of an update and the speed of links how much of its time a worker
of `base` and `big` computes. `overhead` measures, on this machine, two workers of one thread each
beside one worker of two threads, on the same global batches.
"""

import argparse
import csv
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import measure

ROOT = Path(__file__).resolve().parents[1]
LINKS = {  # gigabits a second, as their standards and vendors publish them
    "Ethernet, 1 Gbit/s": 1,
    "Ethernet, 10 Gbit/s": 10,
    "Ethernet, 100 Gbit/s": 100,
    "InfiniBand NDR, 400 Gbit/s": 400,
}
WORKERS = (2, 4, 8, 16)
VOCAB = 32_000


def main(arguments=None):
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("part", choices=("links", "overhead"))
    parser.add_argument("--seconds_per_update", type=float, default=1.0, metavar="X",
                        help="of one worker alone (default: %(default)s)")  # fmt: skip
    parser.add_argument("--updates", type=int, default=60, metavar="N", help="(default: 60)")
    options = parser.parse_args(arguments)
    if options.part == "links":
        print(links(options.seconds_per_update))
    else:
        print(json.dumps(overhead(options.updates), indent=2))


def links(seconds):
    """A table: the share of its time that each of n workers computes.

    The batch of `seconds` is shared by the workers, so that each computes for seconds / n and then
    waits for the gradients; that the two could overlap is not counted on.
    """
    rows = []
    for preset in ("base", "big"):
        size = 4 * parameters(preset)  # bytes
        for name, gigabits in LINKS.items():
            shares = [share_computing(size, gigabits, seconds, n) for n in WORKERS]
            rows.append([preset, f"{size / 1e6:.0f}", name, *(f"{s:.0%}" for s in shares)])
    head = ["preset", "MB an update", "link", *(f"{n} workers" for n in WORKERS)]
    return measure.table(head, rows)


def share_computing(size, gigabits, seconds, workers):
    """Of the time of an update, in a ring where each sends 2 (n - 1) / n of the bytes."""
    computing = seconds / workers
    sending = 2 * (workers - 1) / workers * size * 8 / (gigabits * 1e9)
    return computing / (computing + sending)


def parameters(preset):
    """Weights of a Transformer of a joint vocabulary of `VOCAB`."""
    from training.run.settings import TrainingConfig
    from training.run.task import Translation

    task = Translation(TrainingConfig(preset=preset, vocab_size=VOCAB).resolved())
    return task.model(task.config()).count_params()


def overhead(updates):
    """Target tokens a second: {workers: median over the rows of history.csv}."""
    with tempfile.TemporaryDirectory() as directory:
        return {
            f"{workers} of {2 // workers} threads": speed(Path(directory), workers, updates)
            for workers in (1, 2)
        }


def speed(directory, workers, updates):
    """Of one run of `small` on the phrasebook, whose evaluations are not counted."""
    run = directory / str(workers)
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
        command = [
            sys.executable, ROOT / "training" / "train_pt_en.py", "--run", run, "--steps", updates,
            "--evaluate_steps", 10**6, "--evaluate_pairs", 8, "--no_export",
        ]  # fmt: skip
        processes.append(subprocess.Popen([*map(str, command)], env=environment, cwd=ROOT))
    if any([process.wait() for process in processes]):
        raise RuntimeError("a worker failed")
    with (run / "history.csv").open() as file:
        speeds = [float(row["tokens_per_second"]) for row in csv.DictReader(file)]
    return speeds[-1]


def free_ports(count):
    """Of this machine."""
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


if __name__ == "__main__":
    main()
