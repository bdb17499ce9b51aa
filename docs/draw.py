"""Draws the pictures of the guides into docs/pictures/: python docs/draw.py"""

import pathlib

import keras
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from keras import ops

import keras_tfmr

PICTURES = pathlib.Path(__file__).parent / "pictures"
WORDS = ["o", "gato", "dorme", ".", "PAD", "PAD"]


def save(figure, name):
    """Writes one picture and prints its path."""
    path = PICTURES / f"{name}.png"
    figure.savefig(path, dpi=110, bbox_inches="tight", facecolor="white")
    plt.close(figure)
    print(path)


def six_steps():
    """One head of a small attention, each step a matrix."""
    keras.utils.set_random_seed(3)
    token_ids = np.array([[11, 42, 7, 3, 0, 0]])
    x = keras_tfmr.PositionalEmbedding(vocab_size=100, d_model=16)(token_ids)
    attention = keras_tfmr.MultiHeadAttention(num_heads=2, key_dim=8)
    attention.build(x.shape)
    queries = attention.project_query(x)
    keys, values = attention.project(x)
    keys = keys * np.sqrt(8)  # undoes the division that the layer has done
    scores = ops.matmul(queries, ops.transpose(keys, (0, 1, 3, 2)))
    masked = np.where(token_ids[:, None, None] != 0, scores / np.sqrt(8), np.nan)
    weights = np.nan_to_num(np.exp(masked))
    weights = weights / weights.sum(-1, keepdims=True)
    steps = [
        ("1  queries", queries[0, 0]), ("1  keys", keys[0, 0]), ("1  values", values[0, 0]),
        ("2  scores QKᵀ", scores[0, 0]), ("3, 4  / √d, masked", masked[0, 0]),
        ("5  softmax", weights[0, 0]), ("6  weights · values", weights[0, 0] @ values[0, 0]),
    ]  # fmt: skip
    figure, axes = plt.subplots(1, len(steps), figsize=(15, 2.6), layout="constrained")
    for axis, (title, matrix) in zip(axes, steps, strict=True):
        matrix = np.asarray(matrix)
        limit = np.nanmax(np.abs(matrix))
        image = {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit}
        if title.startswith("5"):
            image = {"cmap": "Blues", "vmin": 0}
        axis.imshow(matrix, **image)
        axis.set_facecolor("0.85")
        axis.set_title(title, fontsize=10)
        axis.set_yticks(range(6), WORDS)
        square = matrix.shape[1] == 6
        axis.set_xticks(range(6) if square else [], WORDS if square else [], rotation=90)
    save(figure, "six_steps")


def masks():
    """The three masks of the model on one sentence pair."""
    valid = np.array([True] * 4 + [False] * 2)
    causal = np.tril(np.ones((5, 5), bool))
    pictures = [
        ("encoder: every real word", np.tile(valid, (6, 1)), WORDS, WORDS),
        ("decoder: nothing later", causal, *[["START", "the", "cat", "sleeps", "."]] * 2),
        ("cross: every real source word", np.tile(valid, (5, 1)),
         ["START", "the", "cat", "sleeps", "."], WORDS),
    ]  # fmt: skip
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    for axis, (title, mask, rows, columns) in zip(axes, pictures, strict=True):
        axis.imshow(mask, cmap="Blues", vmin=0, vmax=1.4)
        axis.set_title(title, fontsize=11)
        axis.set_xticks(range(len(columns)), columns, rotation=45)
        axis.set_yticks(range(len(rows)), rows)
        axis.set_xlabel("key")
        axis.set_ylabel("query")
    save(figure, "masks")


def schedule():
    """The learning rate with three warm-ups."""
    steps = np.arange(20_000)
    figure, axis = plt.subplots(figsize=(7, 2.8), layout="constrained")
    for warmup in (2000, 4000, 8000):
        rates = keras_tfmr.NoamSchedule(d_model=512, warmup_steps=warmup)(steps)
        axis.plot(steps, np.asarray(rates), label=f"warm-up {warmup:,}")
    axis.set_xlabel("update")
    axis.set_ylabel("learning rate")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)
    save(figure, "schedule")


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    save(keras_tfmr.plot_positional_encoding(keras_tfmr.positional_encoding(128, 128)), "positions")
    six_steps()
    masks()
    schedule()
