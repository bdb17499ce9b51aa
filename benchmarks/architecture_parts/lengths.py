"""Seconds per training step, for the same tokens in few long or in many short sentences."""

import numpy as np
import tensorflow as tf

from benchmarks import measure
from training.run.on_tensorflow import TensorFlowTrainer, Workers
from training.run.settings import TrainingConfig
from training.run.task import Translation

LENGTHS = (16, 32, 64, 128, 256)
TOKENS = 2048
VOCAB = 8000
# What a source position sees in one pass, and how many steps that follow each other it takes for
# a source of n words and a target of m (sums over keys and within a layer not counted).
DEPTH = {
    "transformer": ("all", "3", "3"),
    "convolutional": ("13 positions", "6", "m"),
    "rnnsearch": ("all", "n", "m"),
    "seq2seq": ("all", "n", "m"),
}


def run(args):
    """Yields (model, {"parameters", "tokens", "seconds": {length: median}})."""
    lengths = LENGTHS[:2] if args.quick else LENGTHS
    cases, parameters = {}, {}
    for name in ("transformer", "convolutional", "rnnsearch", "seq2seq"):
        if args.models and name not in args.models:
            continue
        trainer, parameters[name] = make_trainer(name, args.quick)
        for length in lengths:
            cases[name, length] = step(trainer, length)
    seconds, _ = measure.interleaved(cases, rounds=7, seconds=120)
    for name, count in parameters.items():
        of_lengths = {str(length): seconds[name, length] for length in lengths}
        yield name, {"parameters": count, "tokens": TOKENS, "seconds": of_lengths}


def make_trainer(name, quick):
    preset = "tiny" if quick else "small"
    task = Translation(TrainingConfig(model=name, preset=preset, vocab_size=VOCAB).resolved())
    model = task.model(task.config())
    trainer = TensorFlowTrainer(
        task, model, model, lambda step, share: 1e-4, clip_norm=1.0, workers=Workers()
    )
    return trainer, model.count_params()


def step(trainer, length):
    draw = np.random.default_rng(length)
    source, target, labels = (
        draw.integers(1, VOCAB, size=(TOKENS // length, length)).astype("int32") for _ in range(3)
    )
    batch = (tf.constant(source), tf.constant(target)), tf.constant(labels)
    return lambda: trainer.update([batch], 0)


def section(results):
    lengths = sorted(next(iter(results.values()))["seconds"], key=int)
    rows = [
        [
            name,
            f"{r['parameters']:,}",
            *DEPTH[name],
            *(r["seconds"][length] for length in lengths),
        ]
        for name, r in results.items()
    ]
    header = ["model", "parameters", "receptive field", "encoder steps", "decoder steps"]
    return (
        "## Time against length\n\n"
        f"Seconds a training step of {TOKENS} source and {TOKENS} target tokens, in sentences of "
        "16 … 256 tokens without padding; median, models and lengths taking turns. A recurrent "
        "network takes its positions one after the other, so that longer sentences leave less to "
        "do at once. Before them, what a source position sees, and how many steps have to follow "
        "each other for n source and m target tokens: layers, or positions of a loop. The "
        "convolutional encoder is as parallel as the Transformer's, but sees a neighbourhood; "
        "its decoder is RNNsearch's loop.\n\n"
    ) + measure.table([*header, *lengths], rows)
