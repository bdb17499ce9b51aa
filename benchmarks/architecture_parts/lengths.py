"""Seconds a training step, when the same tokens stand in few long or in many short sentences."""

import numpy as np
import tensorflow as tf

from benchmarks import measure
from training.run.models import make_config, make_model
from training.run.optimizer import AveragedAdam
from training.run.settings import TrainingConfig
from training.run.trainer import Trainer

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
    settings = TrainingConfig(model=name, preset="tiny" if quick else "small")
    config = make_config(settings, VOCAB, VOCAB)
    model = make_model(name, config)
    trainer = Trainer(model, model, label_smoothing=0.1, clip_norm=1.0)
    trainer.prepare(AveragedAdam(1e-4))
    return trainer, model.count_params()


def step(trainer, length):
    compiled = tf.function(lambda *batch: trainer.train_step(batch))
    draw = np.random.default_rng(length)
    source, target, labels = (
        draw.integers(1, VOCAB, size=(TOKENS // length, length)).astype("int32") for _ in range(3)
    )
    batch = [tf.constant(source), tf.constant(target)], tf.constant(labels)
    return lambda: compiled(*batch)["loss"].numpy()


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
