"""The picture of a confusion matrix."""

import numpy as np
from matplotlib.figure import Figure

NUMBERED = 20  # with more labels, the numbers would not be legible


def plot_confusion(table, names):
    """A confusion matrix, each row in shares of its label.

    Args:
        table: int `[classes, classes]`: expected classes by found classes.
        names: The names of the classes.

    Returns:
        A Matplotlib figure.

    >>> figure = plot_confusion(np.array([[3, 1], [0, 2]]), ["a", "b"])
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['a', 'b']
    """
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    size = 2.2 + 0.42 * len(names)
    figure = Figure(figsize=(size + 0.6, size), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    escaped = [name.replace("$", r"\$") for name in names]
    axes.set_xticks(range(len(names)), escaped, rotation=60, ha="right", fontsize=8)
    axes.set_yticks(range(len(names)), escaped, fontsize=8)
    axes.set_xlabel("found")
    axes.set_ylabel("expected")
    if len(names) <= NUMBERED:
        for (row, column), count in np.ndenumerate(table):
            if count:
                dark = shares[row, column] > 0.5
                axes.text(column, row, str(count), ha="center", va="center", fontsize=7,
                          color="white" if dark else "black")  # fmt: skip
    figure.colorbar(image, ax=axes, shrink=0.6, label="share of the label")
    return figure
