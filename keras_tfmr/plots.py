"""Pictures of positions, of attention and of a training, by Matplotlib.

Each function returns a `matplotlib.figure.Figure`, which a notebook shows and `savefig` saves. They
do not use pyplot, because it keeps every figure in memory and needs a display.
"""

import numpy as np
from matplotlib import font_manager
from matplotlib.figure import Figure

_CELL = 0.24  # inches for one token of an attention map
_NUMBERED = 20  # with more classes, the numbers of a confusion matrix would not be legible
_LONGEST = 80  # characters of a text that is drawn
_UNKNOWN = "\N{REPLACEMENT CHARACTER}"


def plot_positional_encoding(encoding):
    """Position vectors as an image: position to the right, depth upwards.

    Args:
        encoding: float `[length, d_model]`, such as `SinusoidalPositions(d_model)(range(length))`.

    Raises:
        ValueError: If `encoding` has another rank.

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.5.

    >>> plot_positional_encoding(np.zeros((50, 16))).axes[0].get_xlabel()
    'position'
    """
    encoding = np.asarray(encoding, "float32")
    if encoding.ndim != 2:
        raise ValueError(f"Expected position vectors [length, d_model]. Received: {encoding.shape}")
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    limit = float(np.abs(encoding).max()) or 1.0
    image = axes.imshow(
        encoding.T, cmap="RdBu", vmin=-limit, vmax=limit, aspect="auto", origin="lower",
        interpolation="nearest",
    )  # fmt: skip
    axes.set_xlabel("position")
    axes.set_ylabel("depth")
    figure.colorbar(image, ax=axes)
    return figure


def plot_attention(scores, source_tokens, target_tokens, *, columns=4, title=None):
    """Attention maps of target tokens, one for each head, darker for greater weights.

    Args:
        scores: float `[heads, target, source]`, attention weights between 0 and 1; or
            `[target, source]`, for one map. For self-attention, give the same tokens twice.
        source_tokens: Strings, the columns of the maps.
        target_tokens: Strings, the rows of the maps.
        columns: Number of maps side by side.
        title: The title above all maps.

    Raises:
        ValueError: If the scores do not have a row and a column for each token.

    >>> figure = plot_attention(np.ones((2, 1, 3)) / 3, ["bom", "dia", "."], ["hello"])
    >>> [axes.get_title() for axes in figure.axes]
    ['head 1', 'head 2', '']
    """
    scores = np.asarray(scores, "float32")
    scores = scores[None] if scores.ndim == 2 else scores
    expected = (len(target_tokens), len(source_tokens))
    if scores.ndim != 3 or scores.shape[1:] != expected:
        raise ValueError(
            f"Expected scores [heads, {expected[0]}, {expected[1]}], by the numbers of target and "
            f"source tokens. Received: shape {scores.shape}"
        )
    (source, target, titles), style = _drawable(source_tokens, target_tokens, [title or ""])
    heads = len(scores)
    columns = min(columns, heads)
    rows = -(-heads // columns)
    width = columns * (1.2 + _CELL * max(4, expected[1])) + 0.8
    height = rows * (1.3 + _CELL * max(3, expected[0])) + (0.4 if title else 0)
    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for head, axes in enumerate(grid[:heads]):
        image = axes.imshow(scores[head], cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
        axes.set_title(f"head {head + 1}" if heads > 1 else "", fontsize=9)
        _label(axes, source, target, style)
    for axes in grid[heads:]:
        axes.set_axis_off()
    figure.suptitle(titles[0], fontsize=10, **style)
    figure.colorbar(image, ax=grid.tolist(), shrink=0.6)
    return figure


def plot_word(scores, tokens, *, title=None):
    """The attention of one token, a row for each layer and head, darker for greater weights.

    Works for self-attention and cross-attention: for example, give
    `np.array(explanation.encoder_heads)[:, :, 3]` for the fourth source token.

    Args:
        scores: float `[layers, heads, key]`, the token's weights between 0 and 1.
        tokens: Strings, one for each key.
        title: The title above the picture.

    Raises:
        ValueError: If the scores do not have a weight for each token.

    >>> figure = plot_word(np.ones((2, 4, 3)) / 3, ["bom", "dia", "."])
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()][:2]
    ['layer 1, head 1', 'head 2']
    """
    scores = np.asarray(scores, "float32")
    if scores.ndim != 3 or scores.shape[-1] != len(tokens):
        raise ValueError(
            f"Expected scores [layers, heads, {len(tokens)}], by the number of tokens. "
            f"Received: shape {scores.shape}"
        )
    layers, heads, keys = scores.shape
    names = [
        f"head {head + 1}" if head else f"layer {layer + 1}, head 1"
        for layer in range(layers)
        for head in range(heads)
    ]
    figure = plot_attention(scores.reshape(-1, keys), tokens, names, title=title)
    for layer in range(1, layers):
        figure.axes[0].axhline(layer * heads - 0.5, color="0.4", linewidth=0.8)
    return figure


def _label(axes, columns, rows, style):
    """Puts texts on both axes."""
    axes.set_xticks(range(len(columns)), columns, fontsize=8, **style)
    axes.tick_params(axis="x", rotation=60)
    for label in axes.get_xticklabels():
        label.set(ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(rows)), rows, fontsize=8, **style)
    axes.tick_params(length=0)


def _drawable(*lists):
    """Lists of texts as a figure can draw them, and the properties to draw them with.

    Any text is one: a line, cut where it is long, no formula, in installed fonts that have its
    characters. What no font has is drawn as a replacement character.
    """
    lists = [[" ".join(text.split()) for text in texts] for texts in lists]
    missing = {char for texts in lists for text in texts for char in text}
    families = [font_manager.FontProperties().get_name()]
    first = font_manager.findfont(families[0])
    fonts = {first: families[0]} | {e.fname: e.name for e in font_manager.fontManager.ttflist}
    for path, name in fonts.items():
        if "Emoji" in name or "Last Resort" in name:  # pictures, and boxes for every character
            continue
        known = font_manager.get_font(path).get_charmap().keys() if missing else ()
        if undrawable := {char for char in missing if ord(char) in known and char.isprintable()}:
            families.append(name)
            missing -= undrawable
    unknown = dict.fromkeys(map(ord, missing), _UNKNOWN)
    shown = [[_cut(text.translate(unknown)) for text in texts] for texts in lists]
    return shown, {"parse_math": False, "fontfamily": families}


def _cut(text):
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def plot_curves(rows, *, scores=("bleu", "chrf"), title=None):
    """The loss of a training and its scores on validation texts, against its minutes.

    Args:
        rows: Dictionaries with "minutes", and "loss" and any of the scores; a curve skips rows
            without its value.
        scores: Names of the scores, which are on the right axis.
        title: The title above the curves.

    >>> figure = plot_curves([{"minutes": 1, "loss": 5.0}, {"minutes": 2, "loss": 4.0, "bleu": 3}])
    >>> [axes.get_ylabel() for axes in figure.axes]
    ['loss (nats a token)', 'validation score']
    """
    figure = Figure(figsize=(7.2, 3.8), layout="constrained")
    left = figure.add_subplot(xlabel="minutes", ylabel="loss (nats a token)")
    right = left.twinx()
    right.set_ylabel(scores[0] if len(scores) == 1 else "validation score")
    for number, name in enumerate(("loss", *scores)):
        points = [(row["minutes"], row[name]) for row in rows if row.get(name) is not None]
        if points:
            axes, marker = (right, "o") if number else (left, None)
            axes.plot(*zip(*points, strict=True), color=f"C{number}", marker=marker, label=name)
    for axes in (left, right):
        axes.set_ylim(bottom=0)
    left.grid(alpha=0.3)
    right.legend(handles=[*left.lines, *right.lines], loc="center right")
    (titles,), style = _drawable([title or ""])
    figure.suptitle(titles[0], **style)
    return figure


def plot_confusion(table, names):
    """A confusion matrix, each row in shares of its label.

    Args:
        table: int `[classes, classes]`: expected classes by found classes.
        names: The names of the classes.

    >>> plot_confusion(np.array([[3, 1], [0, 2]]), ["good", "bad"]).axes[0].get_xlabel()
    'found'
    """
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    (names,), style = _drawable(names)
    size = 2.2 + 0.42 * len(names) + 0.06 * max(map(len, names))
    figure = Figure(figsize=(size + 0.6, size), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    _label(axes, names, names, style)
    axes.set_xlabel("found")
    axes.set_ylabel("expected")
    if len(names) <= _NUMBERED:
        for (row, column), count in np.ndenumerate(table):
            if count:
                dark = shares[row, column] > 0.5
                axes.text(column, row, str(count), ha="center", va="center", fontsize=7,
                          color="white" if dark else "black")  # fmt: skip
    figure.colorbar(image, ax=axes, shrink=0.6, label="fraction of the label")
    return figure
