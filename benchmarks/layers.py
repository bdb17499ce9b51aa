"""Are the layers ever slower than Keras's own attention in blocks, or than KerasHub's layers?

    python benchmarks/layers.py --sizes tutorial base

Needs keras-hub beside what keras_tfmr needs. Everything takes turns in one process, forward as in
inference and forward with backward as in training (dropout 0.1), compiled by tf.function.
Writes results/layers.md and .json, where each run replaces its own sizes.
"""

import argparse
import json

import keras
import keras_hub
import measure
import numpy as np
import tensorflow as tf

from keras_tfmr import DecoderLayer, EncoderLayer, MultiHeadAttention

SIZES = {"tutorial": (128, 8, 512), "base": (512, 8, 2048)}  # d_model, heads, dff
TOKENS = 2048  # a batch, whatever its length
DROPOUT = 0.1
OURS = "keras_tfmr"


class KerasBlocks(keras.layers.Layer):
    """An encoder or decoder layer put together from Keras's own layers."""

    def __init__(self, d_model, heads, dff, decodes=False):
        super().__init__()
        self.decodes = decodes
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

        x = add(0, x, self.attentions[0](x, x, use_causal_mask=self.decodes))
        if self.decodes:
            x = add(1, x, self.attentions[1](x, context))
        return add(-1, x, self.outer(self.hidden(x)))


def cases(kind, d_model, heads, dff):
    """{name: layer} of one kind: attention, encoder layer, decoder layer."""
    sizes = {"d_model": d_model, "num_heads": heads, "dff": dff, "dropout_rate": DROPOUT}
    if kind == "attention":
        key_dim = d_model // heads
        return {
            OURS: MultiHeadAttention(heads, key_dim, dropout_rate=DROPOUT),
            "Keras": keras.layers.MultiHeadAttention(heads, key_dim, dropout=DROPOUT),
        }
    if kind == "encoder layer":
        return {
            OURS: EncoderLayer(**sizes),
            "Keras": KerasBlocks(d_model, heads, dff),
            "KerasHub": keras_hub.layers.TransformerEncoder(dff, heads, dropout=DROPOUT),
        }
    return {
        OURS: DecoderLayer(**sizes),
        "Keras": KerasBlocks(d_model, heads, dff, decodes=True),
        "KerasHub": keras_hub.layers.TransformerDecoder(dff, heads, dropout=DROPOUT),
    }


def functions(layer, inputs):
    """Forward, and forward with backward, each as a function without arguments."""
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


def compare(kind, size, length, seconds):
    """[{"kind", "length", "pass", name: median seconds, ...}], two entries."""
    rng = np.random.default_rng(0)
    shape = (max(1, TOKENS // length), length, SIZES[size][0])
    x, context = (tf.constant(rng.normal(size=shape), tf.float32) for _ in range(2))
    inputs = {"attention": (x, x), "encoder layer": (x,), "decoder layer": (x, context)}[kind]
    made = {name: functions(layer, inputs) for name, layer in cases(kind, *SIZES[size]).items()}
    found = []
    for i, direction in enumerate(("forward", "forward + backward")):
        medians, _ = measure.interleaved({n: f[i] for n, f in made.items()}, 200, seconds)
        found.append({"kind": kind, "length": length, "pass": direction, **medians})
    return found


def page(numbers):
    lines = [
        "# Layers\n",
        f"{numbers['machine']}; {numbers['versions']}.\n",
        f"Milliseconds for {TOKENS} tokens of float32 at each length, medians of calls that took "
        "turns; `×` is how many times as fast as the other keras_tfmr is.\n",
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
    parser.add_argument("--seconds", type=float, default=3, help="for each comparison")
    parser.add_argument("--dry", action="store_true", help="print, write nothing")
    args = parser.parse_args()
    path = measure.RESULTS / "layers.json"
    numbers = json.loads(path.read_text()) if path.exists() else {"sizes": {}}
    numbers["machine"] = measure.machine()
    numbers["versions"] = measure.versions("keras", "tensorflow", "keras-hub")
    for size in args.sizes:
        numbers["sizes"][size] = []
        for kind in ("attention", "encoder layer", "decoder layer"):
            for length in args.lengths:
                numbers["sizes"][size] += compare(kind, size, length, args.seconds)
                print(*numbers["sizes"][size][-2:], sep="\n", flush=True)
    print(page(numbers))
    if not args.dry:
        measure.write("layers", page(numbers), numbers)


if __name__ == "__main__":
    main()
