"""Compares our layers with blocks of Keras's own attention and with KerasHub's layers.

    python benchmarks/layers.py --sizes tutorial base

Needs keras-hub beside keras_tfmr. Each layer runs forward as in inference, and forward and backward
as in training (dropout 0.1), in a tf.function, with TensorFlow's own choice of threads. Writes
results/layers.md and .json.
"""

import itertools
import statistics

import harness
import numpy as np

SIZES = {"tutorial": (128, 8, 512), "base": (512, 8, 2048)}  # d_model, heads, dff
TOKENS = 2048  # a batch, whatever its length
DROPOUT = 0.1
PASSES = ("forward", "forward + backward")
KINDS = ("attention", "encoder layer", "decoder layer")


def ours(kind, d_model, heads, dff):
    from keras_tfmr import DecoderLayer, EncoderLayer, MultiHeadAttention

    if kind == "attention":
        return MultiHeadAttention(heads, d_model // heads, dropout_rate=DROPOUT)
    layer = {"encoder layer": EncoderLayer, "decoder layer": DecoderLayer}[kind]
    return layer(d_model=d_model, num_heads=heads, dff=dff, dropout_rate=DROPOUT)


def of_keras(kind, d_model, heads, dff):
    import keras

    if kind == "attention":
        return keras.layers.MultiHeadAttention(heads, d_model // heads, dropout=DROPOUT)
    return keras_block(d_model, heads, dff, decodes=kind == "decoder layer")


def keras_block(d_model, heads, dff, decodes):
    """An encoder or decoder layer made of Keras's own layers."""
    import keras

    class KerasBlock(keras.layers.Layer):
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

    return KerasBlock()


def of_keras_hub(kind, d_model, heads, dff):
    import keras_hub

    layers = keras_hub.layers
    layer = layers.TransformerDecoder if kind == "decoder layer" else layers.TransformerEncoder
    return layer(dff, heads, dropout=DROPOUT)


SIDES = {"keras_tfmr": ours, "Keras": of_keras, "KerasHub": of_keras_hub}


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
    """In its own process: milliseconds of every case of one side; "rate" is cases a second."""
    import tensorflow as tf

    found = {}
    for kind, length in itertools.product(KINDS[side == "KerasHub" :], lengths):
        rng = np.random.default_rng(0)
        shape = (max(1, TOKENS // length), length, SIZES[size][0])
        x, context = (tf.constant(rng.normal(size=shape), tf.float32) for _ in range(2))
        inputs = {"attention": (x, x), "encoder layer": (x,), "decoder layer": (x, context)}[kind]
        for name, call in zip(
            PASSES, functions(SIDES[side](kind, *SIZES[size]), inputs), strict=True
        ):
            found[f"{kind}, {length}, {name}"] = harness.median_seconds(call, seconds) * 1e3
    return {"rate": 1e3 * len(found) / sum(found.values()), **found}


def page(numbers):
    lines = [
        f"Milliseconds for {TOKENS} tokens of float32 at each length; `×` is how many times as "
        "fast as the other keras_tfmr is.\n"
    ]
    for size, found in numbers["sizes"].items():
        rows = []
        for entry in found:
            cells = [entry["kind"], entry["length"], entry["pass"], entry["keras_tfmr"] * 1e3]
            for other in ("Keras", "KerasHub"):
                time = entry.get(other)
                cells += [time * 1e3, time / entry["keras_tfmr"]] if time else ["", ""]
            rows.append(cells)
        header = ["", "length", "pass", "keras_tfmr", "Keras blocks", "×", "KerasHub", "×"]
        lines.append("## {}: {} wide, {} heads, hidden {}\n".format(size, *SIZES[size]))
        lines.append(harness.table(header, rows))
    ratios = [
        min(entry.get(other, float("inf")) for other in ("Keras", "KerasHub")) / entry["keras_tfmr"]
        for found in numbers["sizes"].values()
        for entry in found
    ]
    lines.append(
        f"Against the faster of the two, {len(ratios)} cases: {min(ratios):.2f} to "
        f"{max(ratios):.2f}, median {statistics.median(ratios):.2f}."
    )
    return "\n".join(lines)


def main():
    parser, _, full = harness.parser(__doc__)
    full("--sizes", nargs="+", choices=SIZES, default=list(SIZES), help="sizes")
    full("--lengths", nargs="+", type=int, default=[16, 64, 512], help="lengths")
    full("--seconds", type=float, default=0.7, help="of each case and turn")
    args = parser.parse_args()
    if args.quick:
        args.sizes, args.lengths, args.seconds = ["tutorial"], [16], 0.02
    sides = [side for side in SIDES if side != "KerasHub" or harness.installed("keras_hub")]
    numbers = {**harness.about("keras", "tensorflow", "keras-hub"), "sizes": {}}
    for size in args.sizes:
        tasks = {
            side: {"default": lambda side=side, size=size: harness.alone(
                __file__, {"side": side, "size": size, "lengths": args.lengths,
                           "seconds": args.seconds})}
            for side in sides
        }  # fmt: skip
        found = harness.compare(tasks, args.turns, quick=args.quick)
        numbers["sizes"][size] = [
            {"kind": kind, "length": length, "pass": direction,
             **{side: answer[key] / 1e3 for side, answer in found.items() if key in answer}}
            for kind, length, direction in itertools.product(KINDS, args.lengths, PASSES)
            for key in [f"{kind}, {length}, {direction}"]
        ]  # fmt: skip
    harness.report("layers", "Layers", page(numbers), numbers, quick=args.quick)


if __name__ == "__main__":
    harness.serve(one) or main()
