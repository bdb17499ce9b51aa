"""Compares our layers with blocks of Keras's own attention and with KerasHub's layers.

    python benchmarks/layers.py --backends tensorflow jax torch

Needs keras-hub beside keras_tfmr, and the backends. Each layer runs forward as in inference, and
forward and backward as in training (dropout 0.1), as Keras's `fit` runs it: in a tf.function,
compiled by JAX, or uncompiled in torch, with the backend's own choice of threads. Backends can be
measured one by one. Writes results/layers.md and .json.
"""

import functools
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


def on_tensorflow(layer, inputs):
    """Forward, and forward with backward, each as a function without arguments."""
    import tensorflow as tf

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


def on_jax(layer, inputs):
    """The same, compiled, as `fit` does."""
    import jax
    import keras

    entries = [keras.Input(batch_shape=x.shape) for x in inputs]
    model = keras.Model(entries, layer(*entries))  # tells the layers within a layer of `training`
    weights = [v.value for v in model.trainable_variables]
    others = [v.value for v in model.non_trainable_variables]

    def forward(weights, inputs, training=False):
        return model.stateless_call(weights, others, inputs, training=training)[0]

    def loss(weights, inputs):
        return forward(weights, inputs, training=True).sum()

    calls = jax.jit(forward), jax.jit(jax.grad(loss, argnums=(0, 1)))
    return [lambda call=call: jax.block_until_ready(call(weights, inputs)) for call in calls]


def on_torch(layer, inputs):
    """The same, uncompiled, as `fit` does."""
    import torch

    weights = [v.value for v in layer.trainable_variables]
    inputs = [x.requires_grad_() for x in inputs]

    @torch.no_grad()
    def forward():
        layer(*inputs, training=False)

    def both():
        torch.autograd.grad(layer(*inputs, training=True).sum(), [*inputs, *weights])

    return forward, both


BACKENDS = {"tensorflow": on_tensorflow, "jax": on_jax, "torch": on_torch}


def one(side, backend, size, lengths, seconds):
    """In its own process: milliseconds of every case of one side; "rate" is cases a second."""
    from keras import ops

    found = {}
    for kind, length in itertools.product(KINDS[side == "KerasHub" :], lengths):
        rng = np.random.default_rng(0)
        shape = (max(1, TOKENS // length), length, SIZES[size][0])
        x, context = (ops.convert_to_tensor(rng.normal(size=shape), "float32") for _ in range(2))
        inputs = {"attention": (x, x), "encoder layer": (x,), "decoder layer": (x, context)}[kind]
        layer = SIDES[side](kind, *SIZES[size])
        layer(*inputs)  # creates its weights
        for name, call in zip(PASSES, BACKENDS[backend](layer, inputs), strict=True):
            found[f"{kind}, {length}, {name}"] = harness.median_seconds(call, seconds) * 1e3
    return {"rate": 1e3 * len(found) / sum(found.values()), **found}


def ratios_of(entries):
    """How many times as fast as the faster peer ours is in each case."""
    return [
        min(entry.get(other, float("inf")) for other in ("Keras", "KerasHub")) / entry["keras_tfmr"]
        for entry in entries
    ]


def in_words(entries):
    ratios = ratios_of(entries)
    return (
        f"{len(ratios)} cases: {min(ratios):.2f} to {max(ratios):.2f}, "
        f"median {statistics.median(ratios):.2f}."
    )


def page(numbers):
    found = {backend: run["sizes"] for backend, run in numbers["backends"].items()}
    everything = [
        entry for sizes in found.values() for entries in sizes.values() for entry in entries
    ]
    lines = [
        f"Milliseconds for {TOKENS} tokens of float32 at each length; `×` is keras_tfmr's speedup "
        f"over it. Against the faster of the two, {in_words(everything)}\n"
    ]
    header = ["", "length", "pass", "keras_tfmr", "Keras blocks", "×", "KerasHub", "×"]
    for backend, sizes in found.items():
        summary = in_words([entry for entries in sizes.values() for entry in entries])
        commit = numbers["backends"][backend]["commit"]
        lines.append(f"## {backend}\n\nCommit {commit}, {summary}\n")
        for size, entries in sizes.items():
            lines.append("### {}: {} wide, {} heads, hidden {}\n".format(size, *SIZES[size]))
            lines.append(harness.table(header, map(cells_of, entries)))
    return "\n".join(lines)


def cells_of(entry):
    """A row of the table."""
    cells = [entry["kind"], entry["length"], entry["pass"], entry["keras_tfmr"] * 1e3]
    for other in ("Keras", "KerasHub"):
        time = entry.get(other)
        cells += [time * 1e3, time / entry["keras_tfmr"]] if time else ["", ""]
    return cells


def measure(args, backend, size):
    """The cases of a backend and size, each with the seconds of every side."""
    sides = [side for side in SIDES if side != "KerasHub" or harness.installed("keras_hub")]
    case = {"backend": backend, "size": size, "lengths": args.lengths, "seconds": args.seconds}
    tasks = {
        side: {"default": functools.partial(
            harness.alone, __file__, {"side": side, **case}, {"KERAS_BACKEND": backend}
        )}
        for side in sides
    }  # fmt: skip
    found = harness.compare(tasks, args.turns, quick=args.quick)
    return [
        {"kind": kind, "length": length, "pass": direction,
         **{side: answer[key] / 1e3 for side, answer in found.items() if key in answer}}
        for kind, length, direction in itertools.product(KINDS, args.lengths, PASSES)
        for key in [f"{kind}, {length}, {direction}"]
    ]  # fmt: skip


def main():
    parser = harness.parser(__doc__)
    add = parser.add_argument
    add("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS), help="backends")
    add("--sizes", nargs="+", choices=SIZES, default=list(SIZES), help="sizes")
    add("--lengths", nargs="+", type=int, default=[16, 64, 512], help="lengths")
    add("--seconds", type=float, default=0.7, help="of each case and turn")
    args = harness.parsed(parser)
    if args.quick:
        args.backends, args.sizes = ["tensorflow"], ["tutorial"]
        args.lengths, args.seconds = [16], 0.02
    backends = [backend for backend in args.backends if harness.installed(backend)]
    numbers = harness.about("keras", *BACKENDS, "keras-hub")
    numbers["backends"] = {} if args.quick else harness.kept("layers").get("backends", {})
    for backend in backends:
        sizes = {size: measure(args, backend, size) for size in args.sizes}
        numbers["backends"][backend] = {"commit": numbers["commit"], "sizes": sizes}
    harness.report("layers", "Layers", page(numbers), numbers, quick=args.quick)


if __name__ == "__main__":
    harness.serve(one) or main()
