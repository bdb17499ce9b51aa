"""What does `fit` cost beyond the training step: pipeline, callbacks, progress bar?

    python benchmarks/fit.py [--data train.tsv] [--seconds 90]

The default model on the built-in phrasebook (or DATA, lines of SOURCE<TAB>TARGET). Three ways to
train on the same batches take turns: the bare step, a graph called in a loop on batches that lie
in memory; `fit` on the same batches in memory; and `fit` as the training command calls it, with
its pipeline and all of its callbacks.
"""

import argparse
import itertools
import os
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import keras
import tensorflow as tf

from benchmarks import measure
from training.run import session
from training.run.callbacks import Run, training_callbacks
from training.run.folder import RunFolder
from training.run.settings import TrainingConfig
from training.run.state import Budget, Clock, RunState

BATCHES = 20  # of one turn
CASES = ("bare step", "fit, batches in memory", "fit, pipeline and callbacks")


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
    parser.add_argument("--data", help="training pairs; the phrasebook if left out")
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--quick", action="store_true", help="a few turns; writes nothing")
    return parser.parse_args()


def run(args, directory):
    """Real target tokens a second of each case."""
    settings = TrainingConfig(
        data=args.data, run=str(directory / "run"), evaluate_steps=10**9
    ).resolved()
    keras.utils.set_random_seed(settings.seed)
    folder = RunFolder(settings.run)
    data = session.prepare(settings, folder)
    vocab = [tokenizer.vocab_size for tokenizer in data.tokenizers]
    trainer = session.make_trainer(settings, session.make_config(settings, *vocab))
    state = RunState()
    shared = Run(
        settings, folder, trainer, state, Budget(Clock(time.time()), minutes=1e9), None,
        SimpleNamespace(received=None),
    )  # fmt: skip
    callbacks = training_callbacks(shared)[0]
    batches = list(itertools.islice(iter(data.batches.dataset(0)), BATCHES))
    tokens = sum(int(tf.math.count_nonzero(labels)) for _, labels in batches)
    memory = in_memory(batches)
    step = tf.function(trainer.train_step, reduce_retracing=True, autograph=False)

    def bare():
        for batch in batches:
            step(batch)

    def fit_pipeline():
        state.batch, shared.epoch_batches = 0, BATCHES + 1
        trainer.fit(data.batches.dataset(0).take(BATCHES), callbacks=callbacks, shuffle=False)

    def fit_memory():
        trainer.fit(memory, shuffle=False, verbose=2)

    cases = dict(zip(CASES, (bare, fit_memory, fit_pipeline), strict=True))
    wall, processor = measure.interleaved(cases, 3 if args.quick else 1000, args.seconds)
    folder.close()
    return {
        "machine": measure.machine(),
        "versions": measure.versions("tensorflow", "keras"),
        "data": Path(args.data).name if args.data else "the phrasebook",
        "tokens": tokens,
        "seconds": wall,
        "processor_seconds": processor,
    }


def in_memory(batches):
    """A `tf.data` pipeline that only hands over what is there."""
    ids = tf.TensorSpec([None, None], tf.int32)
    dataset = tf.data.Dataset.from_generator(
        lambda: iter(batches), output_signature=((ids, ids), ids)
    )
    return dataset.apply(tf.data.experimental.assert_cardinality(len(batches))).cache()


def page(numbers):
    """The results for people."""
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
    head = ("", "real target tokens/s", "ms a batch", "of the bare step", "by processor time")
    return (
        f"{numbers['machine']}, {numbers['versions']}; {numbers['data']}\n\n"
        + measure.table(head, rows)
        + "\nMedians of turns of "
        + f"{BATCHES} batches. Goal: `fit` reaches 95 % of the bare step.\n"
    )


if __name__ == "__main__":
    main()
