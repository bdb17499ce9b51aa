"""Measures how much position t depends on the first one: norms of ∂h_t/∂x_1, before any training.

    python benchmarks/gradients.py

Layers of the same width read the same random vectors, with the initial weights that their classes
give them. The Frobenius norm of the Jacobian is estimated: for v ~ N(0, I), E‖vᵀ J‖² = ‖J‖². Writes
results/gradients.md, .json and .png; takes about a minute.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("MPLBACKEND", "Agg")

import keras
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

from benchmarks import measure
from keras_tfmr.layers import DecoderOnlyLayer, LayerNormalization
from keras_tfmr.recurrent import LSTMN, BidirectionalEncoder

WIDTH, BATCH = 64, 32
LAYERS = 3  # of the Transformer
POSITIONS = (1, 2, 4, 8, 16, 32, 64, 128)


class ResidualCell(keras.layers.Layer):
    """h_t = h_{t-1} + tanh(W x_t + U h_{t-1}): a recurrent network with a way around."""

    def __init__(self, units):
        super().__init__()
        self.state_size = units
        self.cell = keras.layers.SimpleRNNCell(units)

    def build(self, x_shape):
        self.cell.build(x_shape)

    def call(self, x, states):
        change, _ = self.cell(x, states)
        return states[0] + change, [states[0] + change]


def plain():
    return keras.layers.SimpleRNN(WIDTH, return_sequences=True)


def residual():
    return keras.layers.RNN(ResidualCell(WIDTH), return_sequences=True)


def gated():
    """The gated unit of RNNsearch: the forward half of its encoder."""
    encoder = BidirectionalEncoder(WIDTH)
    return lambda x: encoder(x)[:, :, :WIDTH]


def lstm():
    return keras.layers.LSTM(WIDTH, return_sequences=True)


def lstmn():
    return LSTMN(WIDTH, return_sequences=True)


def transformer():
    """Causal layers, pre-norm, and the norm after the last."""
    layers = [
        DecoderOnlyLayer(
            d_model=WIDTH, num_heads=4, dff=4 * WIDTH, dropout_rate=0.0, norm_first=True
        )
        for _ in range(LAYERS)
    ]
    return keras.Sequential([*layers, LayerNormalization()])


MODELS = {
    "plain RNN": plain,
    "GRU": gated,
    "LSTM": lstm,
    "residual RNN": residual,
    "LSTMN": lstmn,
    f"Transformer, {LAYERS} layers": transformer,
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few positions; writes nothing")
    args = parser.parse_args()
    positions = POSITIONS[:4] if args.quick else POSITIONS
    results = {name: norms(make, positions) for name, make in MODELS.items()}
    print(page(results, positions))
    if not args.quick:
        measure.write("gradients", page(results, positions), results)
        draw(results, positions)


def norms(make, positions):
    """[‖∂h_t/∂x_1‖ for t in positions], each the root of the mean square over a batch."""
    keras.utils.set_random_seed(1)
    generator = np.random.default_rng(1)
    x = tf.constant(generator.normal(size=(BATCH, max(positions), WIDTH)), tf.float32)
    v = tf.constant(generator.normal(size=(BATCH, WIDTH)), tf.float32)
    model = make()
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        h = model(x)  # [batch, length, width]
        projected = [tf.reduce_sum(h[:, t - 1] * v) for t in positions]
    gradients = [tape.gradient(one, x)[:, 0].numpy() for one in projected]
    return [float(np.sqrt(np.mean(np.sum(g**2, axis=-1)))) for g in gradients]


def page(results, positions):
    rows = [[name, *values] for name, values in results.items()]
    return (
        "# What is left of the first position\n\n"
        f"‖∂h_t/∂x_1‖ (Frobenius) at position t = {positions[0]} … {positions[-1]} of layers of "
        f"width {WIDTH} that have just been made, on random vectors.\n\n"
        "    python benchmarks/gradients.py\n\n"
        f"{measure.table(['t', *map(str, positions)], rows)}\n"
        f"{measure.versions('tensorflow', 'keras')}.\n"
    )


def draw(results, positions):
    figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
    for name, values in results.items():
        axis.plot(positions, values, ".-", label=name)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_ylim(1e-12, None)
    axis.set_xticks(positions, positions)
    axis.set(xlabel="position t", ylabel="‖∂h$_t$ / ∂x$_1$‖")
    axis.grid(alpha=0.3)
    axis.legend(frameon=False)
    figure.savefig(measure.RESULTS / "gradients.png", dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main()
