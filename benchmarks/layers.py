"""Compares our layers with blocks of Keras's own attention and with KerasHub's layers.

    python benchmarks/layers.py --sizes tutorial base

Needs keras-hub in addition to keras_tfmr. Each side runs alone, in a process of its own, and the
processes take turns. Each runs forward as in inference, and forward and backward as in training
(dropout 0.1), in a tf.function, with TensorFlow's own choice of threads, on both cores.
Writes results/layers.md and .json, where each run replaces its own sizes.
"""

import argparse
import itertools
import json
import statistics
import time

import measure
import numpy as np

SIZES = {"tutorial": (128, 8, 512), "base": (512, 8, 2048)}  # d_model, heads, dff
TOKENS = 2048  # a batch, whatever its length
DROPOUT = 0.1
OURS = "keras_tfmr"
PASSES = ("forward", "forward + backward")


def keras_blocks(d_model, heads, dff, decodes=False):
    """An encoder or decoder layer made of Keras's own layers."""
    import keras

    class KerasBlocks(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.attentions = [
                keras.layers.MultiHeadAttention(heads, d_model // heads, dropout=DROPOUT)
                for _ in range(1 + decodes)
            ]
            self.hidden = keras.layers.Dense(dff, activation="relu")
            self.outer = keras.layers.Dense(d_model)
            self.norms = [keras.layers.LayerNormalization() for _ in range(2 + decodes)]
            self.dropouts = [keras.layers.Dropout(DROPOUT) for _ in range(2 + decodes)]

        def call(self, x, context=None):
            def add(i, x, y):
                return self.norms[i](x + self.dropouts[i](y))

            x = add(0, x, self.attentions[0](x, x, use_causal_mask=decodes))
            if decodes:
                x = add(1, x, self.attentions[1](x, context))
            return add(-1, x, self.outer(self.hidden(x)))

    return KerasBlocks()


def ours(kind, d_model, heads, dff):
    from keras_tfmr import DecoderLayer, EncoderLayer, MultiHeadAttention

    if kind == "attention":
        return MultiHeadAttention(heads, d_model // heads, dropout_rate=DROPOUT)
    layer = {"encoder layer": EncoderLayer, "decoder layer": DecoderLayer}[kind]
    return layer(d_model=d_model, num_heads=heads, dff=dff, dropout_rate=DROPOUT)


def kerass(kind, d_model, heads, dff):
    import keras

    if kind == "attention":
        return keras.layers.MultiHeadAttention(heads, d_model // heads, dropout=DROPOUT)
    return keras_blocks(d_model, heads, dff, decodes=kind == "decoder layer")


def kerashubs(kind, d_model, heads, dff):
    import keras_hub

    layer = {
        "encoder layer": keras_hub.layers.TransformerEncoder,
        "decoder layer": keras_hub.layers.TransformerDecoder,
    }[kind]
    return layer(dff, heads, dropout=DROPOUT)


KINDS = ("attention", "encoder layer", "decoder layer")
SIDES = {OURS: (ours, KINDS), "Keras": (kerass, KINDS), "KerasHub": (kerashubs, KINDS[1:])}


def functions(layer, inputs):
    """Forward, and forward with backward, each as a function without arguments."""
    import tensorflow as tf

    layer(*inputs)
    variables = layer.trainable_variables

    @tf.function(jit_compile=False)
    def forward(*inputs):
        return layer(*inputs, training=False)

    @tf.function(jit_compile=False)
    def both(*inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = layer(*inputs, training=True)
        return tape.gradient(output, [*inputs, *variables])

    return lambda: forward(*inputs), lambda: both(*inputs)


def one(side, size, lengths, seconds):
    """Times one side in its own process; returns {"kind, length, pass": median seconds}."""
    import tensorflow as tf

    make, kinds = SIDES[side]
    found = {}
    for kind in kinds:
        for length in lengths:
            rng = np.random.default_rng(0)
            shape = (max(1, TOKENS // length), length, SIZES[size][0])
            x, context = (tf.constant(rng.normal(size=shape), tf.float32) for _ in range(2))
            inputs = {"attention": (x, x), "encoder layer": (x,), "decoder layer": (x, context)}
            calls = functions(make(kind, *SIZES[size]), inputs[kind])
            for name, call in zip(PASSES, calls, strict=True):
                found[f"{kind}, {length}, {name}"] = median(call, seconds)
    return found


def median(call, seconds):
    """The median seconds of a call, after one that traces."""
    call()
    times = []
    while sum(times) < seconds or len(times) < 3:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def compare(size, options):
    """[{"kind", "length", "pass", side: median seconds of its turns, ...}]"""
    turns = {side: [] for side in SIDES}
    for _ in range(options.turns):
        for side, found in turns.items():
            task = json.dumps([side, size, options.lengths, options.seconds])
            found.append(measure.alone(__file__, "--one", task))
            print(size, side, found[-1], flush=True)
    rows = []
    for kind, length, direction in itertools.product(KINDS, options.lengths, PASSES):
        key = f"{kind}, {length}, {direction}"
        sides = {
            side: statistics.median(turn[key] for turn in found)
            for side, found in turns.items()
            if key in found[0]
        }
        rows.append({"kind": kind, "length": length, "pass": direction, **sides})
    return rows


def page(numbers):
    lines = [
        "# Layers\n",
        f"{numbers['machine']}; {numbers['versions']}.\n",
        f"Milliseconds for {TOKENS} tokens of float32 at each length, each side alone in processes "
        "that took turns, medians; `×` is how many times as fast as the other keras_tfmr is.\n",
    ]
    for size, found in numbers["sizes"].items():
        rows = []
        for entry in found:
            ours = entry[OURS]
            others = [entry.get(name) for name in ("Keras", "KerasHub")]
            cells = [cell for o in others for cell in ((o * 1e3, o / ours) if o else ("", ""))]
            rows.append([entry["kind"], entry["length"], entry["pass"], ours * 1e3, *cells])
        header = ["", "length", "pass", OURS, "Keras blocks", "×", "KerasHub", "×"]
        lines += ["## {}: {} wide, {} heads, hidden {}\n".format(size, *SIZES[size])]
        lines.append(measure.table(header, rows))
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", nargs="+", default=list(SIZES))
    parser.add_argument("--lengths", nargs="+", type=int, default=[16, 64, 512])
    parser.add_argument("--seconds", type=float, default=0.7, help="seconds of each case and turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--dry", action="store_true", help="print the results, write nothing")
    parser.add_argument("--one", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        return measure.answer(one(*options.one))
    path = measure.RESULTS / "layers.json"
    numbers = json.loads(path.read_text()) if path.exists() else {"sizes": {}}
    numbers["machine"] = measure.machine()
    numbers["versions"] = measure.versions("keras", "tensorflow", "keras-hub")
    for size in options.sizes:
        numbers["sizes"][size] = compare(size, options)
    print(page(numbers))
    if not options.dry:
        measure.write("layers", page(numbers), numbers)


if __name__ == "__main__":
    main()
