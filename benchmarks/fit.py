"""Measures what the training loop costs beyond the training step: pipeline, history, progress.

    python benchmarks/fit.py [--data train.tsv] [--seconds 90]

Trains the default model on the built-in phrasebook (or DATA, lines of SOURCE<TAB>TARGET). Three
ways to train on the same batches take turns: the bare update on batches in memory; the bare update
on batches that the pipeline makes at the same time; and the loop of the training command.
"""

import argparse
import itertools
import os
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import tensorflow as tf

from benchmarks import measure
from training.run import session
from training.run.claim import Claim
from training.run.clock import Clock
from training.run.folder import RunFolder
from training.run.on_tensorflow import Workers
from training.run.settings import TrainingConfig
from training.run.task import Translation

BATCHES = 20  # of one turn
CASES = ("bare update, batches in memory", "update and pipeline", "the loop of the command")


def main():
    """Measures and writes results/fit.{md,json}."""
    args = parse()
    with tempfile.TemporaryDirectory() as directory:
        numbers = run(args, Path(directory))
    print(page(numbers))
    if not args.quick:
        measure.write("fit", page(numbers), numbers)


def parse():
    """The command line as a namespace."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", help="file of training pairs; default: the phrasebook")
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--quick", action="store_true", help="a few turns; writes nothing")
    return parser.parse_args()


class FirstBatches:
    """The first batches of every epoch."""

    def __init__(self, batches, count):
        self.batches, self.count = batches, count

    def steps_per_epoch(self, epoch=0):
        """Number of batches."""
        return self.count

    def dataset(self, *args, **options):
        """As `Batches.dataset`."""
        return self.batches.dataset(*args, **options).take(self.count)


def run(args, directory):
    """The target tokens per second of each case, without padding."""
    settings = TrainingConfig(
        data=args.data, run=str(directory / "run"), minutes=1e9, evaluate_minutes=1e9,
        evaluate_steps=10**9, evaluate_pairs=8,
    ).resolved()  # fmt: skip
    keras.utils.set_random_seed(settings.seed)
    claim, task, workers = Claim(RunFolder(settings.run)), Translation(settings), Workers()
    data = task.prepare(claim)
    trainer = session.make_trainer(settings, task, task.config(data), workers)
    clock, interrupts = Clock(time.monotonic()), SimpleNamespace(received=None)
    loop = session.make_run(settings, task, claim, trainer, data, clock, interrupts, workers)
    loop.batches = FirstBatches(data.batches, BATCHES)
    batches = list(itertools.islice(iter(data.batches.dataset(0)), BATCHES))
    tokens = sum(int(tf.math.count_nonzero(labels)) for _, labels in batches)

    def bare():
        for number, batch in enumerate(batches):
            trainer.update([batch], number)

    def pipeline():
        for number, batch in enumerate(data.batches.dataset(0).take(BATCHES)):
            trainer.update([batch], number)

    def whole():
        loop.state.epoch = loop.state.update = 0
        loop.fit_epoch()

    cases = dict(zip(CASES, (bare, pipeline, whole), strict=True))
    wall, processor = measure.interleaved(cases, 3 if args.quick else 1000, args.seconds)
    claim.close()
    return {
        "machine": measure.machine(),
        "versions": measure.versions("tensorflow", "keras"),
        "data": Path(args.data).name if args.data else "the phrasebook",
        "tokens": tokens,
        "seconds": wall,
        "processor_seconds": processor,
    }


def page(numbers):
    """The results as Markdown."""
    wall, processor = numbers["seconds"], numbers["processor_seconds"]
    rows = [
        (
            name,
            numbers["tokens"] / wall[name],
            1000 * wall[name] / BATCHES,
            f"{wall[CASES[0]] / wall[name]:.1%}",
            f"{processor[CASES[0]] / processor[name]:.1%}",
        )
        for name in CASES
    ]
    head = ("", "real target tokens/s", "ms a batch", "of the bare update", "by processor time")
    return (
        f"{numbers['machine']}, {numbers['versions']}; {numbers['data']}\n\n"
        + measure.table(head, rows)
        + "\nMedians of turns of "
        + f"{BATCHES} batches. Goal: the loop reaches 95 % of the bare update.\n"
    )


if __name__ == "__main__":
    main()
